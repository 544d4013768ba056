"""Several statistics of the same users under one budget: tables [[release]] beside [run].

A release is an ordinary run of an ordinary protocol, with its share of the budget, over one column
of the population. All of them stand on one line of the data set's ledger, their journals lie in one
folder, and so do their results. [protocol] holds the budget of all.

The adjacency of the whole is replacement if one release is about that. What a release costs under
it follows from :mod:`fedhist.privacy.guarantee`: where that is two steps, the release gets half of
its share.

Local releases either answer one after the other, so that a user pays for all, or are asked of
disjoint cohorts, each with the budget of all local releases. Public numbers decide: see
:func:`gain_of_cohorts`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from fedhist.base.hashing import digest64
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.registry import load_plugin, parameters, protocol_class
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import LEAST_DELTA, Adjacency, Guarantee, Trust, convert, pure
from fedhist.privacy.guarantee import Release as Cost
from fedhist.privacy.ledger import SLACK, Entry, spent, whole
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard
from simulations.config.reading import (
    Delta,
    Must,
    Positive,
    Settings,
    as_table,
    check_keys,
    one_of,
    read,
    reading,
)
from simulations.populations import Loaded
from simulations.populations.files import Column
from simulations.runs.by_group import ByGroup, charged_by_group, planned_by_group
from simulations.runs.columns import KIND, Columns
from simulations.runs.config import Config, Prepared, RunTable, prepare
from simulations.runs.run import (
    check_population,
    common,
    planned_cost,
    together,
)

COLUMNS = ("item", "count", "value", "top", "domain")
"""Keys of a release that say which column of the population it is about."""

SALT = digest64("fedhist.releases") >> 1
"""Public salt of the cohorts of local releases."""


@dataclass(frozen=True)
class Budget(Settings):
    """The table [protocol] beside releases: what all of them may spend.

    ``epsilon``, ``delta``: of every user, for all releases; ``local``: whether local releases are
    asked of disjoint cohorts, or of all users with a part of epsilon each; "auto" takes what public
    numbers predict to be better.
    """

    table: ClassVar[str] = "protocol"
    epsilon: Annotated[float, Must("positive", lambda e: e > 0)]
    delta: Delta = 0.0
    local: Annotated[str, one_of("auto", "cohorts", "split")] = "auto"


@dataclass(frozen=True)
class Release(Settings):
    """A table [[release]]: a protocol, its column, its share of the budget.

    ``name``: of the protocol, whose own keys stand beside it, but for epsilon and delta; ``label``:
    what tables and errors call it; by default what is estimated, and of which column; ``share``: of
    the budget; all releases name one, or none does and they are equal; ``by``: of the users'
    groups; each user is in one at most; ``groups``: the public groups that are asked about;
    ``column``: the keys :data:`COLUMNS`; ``own``: the protocol's keys.
    """

    table: ClassVar[str] = "release"
    many: ClassVar[bool] = True
    name: str
    label: str = ""
    share: Positive | None = None
    by: Column | None = None
    groups: tuple[str, ...] = ()
    column: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Release:
        """Sort the keys of a table."""
        ours = [k for k in ("name", "label", "share", "by", "groups") if k in table]
        if "name" not in table:
            raise ValueError("[[release]] needs the key 'name': that of a protocol")
        if bad := [k for k in ("epsilon", "delta") if k in table]:
            raise ValueError(f"release.{bad[0]}: a release has a share of [protocol] {bad[0]}")
        listed = isinstance(table.get("domain"), list)
        column = {k: table[k] for k in COLUMNS if k in table and not (listed and k == "domain")}
        own = {k: v for k, v in table.items() if k not in ours and k not in column}
        made = read(cls, {k: table[k] for k in ours} | {"column": column, "own": own})
        if ("item" in column) == ("value" in column):
            raise ValueError(f"release {made.name!r} needs a column: item or value, one of them")
        if made.groups and made.by is None:
            raise ValueError(f"release {made.name!r}: groups need by, the column that holds them")
        target, by = protocol_class(made.name).target, "" if made.by is None else f" by {made.by}"
        of = column.get("item", column.get("value"))
        named = f"{target} of {', '.join(map(str, of)) if isinstance(of, list) else of}{by}"
        return replace(made, label=made.label or named)

    @property
    def takes_delta(self) -> bool:
        """Whether it can spend delta."""
        of_shuffler = self.own.get("trust") == Trust.SHUFFLE.value
        return of_shuffler or "delta" in parameters(protocol_class(self.name))


@dataclass(frozen=True)
class Part:
    """One release, ready to run.

    ``jobs``: one run, or one for each group; ``whole``: the column of all users, of whom the jobs
    may have a cohort; ``by``: of a release by group, but of items, which are pairs then.
    """

    label: str
    jobs: tuple[Prepared, ...]
    whole: Loaded
    cohort: Cohort | None = None
    by: ByGroup | None = None

    @property
    def asked(self) -> Protocol:
        """The protocol that the release names."""
        return self.protocol if self.by is None else self.by.asked

    @property
    def protocol(self) -> Protocol:
        """The protocol that runs."""
        return self.jobs[0].protocol

    @property
    def central(self) -> bool:
        """Whether each group has a run of its own."""
        return self.by is not None and self.asked.guarantee.trust is Trust.CENTRAL

    @property
    def scale(self) -> float:
        """What a cohort's total is multiplied by to be one of all users."""
        total = self.protocol.estimates in (Truth.TOTAL, Truth.HOLDERS)
        return len(self.whole.users) / len(self.users) if total else 1.0

    @property
    def users(self) -> Shard:
        """Who is asked."""
        return users_of(self.jobs[0])

    def planned(self, adjacency: Adjacency) -> Cost:
        """State what it may cost."""
        return (planned_by_group if self.central else planned_cost)(self.protocol, adjacency)

    def charges(self, estimates: Sequence[Estimate], adjacency: Adjacency) -> list[Entry]:
        """Return what it has spent: of a cohort, by that cohort."""
        ledgers = [e.ledger for e in estimates if e.ledger is not None]
        if self.central:
            entry = charged_by_group(self.label, ledgers, adjacency)
            return [replace(entry, null_safe=self.asked.null_safe)]
        entries = [e for ledger in ledgers for e in ledger.entries]
        if self.cohort is None or not entries:
            return [replace(e, label=f"{self.label}: {e.label}") for e in entries]
        return [Entry(self.label, whole(entries), self.cohort, entries[0].adjacency)]


def users_of(job: Prepared) -> Shard:
    """Return who is asked by a run."""
    if job.plan is None:
        raise ValueError("releases are of users who are here")
    return job.plan.users


@dataclass(frozen=True)
class Planned:
    """Releases ready to run: nobody was asked yet.

    ``guarantee``: of all together; ``how_local``: what local releases do, in words, "" where there
    are not two of them.
    """

    name: str
    run: RunTable
    guarantee: Guarantee
    parts: tuple[Part, ...]
    how_local: str

    @property
    def n_users(self) -> int:
        """How many users there are."""
        return len(self.parts[0].whole.users)

    @property
    def null_safe(self) -> bool:
        """Whether all of them are, as they were asked for: plans may use the number of users."""
        return all(p.asked.null_safe for p in self.parts)


def plan_releases(tables: Mapping[str, Any], source: str | Path, name: str) -> Planned:
    """Read the columns, share the budget, build the protocols.

    ``tables``: of the file, see :mod:`simulations.runs.config`; ``source``: its place, which
    plugins are relative to. Raises ValueError and PopulationError, with the key, the column or the
    release, before anything is asked or spent.
    """
    check_keys(tables, ("run", "protocol", "population", "release"), "table beside [[release]]")
    run = read(RunTable, tables.get("run", {}))
    if Path(source).suffix == ".toml":
        run = replace(run, plugins=tuple(str(Path(source).parent / p) for p in run.plugins))
    if run.repeats > 1:
        raise ValueError("run.repeats must be 1 beside [[release]]")
    for plugin in run.plugins:
        load_plugin(plugin)
    budget = read(Budget, tables.get("protocol", {}))
    population = tables.get("population", {})
    if population.get("kind") != KIND:
        raise ValueError(f'population.kind must be "{KIND}" beside [[release]]')
    if not isinstance(tables["release"], list):
        raise ValueError("releases are tables [[release]], in double brackets")
    releases = [Release.of(as_table(t, "[[release]]")) for t in tables["release"]]
    labels = [r.label for r in releases]
    if twice := [x for x in labels if labels.count(x) > 1]:
        raise ValueError(f"two releases are called {twice[0]!r}: give each a label")
    return _Planner(name, run, budget, releases, Columns(population), population).planned()


def shares_of(releases: Sequence[Release]) -> list[float]:
    """Return the share of each release: given by all, and 1 in all, or equal."""
    given = [r.share for r in releases if r.share is not None]
    if not given:
        return [1 / len(releases)] * len(releases)
    if len(given) < len(releases):
        raise ValueError("release.share: give every release a share of the budget, or none")
    if not math.isclose(math.fsum(given), 1.0, rel_tol=1e-9):
        told = " + ".join(f"{s:g}" for s in given)
        raise ValueError(f"release.share: shares must sum to 1, got {told} = {math.fsum(given):g}")
    return given


def _halved(delta: float, epsilon: float, label: str, adjacency: str) -> float:
    """Return the delta of one step, where two of epsilon / 2 each are charged."""
    if math.isinf(epsilon):
        return delta
    one = delta / (1 + math.exp(min(epsilon / 2, 700.0)))
    if delta and one < LEAST_DELTA:
        raise ValueError(
            f"release {label!r} is private under {adjacency}, and a replaced user is two steps: at "
            f"epsilon = {epsilon:g} no delta is left for each. Set its adjacency to replace-user, "
            "or protocol.delta to 0"
        )
    return one


@dataclass(frozen=True)
class _Planner:
    name: str
    run: RunTable
    budget: Budget
    releases: Sequence[Release]
    columns: Columns
    population: Mapping[str, Any]

    def planned(self) -> Planned:
        """Build all parts at their shares, then again at what the whole leaves them."""
        shares, epsilon = shares_of(self.releases), float(self.budget.epsilon)
        takers = [s * r.takes_delta for s, r in zip(shares, self.releases, strict=True)]
        deltas = [self.budget.delta * t / (math.fsum(takers) or 1.0) for t in takers]
        parts = [
            self.part(r, s * epsilon, d)
            for r, s, d in zip(self.releases, shares, deltas, strict=True)
        ]
        asked, run = [p.asked for p in parts], [p.protocol for p in parts]
        adjacency = common(asked)
        cohorts, how_local = self.cohorts(run, shares)
        for i, (r, p) in enumerate(zip(self.releases, run, strict=True)):
            e, d = shares[i] * epsilon, deltas[i]
            if cohorts[i] is not None:
                e *= math.fsum(s for s, c in zip(shares, cohorts, strict=True) if c) / shares[i]
            with reading(f"release {r.label!r}"):
                one = convert(pure(1.0), p.guarantee.adjacency, adjacency, null_safe=p.null_safe)
            if one.epsilon > 1:
                e, d = e / 2, _halved(d, e, r.label, p.guarantee.adjacency.value)
            if one.epsilon > 1 or cohorts[i] is not None:
                parts[i] = self.part(r, e, d, cohorts[i])
        promised = together(asked, epsilon, self.budget.delta)
        planned = Planned(self.name, self.run, promised, tuple(parts), how_local)
        check_planned(planned)
        return planned

    def part(
        self, release: Release, epsilon: float, delta: float, cohort: Cohort | None = None
    ) -> Part:
        """Prepare a release as a run of its own, or one for each group."""
        plan, own = self.columns.plan(release.column), dict(release.own)
        table = {"name": release.name, "epsilon": epsilon}
        table |= {"delta": delta} if release.takes_delta else {}

        def job(plan: Loaded, **more: Any) -> Prepared:
            view = replace(plan, users=plan.users.select(cohort))
            kind = "events" if plan.users.items is not None else "samples"
            population = {**self.population, **release.column, "kind": kind}
            if kind == "events" and "item" not in population:
                population["item"] = population.pop("value")  # cells of numbers
            given = {**table, **own, **more}
            config = Config(f"{self.name}: {release.label}", self.run, given, population)
            return prepare(config, lambda _: view)

        with reading(f"release {release.label!r}"):
            if release.by is None:
                return Part(release.label, (job(plan),), plan, cohort)
            groups = self.columns.groups(release.by, release.groups)
            if plan.users.items is not None:
                items = Keys.of(own.pop("domain")) if "domain" in own else plan.domain
                pairs = None if items is None else groups.domain(items)
                plan = replace(plan, users=groups.pairs(plan.users), domain=pairs)
                return Part(release.label, (job(plan),), plan, cohort)
            first = job(plan)
            asked = first.protocol
            by = ByGroup(groups, asked, plan.users)
            if asked.guarantee.trust is Trust.LOCAL:
                own.clear()
                table["name"] = "frequency-oracle"
                cells = replace(plan, users=by.cells, domain=by.domain)
                return Part(release.label, (job(cells),), cells, cohort, by)
            hidden: dict[str, Any] = {"adjacency": Adjacency.ADD_REMOVE_USER.value}
            hidden["n_users"] = max(1, vars(asked)["n_users"] // len(groups.names))
            each = [
                replace(plan, users=groups.only(plan.users, g)) for g in range(len(groups.names))
            ]
            # what was looked at to complete the protocol that was asked for, such as n_users
            looked_at = first.not_private
            jobs = tuple(replace(job(one, **hidden), not_private=looked_at) for one in each)
            return Part(release.label, jobs, plan, cohort, by)

    def cohorts(
        self, protocols: Sequence[Protocol], shares: Sequence[float]
    ) -> tuple[list[Cohort | None], str]:
        """Deal the users out to the local releases, or to none; say which, and why."""
        none: list[Cohort | None] = [None] * len(protocols)
        local = [i for i, p in enumerate(protocols) if p.guarantee.trust is Trust.LOCAL]
        if len(local) < 2 or math.isinf(self.budget.epsilon):
            return none, ""
        total = math.fsum(shares[i] for i in local)
        gain = gain_of_cohorts(
            float(self.budget.epsilon), [shares[i] for i in local], [protocols[i] for i in local]
        )
        ends = np.cumsum([0.0, *(shares[i] / total for i in local)])
        ends[-1] = 1.0
        dealt = [Cohort(SALT, a, b) for a, b in pairwise(ends.tolist())]
        empty = any(not c.contains(self.columns.ids).any() for c in dealt)
        wanted = self.budget.local
        if wanted == "cohorts" and empty:
            raise ValueError("protocol.local: too few users for a cohort of each local release")
        predicted = f"predicted squared error {gain:.3g} times that of a split epsilon"
        if wanted == "split" or (wanted == "auto" and (gain >= 1 or empty)):
            return none, f"local releases split epsilon (disjoint cohorts: {predicted})"
        for i, cohort in zip(local, dealt, strict=True):
            none[i] = cohort
        return none, (
            f"local releases go to disjoint cohorts ({predicted}); intervals may leave out that a "
            "cohort is a sample of the users"
        )


def gain_of_cohorts(
    epsilon: float, shares: Sequence[float], protocols: Sequence[Protocol]
) -> float:
    """Predict the squared error with disjoint cohorts, over that with a split epsilon.

    From public numbers: the geometric mean over the releases. The noise of an epsilon-LDP report
    about a bit, or a number in [0, 1], has the variance v(e) = e^e / (e^e - 1)^2 at least; of one
    about d symbols, 4 v(e) for each. With a split, n users report at the share s of epsilon. In
    cohorts, n s / S report at S epsilon, S the sum of the shares, and are themselves a sample of
    the users: its variance is at most 1 / 4 of that of one number, 1 / d for a symbol.

    >>> from fedhist.protocols import NaiveMean
    >>> pair = [NaiveMean.example(), NaiveMean.example()]
    >>> [round(gain_of_cohorts(e, (0.5, 0.5), pair), 2) for e in (0.5, 2.0, 6.0)]
    [0.51, 0.66, 4.62]
    """

    def noise(e: float) -> float:
        return 0.25 / math.sinh(min(e, 700.0) / 2) ** 2

    total, logs = math.fsum(shares), []
    for share, protocol in zip(shares, protocols, strict=True):
        domain = getattr(protocol, "domain", None)
        times, sampling = (1, 0.25) if domain is None else (4, 1 / len(domain))
        fewer = total / share
        cohort = fewer * times * noise(total * epsilon) + (fewer - 1) * sampling
        logs.append(math.log(cohort / (times * noise(share * epsilon))))
    return math.exp(math.fsum(logs) / len(logs))


def check_planned(planned: Planned) -> None:
    """Refuse releases that are more than their guarantee together, or whose users do not fit."""
    entries = []
    for part in planned.parts:
        cost = part.planned(planned.guarantee.adjacency)
        entries.append(Entry(part.label, cost, part.cohort))
        check_population(part.protocol, part.users, planned.run.options())
    total = spent(entries, planned.guarantee.delta)
    if planned.guarantee.private and total.epsilon > planned.guarantee.epsilon * SLACK:
        raise ValueError(
            f"together the releases would cost epsilon = {total.epsilon:g} at delta = "
            f"{planned.guarantee.delta:g} of {planned.guarantee}: delta must be positive where a "
            "release spends some"
        )
