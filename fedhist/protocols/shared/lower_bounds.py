"""Lower bounds beside what a local protocol promises: from its public numbers and its users.

No protocol under the same guarantee can beat a bound on all populations.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from fedhist.model.prediction import LowerBound
from fedhist.model.protocol import Protocol
from fedhist.privacy.guarantee import Guarantee, Trust
from fedhist.protocols.shared.sample_sizes import Held
from server.means.lower_bounds import Sizes, coins, two_point_bound, waves


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
    guarantee: Guarantee,
    held: Held,
    half_width: float,
    samples: float,
    n_users: float,
    loss: str,
) -> tuple[LowerBound, ...]:
    """Return the bound on the squared l2 error of a mean. NOT PRIVATE: it counts samples.

    ``half_width`` is that of a coordinate's range, or the radius of a ball; ``samples`` are the
    planned ones of a user, 0 where there is no such number.
    """
    if not covered(guarantee):
        return ()
    sizes = sizes_of(held, samples, n_users)
    value = half_width**2 * two_point_bound(sizes, float(guarantee.epsilon), coins())
    source = "two hypotheses (Le Cam) about one coordinate, items +-1"
    return (LowerBound(loss, value, source=source),)


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
    source = "two hypotheses (Le Cam): 1 +- D sqrt2 cos(2 pi x)"
    return (LowerBound(loss, value, source=source),)


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
    source = "two hypotheses (Le Cam) about two symbols"
    return (LowerBound(loss, value, source=source),)


def planned_sizes(protocol: Protocol) -> tuple[float, float]:
    """Return the samples per user and the users that a protocol plans with; 0 if it does not."""
    size, n = (getattr(protocol, name, None) for name in ("samples_per_user", "n_users"))
    return float(size or 0.0), float(n or 0.0)
