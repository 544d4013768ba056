"""What theory predicts where the clipping threshold is itself chosen by the exponential mechanism.

The law of the choice is known exactly, and so is the expected error at every threshold of its grid
(:mod:`fedhist.privacy.noise_law`); the expected error of a whole run is their mixture.
Nothing here is shared with the estimators: norms come from an obvious NumPy path of their own. All
of it reads private data and is for evaluation only.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Sections 4 and 7.1.
.. [2] McSherry & Talwar, "Mechanism design via differential privacy", FOCS 2007.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import softmax

from fedhist.base.arrays import Floats, Integers
from fedhist.privacy.noise_law import NoiseLaw, expected_l1
from fedhist.protocols.shared.clipped_totals import (
    clipped_at,
    clipped_curve,
    totals,
)
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard

STEPS = 2.0**20
"""Slopes are rounded down to so many steps per radius before they are added up."""

MOST_PASSES = 64

NEGLIGIBLE = 1e-12
"""Thresholds that are chosen with a smaller probability are left out of a mixture."""


def tails_of(l1: Floats, l2: Floats, edges: Floats, norm: int, radius: float) -> Floats:
    """Compute S(C), the sum over users with norm > C of min(slope, radius), (K,). NOT PRIVATE.

    Parameters
    ----------
    l1, l2 : (n,) float64
        The users' norms.
    edges : (K,) float64
        Increasing thresholds C, in counts.
    norm : {1, 2}
    radius : float
        Bound on the slope ||N||_1 / ||N||_norm, rounded down to 2^-20 of it; 0 counts users.

    Examples
    --------
    >>> tails_of(np.array([4.0, 2.0]), np.array([4.0, 2.0]), np.array([1.0, 3.0]), 2, 1.0)
    array([2., 1.])
    """
    return np.asarray(tails_in_steps(l1, l2, edges, norm, radius) * step_of(radius))


def step_of(radius: float) -> float:
    """Return what slopes are rounded to; 1 where users are counted."""
    return radius / STEPS if radius else 1.0


def tails_in_steps(l1: Floats, l2: Floats, edges: Floats, norm: int, radius: float) -> Integers:
    """Compute :func:`tails_of` in steps: (K,) int64, which add up over users."""
    size, weight = l1 if norm == 1 else l2, None
    if radius:
        slope = np.divide(l1, size, out=np.zeros_like(size), where=size > 0)
        weight = np.floor(np.minimum(slope / radius, 1.0) * STEPS)
    found = np.bincount(np.searchsorted(edges, size), weight, len(edges) + 1).astype(np.int64)
    return np.asarray(found[::-1].cumsum()[::-1][1:])


def em_probabilities(
    tails: Floats,
    level: float,
    sensitivity: float,
    epsilon: float,
    interval: bool = False,
    before: Floats | float = 0.0,
) -> Floats:
    """Law of the exponential mechanism that looks for the level among the tails, (K,).

    P(k) ~ exp(before[k] - epsilon gap[k] / (2 sensitivity)) [2] with gap[k] = |tails[k] - level|,
    or the distance from the level to the interval [tails[k], tails[k - 1]], the last tail being
    taken as 0; at epsilon = inf the first of the closest is certain. NOT PRIVATE.

    >>> em_probabilities(np.array([9.0, 4.0, 0.0]), level=4.0, sensitivity=1.0, epsilon=math.inf)
    array([0., 1., 0.])
    """
    low = tails.astype(np.float64)
    low[-1] = 0.0
    gap = np.abs(low - level)
    if interval:
        high = np.append(math.inf, low[:-1])
        gap = np.where(low > level, low - level, np.maximum(level - high, 0.0))
    if math.isinf(epsilon):
        return np.asarray(np.arange(len(gap)) == np.argmin(gap), dtype=np.float64)
    return np.asarray(softmax(before - gap * (epsilon / (2 * sensitivity))))


def excess_probabilities(
    tails: Floats, level: float, sensitivity: float, epsilon: float, before: Floats
) -> Floats:
    """Law of the exponential mechanism on what tails have beyond the level, (K,). NOT PRIVATE.

    P(k) ~ exp(before[k] - epsilon (tails[k] - level)^+ / sensitivity), the last tail being 0.

    >>> excess_probabilities(np.array([9.0, 5.0, 0.0]), 4.0, 1.0, math.log(2), np.zeros(3)) * 49
    array([ 1., 16., 32.])
    """
    low = tails.astype(np.float64)
    low[-1] = 0.0
    return np.asarray(softmax(before - np.maximum(low - level, 0.0) * (epsilon / sensitivity)))


def mixture_l1(
    users: Shard,
    domain: Keys,
    clips: Floats,
    probabilities: Floats,
    laws: Sequence[NoiseLaw],
    norm: int,
    nonneg: bool,
    truth: Floats | None = None,
) -> tuple[float, float]:
    """Compute the expected l1 error of a release whose threshold is random. NOT PRIVATE.

    Exact but for thresholds of probability below 10^-12: the choice and the noise of the release
    are independent, so the error is the mixture of the errors at each threshold. Beyond 64
    thresholds on a grid the rounding down is left out, less than a step for each item of a user.

    Parameters
    ----------
    users : Shard
    domain : Keys
    clips : (K,) float64
        Non-decreasing.
    probabilities : (K,) float64
    laws : sequence of NoiseLaw, one for each threshold
        A step other than 1 means that users round down to multiples of it.
    norm : {1, 2}
        In which users are clipped.
    nonneg : bool
        Whether the release is raised to at least zero.
    truth : (d,) float64, optional
        The totals, if they are known.

    Returns
    -------
    expected, least : float
        The mixture, and the expected error at the best of the thresholds that may be chosen.

    Cost
    ----
    One pass over the users; on a grid, each is clipped to every likely threshold.
    """
    truth = totals(users, domain) if truth is None else truth
    likely = [int(i) for i in np.flatnonzero(probabilities > NEGLIGIBLE)]
    on_grid = [i for i in likely if laws[i].step != 1.0]
    on_grid = on_grid if len(on_grid) <= MOST_PASSES else []
    kept: dict[int, Floats] = {}
    if len(on_grid) < len(likely):
        distinct, where = np.unique(clips[likely], return_inverse=True)
        curve = clipped_curve(users, domain, distinct, norm)
        kept = {i: curve[k] for i, k in zip(likely, where, strict=True)}
    if on_grid:
        how = [(float(clips[i]), laws[i].step) for i in on_grid]
        kept |= zip(on_grid, clipped_at(users, domain, how, norm), strict=True)
    expected, least = 0.0, math.inf
    for i in likely:
        bias = np.maximum(truth - kept[i], 0.0)
        at_this = expected_l1(laws[i], bias, kept[i] if nonneg else None)
        expected += float(probabilities[i]) * at_this
        least = min(least, at_this)
    return expected, least
