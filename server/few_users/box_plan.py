"""The plain branches of a mean from few users: their noise and radii, from public numbers."""

from __future__ import annotations

import math
from functools import lru_cache

from fedhist.privacy.guarantee import Adjacency
from server.central_means.noise import SumNoise, sum_noise
from server.central_means.two_looks import TwoLooks

BOXES = ("box", "box-centre", "drawn")
"""Branches of noise on clipped means: one look over the box, or one there and one around it, within
a public radius, or one or two within drawn ones."""

SHARES = {"box": (1.0,), "box-centre": (0.25, 0.75)}
"""Of the budget, look by look."""

DRAWN = 1.2
"""By how much a drawn radius and its grid raise the noise, on users who are as they should be."""

THIRD = 0.85
"""A third look shall lower the noise to this: it costs users who differ more a tenth."""


def look_noise(
    method: str, epsilon: float, delta: float, dimension: int, *, discrete: bool = False
) -> SumNoise:
    """Choose the noise of a branch's looks.

    >>> round(look_noise("box", 1.0, 1e-6, 40).std(), 3)
    8.449
    """
    adjacency, shares = Adjacency.REPLACE_USER, SHARES[method]
    return sum_noise(epsilon, delta, dimension, adjacency, shares=shares, discrete=discrete)


def looks(
    method: str,
    n_users: int,
    dimension: int,
    radius: float,
    box: float,
    noise: SumNoise,
    corrupted: float = 0.0,
) -> tuple[float, float]:
    """Return the last look's radius and the predicted root mean square l2 error.

    The error includes the users' own spread. The second radius holds a typical user and the first
    mean's error; corrupted users pull with all that they may send.
    """
    shares, far = SHARES[method], corrupted * 2 * box

    def error(within: float, share: float) -> float:
        return math.sqrt(dimension) * within * noise.std(share) / n_users

    first, spread = error(box, shares[0]), radius / math.sqrt(n_users)
    if method == "box":
        return box, math.hypot(first, spread) + far
    second = min(math.hypot(1.2 * radius, first) + far, box)
    return second, math.hypot(error(second, shares[1]), spread) + corrupted * second


@lru_cache
def drawn_looks(
    n_users: int,
    dimension: int,
    radius: float,
    box: float,
    epsilon: float,
    delta: float,
    *,
    discrete: bool = False,
) -> TwoLooks:
    """Share the budget of "drawn" under replacement: two looks, or three where these do better."""
    replace = Adjacency.REPLACE_USER
    two, three = (
        TwoLooks(n_users, dimension, box, epsilon, delta, replace, discrete=discrete, near=near)
        for near in (None, radius)
    )
    better = (
        three.worthwhile and _last_noise(three, radius)[1] < THIRD * _last_noise(two, radius)[1]
    )
    return three if better else two


def drawn_error(looks: TwoLooks, radius: float, corrupted: float = 0.0) -> tuple[float, float]:
    """Return the last look's radius and the predicted root mean square l2 error, as above."""
    last, noise = _last_noise(looks, radius, corrupted * 2 * looks.half)
    return last, math.hypot(noise, radius / math.sqrt(looks.n_users)) + corrupted * last


def _last_noise(looks: TwoLooks, radius: float, far: float = 0.0) -> tuple[float, float]:
    two = looks.near is None
    last = math.hypot(1.2 * radius, looks.first_error) if two else looks.last_radius
    last = min(last + far, looks.half)
    return last, DRAWN * looks.error(looks.noise, looks.shares[-1]) * last / looks.half
