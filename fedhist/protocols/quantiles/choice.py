"""Which mechanism releases quantiles; from public numbers only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedhist.privacy.guarantee import Adjacency
from fedhist.protocols.quantiles.exponential import ExponentialLevels
from fedhist.protocols.quantiles.theory import Ranks
from fedhist.protocols.quantiles.tree import NoisyCurve

Mechanism = ExponentialLevels | NoisyCurve
DRAWS = 60
"""Of a curve's noise, for a choice."""


@dataclass(frozen=True)
class Choice:
    """What is released, the fewest users that are asked for it, and the error that is planned."""

    mechanism: Mechanism
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
) -> Choice:
    """Choose the mechanism of a kind that predicts the least error for users spread evenly.

    It is asked for where there are users enough for one of the kind.
    """
    given = (epsilon, delta, np.array(levels), n_bins, Adjacency(adjacency))
    able: list[Mechanism] = []
    if kind in ("auto", "em"):
        able.append(ExponentialLevels(*given))
    if kind in ("auto", "tree"):
        able += [NoisyCurve(*given, "laplace")]
        able += [NoisyCurve(*given, "gaussian")] if delta else []
    least = min(m.least_users for m in able)
    if least > n_users:
        return Choice(able[0], least, 1.0)
    even = Ranks.even(n_users, n_bins, given[2])
    errors = [planned_error(m, even) for m in able]
    error = min(errors)
    return Choice(able[errors.index(error)], least, error)


def planned_error(mechanism: Mechanism, even: Ranks) -> float:
    """Predict the error of a mechanism for a choice."""
    if isinstance(mechanism, NoisyCurve):
        return mechanism.expected(even, DRAWS)
    return mechanism.expected(even)
