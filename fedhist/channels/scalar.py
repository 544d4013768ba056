"""Scalar channels: a number of [-1, 1] in, an integer of a finite alphabet out, drawn exactly.

u is rounded at random to a lattice, without bias, which costs no privacy; the report is an integer
z whose probability given the rounded input is a whole multiple of 2^-64, and its mean is gain u. So
the law as drawn is the law as proved, and can be enumerated.

References
----------
.. [1] Duchi, Jordan & Wainwright, "Minimax optimal procedures for locally private estimation",
   JASA 2018 (one bit).
.. [2] Kent, Berrett & Yu, arXiv 2405.11923, eq. (30) (Laplace).
.. [3] Wang et al., "Collecting and analyzing multidimensional data with local differential
   privacy", ICDE 2019, Algorithm 2 (piecewise).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Array, Bounds, Floats, Integers, Words
from fedhist.base.checks import check_choice
from fedhist.base.errors import WireError
from fedhist.channels.bits import RandomizedResponse
from fedhist.model.finite import FiniteChannel
from fedhist.privacy.guarantee import check_budget

FINEST = 512
"""G: a lattice step is 1 / 2^10 of the interval's width."""


def into_unit(u: Floats) -> Floats:
    """Clip to [-1, 1]; NaN becomes 0, the midpoint."""
    return np.asarray(np.clip(np.where(np.isnan(u), 0.0, u), -1.0, 1.0), dtype=np.float64)


@dataclass(frozen=True)
class ScalarChannel(ABC):
    """A randomizer of one scalar in [-1, 1]; the report z satisfies E z = gain u.

    ``kind`` is its name in configurations, ``least_epsilon`` the smallest budget for which it can
    be drawn. The law as drawn keeps the guarantee in exact arithmetic.
    Laplace has up to some 10^5 reports: ask for the weights of a few inputs at a time.
    """

    epsilon: float
    kind: ClassVar[str]
    least_epsilon: ClassVar[float] = 0.0

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
        """2^64 times the probability of every report given rounded inputs: (k, m) uint64, as drawn.

        Every row sums to 2^64. ValueError without noise.
        """

    # -- its variances

    @abstractmethod
    def variance(self, u: ArrayLike) -> Floats:
        """Variance of the debiased report z / gain at input u, rounding included."""

    @property
    @abstractmethod
    def v(self) -> float:
        """Planning variance over squared width: the worst input's, for piecewise that of 1/2."""

    # -- sums of reports

    @abstractmethod
    def sum_law_by(
        self, u: Floats, fold: Integers, n_folds: int, rng: np.random.Generator
    ) -> NDArray[Any]:
        """Draw the sum of the reports of each fold, with their exact joint law."""


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
    steps = 1
    bound = 1.0
    dtype = np.dtype(np.int8)

    @property
    def gain(self) -> float:
        """tanh(epsilon / 2)."""
        return self.tau

    def check(self, name: str, reports: Array, n_users: int) -> None:
        """Raise WireError unless these are n_users reports of -1 or 1, of dtype int8."""
        super().check(name, reports, n_users)
        if not reports.all():
            raise WireError(f"{name!r} holds 0, expected -1 or 1")

    def inputs(self) -> Integers:
        """-1 and 1."""
        return np.array([-1, 1])

    alphabet = inputs

    def weights(self, x: ArrayLike) -> Words:
        """2^64 times the probability of each report."""
        lie = self.flip_threshold
        if not lie:
            raise ValueError("epsilon is inf: 2^64 times a certain report is no 64-bit integer")
        same = np.asarray(x)[:, None] == self.alphabet()
        return np.where(same, np.uint64(2**64 - lie), np.uint64(lie))

    def variance(self, u: ArrayLike) -> Floats:
        """Variance coth^2(epsilon / 2) - u^2."""
        return np.asarray(1.0 / self.gain / self.gain - np.square(u))

    @property
    def v(self) -> float:
        """Planning variance over squared width: coth^2(epsilon / 2) / 4."""
        return float(self.variance(0.0)) / 4

    def sum_law_by(
        self, u: Floats, fold: Integers, n_folds: int, rng: np.random.Generator
    ) -> NDArray[Any]:
        up = rng.random(len(u)) < (1.0 + into_unit(u)) / 2
        n, ups = (np.bincount(f, minlength=n_folds) for f in (fold, fold[up]))
        lie = self.flip_threshold / 2.0**64
        ones = rng.binomial(ups, 1.0 - lie) + rng.binomial(n - ups, lie)
        return np.asarray(2 * ones - n, dtype=np.int64)


@dataclass(frozen=True)
class LatticeChannel(ScalarChannel):
    """What the two lattice channels share. Without noise the report is u itself, a float64."""

    least_epsilon: ClassVar[float] = 1e-4

    @property
    def steps(self) -> int:
        return FINEST

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
        return self.most if self.noisy else 1.0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest signed type that holds a report; float64 without noise."""
        # ~most = -most - 1: a type that holds it holds +most as well
        return np.min_scalar_type(~self.most) if self.noisy else np.dtype(np.float64)

    def inputs(self) -> Integers:
        return np.arange(-self.steps, self.steps + 1)

    def alphabet(self) -> Integers:
        self._needs_noise()
        return np.arange(-self.most, self.most + 1)

    def reports(self, u: Floats, words: Words) -> NDArray[Any]:
        """Turn private words (n, 2) into reports: the first column rounds, the second draws."""
        if not self.noisy:
            return into_unit(u)
        y = self.steps * into_unit(u)
        low = np.floor(y)
        up = (words[:, 0] >> np.uint64(1)) < ((y - low) * 2.0**63).astype(np.uint64)
        return self._drawn(low.astype(np.int64) + up, words[:, 1]).astype(self.dtype)

    @abstractmethod
    def _drawn(self, x: Integers, words: Words) -> Integers:
        """Draw reports given rounded inputs, in lattice steps."""

    def sum_law_by(
        self, u: Floats, fold: Integers, n_folds: int, rng: np.random.Generator
    ) -> NDArray[Any]:
        """Draw the sums; see the base class. They are added in doubles, exactly below 2^53."""
        words = rng.integers(2**64, size=(len(u), 2), dtype=np.uint64)
        totals = np.bincount(fold, weights=self.reports(u, words), minlength=n_folds)
        return totals.astype(self.sum_dtype)

    def _needs_noise(self) -> None:
        if not self.noisy:
            raise ValueError("epsilon is inf: without noise the reports are real numbers")

    def _rounding(self, u: ArrayLike) -> Floats:
        """Variance of the rounded input, in squared steps."""
        up = np.asarray(u, dtype=np.float64) * self.steps
        up = up - np.floor(up)
        return np.asarray(up * (1.0 - up) if self.noisy else np.zeros_like(up))


@dataclass(frozen=True)
class LaplaceChannel(LatticeChannel):
    """Discrete Laplace noise, P(k) ~ e^{-r |k|}, r = epsilon / (2 G), clamped far out [2].

    G is 512, or as much less (a power of two, at least 1) as keeps the scale 1 / r within 2^10
    steps: the rounding, of variance 1 / (4 G^2) at most, stays negligible beside the noise.

    Notes
    -----
    The noise is drawn by inversion from one table of integers h(0), ..., h(R) of sum 2^63, and a
    sign: P(+-k) = h(k) / 2^64 for k > 0, P(0) = 2 h(0) / 2^64. For 0 < k < R, h(k) is
    max(c e^{-r' k}, w) rounded, r' = r (1 - margin), w = 2^14 / min(epsilon, 1): a floor, which
    is reached at k = K. The report x + k is clamped to [-B, B], B = G + K, so that R = B + G.
    The last entry stands for the geometric series that goes on from there, w t / (1 - t) with
    t = e^{-r'}, or w if that is more. h(0), about c / 2, is what remains.

    Clamping costs only in K <= |k| <= R, where h is flat: it takes exactly
    (2 G - 1) h(K) + 2 h(R) parts in 2^64 off the mean, whatever x is. ``gain`` is what is left.

    Privacy
    -------
    epsilon-LDP, exactly. Before it is rounded, h changes by a factor of at most e^{r'} a step, as
    the larger of two such sequences, and so do its tail sums (of a series that goes on at that
    rate; if t < 1/2 the last two tails have ratio 2 < 1 / t). A report's probability is an entry,
    or a tail sum where it is clamped, and two inputs are at most 2 G steps apart: the ratio is at
    most e^{2 G r'} = e^{(1 - margin) epsilon}. Rounding changes entries k > 0 by a relative 1 / w
    at most and 2^-47 (from evaluating exp at arguments below 2^6), and P(0), which takes the sum
    of these errors, by 2^-29. A ratio grows by less than 1 + 2 / w + 2^-28 <= e^{margin epsilon}:
    margin epsilon = 2^-12 min(epsilon, 1) is 4 / w, and w is below 2^28. (Where epsilon is so
    large that doubles are coarser than the margin, no ratio exceeds 2^64 all the same.) The
    tests enumerate the ratio in integers.
    """

    kind: ClassVar[str] = "laplace"

    @cached_property
    def steps(self) -> int:
        g = FINEST
        while g > 1 and 2 * g > 2**10 * self.epsilon:
            g //= 2
        return g

    @cached_property
    def _rate(self) -> float:
        """r': the noise falls by e^{-r'} a step."""
        margin = 2.0**-12 * min(1.0, 1.0 / self.epsilon)
        return self.epsilon * (1.0 - margin) / (2 * self.steps)

    @cached_property
    def _flat(self) -> int:
        """w: the floor, in units of 2^-64."""
        return math.ceil(2.0**14 / min(self.epsilon, 1.0))

    @cached_property
    def _rest(self) -> int:
        """h(R): the tail beyond the table."""
        t = math.exp(-self._rate)
        return max(self._flat, math.ceil(self._flat * (t / -math.expm1(-self._rate))))

    @cached_property
    def reach(self) -> int:
        """K: steps after which the noise is flat; c is at most 2^64 tanh(r' / 2)."""
        return math.ceil(math.log(2.0**64 * math.tanh(self._rate / 2) / self._flat) / self._rate)

    @property
    def most(self) -> int:
        """B: reports lie in {-B, ..., B}."""
        return self.steps + self.reach

    @property
    def gain(self) -> float:
        """Slope of the report's mean: G, less what clamping costs."""
        if not self.noisy:
            return 1.0
        lost = (2 * self.steps - 1) * self._flat + 2 * self._rest
        return self.steps * (1.0 - lost / 2**64)

    @cached_property
    def table(self) -> Words:
        """h(0), ..., h(R): (R + 1,) uint64 of sum 2^63."""
        self._needs_noise()
        r, n_flat = self._rate, 2 * self.steps
        t, gap = math.exp(-r), -math.expm1(-r)
        body = t * -math.expm1(-r * (self.reach - 1)) / gap  # t + ... + t^(K - 1)
        c = (2.0**64 - 2.0 * (n_flat * self._flat + self._rest)) / (1.0 + 2.0 * body)
        h = np.full(self.most + self.steps + 1, self._flat, dtype=np.uint64)
        falling = np.rint(c * np.exp(-r * np.arange(1, self.reach))).astype(np.uint64)
        h[1 : self.reach] = np.maximum(falling, h[1 : self.reach])
        h[-1] = self._rest
        h[0] = 2**63 - int(h[1:].sum())
        return h

    @cached_property
    def _upto(self) -> Words:
        return np.cumsum(self.table)

    def _drawn(self, x: Integers, words: Words) -> Integers:
        k = np.searchsorted(self._upto, words & np.uint64(2**63 - 1), side="right")
        noisy = np.where(words >> np.uint64(63), x - k, x + k)
        return np.clip(noisy, -self.most, self.most)

    def weights(self, x: ArrayLike) -> Words:
        """2^64 times the probability of each report."""
        h = self.table
        noise = np.concatenate((h[:0:-1], h[:1] * np.uint64(2), h[1:]))  # of -R, ..., R
        ends = 2 * self.steps
        rows = []
        for k in np.atleast_1d(x):
            # reports -B, ..., B are noise -B - k, ..., B - k
            first = self.steps - int(k)
            row = noise[first : first + 2 * self.most + 1].copy()
            row[0] += noise[:first].sum()
            row[-1] += noise[len(noise) - ends + first :].sum()
            rows.append(row)
        return np.stack(rows)

    @property
    def _noise(self) -> float:
        """Variance of the noise, in squared steps."""
        return 2.0 * math.exp(-self._rate) / math.expm1(-self._rate) ** 2 if self.noisy else 0.0

    def variance(self, u: ArrayLike) -> Floats:
        """Variance 8 / epsilon^2 (nearly), and that of the rounding."""
        return np.asarray((self._noise + self._rounding(u)) / self.gain**2)

    @property
    def v(self) -> float:
        """Planning variance over squared width: 2 / epsilon^2, and the rounding's average."""
        return (self._noise + (1 / 6 if self.noisy else 0.0)) / self.gain**2 / 4


@dataclass(frozen=True)
class PiecewiseChannel(LatticeChannel):
    """The piecewise mechanism: in a window around the input with high probability [3].

    The window has W points, x in its middle, and slides over {-M, ..., M}, M = G + (W - 1) / 2;
    2 G points lie outside. W is the odd number next to 2 G e^{-epsilon/2}, for which this is the
    mechanism of [3] on a lattice (C = M / G, up to the rounding of W).

    Notes
    -----
    A report inside has probability 2 G a / 2^64, one outside b / 2^64, where W a + b =
    2^64 / (2 G): integers that fill 2^64 without remainder. So the reports are exactly uniform in
    the window and outside it, and the mean is exactly linear in x, with slope (2 G a - b) W / 2^64.
    One word draws: its leading 54 bits say whether the report lies outside (below b) or else, as
    quotient by a, where in the window; its last 10 bits say where outside.

    Privacy
    -------
    The ratio is 2 G a / b <= e^epsilon, that is b >= 2^54 y / (1 + y), y = 2 G e^{-epsilon} / W:
    b is rounded up, after a margin for the four rounded operations behind it.
    """

    kind: ClassVar[str] = "piecewise"

    @cached_property
    def window(self) -> int:
        """W: points in the window."""
        return 2 * math.floor(FINEST * math.exp(-self.epsilon / 2)) + 1

    @cached_property
    def _each(self) -> tuple[int, int]:
        """a, b: 2^64 times the probability of a point inside over 2 G, and of one outside."""
        y = 2 * FINEST * math.exp(-self.epsilon) / self.window
        whole = 2**64 // (2 * FINEST)
        least = max(1, math.ceil(whole * (y / (1.0 + y)) * (1.0 + 2.0**-49)))
        a = (whole - least) // self.window
        return a, whole - a * self.window

    @property
    def most(self) -> int:
        """M: reports lie in {-M, ..., M}."""
        return FINEST + self.window // 2

    @property
    def gain(self) -> float:
        return FINEST * self._slope if self.noisy else 1.0

    @property
    def _excess(self) -> float:
        """Probability of a point inside, less that of one outside."""
        a, b = self._each
        return (2 * FINEST * a - b) / 2**64

    @property
    def _slope(self) -> float:
        return self._excess * self.window

    def _drawn(self, x: Integers, words: Words) -> Integers:
        a, b = self._each
        left, chosen = x - self.window // 2, words >> np.uint64(10)
        inside = left + ((chosen - np.uint64(b)) // np.uint64(a)).astype(np.int64)
        z = (words & np.uint64(1023)).astype(np.int64) - self.most
        return np.where(chosen < b, np.where(z < left, z, z + self.window), inside)

    def weights(self, x: ArrayLike) -> Words:
        """2^64 times the probability of each report."""
        a, b = self._each
        inside = np.abs(self.alphabet() - np.atleast_1d(x)[:, None]) <= self.window // 2
        return np.where(inside, np.uint64(2 * FINEST * a), np.uint64(b))

    def _spread(self, square: Floats | float, rounding: Floats | float) -> Floats:
        """Variance of the debiased report, given u^2 and the variance of the rounding."""
        if not self.noisy:
            return np.zeros(np.shape(square))
        w, m, (_, b) = self.window, self.most, self._each
        y2 = np.multiply(square, float(FINEST**2))
        constant = b / 2**64 * (m * (m + 1) * (2 * m + 1) / 3) + self._slope * (w * w - 1) / 12
        z2 = constant + self._slope * (y2 * (1.0 - self._slope) + rounding)
        return np.asarray(z2 / self.gain / self.gain)

    def variance(self, u: ArrayLike) -> Floats:
        """Variance on the lattice, rounding included."""
        return self._spread(np.square(np.asarray(u, dtype=np.float64)), self._rounding(u))

    @property
    def v(self) -> float:
        """Planning variance over squared width: that of u = 1/2, and the rounding's average."""
        return float(self._spread(0.25, 1 / 6)) / 4


# -- by name

CHANNELS: dict[str, type[ScalarChannel]] = {
    "laplace": LaplaceChannel,
    "onebit": OneBitChannel,
    "piecewise": PiecewiseChannel,
}


def planned_v(channel: ScalarChannel, size: float | None = None) -> float:
    """Variance over squared width to plan with; that at the inputs +-size where they are known."""
    return channel.v if size is None else float(channel.variance(size)) / 4


def best_kind(epsilon: float, size: float | None = None) -> str:
    """Return the scalar channel of least planning variance, see :func:`planned_v`.

    >>> best_kind(0.5), best_kind(1.0), best_kind(1.0, size=1.0), best_kind(float("inf"))
    ('onebit', 'piecewise', 'onebit', 'laplace')
    """
    able = [kind for kind, channel in CHANNELS.items() if epsilon >= channel.least_epsilon]
    return min(able, key=lambda kind: planned_v(CHANNELS[kind](epsilon), size))


@lru_cache(maxsize=1024)
def scalar_channel(kind: str, epsilon: float, size: float | None = None) -> ScalarChannel:
    """Return the scalar channel of a kind; "auto" is :func:`best_kind`."""
    check_choice("kind", kind, (*CHANNELS, "auto"))
    return CHANNELS[best_kind(epsilon, size) if kind == "auto" else kind](epsilon)


def scalar_law(channel: ScalarChannel) -> FiniteChannel | None:
    """All inputs of the lattice and all reports; None without noise.

    Rounding mixes the laws of two neighbouring inputs: a mixture's ratios are no larger.
    """
    if math.isinf(channel.epsilon):
        return None
    inputs = channel.inputs()
    labels = [f"u = {x}/{channel.steps}" for x in inputs.tolist()]
    scope = "all inputs and outputs of the lattice; rounding to it only mixes laws"
    return FiniteChannel(labels, lambda rows: channel.weights(inputs[rows]), 1 << 64, scope)
