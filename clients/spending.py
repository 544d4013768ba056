"""What was answered, and what it has cost: one currency, added up.

An entry names the cohort that answered, so what one user has spent is recomputed from the public
user id. A cost is (epsilon, delta) under the adjacency that the owner had chosen; costs under
another are converted before they add up.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Words
from fedhist.base.checks import check_choice
from fedhist.privacy.guarantee import USER_LEVEL, Adjacency, Release, convert
from fedhist.users.cohort import Cohort


@dataclass(frozen=True)
class Answered:
    """One answered query: its digest, its cost to each user of its cohort, and the cohort.

    The cost is (epsilon, delta) under the adjacency. Of a series that is paid for with its first
    question, also its name and the question's place.
    """

    digest: str
    epsilon: float
    salt: int = -1
    lo: float = 0.0
    hi: float = 1.0
    series: str = ""
    place: int = -1
    delta: float = 0.0
    adjacency: str = Adjacency.REPLACE_USER.value

    def __post_init__(self) -> None:
        numbers = (self.epsilon, self.delta, self.lo, self.hi)
        if not isinstance(self.digest, str) or not all(type(x) in (int, float) for x in numbers):
            raise TypeError(f"not an answered query: {self.digest!r}, {numbers}")
        if not (self.epsilon >= 0 and self.delta >= 0):
            raise ValueError(f"an answer cannot cost ({self.epsilon}, {self.delta})")
        check_choice("adjacency", self.adjacency, tuple(a.value for a in USER_LEVEL))
        if type(self.salt) is not int or self.salt < -1 or not 0 <= self.lo <= self.hi <= 1:
            raise ValueError(f"not a cohort: {self.salt}, {self.lo}, {self.hi}")
        if not isinstance(self.series, str) or type(self.place) is not int:
            raise TypeError(f"not a place in a series: {self.series!r}, {self.place!r}")

    @property
    def cohort(self) -> tuple[int, float, float]:
        """The cohort that answered."""
        return self.salt, self.lo, self.hi

    def covers(self, ids: Words) -> NDArray[np.bool_]:
        """Say which users answered."""
        if self.salt < 0:
            return np.ones(len(ids), dtype=bool)
        return Cohort(self.salt, self.lo, self.hi).contains(ids)

    def to_json(self) -> str:
        """Encode for the store; what says nothing is left out."""
        always = ("digest", "epsilon", "salt", "lo", "hi")
        body = {k: v for k, v in asdict(self).items() if k in always or v != getattr(Answered, k)}
        return json.dumps(body, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Answered:
        """Decode from the store."""
        body: dict[str, Any] = json.loads(text)
        return cls(**body)


@dataclass(frozen=True, eq=False)
class Spending:
    """What was answered, with what each answer cost under one adjacency: (n, 2)."""

    answered: Sequence[Answered]
    costs: NDArray[np.float64]

    @classmethod
    def of(cls, answered: Sequence[Answered], adjacency: Adjacency) -> Self:
        """Convert what was paid; NoTotalError if that says nothing under the adjacency."""
        costs = np.zeros((len(answered), 2))
        for row, a in zip(costs, answered, strict=True):
            if a.epsilon:
                r = convert(Release(a.epsilon, a.delta), Adjacency(a.adjacency), adjacency)
                row[:] = r.epsilon, r.delta
        return cls(answered, costs)

    def by_user(self, ids: Words) -> NDArray[np.float64]:
        """Epsilon and delta that each user has spent: (n, 2)."""
        total = np.zeros((len(ids), 2))
        for a, cost in zip(self.answered, self.costs, strict=True):
            if cost.any():
                total += np.where(a.covers(ids)[:, None], cost, 0.0)
        return total

    def by_anybody(self, asked: Answered) -> NDArray[np.float64]:
        """Bound what a user of the cohort of ``asked`` has spent, whoever is on the node: (1, 2).

        A function of cohorts alone. Hashes of two salts say nothing of each other, so their bounds
        add up. Intervals of one salt that share a point share the lower end of one of them.
        """
        total = np.zeros((1, 2))
        spans = np.array([(a.lo, a.hi) for a in self.answered]).reshape(-1, 2)
        salts = np.array([a.salt for a in self.answered])
        for salt in set(salts.tolist()):
            of = salts == salt
            lo, hi = spans[of].T
            low, high = (asked.lo, asked.hi) if asked.salt == salt else (0.0, 1.0)
            at = np.append(lo[(lo > low) & (lo < high)], low)[:, None]
            met = (lo <= at) & (at < hi)
            total += np.where(met[:, :, None], self.costs[of], 0.0).sum(axis=1).max(axis=0)
        return total
