"""Spending across runs: a ledger file that belongs to a data set.

A run reserves its whole guarantee in the file before it asks anybody, and settles to what it
spent when it ends, or to nothing if it breaks off before it asks; a run that dies keeps its
reservation, and finds it again when it goes on from its journal. A run that ended and charged
nothing costs nothing, but it published how it ended, and perhaps n: its line still says under
which adjacencies there is a total. Every write replaces the file at once, under a lock, so that two
runs cannot both take the last of a budget.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedhist.base.errors import BudgetExceeded
from fedhist.base.files import locked, write_private
from fedhist.privacy.guarantee import (
    EXACT,
    USER_LEVEL,
    Adjacency,
    Guarantee,
    NoTotalError,
    Release,
    convert,
)
from fedhist.privacy.ledger import SLACK, Entry, Ledger, spent, whole
from simulations.reporting.files import plain
from simulations.reporting.table import Column, Table, print_table

if TYPE_CHECKING:
    from rich.console import Console

FORMAT, READABLE = 2, (1, 2)
"""Written and read: lines of format 1 have no ``null_safe`` and no ``costs``."""

CURRENCIES = ("epsilon", "delta", "rho", "slack")


class CapExceeded(BudgetExceeded):
    """A run would pass the cap of its data set; nobody was asked and nothing is written."""


@dataclass(frozen=True)
class Spending:
    """One run's line in the ledger of a data set.

    ``epsilon``, ``delta``, ``rho``, ``slack``: the cost under ``adjacency``; ``state``: "reserved";
    "spent"; "uncharged", of a run that ended and charged nothing; "refused", of one that published
    nothing; ``run``: of a run with a journal: the journal's name; ``null_safe``: what the protocol
    says of itself: see :mod:`fedhist.privacy.guarantee`; ``costs``: the cost under each adjacency,
    of a run that has ended, where its charges tell it; others are converted.
    """

    when: str
    what: str
    trust: str
    adjacency: str
    epsilon: float
    delta: float
    rho: float
    slack: float
    state: str
    run: str = ""
    null_safe: bool = False
    costs: Mapping[str, Sequence[float]] = field(default_factory=dict)

    @property
    def release(self) -> Release:
        """The run as one release."""
        return Release(self.epsilon, self.delta, self.rho, self.slack)

    def under(self, target: Adjacency) -> Release:
        """State the run under another adjacency.

        Raises NoTotalError if it says nothing there; the run and both adjacencies are named.
        """
        if target.value in self.costs:
            return Release(*self.costs[target.value])
        try:
            source = Adjacency(self.adjacency)
            return convert(self.release, source, target, null_safe=self.null_safe)
        except NoTotalError as e:
            raise NoTotalError(f"{self.what!r} of {self.when[:16]}: {e}") from None


@dataclass(frozen=True)
class Cap:
    """The most that may ever be released from a data set."""

    epsilon: float = math.inf
    delta: float = 1e-5

    def check(self) -> None:
        """Raise ValueError unless epsilon > 0 and 0 <= delta < 1."""
        if not self.epsilon > 0 or not 0 <= self.delta < 1:
            raise ValueError(
                f"a cap needs epsilon > 0 and delta in [0, 1), got {self.epsilon:g}, {self.delta:g}"
            )


class DataLedger:
    """The ledger file of one data set.

    ``path``: made by :meth:`create` or by the first run; JSON.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = str(path)
        self.path = Path(path).resolve()  # one lock, whatever the link is called

    def read(self) -> tuple[Cap, list[Spending]]:
        """Return the cap and the spendings, oldest first.

        Raises ValueError if the file exists and is not a ledger.
        """
        if not self.path.exists():
            return Cap(), []
        if not self.path.is_file():
            raise ValueError(f"{self.path} is not a ledger: it is no file")
        try:
            body = json.loads(self.path.read_text(encoding="utf-8"))
            if body.get("format") not in READABLE:
                raise ValueError(f"format {body.get('format')}, this version reads {FORMAT}")
            cap = Cap(**{k: float(v) for k, v in body["cap"].items()})
            cap.check()
            lines = [Spending(**_numbers(s)) for s in body["spendings"]]
            for s in lines:
                Adjacency(s.adjacency)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise ValueError(f"{self.path} is not a ledger: {e}") from None
        return cap, lines

    def set_cap(self, cap: Cap) -> None:
        """Set the cap; what is spent stays."""
        cap.check()
        with self._locked():
            self._write(cap, self.read()[1])

    def total(self, adjacency: Adjacency | None = None) -> tuple[float, float]:
        """Return (epsilon, delta) of everything released, at the cap's delta.

        ``adjacency``: default: :func:`common_adjacency` of the lines. Raises NoTotalError if a line
        says nothing under that adjacency.
        """
        cap, lines = self.read()
        return _total(lines, cap.delta, adjacency), cap.delta

    def reserve(
        self,
        what: str,
        guarantee: Guarantee,
        run: str = "",
        *,
        ended: bool = False,
        null_safe: bool = False,
    ) -> int:
        """Write a run's whole guarantee down before it starts; returns its line number.

        ``what``: the configuration's name; ``run``: :attr:`server.session.journal.Journal.name` of
        a run with a journal. A run that goes on from its journal repeats what it released, so it
        finds its line again and keeps it; ``ended``: whether that journal says that the run has
        ended. A line that is settled while the journal has not ended is that of a later state: an
        older copy was put back, whose run draws anew, and gets a line of its own; ``null_safe``:
        the protocol's. Raises CapExceeded if the run would pass the cap, or promises nothing per
        user; nothing is written.
        """
        if guarantee.unit != "user":
            raise CapExceeded(f"{self.name}: spending is counted per user, this run is {guarantee}")
        line = Spending(
            time.strftime("%Y-%m-%d %H:%M:%S"),
            what,
            guarantee.trust.value,
            guarantee.adjacency.value,
            **vars(guarantee.cost),
            state="reserved",
            run=run,
            null_safe=null_safe,
        )
        with self._locked():
            cap, lines = self.read()
            of_run = [i for i, s in enumerate(lines) if run and s.run == run]
            if of_run and (ended or lines[of_run[-1]].state == "reserved"):
                return of_run[-1]
            after = _total([*lines, line], cap.delta)
            if after > cap.epsilon * SLACK:
                raise CapExceeded(
                    f"{self.name}: this run would bring what is released to epsilon = {after:g} "
                    f"at delta = {cap.delta:g}; the cap is {cap.epsilon:g} and "
                    f"{_total(lines, cap.delta):g} is spent"
                )
            self._write(cap, [*lines, line])
            return len(lines)

    def settle(self, number: int, ledger: Ledger | None) -> None:
        """Replace a reservation by what the run spent.

        ``ledger``: of the session, which has ended; None if there was none, or it published
        nothing.
        """
        entries = ledger.entries if ledger is not None else ()
        costs = _costs(ledger) if ledger is not None and entries else {}
        ended = "spent" if entries else "uncharged"
        with self._locked():
            cap, lines = self.read()
            own = costs.get(lines[number].adjacency)  # releases under others cost more under it
            cost = whole(entries) if own is None else Release(*own)
            lines[number] = replace(
                lines[number],
                **vars(cost),
                state=ended if ledger is not None else "refused",
                # of no charges every total is 0: what n says is not among them, see convert
                costs=costs,
            )
            self._write(cap, lines)

    def _write(self, cap: Cap, lines: list[Spending]) -> None:
        body = {
            "format": FORMAT,
            "cap": plain(asdict(cap)),
            "spendings": plain([asdict(s) for s in lines]),
        }
        write_private(self.path, json.dumps(body, indent=1, ensure_ascii=False).encode())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            lock = locked(self.path.with_name(self.path.name + ".lock"))
        except OSError as e:
            raise ValueError(f"{self.path} cannot be a ledger: {e.strerror}") from None
        with lock:
            yield


def common_adjacency(lines: Sequence[Spending]) -> Adjacency:
    """Return the adjacency that a total is stated under, of those that all lines reach.

    Replacement if a line that costs something is about that; else adding and removing if all lines
    say something about it, which are stated so or null-safe; else zeroing out.

    >>> common_adjacency([]).value
    'zero-out-user'
    """
    counted = [s for s in lines if s.state != "refused"]
    if any(s.adjacency == Adjacency.REPLACE_USER.value and s.release != EXACT for s in counted):
        return Adjacency.REPLACE_USER
    added = all(s.null_safe or s.adjacency == Adjacency.ADD_REMOVE_USER.value for s in counted)
    return Adjacency.ADD_REMOVE_USER if counted and added else Adjacency.ZERO_OUT_USER


def _total(lines: Sequence[Spending], delta: float, adjacency: Adjacency | None = None) -> float:
    """Epsilon of all lines under one adjacency."""
    target = adjacency or common_adjacency(lines)
    entries = [
        Entry(s.what, s.under(target), adjacency=target) for s in lines if s.state != "refused"
    ]
    return spent(entries, delta).epsilon


def _numbers(body: dict[str, Any]) -> dict[str, Any]:
    """Read a line; of an earlier version it carries a hash, which is left out."""
    read = {k: float(v) if k in CURRENCIES else v for k, v in body.items() if k != "chain"}
    costs = {a: [float(x) for x in cost] for a, cost in body.get("costs", {}).items()}
    return read | {"costs": costs}


def _costs(ledger: Ledger) -> dict[str, list[float]]:
    """State a run as one release under each adjacency that it says something about."""
    out = {}
    for adjacency in USER_LEVEL:
        with suppress(NoTotalError):
            cost = whole(ledger.under(adjacency))
            out[adjacency.value] = [getattr(cost, c) for c in CURRENCIES]
    return out


# -- what `fedhist ledger` shows ------------------------------------------------------------------


def print_ledger(console: Console, ledger: DataLedger) -> None:
    """Show what has been released from a data set: in all, and under each adjacency."""
    told = ledger_document(ledger)
    cap, under, lines = ledger.read()[0], told["adjacency"], told["runs"]
    limit = "no cap" if math.isinf(cap.epsilon) else f"the cap is {cap.epsilon:g}"
    notes = [f"released, {under}: {_in_words(told['total'])}; {limit}"]
    others = {a: t for a, t in told["totals"].items() if a != under} if lines else {}
    notes += [f"the same, {a}: {_in_words(total)}" for a, total in others.items()]
    if {s["adjacency"] for s in lines} - {under}:
        notes.insert(0, f"mixed adjacencies: all lines are stated under {under}")
    names = ("trust", "adjacency", "epsilon", "delta", "state")
    rows = [[s["when"][:16], s["what"], *(s[n] for n in names)] for s in lines]
    columns = [Column(n, keep=n != "run") for n in ("when", "run", *names)]
    table = Table.of(columns, rows, notes=notes)
    print_table(console, table)


def ledger_document(ledger: DataLedger) -> dict[str, Any]:
    """Return the same as data: a total is null where a line says nothing under an adjacency."""
    cap, lines = ledger.read()

    def total(a: Adjacency) -> dict[str, float] | None:
        try:
            return dict(zip(("epsilon", "delta"), ledger.total(a), strict=True))
        except NoTotalError:
            return None

    under = common_adjacency(lines)
    return {
        "cap": asdict(cap),
        "adjacency": under.value,
        "total": total(under),
        "totals": {a.value: total(a) for a in USER_LEVEL},
        "runs": [asdict(line) for line in lines],
    }


def _in_words(total: Mapping[str, float] | None) -> str:
    if total is None:
        return "no total; a run says nothing about it"
    return f"epsilon = {total['epsilon']:.6g} at delta = {total['delta']:g}"
