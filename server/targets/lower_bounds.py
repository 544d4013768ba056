"""Lower bounds beside what a local protocol promises: from its public numbers and its users.

No protocol under the same guarantee can beat a bound on all populations.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from fedhist.model.protocol import Protocol
from fedhist.model.truths import LowerBound
from fedhist.privacy.guarantee import Guarantee, Trust
from server.targets.sample_sizes import Held
from server.targets.two_points import Sizes, TwoPoints, coins, two_point_bound

Planned = tuple[float, float]


def sizes_of(held: Held, planned: float, n_users: float = 0.0) -> Sizes:
    """Count users by their numbers of items, those without any left out. NOT PRIVATE.

    A planned number above the average held takes its place: one item may stand for the mean of so
    many, and no bound may be above what such users allow. So does a planned number of users.
    """
    items, users = held.some
    n, times = float(users.sum()), max(1.0, n_users / max(held.n_users, 1))
    if not n or items @ users < planned * n:
        one = np.array([float(math.ceil(max(planned * (1 - 1e-9), 1.0)))])
        return Sizes(one, np.array([times * max(n, 1.0)]))
    return Sizes(items, times * users)


def share_bounds(
    guarantee: Guarantee, held: Held, planned: Planned, loss: str, power: Literal[1, 2]
) -> tuple[LowerBound, ...]:
    """Return the bound on the l1 or squared l2 error of the shares of symbols. NOT PRIVATE.

    Of two symbols with shares (1 +- theta) / 2 the difference is theta: its error is at most the
    l1 distance, and its square at most twice the squared l2 distance.
    """
    two = coins(), "about two symbols", 1 / power, power
    return local_bounds(guarantee, held, planned, loss, *two)


def local_bounds(
    guarantee: Guarantee,
    held: Held,
    planned: Planned,
    loss: str,
    points: TwoPoints,
    about: str,
    times: float = 1.0,
    power: int = 2,
) -> tuple[LowerBound, ...]:
    """Bound the error if every user's own message is private. NOT PRIVATE: it counts samples.

    ``planned`` are the samples per user and the users, 0 where there are no such numbers; the error
    is at least ``times`` that of a parameter of two ``points``, to a ``power``.
    """
    if guarantee.trust is not Trust.LOCAL or guarantee.unit != "user" or guarantee.delta:
        return ()
    sizes = sizes_of(held, *planned)
    value = times * two_point_bound(sizes, float(guarantee.epsilon), points, power)
    return (LowerBound(loss, value, source=f"two hypotheses (Le Cam) {about}"),)


def planned_sizes(protocol: Protocol) -> tuple[float, float]:
    """Return the samples per user and the users that a protocol plans with; 0 if it does not."""
    size, n = (getattr(protocol, name, None) for name in ("samples_per_user", "n_users"))
    return float(size or 0.0), float(n or 0.0)
