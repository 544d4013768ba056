"""Whether users without a trusted server vote or search; from public numbers only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedhist.protocols.quantiles.search import Search
from fedhist.protocols.quantiles.theory import Ranks
from fedhist.protocols.quantiles.votes import Votes

DRAWS = 40
"""Of the votes, for a choice."""


@dataclass(frozen=True)
class Plan:
    """How users are asked, the fewest for whom it is done, and the error that is planned."""

    method: Votes | Search
    least_users: int
    error: float


@lru_cache(maxsize=256)
def planned(
    kind: str, n_users: int, epsilon: float, levels: tuple[float, ...], n_bins: int
) -> Plan:
    """Choose the method of a kind that predicts the least error for users spread evenly.

    Of those that have users enough, if any has.
    """
    q = np.array(levels)
    able: list[Votes | Search] = []
    if kind in ("auto", "votes"):
        able.append(Votes(epsilon, q, n_bins))
    if kind in ("auto", "search"):
        able.append(Search(epsilon, q, n_bins, n_users))
    enough = [m for m in able if m.least_users <= n_users]
    least = math.ceil(min(1e300, *(m.least_users for m in able)))
    if not enough:
        return Plan(able[0], least, 1.0)
    even = Ranks.even(n_users, n_bins, q)
    errors = [planned_error(m, even) for m in enough]
    error = min(errors)
    return Plan(enough[errors.index(error)], least, error)


def planned_error(method: Votes | Search, even: Ranks) -> float:
    """Predict the error of a method for a choice."""
    return method.expected(even, DRAWS) if isinstance(method, Votes) else method.expected(even)
