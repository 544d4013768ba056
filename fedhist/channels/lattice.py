"""Channels on a lattice: integer reports, drawn exactly as proved.

A scalar u in [-1, 1] is rounded at random, without bias, to x / G with x in {-G, ..., G}; the
report is an integer z of a finite alphabet with probability (an integer) / 2^64 given x, and its
mean is gain u. One private word rounds and one draws. No privacy rests on the rounding.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numba import njit, uint64
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Floats, Integers, Words
from fedhist.channels.scalar import ScalarChannel, into_unit

STEPS = 512
"""G: a lattice step is 1 / 2^10 of the interval's width."""

_USERS = 1 << 16
"""Users whose words are drawn at once for a sum."""


@dataclass(frozen=True)
class LatticeChannel(ScalarChannel):
    """What the two lattice channels share. Without noise the report is u itself, a float64."""

    least_epsilon: ClassVar[float] = 1e-4

    @property
    def steps(self) -> int:
        """Lattice steps G per unit."""
        return STEPS

    @property
    def noisy(self) -> bool:
        """Whether epsilon is finite."""
        return not math.isinf(self.epsilon)

    @property
    @abstractmethod
    def most(self) -> int:
        """Largest report of the alphabet {-most, ..., most}."""

    @property
    def bound(self) -> float:
        """Largest absolute report."""
        return self.most if self.noisy else 1.0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest signed type that holds a report; float64 without noise."""
        # ~most = -most - 1: a type that holds it holds +most as well
        return np.min_scalar_type(~self.most) if self.noisy else np.dtype(np.float64)

    def inputs(self) -> Integers:
        """-G, ..., G."""
        return np.arange(-self.steps, self.steps + 1)

    def alphabet(self) -> Integers:
        """-most, ..., most."""
        self._needs_noise()
        return np.arange(-self.most, self.most + 1)

    def law(self, u: ArrayLike) -> Floats:
        """Probability of every report given u, rounding included: (k, m)."""
        y = into_unit(np.atleast_1d(np.asarray(u, dtype=np.float64))) * self.steps
        low = np.minimum(np.floor(y), self.steps - 1).astype(np.int64)
        up = (y - low)[:, None]
        p = self.weights(low) * (1.0 - up) + self.weights(low + 1) * up
        return np.asarray(p * 2.0**-64)

    def reports(self, u: Floats, words: Words) -> NDArray[Any]:
        """Turn private words into reports.

        Parameters
        ----------
        u : (n,) float64
            Clipped to [-1, 1] here; NaN becomes 0.
        words : (n, 2) uint64
            Uniform and independent; the first column rounds, the second draws.

        Returns
        -------
        (n,) of ``dtype``
        """
        if not self.noisy:
            return into_unit(u)
        out = np.empty(len(u), dtype=self.dtype)
        self._fill(np.ascontiguousarray(u, dtype=np.float64), words, out)
        return out

    @abstractmethod
    def _fill(self, u: Floats, words: Words, out: NDArray[Any]) -> None: ...

    def sum_law_by(
        self, u: Floats, fold: Integers, n_folds: int, rng: np.random.Generator
    ) -> NDArray[Any]:
        """Draw the sums; see the base class. They are added in doubles, exactly below 2^53."""
        totals = np.zeros(n_folds)
        for first in range(0, len(u), _USERS):
            part = slice(first, first + _USERS)
            words = rng.integers(2**64, size=(len(u[part]), 2), dtype=np.uint64)
            z = self.reports(u[part], words)
            totals += np.bincount(fold[part], weights=z, minlength=n_folds)
        return totals.astype(self.sum_dtype)

    def _needs_noise(self) -> None:
        if not self.noisy:
            raise ValueError("epsilon is inf: without noise the reports are real numbers")

    def _rounding(self, u: ArrayLike) -> Floats:
        """Variance of the rounded input, in squared steps."""
        up = np.asarray(u, dtype=np.float64) * self.steps
        up = up - np.floor(up)
        return np.asarray(up * (1.0 - up) if self.noisy else np.zeros_like(up))

    @property
    def _mean_rounding(self) -> float:
        """Its average over u: 1/6."""
        return 1 / 6 if self.noisy else 0.0

    @property
    def _most_rounding(self) -> float:
        return 1 / 4 if self.noisy else 0.0


@njit(inline="always", cache=True)  # type: ignore[untyped-decorator]
def round_at_random(u: Any, word: Any, steps: Any) -> Any:
    """Round u to a lattice step at random, without bias; NaN stands for 0."""
    y = steps * (min(max(u, -1.0), 1.0) if u == u else 0.0)
    low = math.floor(y)
    up = (word >> uint64(1)) < uint64((y - low) * 2.0**63)
    return np.int64(low) + up
