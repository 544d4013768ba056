"""What every scalar channel offers, and the one of a single bit.

A scalar channel takes u in [-1, 1], rounds it at random to a finite lattice without bias (which
costs no privacy) and answers from a finite alphabet of integers with probabilities that are whole
multiples of 2^-64: the law as drawn is the law as proved, and can be enumerated.

References
----------
.. [1] Duchi, Jordan & Wainwright, "Minimax optimal procedures for locally private estimation",
   JASA 2018.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Array, Bounds, Floats, Integers, Words
from fedhist.base.errors import WireError
from fedhist.channels.flips import RandomizedResponse
from fedhist.privacy.guarantee import check_budget


def into_unit(u: Floats) -> Floats:
    """Clip to [-1, 1]; NaN becomes 0, the midpoint."""
    return np.asarray(np.clip(np.where(np.isnan(u), 0.0, u), -1.0, 1.0), dtype=np.float64)


@dataclass(frozen=True)
class ScalarChannel(ABC):
    """A randomizer of one scalar in [-1, 1]; the report z satisfies E z = gain u.

    Parameters
    ----------
    epsilon : float
        At least ``least_epsilon``; inf switches noise off.

    Attributes
    ----------
    kind : str
        Its name in configurations.
    least_epsilon : float
        The smallest budget for which it can be drawn.
    exact : bool
        Whether the law as drawn keeps the guarantee in exact arithmetic.
    """

    epsilon: float
    kind: ClassVar[str]
    least_epsilon: ClassVar[float] = 0.0
    exact: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        if self.epsilon < self.least_epsilon:
            raise ValueError(
                f"the {self.kind} channel needs epsilon of at least {self.least_epsilon:g}, "
                f"got {self.epsilon}"
            )

    # -- its reports

    @property
    @abstractmethod
    def steps(self) -> int:
        """Lattice steps G per unit: u is rounded to a multiple of 1 / G."""

    @property
    @abstractmethod
    def gain(self) -> float:
        """Slope of the report's mean: E z = gain u."""

    @property
    @abstractmethod
    def bound(self) -> float:
        """Largest absolute report."""

    @property
    @abstractmethod
    def dtype(self) -> np.dtype[Any]:
        """Type of a report: the smallest signed integer type; float64 without noise."""

    @property
    def sum_dtype(self) -> np.dtype[Any]:
        """Type of a sum of reports: int64, or float64 without noise."""
        return np.dtype(np.float64 if self.dtype.kind == "f" else np.int64)

    def check(self, name: str, reports: Array, n_users: int) -> None:
        """Raise WireError unless these are n_users reports that the channel can produce."""
        Bounds((n_users,), self.dtype.kind, -self.bound, self.bound).check(name, reports)
        if reports.dtype != self.dtype:
            raise WireError(f"{name!r} has dtype {reports.dtype}, expected {self.dtype}")

    # -- its exact law

    @abstractmethod
    def inputs(self) -> Integers:
        """Enumerate the rounded inputs, in lattice steps: (k,) int64."""

    @abstractmethod
    def alphabet(self) -> Integers:
        """Enumerate the reports: (m,) int64."""

    @abstractmethod
    def weights(self, x: ArrayLike) -> Words:
        """Return 2^64 times the probability of every report, given rounded inputs.

        Parameters
        ----------
        x : (k,) int
            Of ``inputs()``.

        Returns
        -------
        (k, m) uint64
            Exactly what is drawn; every row sums to 2^64.

        Raises
        ------
        ValueError
            Without noise.

        Notes
        -----
        Laplace has up to some 10^5 reports: ask for a few inputs at a time.
        """

    @abstractmethod
    def law(self, u: ArrayLike) -> Floats:
        """Return the probability of every report given u in [-1, 1], rounding included: (k, m)."""

    # -- its variances

    @abstractmethod
    def variance(self, u: ArrayLike) -> Floats:
        """Variance of the debiased report z / gain at input u, rounding included."""

    @property
    @abstractmethod
    def v(self) -> float:
        """Planning variance over squared width: the worst input's, for piecewise that of 1/2."""

    @property
    @abstractmethod
    def worst_v(self) -> float:
        """Upper bound of the variance over squared width."""

    # -- sums of reports

    @abstractmethod
    def sum_law_by(
        self, u: Floats, fold: Integers, n_folds: int, rng: np.random.Generator
    ) -> NDArray[Any]:
        """Draw the sum of the reports of each fold, with their exact joint law.

        Parameters
        ----------
        u : (n,) float64
        fold : (n,) int64
            In [0, n_folds).
        n_folds : int
        rng : numpy.random.Generator

        Returns
        -------
        (n_folds,) of ``sum_dtype``
        """


@dataclass(frozen=True)
class OneBitChannel(RandomizedResponse, ScalarChannel):
    """One bit: +-1 with mean u, then randomized response with a constant probability [1].

    P(z = 1) = 1/2 + tanh(epsilon / 2) u / 2. Without noise (epsilon = inf) the bit of mean u
    remains: the report is unbiased, not exact.

    Privacy
    -------
    The randomized response alone is epsilon-LDP, whatever the first bit and its rounding are.
    """

    kind: ClassVar[str] = "onebit"

    @property
    def steps(self) -> int:
        """The lattice is {-1, 1}."""
        return 1

    @property
    def gain(self) -> float:
        """tanh(epsilon / 2)."""
        return self.tau

    @property
    def bound(self) -> float:
        """Reports are -1 or 1."""
        return 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """int8."""
        return np.dtype(np.int8)

    def check(self, name: str, reports: Array, n_users: int) -> None:
        """Raise WireError unless these are n_users reports of -1 or 1, of dtype int8."""
        super().check(name, reports, n_users)
        if not reports.all():
            raise WireError(f"{name!r} holds 0, expected -1 or 1")

    def inputs(self) -> Integers:
        """-1 and 1."""
        return np.array([-1, 1])

    def alphabet(self) -> Integers:
        """-1 and 1."""
        return np.array([-1, 1])

    def weights(self, x: ArrayLike) -> Words:
        """2^64 times the probability of each report; see the base class."""
        lie = self.flip_threshold
        if not lie:
            raise ValueError("epsilon is inf: 2^64 times a certain report is no 64-bit integer")
        same = np.asarray(x)[:, None] == self.alphabet()
        return np.where(same, np.uint64(2**64 - lie), np.uint64(lie))

    def law(self, u: ArrayLike) -> Floats:
        """Probability of -1 and of 1 given u: (k, 2)."""
        tau = 1.0 - 2.0 * (self.flip_threshold / 2.0**64)
        return np.asarray((1.0 + np.multiply.outer(u, self.alphabet()) * tau) / 2)

    def variance(self, u: ArrayLike) -> Floats:
        """Variance coth^2(epsilon / 2) - u^2."""
        return np.asarray(1.0 / self.gain / self.gain - np.square(u))

    @property
    def v(self) -> float:
        """Planning variance over squared width: coth^2(epsilon / 2) / 4."""
        return float(self.variance(0.0)) / 4

    @property
    def worst_v(self) -> float:
        """The same: u = 0 is the worst input."""
        return self.v

    def sum_law_by(
        self, u: Floats, fold: Integers, n_folds: int, rng: np.random.Generator
    ) -> NDArray[Any]:
        """Draw the sums; see the base class. Two binomials a fold, once the inputs are rounded."""
        up = rng.random(len(u)) < (1.0 + into_unit(u)) / 2
        n, ups = (np.bincount(f, minlength=n_folds) for f in (fold, fold[up]))
        lie = self.flip_threshold / 2.0**64
        ones = rng.binomial(ups, 1.0 - lie) + rng.binomial(n - ups, lie)
        return np.asarray(2 * ones - n, dtype=np.int64)
