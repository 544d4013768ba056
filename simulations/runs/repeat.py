"""The same question again next week: one protocol asked many times of users who change.

Fresh collection draws new noise in every period, and what it costs is the ledger's total over all
of them. A *permanent* report [1]_, [2]_ is drawn once for each user and record and sent again as
long as the record stays, or comes back: its coins are a function of the user, the record and the
question. Valid for protocols that ask one question, the same in every period, of reports that are
private as they leave their users.

A user with the records x_1, ..., x_T sends R(x_1), ..., R(x_T), where R(v) is one draw for each of
the k distinct values v, independent of the others. What is seen is a function of the k draws and of
the pattern, which times share a value. Two sequences of ONE pattern differ in k draws at most:
(k epsilon)-DP, and the ledger's composition of k reports. Two sequences of different patterns are
told apart by two reports that differ, which one of them never sends: no epsilon holds. So the
number of values is paid for [3]_, and the pattern is not protected [2]_.

The users: in the first period they are as they were given. Between two periods each leaves with
probability ``leave``, and a new user, with an id of its own, comes in the place; who stays changes
with probability ``change``. The record of who comes or changes is that of a user drawn uniformly
from those that were given, and may be the old one. All draws are independent.

References
----------
.. [1] Erlingsson, Pihur & Korolova, "RAPPOR", CCS 2014, Section 3.
.. [2] Ding, Kulkarni & Yekhanin, "Collecting telemetry data privately", NeurIPS 2017, Section 3.
.. [3] Arcolezi, Couchot, Al Bouna & Xiao, "Improving the utility of locally differentially private
   protocols for longitudinal and multidimensional frequency estimates", DCN 2022.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedhist.base.arrays import Array, Integers
from fedhist.base.hashing import digest64
from fedhist.model.evaluation import measured
from fedhist.model.protocol import EXIT_CODES, Protocol, Status
from fedhist.privacy.guarantee import EXACT, Release, Trust, chance_of_telling
from fedhist.privacy.ledger import Entry, spent, whole
from fedhist.users.batch import Users
from fedhist.users.shards import Shard
from simulations.config.reading import to_toml
from simulations.reporting.pictures import BLACK, ORANGE
from simulations.reporting.shown import Shown
from simulations.reporting.table import Column, Table, number
from simulations.runs.options import Options, Outcome, RepeatTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Execute = Callable[[Protocol, Users, Options], Outcome]
MOST_RECORDS = 1 << 27
FRESH, MEMOIZED = "fresh", "memoized"


@dataclass(frozen=True)
class Period:
    """One period: the users, how many records are new, and each user's distinct records so far."""

    users: Users
    new: int
    values: Integers


def periods(given: Users, law: RepeatTable, seed: int) -> Iterator[Period]:
    """Let users change by the law; NOT PRIVATE."""
    rng = np.random.default_rng(digest64("fedhist.repeat.users", seed))
    n, records = len(given), given.record_words()
    ids, rows = given.ids, np.arange(n)
    since, values = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    past = list[Array]()
    for period in range(law.times):
        moved = np.full(n, period == 0)
        if period:
            came = rng.random(n) < law.leave
            moved = came | (rng.random(n) < law.change)
            ids = np.where(came, rng.integers(1 << 64, size=n, dtype=np.uint64), ids)
            rows = np.where(moved, rng.integers(n, size=n), rows)
            since, values = np.where(came, period, since), np.where(came, 0, values)
        now = records[rows]
        had = np.zeros(n, dtype=np.bool_)
        for earlier, then in enumerate(past):
            had |= (then == now) & (since <= earlier)
        values = values + ~had
        past.append(now)
        yield Period(replace(given.take(rows), ids=ids), int(moved.sum()), values)


def why_fresh(protocol: Protocol, options: Options) -> str:
    """Say why reports cannot be permanent; empty where they can."""
    if protocol.guarantee.trust is not Trust.LOCAL:
        trust = protocol.guarantee.trust.value
        return (
            f"{protocol.name} has {trust} trust: only what is private as it leaves a user is kept"
        )
    if protocol.max_rounds > 1:
        return f"{protocol.name} asks what follows from earlier answers: another question each time"
    if options.clients == "aggregate":
        return 'clients = "aggregate" draws sums: there are no reports to keep'
    return ""


@dataclass
class Way:
    """One way to collect: of each period the error, and the epsilon that is spent by then.

    ``most``: of the user who has spent most, here or gone; ``mean``: of the mean user who is here.
    """

    name: str
    errors: list[float] = field(default_factory=list)
    mean: list[float] = field(default_factory=list)
    most: list[float] = field(default_factory=list)
    estimates: list[Array] = field(default_factory=list)
    status: Status = "ok"
    """The worst that a period ended in."""
    reason: str = ""
    lost: Release = EXACT
    """All that the user who has spent most has lost."""
    together: float = math.nan
    """Error of the mean of all estimates, for the mean of all truths."""


@dataclass(frozen=True, repr=False)
class Repeated(Shown):
    """What a repeated collection has found, and spent. NOT PRIVATE."""

    kind: ClassVar[str] = "repeat"

    protocol: Protocol
    law: RepeatTable
    n_users: int
    ways: Sequence[Way]
    new: Sequence[int]
    delta: float
    why: str
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        """The worst that a period ended in."""
        return max((w.status for w in self.ways), key=lambda s: EXIT_CODES[s])

    @property
    def title(self) -> str:
        """The protocol, the users and how they change."""
        law = self.law
        who = f"{self.protocol.name}, {self.n_users:,} users, {law.times} periods"
        return f"{who}: {law.change:.0%} change, {law.leave:.0%} leave between two"

    def tables(self) -> Sequence[Table]:
        """Return errors and cumulative epsilons, a row for each period."""

        def column(name: str, digits: int) -> Column:
            return Column(name, right=True, write=lambda x: number(x, digits))

        columns = [column("period", 4), column("drawn anew", 9)]
        values: list[Sequence[float]] = [range(1, self.law.times + 1), self.new]
        for way in self.ways:
            columns += [column(f"{way.name} error", 3), column(f"{way.name} epsilon", 4)]
            values += [way.errors, way.most]
            if way.name == MEMOIZED:
                columns += [column("of the mean user", 4)]
                values += [way.mean]
        notes = [
            f"error: {self.protocol.loss_name}; epsilon: what a user has spent so far at most, "
            f"at delta = {self.delta:g}",
            *(f"{w.name}: {self._together(w)}" for w in self.ways if math.isfinite(w.together)),
        ]
        return [Table.of(columns, list(zip(*values, strict=True)), notes=notes)]

    def _together(self, way: Way) -> str:
        one = number(float(np.mean(way.errors)), 3)
        return f"error {one} in a period, {number(way.together, 3)} of the mean over all"

    def sections(self) -> Sequence[tuple[str, Sequence[str]]]:
        """Return what is promised, and what is not."""
        promised = [f"one period: {self.protocol.guarantee}"]
        for way in self.ways:
            chance = chance_of_telling(way.lost)
            what = "neighbouring sequences of records"
            if way.name == MEMOIZED:
                what += " that change, and come back, at the same times"
            promised.append(
                f"{way.name}, after {self.law.times}: epsilon = {number(way.most[-1], 4)}; who "
                f"knows everything else tells two {what} apart with {chance:.1%} at most"
            )
        hidden = ["who takes part, and when"]
        if self.why:
            promised.append(f"no memoized reports: {self.why}")
        else:
            promised.append("memoized: epsilon is that of a user's number of distinct records")
            hidden.append("memoized: that a record changed, when, and when it came back")
        failed = [f"{w.name}: {w.reason}" for w in self.ways if w.reason]
        return [
            ("Periods without an estimate", failed),
            ("What is promised", promised),
            ("What is not hidden", hidden),
        ]

    def document(self) -> dict[str, Any]:
        return super().document() | {"status": self.status}

    def write(self, folder: Path) -> None:
        """Write the configuration, with the seed, and what every folder of results has."""
        super().write(folder)
        if self.settings:
            run = {**self.settings["run"], "seed": self.seed}
            text = to_toml({**self.settings, "run": run})
            (folder / "run.toml").write_text(text, encoding="utf-8")

    def draw(self, figure: Figure) -> None:
        """Draw errors, and cumulative epsilons, over the periods."""
        at = range(1, self.law.times + 1)
        error, epsilon = figure.subplots(1, 2)
        looks = {FRESH: (BLACK, "o"), MEMOIZED: (ORANGE, "s")}
        for way in self.ways:
            colour, marker = looks[way.name]
            error.plot(at, way.errors, color=colour, marker=marker, label=way.name)
            epsilon.plot(at, way.most, color=colour, marker=marker, label=f"{way.name}, most")
            if way.name == MEMOIZED:
                epsilon.plot(at, way.mean, color=colour, ls="--", label=f"{way.name}, mean user")
        for panel, name in ((error, self.protocol.loss_name), (epsilon, "epsilon spent so far")):
            panel.set(xlabel="period", ylabel=name, ylim=(0, None))
            panel.legend()


def repeat(
    execute: Execute,
    protocol: Protocol,
    users: Shard,
    law: RepeatTable,
    options: Options,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Repeated:
    """Collect in every period, with fresh noise and, where it is valid, by permanent reports.

    ``execute`` runs the protocol on the users of a period: :func:`simulations.runs.run.execute`;
    ``progress`` is told of each that has ended.

    Raises ValueError for options that a simulation of repeats does not have.
    """
    for name, usual in (("runtime", "inline"), ("noise", "simulated"), ("journal", None)):
        if (asked := getattr(options, name)) != usual:
            said = f'set run.{name} = "{usual}"' if usual else f"leave run.{name} out"
            raise ValueError(f"a repeat is simulated in this process, with seeds: {said} ({asked})")
    if options.adversaries:
        raise ValueError("a repeat has no adversaries: leave [[adversary]] out")
    delta = law.delta or law.times * protocol.guarantee.delta
    if delta >= 1:
        raise ValueError(f"{law.times} periods add up to delta = {delta:g}: ask less often")
    if len(users) * law.times > MOST_RECORDS:
        raise ValueError(
            f"{law.times:,} periods of {len(users):,} users are more than {MOST_RECORDS:,} records "
            "to remember: take fewer of either"
        )
    given = users.in_memory("a repeated collection")
    seed = options.seed if options.seed is not None else secrets.randbits(62)
    why = why_fresh(protocol, options)
    ways = [Way(FRESH)] if why else [Way(FRESH), Way(MEMOIZED)]
    charged, new, truths = list[Entry](), list[int](), list[Array]()
    costs = list[float]()
    for number_of, period in enumerate(periods(given, law, seed)):
        known = measured(protocol, period.users)
        new.append(period.new)
        truths.append(known.truth)
        for way in ways:
            memoize = way.name == MEMOIZED
            own = seed if memoize else digest64("fedhist.repeat", seed, number_of) >> 1
            asked = replace(options, seed=own, memoize=memoize)
            estimate = execute(protocol, period.users, asked).estimate
            if EXIT_CODES[estimate.status] > EXIT_CODES[way.status]:
                way.status, way.reason = estimate.status, f"{estimate.status}: {estimate.reason}"
            if estimate.value is None:
                way.errors.append(math.nan)
            else:
                way.errors.append(protocol.loss_of(estimate, period.users, known=known))
                way.estimates.append(estimate.value)
            entries = estimate.ledger.entries if estimate.ledger is not None else ()
            if memoize:  # a user with k records has lost what k reports cost
                shares = np.bincount(period.values) / len(given)
                for k in range(len(costs), len(shares)):
                    costs.append(spent([*entries] * k, delta).epsilon)
                    way.lost = whole([*entries] * k)
                way.most.append(costs[-1])
                way.mean.append(float(shares @ costs[: len(shares)]))
            else:
                charged += entries
                way.lost = whole(charged)
                way.most.append(spent(charged, delta).epsilon)
                way.mean.append(way.most[-1])
        progress(number_of + 1, law.times)
    if known.support is None:
        for way in ways:
            if len(way.estimates) == law.times:
                mean = np.mean(way.estimates, axis=0)
                way.together = protocol.loss(mean, np.mean(truths, axis=0))
    return Repeated(protocol, law, len(given), ways, new, delta, why, seed)
