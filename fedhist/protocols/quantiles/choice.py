"""How quantiles are found, with a trusted server and without one; from public numbers only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.privacy.guarantee import Adjacency
from fedhist.protocols.quantiles.exponential import ExponentialLevels
from fedhist.protocols.quantiles.search import Search
from fedhist.protocols.quantiles.theory import Ranks
from fedhist.protocols.quantiles.tree import NoisyCurve
from fedhist.protocols.quantiles.votes import Votes

Mechanism = ExponentialLevels | NoisyCurve
Method = Votes | Search
M = TypeVar("M", ExponentialLevels | NoisyCurve, Votes | Search)
CURVES, VOTES = 60, 40
"""Draws of a curve's noise, and of votes, for a choice."""


@dataclass(frozen=True)
class Choice(Generic[M]):
    """How quantiles are found, the fewest users for whom it is done, the error that is planned."""

    method: M
    least_users: int
    error: float


@lru_cache(maxsize=256)
def chosen(
    kind: str,
    n_users: int,
    epsilon: float,
    delta: float,
    levels: tuple[float, ...],
    n_bins: int,
    adjacency: str,
) -> Choice[Mechanism]:
    """Choose the server's mechanism of a kind: of all, where there are users enough for one."""
    q = np.array(levels)
    given = (epsilon, delta, q, n_bins, Adjacency(adjacency))
    able: list[Mechanism] = []
    if kind in ("auto", "em"):
        able.append(ExponentialLevels(*given))
    if kind in ("auto", "tree"):
        able += [NoisyCurve(*given, "laplace")]
        able += [NoisyCurve(*given, "gaussian")] if delta else []
    some = any(m.least_users <= n_users for m in able)
    return _best(able, able if some else [], n_users, n_bins, q)


@lru_cache(maxsize=256)
def planned(
    kind: str, n_users: int, epsilon: float, levels: tuple[float, ...], n_bins: int
) -> Choice[Method]:
    """Choose how users without a trusted server answer: of a kind, what has users enough."""
    q = np.array(levels)
    able: list[Method] = []
    if kind in ("auto", "votes"):
        able.append(Votes(epsilon, q, n_bins))
    if kind in ("auto", "search"):
        able.append(Search(epsilon, q, n_bins, n_users))
    return _best(able, [m for m in able if m.least_users <= n_users], n_users, n_bins, q)


def _best(
    able: Sequence[M], enough: Sequence[M], n_users: int, n_bins: int, q: Floats
) -> Choice[M]:
    """Take what predicts the least error for users spread evenly over the bins."""
    least = math.ceil(min(1e300, *(m.least_users for m in able)))
    if not enough:
        return Choice(able[0], least, 1.0)
    even = Ranks.even(n_users, n_bins, q)
    errors = [planned_error(m, even) for m in enough]
    error = min(errors)
    return Choice(enough[errors.index(error)], least, error)


def planned_error(method: Mechanism | Method, even: Ranks) -> float:
    """Predict the error for a choice."""
    if isinstance(method, NoisyCurve | Votes):
        return method.expected(even, CURVES if isinstance(method, NoisyCurve) else VOTES)
    return method.expected(even)
