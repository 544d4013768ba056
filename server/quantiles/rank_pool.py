"""Quantiles from one pool of noisy answers to "does your number lie in the bins 0 to t?"."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import numpy as np

from fedhist.base.arrays import Array, Floats, Integers


def in_groups(x: Array, n_groups: int) -> Array:
    """Deal J entries out to groups in turn, the last of a short group twice: (g, ceil(J / g)).

    >>> in_groups(np.array([1, 2, 3, 4, 5]), 2).tolist()
    [[1, 3, 5], [2, 4, 4]]
    """
    at = np.arange(n_groups)[:, None] + n_groups * np.arange(-(-len(x) // n_groups))
    return np.asarray(x[np.where(at < len(x), at, at - n_groups)])


def answer_variances(epsilon: float, levels: Floats) -> Floats:
    """Variance of one user's debiased answer about each level of its group: (g, m), as levels.

    By k-ary response over the m + 1 cells between m bins: P(cell up to j) = pi at the level q,
    pi = (j + q (e - 1)) / (e + m), with the slope d = (e - 1) / (e + m), e = e^epsilon.
    """
    m = levels.shape[1]
    rest, more = math.exp(-epsilon), -math.expm1(-epsilon)  # over e
    pi = (np.arange(1, m + 1) * rest + levels * more) / (1 + m * rest)
    return np.asarray(pi * (1 - pi) * ((1 + m * rest) / max(more, 1e-150)) ** 2)


def level_variances(epsilon: float, levels: Floats, n_groups: int) -> Floats:
    """Variance of each level's share times all users, dealt out to so many groups: (J,)."""
    j = np.arange(len(levels))
    dealt = answer_variances(epsilon, in_groups(levels, n_groups))
    return np.asarray(n_groups * dealt[j % n_groups, j // n_groups])


def best_groups(epsilon: float, levels: Floats) -> int:
    """Choose how many groups of users share the levels: the least variance of the worst level.

    >>> levels = np.arange(1, 10) / 10
    >>> [best_groups(epsilon, levels) for epsilon in (0.1, 1.0, 4.0)]
    [9, 3, 1]
    """
    counts = sorted({-(-len(levels) // m) for m in range(1, len(levels) + 1)})
    return min(counts, key=lambda g: float(level_variances(epsilon, levels, g).max()))


@dataclass(frozen=True)
class RankPool:
    """All answers so far: debiased shares of the users up to bins, and how sure they are."""

    n_bins: int  # K
    # distinct bins t, increasing; the share of users in 0 to t; one over its variance: (T,) each
    at: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    shares: Floats = field(default_factory=partial(np.zeros, 0))
    weights: Floats = field(default_factory=partial(np.zeros, 0))

    def more(self, at: Integers, shares: Floats, weights: Floats) -> RankPool:
        """Add answers of any shape; those of weight 0 say nothing."""
        t, f, w = (
            np.concatenate((old, new[weights > 0]))
            for old, new in zip(
                (self.at, self.shares, self.weights), (at, shares, weights), strict=True
            )
        )
        bins, which = np.unique(t, return_inverse=True)
        total = np.bincount(which, w).astype(np.float64)
        return RankPool(self.n_bins, bins, np.bincount(which, w * f) / total, total)

    def costs(self, levels: Floats) -> Floats:
        """Say how ill the answers go with each bin as that of a level's quantile: (J, K)."""
        q = levels[:, None]
        off = self.weights * (self.shares - q) ** 2 / 2
        low, high = np.zeros((2, len(levels), self.n_bins))
        low[:, self.at] = np.where(self.shares < q, off, 0.0)
        high[:, self.at] = np.where(self.shares > q, off, 0.0)
        before = np.cumsum(high, axis=1) - high
        return np.asarray(low[:, ::-1].cumsum(axis=1)[:, ::-1] + before)

    def next_bins(self, levels: Floats) -> Integers:
        """Choose the bins to ask about: a quantile lies above as likely as not: (J,)."""
        costs = self.costs(levels)
        upto = np.cumsum(np.exp(costs.min(axis=1, keepdims=True) - costs), axis=1)
        half = np.abs(upto[:, :-1] / upto[:, -1:] - 0.5)
        return np.sort(half.argmin(axis=1))

    def positions(self, shares: Floats, side: Literal["left", "right"]) -> Floats:
        """Invert the monotone fit of all answers: where it reaches shares, or leaves them."""
        from scipy.optimize import isotonic_regression

        x, f = np.array([-1.0, self.n_bins - 1.0]), np.array([0.0, 1.0])
        if len(self.at):
            fit = np.clip(isotonic_regression(self.shares, weights=self.weights).x, 0.0, 1.0)
            x, f = np.insert(x, 1, self.at), np.insert(f, 1, fit)
        i = np.clip(np.searchsorted(f, shares, side), 1, len(f) - 1)
        rise = f[i] - f[i - 1]
        along = (shares - f[i - 1]) / np.where(rise > 0, rise, 1.0)
        along = np.where(rise > 0, along, float(side == "right"))  # all at 0, or all at 1
        return np.asarray(x[i - 1] + (x[i] - x[i - 1]) * along)

    def quantile_bins(self, levels: Floats, stderr: Floats) -> Integers:
        """Estimate the bin of each level's quantile, given the standard errors of ranks: (J,)."""
        near = levels[:, None] + stderr[:, None] * np.linspace(-2.0, 2.0, 21)
        near = np.clip(near, 0.0, 1.0)
        middle = (self.positions(near, "left") + self.positions(near, "right")) / 2
        bins = np.ceil(middle.mean(axis=1) - 1e-9).astype(np.int64)
        return np.sort(np.clip(bins, 0, self.n_bins - 1))

    def reach(self, levels: Floats, stderr: Floats, bins: Integers) -> Integers:
        """Bound how many bins the true one is away from the estimate, with 95% confidence: (J,).

        It costs little more than the least, if ranks have room for noise; and the fit there comes
        within five standard errors of the level, because an inverse rests on the answers nearby,
        whose own error is up to 2.5 times that of all. Measured: 90 to 100% of runs; with four, 86%
        for five values.
        """
        costs = self.costs(levels)
        likely = costs <= costs.min(axis=1, keepdims=True) + 1.96**2
        likely[(levels < 2 * stderr) | (levels > 1 - 2 * stderr)] = True
        last = self.n_bins - 1 - likely[:, ::-1].argmax(axis=1)
        low, high = np.clip((levels - 5 * stderr, levels + 5 * stderr), 0.0, 1.0)
        low = np.maximum(np.ceil(self.positions(low, "left") - 1e-9), 0)
        high = np.ceil(self.positions(high, "right") - 1e-9)
        by_cost = np.maximum(last - bins, bins - likely.argmax(axis=1))
        by_rank = np.maximum(high - bins, bins - low)
        return np.asarray(np.maximum(np.minimum(by_cost, by_rank), 0), dtype=np.int64)
