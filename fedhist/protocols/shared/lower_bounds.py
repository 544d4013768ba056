"""Lower bounds beside what a local protocol promises: from its public numbers and its users.

A bound is explicit, which no protocol under the same guarantee can beat on all populations, or an
order of magnitude with constants of 1, which estimates may cross.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local differential
   privacy", arXiv 2405.11923, Theorems 1, 6, 8 and 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedhist.model.error_bounds import LowerBound
from fedhist.model.protocol import Protocol
from fedhist.privacy.guarantee import Guarantee, Trust
from fedhist.protocols.shared.sample_sizes import Held
from server.means.lower_bounds import (
    Sizes,
    coins,
    rate_ball,
    rate_box,
    rate_density,
    rate_sparse,
    two_point_bound,
    waves,
)

COINS = "two hypotheses (Le Cam) about one coordinate, items +-1"
WAVES = "two hypotheses (Le Cam): 1 +- D sqrt2 cos(2 pi x)"
SYMBOLS = "two hypotheses (Le Cam) about two symbols"
ORDER = "Kent et al., arXiv 2405.11923, {}: order, constants of 1"
LARGE = ", stated for epsilon <= 1"


@dataclass(frozen=True)
class ParameterSet:
    """Where a mean lies, and how many samples tell of it.

    Attributes
    ----------
    geometry : {"box", "ball", "sparse"}
    dimension : int
    half_width : float
        Of the box, or the radius of the ball.
    samples : float
        Planned samples per user; 0 where there is no such number.
    sparsity : int
        For "sparse".
    """

    geometry: Literal["box", "ball", "sparse"]
    dimension: int
    half_width: float
    samples: float = 0.0
    sparsity: int = 0


def covered(guarantee: Guarantee) -> bool:
    """Say whether the bounds are about such a guarantee: every user's own message is private."""
    return guarantee.trust is Trust.LOCAL and guarantee.unit == "user" and guarantee.delta == 0


def sizes_of(found: Held, planned: float, n_users: float = 0.0) -> Sizes:
    """Count users by their numbers of items, those without any left out. NOT PRIVATE.

    Fewer users than the planned number stand for so many.

    A planned number above the average held takes its place: one item may stand for the mean of so
    many, and no bound may be above what such users allow.
    """
    items, users = found.some
    n, times = float(users.sum()), max(1.0, n_users / max(found.n_users, 1))
    if not n or items @ users < planned * n:
        one = np.array([float(math.ceil(max(planned * (1 - 1e-9), 1.0)))])
        return Sizes(one, np.array([times * max(n, 1.0)]))
    return Sizes(items, times * users)


def mean_bounds(
    guarantee: Guarantee, held: Held, where: ParameterSet, n_users: float, loss: str
) -> tuple[LowerBound, ...]:
    """Return the bounds on the squared l2 error of a mean. NOT PRIVATE: it counts samples."""
    if not covered(guarantee):
        return ()
    eps, d, square = float(guarantee.epsilon), where.dimension, where.half_width**2
    sizes = sizes_of(held, where.samples, n_users)
    value = square * two_point_bound(sizes, eps, coins())
    explicit = LowerBound(loss, value, explicit=True, source=COINS)
    if d == 1 or math.isinf(eps):
        return (explicit,)
    n, T = sizes.n, float(np.average(sizes.items, weights=sizes.users))
    if where.geometry == "sparse":
        rate, theorem = rate_sparse(n, T, eps, d, where.sparsity), "Theorem 8"
    else:
        rate = (rate_box if where.geometry == "box" else rate_ball)(n, T, eps, d)
        theorem = "Theorem 6"
    return explicit, _order(loss, square * rate, theorem, eps)


def density_bounds(
    guarantee: Guarantee,
    held: Held,
    planned: tuple[float, float],
    smoothness: float,
    radius: float,
    loss: str,
) -> tuple[LowerBound, ...]:
    """Return the bounds on the integrated squared error of a density. NOT PRIVATE.

    ``planned`` are the samples per user and the users, 0 where there are no such numbers.
    """
    if not covered(guarantee):
        return ()
    eps, sizes = float(guarantee.epsilon), sizes_of(held, *planned)
    # the basis function is the second one, whose coefficient is at most radius / 2^smoothness
    value = two_point_bound(sizes, eps, waves(radius / 2**smoothness))
    explicit = LowerBound(loss, value, explicit=True, source=WAVES)
    if math.isinf(eps):
        return (explicit,)
    T = float(np.average(sizes.items, weights=sizes.users))
    return explicit, _order(loss, rate_density(sizes.n, T, eps, smoothness), "Theorem 9", eps)


def share_bounds(
    guarantee: Guarantee,
    held: Held,
    planned: tuple[float, float],
    loss: str,
    power: Literal[1, 2],
) -> tuple[LowerBound, ...]:
    """Return the bound on the l1 or squared l2 error of the shares of symbols. NOT PRIVATE.

    Of two symbols with shares (1 +- theta) / 2 the difference is theta: its error is at most the
    l1 distance, and its square at most twice the squared l2 distance.
    """
    if not covered(guarantee):
        return ()
    sizes = sizes_of(held, *planned)
    value = two_point_bound(sizes, float(guarantee.epsilon), coins(), power) / power
    return (LowerBound(loss, value, explicit=True, source=SYMBOLS),)


def planned_sizes(protocol: Protocol) -> tuple[float, float]:
    """Return the samples per user and the users that a protocol plans with; 0 if it does not."""
    size, n = (getattr(protocol, name, None) for name in ("samples_per_user", "n_users"))
    return float(size or 0.0), float(n or 0.0)


def _order(loss: str, value: float, theorem: str, epsilon: float) -> LowerBound:
    source = ORDER.format(theorem) + (LARGE if epsilon > 1 else "")
    return LowerBound(loss, value, explicit=False, source=source)
