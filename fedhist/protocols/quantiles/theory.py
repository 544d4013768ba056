"""Predicted rank errors: of levels that draw their bins, and of noisy curves, by their laws."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fedhist.base.arrays import Floats

RANK_ERROR = "rank error"
DRAWS = 1000
"""Of the bins of several levels."""


@dataclass(frozen=True)
class Ranks:
    """How users lie over the bins, and what each bin costs at each level.

    Parameters
    ----------
    n : int
        Users with a usable record.
    ends : (K,) float64
        Share of them at or below the end of each bin; the last is 1.
    levels : (J,) float64
    errors : (J, K) float64
        Rank error of the middle of each bin.
    null : float
        Share of all users whose record is unusable.
    """

    n: int
    ends: Floats
    levels: Floats
    errors: Floats
    null: float = 0.0

    @classmethod
    def even(cls, n: int, n_bins: int, levels: Floats) -> Ranks:
        """Users spread evenly over all bins: what is planned with, from public numbers.

        >>> Ranks.even(9, 2, np.array([0.2])).errors.tolist()
        [[0.0, 0.3]]
        """
        ends = np.arange(1, n_bins + 1) / n_bins
        return cls(n, ends, levels, distances(ends, levels))

    @property
    def away(self) -> Floats:
        """Distance of each level from the ranks that each bin holds: (J, K)."""
        return distances(self.ends, self.levels)


def distances(ends: Floats, levels: Floats) -> Floats:
    """Distance of each level from each bin's ranks, given the ranks at the bins' ends: (J, K)."""
    q, starts = levels[:, None], np.append(0.0, ends[:-1])
    return np.asarray(np.maximum(np.maximum(starts - q, q - ends), 0.0))


def largest_in_order(errors: Floats, laws: Floats) -> float:
    """Compute the expected largest error of levels that draw their bins, which are put in order.

    Exact for one level; of more the mean of 1,000 draws.

    Parameters
    ----------
    errors, laws : (J, K) float64
        Error of each bin, and how likely it is up to a factor for each level.

    Examples
    --------
    >>> largest_in_order(np.array([[0.0, 0.5]]), np.array([[3.0, 1.0]]))
    0.125
    """
    if len(laws) == 1:
        return float(errors[0] @ laws[0] / laws[0].sum())
    rng = np.random.default_rng(1)
    bins = np.empty((len(laws), DRAWS), dtype=np.int64)
    for row, law in zip(bins, laws, strict=True):
        upto = np.cumsum(law)
        row[:] = np.searchsorted(upto, rng.random(DRAWS) * upto[-1], side="right")
    bins = np.minimum(np.sort(bins, axis=0), laws.shape[1] - 1)
    return float(np.take_along_axis(errors, bins, axis=1).max(axis=0).mean())


def largest_of_curves(curves: Iterable[Floats], given: Ranks) -> float:
    """Average the largest error over noisy cumulative curves (K,), made monotone and inverted."""
    from scipy.optimize import isotonic_regression

    found = []
    for curve in curves:
        rising = np.asarray(isotonic_regression(curve).x)
        at = np.minimum(
            np.searchsorted(rising, given.levels * max(float(rising[-1]), 0.0) * (1 - 1e-9)),
            len(curve) - 1,
        )
        found.append(float(given.errors[np.arange(len(at)), at].max()))
    return float(np.mean(found))
