"""What theory predicts for a histogram over unknown keys: the expected l1 error of Algorithm 3.

Nothing here is shared with the estimator: the moments of the clipped counts come from an obvious
NumPy path of their own. All of it reads private data and is for evaluation only.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Algorithm 3 and Appendix B (there up to constants).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.protocols.shared.clipped_totals import totals
from fedhist.protocols.shared.total_loops import add_moments
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard

NODES = np.linspace(-6.0, 6.0, 49), np.linspace(-6.0, 6.0, 13)
"""Standard scores at which a normal law is evaluated, where it is wide and where it is narrow
against the noise. Sums over equal steps of 1 are as good as integrals for it: to 1e-8."""

HOPELESS = 8.0
"""Noise scales below the threshold from which on a key's spread does not count."""


@dataclass(frozen=True)
class KeyRelease:
    """Law of a release over unknown keys.

    Attributes
    ----------
    scale : float
        b of the (discrete) Laplace noise; 0 for none.
    threshold : float
        Keys whose noisy count reaches it are released.
    discrete : bool
        Whether the noise is integer-valued.
    raw_support : bool
        Whether keys that some user has, but none sent, get noise too (the printed algorithm).
    """

    scale: float
    threshold: float
    discrete: bool = True
    raw_support: bool = False

    @property
    def std(self) -> float:
        """Standard deviation of the noise."""
        if self.scale == 0:
            return 0.0
        if self.discrete:
            return math.sqrt(2 * math.exp(-1 / self.scale)) / -math.expm1(-1 / self.scale)
        return math.sqrt(2) * self.scale


def item_totals(users: Users) -> Floats:
    """Add up the counts of every item of the vocabulary: (V,). NOT PRIVATE."""
    return totals(users, users.vocabulary)


def in_byte_order(vocabulary: Keys, total: Floats) -> Integers:
    """Say which items of a vocabulary occur: their places, in byte order of the names."""
    order = vocabulary.byte_order
    return np.asarray(order[total[order] > 0])


def clipped_moments(users: Shard, clips: Sequence[float]) -> tuple[Floats, Floats]:
    """Mean and variance of every item's count after random clipping: (K, V) each. NOT PRIVATE.

    What user i keeps of N_ij tokens is hypergeometric: mean p N_ij and variance
    p (1 - p) N_ij (m_i - N_ij) / (m_i - 1) with p = min(1, C / m_i); users are independent.
    """
    shape = len(clips), len(users.none.vocabulary)
    mean, variance = np.zeros(shape), np.zeros(shape)
    for block in users.blocks():
        v = block.counts
        add_moments(v.indptr, v.item, v.count, np.array(clips, dtype=np.float64), mean, variance)
    return mean, np.maximum(variance, 0.0)


def alg3_expected(kept: Floats, truth: Floats, law: KeyRelease) -> Floats:
    """Compute the expected error of every key, exactly, given what clipping kept of it.

    With y = kept + Z the key is released, at |y - truth|, if y reaches the threshold, and costs
    ``truth`` otherwise (as it does where nothing was kept, unless the support is raw).

    Parameters
    ----------
    kept, truth : (k,) float64
        Integer-valued, 0 <= kept <= truth.
    law : KeyRelease

    Returns
    -------
    (k,) float64

    Examples
    --------
    >>> alg3_expected(np.array([3.0, 0.0]), np.array([5.0, 2.0]), KeyRelease(0.0, 1.0))
    array([2., 2.])
    """
    gap, a = truth - kept, law.threshold - kept
    if law.discrete:
        a = np.ceil(a)
    if law.scale == 0:
        error = np.where(a <= 0, np.abs(gap), truth)
    else:
        below = _below(a, law)
        beyond = _short(-a, law) + (a - gap) * (1 - below)  # E[Z - gap; Z >= a] where gap < a
        across = _short(gap, law) + _short(-gap, law) - _short(a, law) - (gap - a) * below
        error = truth * below + np.where(gap >= a, across, beyond)
    return error if law.raw_support else np.where(kept > 0, error, truth)


def expected_loss(truth: Floats, mean: Floats, variance: Floats, law: KeyRelease) -> float:
    """Compute the expected l1 error over random kept counts: exact where all variances are 0.

    The kept count of a key is a sum of independent hypergeometric counts; it is taken as normal
    with the same mean and variance, and the exact error is interpolated between integers. A key of
    few tokens is not normal, but then it stays below the threshold and costs ``truth``.

    Parameters
    ----------
    truth, mean, variance : (k,) float64
    law : KeyRelease
    """
    std = np.sqrt(variance)
    fixed = (std == 0) | (mean + 6 * std < law.threshold - HOPELESS * law.scale)
    total = _interpolated(mean[fixed], truth[fixed], law)
    for nodes, wide in zip(NODES, (True, False), strict=True):
        some = ~fixed & ((std > law.scale) == wide)
        weights = np.exp(-0.5 * nodes**2)
        for node, weight in zip(nodes, weights / weights.sum(), strict=True):
            kept = np.clip(mean[some] + node * std[some], 0.0, truth[some])
            total += weight * _interpolated(kept, truth[some], law)
    return total


def _interpolated(kept: Floats, truth: Floats, law: KeyRelease) -> float:
    """Sum the expected errors at real-valued kept counts, linear between integers."""
    low = np.floor(kept + 1e-9)  # sums of shares come out a little below their integer
    share = np.maximum(kept - low, 0.0)
    errors = (1 - share) * alg3_expected(low, truth, law)
    rest = share > 1e-9
    errors[rest] += share[rest] * alg3_expected(low[rest] + 1, truth[rest], law)
    return float(errors.sum())


def _below(x: Floats, law: KeyRelease) -> Floats:
    """P(Z < x); x an integer where the noise is discrete."""
    b = law.scale
    if law.discrete:
        norm = 1 + math.exp(-1 / b)
        return np.where(
            x >= 1, 1 - np.exp(-np.abs(x) / b) / norm, np.exp((np.minimum(x, 0) - 1) / b) / norm
        )
    return np.where(x >= 0, 1 - 0.5 * np.exp(-np.abs(x) / b), 0.5 * np.exp(-np.abs(x) / b))


def _short(x: Floats, law: KeyRelease) -> Floats:
    """E[(x - Z)+]; x an integer where the noise is discrete."""
    b = law.scale
    at_zero = math.exp(-1 / b) / -math.expm1(-2 / b) if law.discrete else 0.5 * b
    return np.maximum(x, 0.0) + at_zero * np.exp(-np.abs(x) / b)
