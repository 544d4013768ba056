"""The plain branches of a mean from few users: their noise and radii, from public numbers."""

from __future__ import annotations

import math

from fedhist.privacy.guarantee import Adjacency
from server.central_means.noise import SumNoise, sum_noise
from server.central_means.two_looks import TwoLooks

BOXES = ("box", "box-centre", "drawn")
"""Branches of noise on clipped means: one look over the box, or one there and one around it, within
a public radius or within a drawn one."""

SHARES = {"box": (1.0,), "box-centre": (0.25, 0.75)}
"""Of the budget, look by look."""

DRAWN = 1.2
"""By how much a drawn radius and its grid raise the noise, on users who are as they should be."""


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


def drawn_looks(
    n_users: int,
    dimension: int,
    box: float,
    epsilon: float,
    delta: float,
    *,
    discrete: bool = False,
) -> TwoLooks:
    """Share the budget of "drawn" under replacement."""
    adjacency = Adjacency.REPLACE_USER
    return TwoLooks(n_users, dimension, box, epsilon, delta, adjacency, discrete=discrete)


def drawn_error(two: TwoLooks, radius: float, corrupted: float = 0.0) -> tuple[float, float]:
    """Return the second look's radius and the predicted root mean square l2 error, as above."""
    far = corrupted * 2 * two.half
    second = min(math.hypot(1.2 * radius, two.first_error) + far, two.half)
    noise = DRAWN * two.error(two.noise, two.shares[1]) * second / two.half
    return second, math.hypot(noise, radius / math.sqrt(two.n_users)) + corrupted * second
