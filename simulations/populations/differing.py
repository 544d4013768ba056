"""Users who differ: each has a mean, or a distribution, of its own.

One word says how, and one number how much; the average over users stays what it is where all are
alike. Drawn from one seeded generator, vectorised over users.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal

import numpy as np

from fedhist.base.arrays import Array, Floats, Integers

MeansDiffer = Literal["alike", "normal", "beta", "two-clusters", "outliers"]
"""How the users' own means lie around the common one."""
SharesDiffer = Literal["alike", "dirichlet", "two-clusters", "outliers"]
"""How the users' own distributions lie around the common one."""
OUTLIERS = 0.05
"""Share of the users in the far cluster."""
_MIRRORED: Mapping[str, float] = MappingProxyType({"two-clusters": 0.5, "outliers": OUTLIERS})


def own_means(
    users: MeansDiffer,
    mean: Floats,
    spread: float,
    n_users: int,
    low: float,
    high: float,
    rng: np.random.Generator,
) -> Floats:
    """Draw every user's mean; in each coordinate they have the given mean and standard deviation.

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
    n_users : int
    low, high : float
        Range of a mean.
    rng : numpy.random.Generator

    Returns
    -------
    (n_users, d) float64
    """
    shape = n_users, len(mean)
    if users == "normal":
        return np.clip(rng.normal(mean, spread, shape), low, high)
    if users == "beta":
        a, b = beta_shapes((mean - low) / (high - low), spread / (high - low))
        return np.asarray(low + (high - low) * rng.beta(a, b, shape))
    if users in _MIRRORED:
        up = rng.random(n_users) < _MIRRORED[users]
        above, below = cluster_steps(users)
        return np.asarray(mean + spread * np.where(up, above, below)[:, None])
    return np.broadcast_to(mean, shape)


def check_means(users: MeansDiffer, mean: Floats, spread: float, low: float, high: float) -> None:
    """Refuse means and a spread that users in this range cannot have; ValueError says which."""
    if users == "alike":
        return
    if users == "beta":
        m, s = (mean - low) / (high - low), spread / (high - low)
        if (s * s >= m * (1 - m)).any():
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
    total = mean * (1 - mean) / spread**2 - 1
    return mean * total, (1 - mean) * total


def mirrored_share(users: SharesDiffer) -> float:
    """Return the share of the users that take every sample from the mirror image."""
    return _MIRRORED.get(users, 0.0)


def mirrored(users: SharesDiffer, n_users: int, rng: np.random.Generator) -> Array | None:
    """Draw which users take every sample from the mirror image: (n,) bool; None for nobody."""
    if users not in _MIRRORED:
        return None
    return np.asarray(rng.random(n_users) < _MIRRORED[users])


def own_draws(
    rng: np.random.Generator,
    sizes: Integers,
    concentration: float,
    draw: Callable[[int], Array],
) -> tuple[Integers, Array, Integers]:
    """Draw samples of users whose own distributions are Dirichlet around a common one.

    A user's distribution is a Dirichlet process: sticks of a unit length, broken off one after the
    other, with an atom of the common distribution each. Over finitely many symbols with
    probabilities p that is Dirichlet(concentration p). Broken only until the user's samples are
    used up, so that the cost does not depend on the number of symbols.

    Parameters
    ----------
    rng : numpy.random.Generator
    sizes : (n,) int64
        Samples of each user.
    concentration : float
        Two samples of one user are the same atom with probability 1 / (1 + concentration).
    draw : callable
        Draws so many atoms of the common distribution.

    Returns
    -------
    user : (m,) int64
    atom : (m,)
    count : (m,) int64
        Positive. The same user and symbol may stand in several entries.
    """
    left = sizes.copy()
    user, atoms, count = [], [draw(0)], []
    alive = np.flatnonzero(left)
    while len(alive):
        # A stick takes Beta(1, a) = 1 - U^(1/a) of what is left; its atom comes from p.
        share = 1.0 - rng.random(len(alive)) ** (1.0 / concentration)
        taken = rng.binomial(left[alive], share)
        atom = draw(len(alive))
        some = taken > 0
        user.append(alive[some])
        atoms.append(atom[some])
        count.append(taken[some])
        left[alive] -= taken
        alive = alive[left[alive] > 0]
    none = np.empty(0, dtype=np.int64)
    return np.concatenate([none, *user]), np.concatenate(atoms), np.concatenate([none, *count])
