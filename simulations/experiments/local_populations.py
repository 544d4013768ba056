"""Populations of local experiments: each user holds one sample, the mean of T, exact in law.

A protocol of means reads a user's record only through its mean, so that one sample with the law of
the mean of T i.i.d. samples stands for all of them; T is then as large as one likes. (A procedure
that counts the first T* samples of a user is given means of T* samples.) Ids are drawn anew each
time, so that the sizes of cohorts and folds vary as they would. NOT PRIVATE.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Floats
from fedhist.users.batch import Users


def coin_means(n: int, T: int, theta: float, rng: np.random.Generator) -> Users:
    """Make users whose T samples are +-1 with the mean theta.

    >>> users = coin_means(3, 10**9, 0.25, np.random.default_rng(0))
    >>> np.round(users.reals.values[:, 0], 3).tolist()
    [0.25, 0.25, 0.25]
    """
    return box_means(n, T, np.array([theta]), rng)


def box_means(n: int, T: int, theta: ArrayLike, rng: np.random.Generator) -> Users:
    """Make users whose T samples are independent +-1 in every coordinate, with the mean theta.

    ``theta``: (d,) float, in [-1, 1].

    Returns
    -------
    Users
        With (n, d) samples, 2 Bin(T, (1 + theta_j) / 2) / T - 1.
    """
    return users_of(_means(n, T, np.asarray(theta, dtype=np.float64), rng), rng)


def ball_means(n: int, T: int, theta: ArrayLike, rng: np.random.Generator) -> Users:
    """Make users whose T samples lie on the unit sphere: +-d^-1/2 in every coordinate.

    ``theta``: (d,) float, the mean; in [-d^-1/2, d^-1/2].

    Returns
    -------
    Users
        With (n, d) samples.
    """
    root = np.sqrt(np.size(theta))
    return users_of(_means(n, T, root * np.asarray(theta, dtype=np.float64), rng) / root, rng)


def _means(n: int, T: int, theta: Floats, rng: np.random.Generator) -> Floats:
    """Draw means of T samples +-1: (n, d). NumPy sets a binomial up once per call and parameter."""
    out = np.empty((n, len(theta)))
    for mean in np.unique(theta):
        columns = np.flatnonzero(theta == mean)
        out[:, columns] = rng.binomial(T, (1 + mean) / 2, (n, len(columns))) * (2 / T) - 1
    return out


def users_of(means: Floats, rng: np.random.Generator) -> Users:
    """Make users with one sample each, (n, d), under fresh ids."""
    return Users.from_samples(fresh_ids(len(means), rng), np.arange(len(means) + 1), means)


def fresh_ids(n: int, rng: np.random.Generator) -> NDArray[np.uint64]:
    """Draw n consecutive ids from a random start: what is split by them is a salted hash."""
    return np.arange(n, dtype=np.uint64) + np.uint64(rng.integers(0, 1 << 62))
