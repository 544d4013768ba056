"""The privacy ledger: what a run has spent, in two currencies, over cohorts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedhist.base.errors import BudgetExceeded
from fedhist.privacy.guarantee import (
    Adjacency,
    Guarantee,
    Moves,
    NoTotalError,
    Release,
    convert,
    zcdp_epsilon,
)
from fedhist.users.cohort import Cohort

SLACK = 1 + 1e-9
"""Relative rounding allowed when a budget is compared with what was spent."""

MOST_COMBINATIONS = 4096


@dataclass(frozen=True)
class Entry:
    """One charge: what was released, at which cost under ``adjacency``, to which users.

    ``null_safe`` is the run's: an empty record changes nothing, and n is neither used nor published
    exactly. ``moves``: how far one user moves the statistic, where it is known.
    """

    label: str
    release: Release
    cohort: Cohort | None = None
    adjacency: Adjacency = Adjacency.REPLACE_USER
    null_safe: bool = False
    moves: Moves | None = None

    def under(self, adjacency: Adjacency) -> Entry:
        """State the charge under another adjacency."""
        try:
            cost = convert(
                self.release,
                self.adjacency,
                adjacency,
                null_safe=self.null_safe,
                moves=self.moves,
            )
        except NoTotalError as e:
            raise NoTotalError(f"{self.label!r}: {e}") from None
        return replace(self, release=cost, adjacency=adjacency)


@dataclass(frozen=True)
class Spent:
    """A total: the basic sum, the zCDP sum, and the smaller epsilon at the delta asked for."""

    epsilon: float
    delta: float
    basic_epsilon: float
    basic_delta: float
    rho: float
    slack: float

    @property
    def how(self) -> str:
        """Which composition gives the epsilon, in words."""
        return "basic composition" if self.epsilon >= self.basic_epsilon else "zCDP composition"


class Ledger:
    """Keeps charges and answers what the worst-off user has spent.

    Basic (epsilon, delta) sums and delta-approximate zCDP are kept side by side; over disjoint
    cohorts the maximum counts, within a cohort the sum. Budgets may follow from what was released:
    a limit on either sum that is fixed beforehand is a guarantee [1]_, [2]_. So is the smaller of
    the two where public numbers say which it is.

    Where a released value decides which of the two keeps the limit, let the outcomes of A be those
    that basic composition covers at delta_A, and those of B the others, which zCDP covers at
    delta_B. A script that stops where it would go on to B is (epsilon, delta_A)-DP, and has the
    law of this one on A; the same of B. An event is its part in A and its part in B: the script is
    (epsilon, delta_A + delta_B)-DP. So it splits its delta between the two; what is pure in A
    needs none. The ledger sees one outcome, and cannot check that.

    A total over runs of which one was chosen by another's results is bounded in the same way: by
    the epsilon at twice the delta.

    A charge that would pass ``limit`` is refused before it is written. The Session sets the grade
    of the ``noise`` that is paid for, "simulated" or "secure", whether runs are ``null_safe``, and
    how sums are made under aggregate trust: ``aggregation``, such as "masked".

    References
    ----------
    .. [1] Rogers, Roth, Ullman & Vadhan, "Privacy odometers and filters: pay-as-you-go
       composition", NeurIPS 2016: basic composition.
    .. [2] Whitehouse, Ramdas, Rogers & Wu, "Fully adaptive composition in differential privacy",
       ICML 2023: zCDP.
    """

    def __init__(self, limit: Guarantee | None = None) -> None:
        self.limit, self.noise, self.null_safe, self.aggregation = limit, "", False, ""
        self._entries: list[Entry] = []

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All charges, in order."""
        return tuple(self._entries)

    @property
    def adjacency(self) -> Adjacency:
        """What the charges are stated under: the limit's adjacency."""
        return Adjacency.REPLACE_USER if self.limit is None else self.limit.adjacency

    def charge(
        self,
        label: str,
        release: Release,
        cohort: Cohort | None = None,
        moves: Moves | None = None,
    ) -> None:
        """Write a charge, or raise BudgetExceeded and write nothing."""
        entry = Entry(label, release, cohort, self.adjacency, self.null_safe, moves)
        if self.limit is not None:
            total = spent([*self._entries, entry], self.limit.delta)
            if not total.epsilon <= self.limit.epsilon * SLACK:
                raise BudgetExceeded(
                    f"{label!r} would bring the total to epsilon = {total.epsilon:.6g} at "
                    f"delta = {self.limit.delta:g}; the guarantee allows {self.limit.epsilon:g}"
                )
        self._entries.append(entry)

    def include(self, entries: Iterable[Entry]) -> None:
        """Add charges that other ledgers have written; BudgetExceeded if they pass the limit."""
        total = [*self._entries, *entries]
        at = [e.under(self.adjacency) for e in total]
        if self.limit is not None and not (
            spent(at, self.limit.delta).epsilon <= self.limit.epsilon * SLACK
        ):
            raise BudgetExceeded(f"{len(total)} charges are more than {self.limit}")
        self._entries = total

    def __repr__(self) -> str:
        n, total = len(self._entries), self.spent()
        charges = f"{n:,} charge{'s' * (n != 1)}"
        return f"<Ledger: {charges}, epsilon = {total.epsilon:.6g} at delta = {total.delta:g}>"

    def spent(self, delta: float | None = None, adjacency: Adjacency | None = None) -> Spent:
        """Total spent at ``delta`` (default: the limit's), under an adjacency (the limit's)."""
        at = delta if delta is not None else (self.limit.delta if self.limit else 0.0)
        return spent(self.under(adjacency or self.adjacency), at)

    def under(self, adjacency: Adjacency) -> list[Entry]:
        """State every charge under an adjacency; NoTotalError if one says nothing there."""
        return [e.under(adjacency) for e in self._entries]


def spent(entries: Sequence[Entry], delta: float) -> Spent:
    """Total of the charges for the worst-off user, as an epsilon at ``delta``."""
    worst: Spent | None = None
    for eps, dlt, rho, slack, other_eps, other_dlt in _totals(entries):
        basic = eps if dlt <= delta * SLACK else math.inf
        # zCDP for what has a rho; what has none is added to its epsilon and delta
        concentrated, left = math.inf, delta - slack - other_dlt
        if rho == 0 and left >= 0:
            concentrated = other_eps
        elif left > 0:
            concentrated = other_eps + zcdp_epsilon(rho, left)
        known = math.inf if other_eps or other_dlt else rho
        total = Spent(min(basic, concentrated), delta, eps, dlt, known, slack)
        if worst is None or total.epsilon > worst.epsilon:
            worst = total
    return worst or Spent(0.0, delta, 0.0, 0.0, 0.0, 0.0)


def whole(entries: Sequence[Entry]) -> Release:
    """Bound a run by one release: no user has spent more of it in any currency."""
    totals = np.array(_totals(entries) or [(0.0,) * 6])
    eps, dlt, rho, slack, other_eps, other_dlt = totals.max(axis=0).tolist()
    return Release(eps, dlt, math.inf if other_eps or other_dlt else rho, slack)


def _totals(entries: Iterable[Entry]) -> list[tuple[float, ...]]:
    """Sum the costs at every atom of the cohorts' intervals; salts combine freely."""
    by_salt: dict[int | None, list[Entry]] = {}
    for e in entries:
        by_salt.setdefault(e.cohort.salt if e.cohort else None, []).append(e)
    choices = []
    for salt, group in by_salt.items():
        cuts = [0.0] if salt is None else sorted({0.0, *(e.cohort.lo for e in group if e.cohort)})
        atoms = []
        for x in cuts:
            inside = [e for e in group if e.cohort is None or e.cohort.lo <= x < e.cohort.hi]
            costs = [_cost(e.release) for e in inside]
            atoms.append(np.sum(costs, axis=0) if costs else np.zeros(6))
        choices.append(atoms)
    if math.prod(len(a) for a in choices) > MOST_COMBINATIONS:
        choices = [[np.max(a, axis=0)] for a in choices]
    return list({tuple(np.sum(c, axis=0).tolist()) for c in itertools.product(*choices) if c})


def _cost(r: Release) -> tuple[float, ...]:
    """List basic (epsilon, delta), (rho, slack) if known, (epsilon, delta) of what has no rho."""
    if math.isfinite(r.rho):
        return r.epsilon, r.delta, r.rho, r.slack, 0.0, 0.0
    return r.epsilon, r.delta, 0.0, 0.0, r.epsilon, r.delta
