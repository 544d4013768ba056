"""Whether all symbols are so rare that presence is best: a private bound on the largest share.

Presence tells how probable a symbol is only while many users lack it. How many users have the most
widespread symbol is a maximum of counts, which one user moves by at most 1; with noise, and a
margin above it, it bounds every symbol's probability. What presence and counts would then lose is
compared on a Zipf distribution with that largest probability, projection included.
"""

from __future__ import annotations

import math

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.protocols.distributions.given_users import additive_l1, presence_l1
from fedhist.protocols.distributions.mechanisms import MOST_PRESENT, Additive, DistributionTask
from fedhist.session.curator import Curator
from server.distributions.simplex import CMAX

RARE_SHARE = 0.02
"""Part of epsilon for the number of users who have the most widespread symbol."""

MARGIN = 3.0
"""Scales of the noise that are added: it hides more once in forty times."""


def release_largest(
    task: DistributionTask, server: Curator, present: Integers, epsilon: float
) -> float:
    """Release an upper bound on the probability of every symbol, if users are alike.

    Parameters
    ----------
    task : DistributionTask
    server : Curator
    present : (k,) int64
        Users who have each symbol.
    epsilon : float

    Privacy
    -------
    epsilon-DP: under replacement each number of users moves by at most 1, and so does the largest.
    """
    draw = server.discrete_laplace if task.discrete else server.laplace
    most = np.array([int(present.max())])
    noisy = float(draw(most, l1_sensitivity=1, epsilon=epsilon, label="most widespread")[0])
    return largest_share(task, noisy + MARGIN / epsilon)


def largest_share(task: DistributionTask, present: float) -> float:
    """Read a number of users who have a symbol as its probability, at most ``p_max``.

    >>> from fedhist.users.keys import Keys
    >>> task = DistributionTask(Keys.range(5), 2, 100, 1.0, 0.0, 0.0)
    >>> largest_share(task, 75.0)
    0.5
    """
    q = min(max(present / task.n_users, 0.0), 1.0)
    return min(task.p_max, -math.expm1(math.log1p(-q) / task.m) if q < 1 else 1.0)


def tells(task: DistributionTask, largest: float) -> bool:
    """Say whether presence tells how probable such a symbol is."""
    return task.m * largest <= MOST_PRESENT


def zipf_of(k: int, largest: float) -> Floats:
    """Return the Zipf distribution over k symbols with this largest probability: (k,).

    >>> zipf_of(3, 0.5).round(3)
    array([0.5 , 0.29, 0.21])
    """
    ranks = np.log(np.arange(1, k + 1))
    low, high = 0.0, 64.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if 1 / np.exp(-middle * ranks).sum() < largest else (low, middle)
    weights = np.exp(-high * ranks)
    return np.asarray(weights / weights.sum())


def presence_and_counts(
    task: DistributionTask, presence: Additive, counts: Additive, largest: float
) -> tuple[float, float]:
    """Predict the l1 error of both where the largest probability is this, after the projection.

    Against the users' own samples: what of a presence total's variance the mean share explains is
    left out, as in :func:`~fedhist.protocols.distributions.theory.presence_error`.
    """
    p, m, s = zipf_of(task.k, largest), task.m, task.n_users
    lacking = np.exp(m * np.log1p(-np.minimum(p, 1 - 1e-15)))
    shared = m * p * lacking / np.maximum((1 - lacking) * (1 - p), 1e-300)
    std = np.sqrt(s * lacking * (1 - lacking) * np.clip(1 - shared, 0.0, 1.0))
    law = presence.law(task)
    one = presence_l1(p, s * (1 - lacking), std, m, s, law, CMAX, True)
    two = additive_l1(p, s * m * p, np.zeros(task.k), float(s * m), counts.law(task), True)
    return one, two
