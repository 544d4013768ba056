"""Users who differ: each has a mean, or a distribution, of its own.

One word says how, and one number how much; the average over users stays what it is where all are
alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import numpy as np

from fedhist.base.arrays import Floats
from simulations.populations.draws import beta_of, each, normal_of, unit, words

MeansDiffer = Literal["alike", "normal", "beta", "two-clusters", "outliers"]
"""How the users' own means lie around the common one."""
SharesDiffer = Literal["alike", "dirichlet", "two-clusters", "outliers"]
"""How the users' own distributions lie around the common one."""
OUTLIERS = 0.05
"""Share of the users in the far cluster."""
LEAST_BETA = 1e-12
"""Least standard deviation of Beta means, in widths of their range: 1e-13 is lost in roundings."""
_MIRRORED: Mapping[str, float] = MappingProxyType({"two-clusters": 0.5, "outliers": OUTLIERS})


def own_means(
    users: MeansDiffer,
    mean: Floats,
    spread: float,
    low: float,
    high: float,
    key: np.uint64,
    first: int,
    n: int,
) -> Floats:
    """Draw users' means; in each coordinate they have the given mean and standard deviation.

    Parameters
    ----------
    users : str
        "alike": no draw. "normal": independent normals, clipped to the range, which moves their
        mean where they reach it. "beta": Beta(a, b) over the range, skewed near its ends.
        "two-clusters": each half of the users on one side. "outliers": 5 % of the users stand
        sqrt(19) standard deviations above the mean, the others a little below it. A cluster is
        on the same side in all coordinates.
    mean : (d,) float64
    spread : float
        Standard deviation of the users' own means.
    low, high : float
        Range of a mean.
    key : uint64
        Of the draws.
    first, n : int
        Users first, ..., first + n - 1.

    Returns
    -------
    (n, d) float64
    """
    if users == "alike":
        return np.broadcast_to(mean, (n, len(mean)))
    if users in _MIRRORED:
        up = unit(words(key, first, each(n))) < _MIRRORED[users]
        above, below = cluster_steps(users)
        return np.asarray(mean + spread * np.where(up, above, below))
    drawn = words(key, first, each(n), len(mean))
    if users == "normal":
        return np.asarray(np.clip(mean + spread * normal_of(drawn), low, high))
    a, b = beta_shapes((mean - low) / (high - low), spread / (high - low))
    return np.asarray(low + (high - low) * beta_of(drawn, a, b))


def check_means(users: MeansDiffer, mean: Floats, spread: float, low: float, high: float) -> None:
    """Refuse means and a spread that users in this range cannot have; ValueError says which."""
    if users == "alike":
        return
    if users == "beta":
        width = high - low
        if spread < LEAST_BETA * width:
            raise ValueError(
                f'users = "beta" in [{low:g}, {high:g}] have a user_spread of at least '
                f'{LEAST_BETA * width:g}, got {spread:g}; take users = "alike"'
            )
        if 2 * spread >= width or (beta_shapes((mean - low) / width, spread / width)[0] <= 0).any():
            raise ValueError(
                f"users' means in [{low:g}, {high:g}] around {mean.min():g} to {mean.max():g} "
                f"cannot have the standard deviation user_spread = {spread:g}"
            )
    if users in _MIRRORED:
        above, below = cluster_steps(users)
        far, near = mean.max() + spread * above, mean.min() + spread * below
        if near < low or far > high:
            raise ValueError(
                f"the clusters' means reach from {near:g} to {far:g}, outside [{low:g}, {high:g}]"
            )


def cluster_steps(users: str) -> tuple[float, float]:
    """Return where the upper and the lower cluster stand, in standard deviations of all users.

    >>> cluster_steps("two-clusters")
    (1.0, -1.0)
    """
    share = _MIRRORED[users]
    return math.sqrt((1 - share) / share), -math.sqrt(share / (1 - share))


def beta_shapes(mean: Floats, spread: float) -> tuple[Floats, Floats]:
    """Return a and b of the Beta(a, b) with these moments.

    >>> [float(x[0].round(9)) for x in beta_shapes(np.array([0.1]), (0.09 / 7) ** 0.5)]
    [0.6, 5.4]
    """
    total = mean * (1 - mean) / (spread * spread) - 1
    return mean * total, (1 - mean) * total


def mirrored_share(users: SharesDiffer) -> float:
    """Return the share of the users that take every sample from the mirror image."""
    return _MIRRORED.get(users, 0.0)
