"""The laws of additive noise, the error of totals released with it, and what it is drawn from.

A law shares nothing with the samplers: a prediction can contradict a measurement.

A NoiseSource and a Sampler are the Curator's; the two grades of the first are :mod:`server.noise`.
Nodes draw their shares by the integer samplers. *Seeded* ones take a NumPy generator: fast,
reproducible, drawn through doubles. *Exact* ones are OpenDP's, on system entropy: nothing is drawn
in floating point, and there is no seed.

The Gaussian mechanism on integers
----------------------------------
The discrete Gaussian N_Z(0, v) gives an integer k a weight of exp(-k^2 / (2 v)). Write
S(v) = sum over j >= 1 of exp(-2 pi^2 v j^2); by Poisson summation the weights around any real
centre add up to sqrt(2 pi v) times a number in [1 - 2 S(v), 1 + 2 S(v)].

*Sums.* Let X have variance parameter u and Y, independent, v. Completing the square in the
convolution, P(X + Y = n) is proportional to exp(-n^2 / (2 (u + v))) times the weights of parameter
w = u v / (u + v) around n u / (u + v). So X + Y is N_Z(0, u + v) up to a factor within
(1 + 2 S(w)) / (1 - 2 S(w)) in every probability. For m draws of parameter v, added one by one, the
logarithms of these factors are those of w = v k / (k + 1), k = 1 ... m - 1.

*Rounding.* Add continuous noise of variance a to an integer f, and round the result x to the
integer n with a probability proportional to exp(-(n - x)^2 / (2 r^2)). The normalizer of the second
step is nearly constant, and the two Gaussians convolve to one: n is f + N_Z(0, a + r^2) up to a
factor within (1 + 2 S(r^2)) / (1 - 2 S(r^2)). The rounding does not look at f. So N_Z(0, a + r^2),
added to d integers, is the continuous Gaussian mechanism of variance a, post-processed, up to a
factor exp(eta) in every probability, eta = d times the loss: where that mechanism is
(epsilon, delta)-DP, this one is (epsilon + 2 eta, exp(eta) delta)-DP, whatever the dimension and
the direction in which a user moves the integers. Rounds that follow each other, each chosen by what
came before, multiply their factors: d then counts the entries of all of them.

With r^2 = 4 the loss of a rounding is 2e-34: nothing that any other constant here is known to.

References
----------
.. [1] Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020,
   Theorem 4 and Algorithms 1 to 3.
.. [2] Kairouz, Liu & Steinke, "The distributed discrete Gaussian mechanism for federated learning
   with secure aggregation", ICML 2021.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import metadata
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Floats
from fedhist.base.checks import check_count, check_size
from fedhist.privacy.guarantee import (
    Release,
    gaussian,
    gaussian_cost,
    gaussian_multiplier,
    zcdp_rho,
)


def lattice_std(l2_sensitivity: float, epsilon: float, delta: float, *, rounds: int = 1) -> float:
    """Std of the discrete Gaussian that stands for ``rounds`` adaptive analytic Gaussians.

    sigma^2 = rounds (m D)^2 + 4, with m the multiplier of the analytic Gaussian mechanism and D,
    in steps, how far one user moves the integers in each round: one charge of (epsilon, delta) for
    all rounds. 0 (no noise) only for sensitivity 0 or infinite epsilon.

    Privacy
    -------
    (epsilon, delta)-DP for all rounds together, under whatever adjacency D is stated for, up to
    the loss of rounding.
    """
    check_count("rounds", rounds)
    check_size("a sensitivity", l2_sensitivity, zero=True)
    continuous = gaussian_multiplier(epsilon, delta) * l2_sensitivity
    return math.sqrt(rounds * continuous**2 + 4.0) if continuous else 0.0


def discrete_gaussian_stds(
    l2_sensitivity: float, epsilon: float, delta: float, times: float = 1.0
) -> tuple[float, float]:
    """Stds of two kinds of discrete Gaussian noise that are (epsilon, delta)-DP.

    That of :func:`lattice_std`, and the one whose zCDP [1, Theorem 4] implies (epsilon, delta),
    which is the smaller where integers move by a step or so: 4.225 against 4.531 per unit of
    sensitivity at (1, 1e-6), but 4.674 for a sensitivity of 1.

    ``times`` says by how much more noise a part of a series has: the root of the number of its
    rounds. All rounds of a series must be of one kind: of rounded Gaussians 1 / multiplier^2 add
    up, of the others rho, and the two do not mix.
    """
    rounded = lattice_std(times * l2_sensitivity, epsilon, delta)
    return rounded, times * l2_sensitivity * math.sqrt(0.5 / zcdp_rho(epsilon, delta))


def discrete_gaussian_std(l2_sensitivity: float, epsilon: float, delta: float) -> float:
    """Std of discrete Gaussian noise that is (epsilon, delta)-DP: the smaller of the two."""
    return min(discrete_gaussian_stds(l2_sensitivity, epsilon, delta))


def discrete_gaussian_cost(
    l2_sensitivity: float, epsilon: float, delta: float
) -> tuple[float, Release]:
    """Return the std of the noise, and its cost.

    A discrete Gaussian is D^2 / (2 sigma^2)-zCDP [1, Theorem 4], whichever way sigma was found.
    """
    std = discrete_gaussian_std(l2_sensitivity, epsilon, delta)
    if not std:
        return 0.0, gaussian_cost(epsilon, delta)[1]
    return std, gaussian(std / l2_sensitivity, epsilon, delta)


Kind = Literal["laplace", "gaussian", "discrete-laplace", "discrete-gaussian"]


@dataclass(frozen=True)
class NoiseLaw:
    """Law of the noise on each entry of a release.

    ``scale`` is the Laplace scale or Gaussian std, in steps, 0 for no noise; ``step`` the counts
    per step: 1 for real-valued noise, the grid for integers. Of "discrete-laplace" only, ``shape``:
    the noise is the difference of two negative binomials of this shape and p = exp(-1 / scale); 1
    is the discrete Laplace law, more is a sum of shares.
    """

    kind: Kind
    scale: float
    step: float = 1.0
    shape: float = 1.0

    @property
    def std(self) -> float:
        """Standard deviation in counts."""
        if self.kind == "discrete-gaussian" and 0 < self.scale < 2:  # beyond, alike to 1e-31
            k = np.arange(1.0, 80.0)
            p = np.exp(-0.5 * (k / self.scale) ** 2)
            return self.step * math.sqrt(2 * (k**2 * p).sum() / (1 + 2 * p.sum()))
        if self.scale == 0 or self.kind in ("gaussian", "discrete-gaussian"):
            return self.step * self.scale
        if self.kind == "laplace":
            return self.step * math.sqrt(2) * self.scale
        if self.scale < 1e-3:  # e^-1000: no draw differs from 0
            return 0.0
        return self.step * math.sqrt(self.shape) / (math.sqrt(2) * math.sinh(0.5 / self.scale))

    @property
    def mean_absolute(self) -> float:
        """Expected absolute value in counts: the l1 error per entry where nothing is clipped."""
        return float(expected_l1(self, np.zeros(1)))


def noise_per_sensitivity(
    epsilon: float, delta: float, discrete: bool, sensitivity: float = math.inf
) -> NoiseLaw:
    """Law of the noise per unit of sensitivity: Laplace where delta = 0, otherwise Gaussian.

    The Gaussian is the analytic one. On integers that move by a few steps it is larger
    (:func:`~fedhist.privacy.noise_law.discrete_gaussian_std`): there ``sensitivity`` is how
    many. Infinite: so many that it makes no difference.
    """
    if not delta:
        return NoiseLaw("discrete-laplace" if discrete else "laplace", 1 / epsilon)
    if discrete and 0 < sensitivity < math.inf:
        std = discrete_gaussian_std(sensitivity, epsilon, delta)
        return NoiseLaw("discrete-gaussian", std / sensitivity)
    kind: Kind = "discrete-gaussian" if discrete else "gaussian"
    return NoiseLaw(kind, gaussian_multiplier(epsilon, delta))


def expected_l1(law: NoiseLaw, bias: Floats, kept: Floats | None = None) -> float:
    """Exact expected l1 error of totals released with noise, given what clipping took away.

    Error
    -----
    E|Z - b| = b + 2 E(Z - b)^+ for symmetric Z, and raising to zero saves E(Z - y)^+ with y the
    clipped total. For Laplace noise of scale s, E(Z - b)^+ = (s / 2) e^{-b / s}; for a Gaussian of
    std s, s phi(b / s) - b Phi(-b / s); for the discrete laws the same sums over integers.
    """
    b = np.asarray(bias, dtype=np.float64) / law.step
    error = b + 2 * excess(law, b)
    if kept is not None:
        error = error - excess(law, np.asarray(kept, dtype=np.float64) / law.step)
    return float(law.step * error.sum())


def excess(law: NoiseLaw, level: Floats) -> Floats:
    """E(Z - level)^+ for each level >= 0, all in steps."""
    s = law.scale
    if s == 0:
        return np.zeros_like(level)
    if law.shape != 1:
        if s < 1e-3:  # as above
            return np.zeros_like(level)
        return _excess_of_shares(s, law.shape, level)
    if law.kind == "laplace":
        return np.asarray(s / 2 * np.exp(-level / s))
    if law.kind == "gaussian" or (s > 1e5 and law.kind == "discrete-gaussian"):  # alike to 1 / s^2
        from scipy.special import ndtr  # for the server's side only

        density = np.exp(-0.5 * (level / s) ** 2) / math.sqrt(2 * math.pi)
        return np.asarray(np.maximum(s * density - level * ndtr(-level / s), 0.0))
    first = np.floor(level) + 1  # smallest integer above the level
    if law.kind == "discrete-laplace":
        # sum over k >= f of (k - a) c p^k with p = e^{-1/s}, c = tanh(1 / 2s)
        stop = -math.expm1(-1 / s)
        tail = math.tanh(0.5 / s) * np.exp(-first / s)
        return np.asarray(tail * ((first - level) / stop + (1 - stop) / stop**2))
    k = np.arange(math.ceil(39 * s) + 2, dtype=np.float64)
    p = np.exp(-0.5 * (k / s) ** 2)
    p /= p[0] + 2 * p[1:].sum()
    mass, moment = (np.cumsum(q[::-1])[::-1] for q in (p, k * p))
    at = np.minimum(first, len(k) - 1).astype(np.int64)
    return np.asarray(np.maximum(moment[at] - level * mass[at], 0.0))


def _excess_of_shares(scale: float, shape: float, level: Floats) -> Floats:
    """E(Z - level)^+ for Z the difference of two negative binomials.

    From a scale of 4096 on they are multiples of those of that scale: the relative difference of
    the expected errors is below 1 / scale^2.
    """
    unit = max(1.0, scale / 4096)
    mass, moment = _tails_of_shares(scale / unit, shape)
    coarse = level / unit
    at = np.minimum(np.floor(coarse) + 1, len(mass) - 1).astype(np.int64)
    return np.asarray(unit * np.maximum(moment[at] - coarse * mass[at], 0.0))


@lru_cache(maxsize=16)
def _tails_of_shares(scale: float, shape: float) -> tuple[Floats, Floats]:
    """Return the sums over k >= f of P(k) and of k P(k), for each f >= 0.

    P by inversion of |(1 - p) / (1 - p e^{it})|^(2 shape), on a circle so long that the far side
    has a mass below e^-49 (4/3)^shape.
    """
    n = 1 << math.ceil(math.log2(64 + 200 * scale))
    rate = 1 / (2 * math.sinh(0.5 / scale))  # sqrt(p) / (1 - p)
    half = np.sin(np.pi * np.arange(n // 2 + 1) / n)
    p = np.fft.irfft((1 + (2 * rate * half) ** 2) ** -shape, n)[: n // 2]
    k = np.arange(n // 2, dtype=np.float64)
    mass, moment = (np.cumsum(q[::-1])[::-1] for q in (p, k * p))
    return mass, moment


Shape = tuple[int, ...]

MOST_SCALE = 2.0**50
"""Of integer noise: its draws stay clear of the ends of int64."""


class NoiseSource(ABC):
    """Noise for one draw; the Curator's only randomness.

    ``grade``: "simulated" (NumPy, seeded, fast) or "secure" (exact integer samplers, no seed).
    """

    grade: ClassVar[str]

    @abstractmethod
    def laplace(self, shape: Shape, scale: float) -> NDArray[np.float64]:
        """Draw Laplace noise with density exp(-|x| / scale) / (2 scale)."""

    @abstractmethod
    def gaussian(self, shape: Shape, std: float) -> NDArray[np.float64]:
        """Draw centred Gaussian noise."""

    @abstractmethod
    def discrete_laplace(self, shape: Shape, scale: float) -> NDArray[np.int64]:
        """Draw integers with P(k) proportional to exp(-|k| / scale)."""

    @abstractmethod
    def discrete_gaussian(self, shape: Shape, std: float) -> NDArray[np.int64]:
        """Draw integers with P(k) proportional to exp(-k^2 / (2 std^2))."""

    @abstractmethod
    def exponential(self, logits: NDArray[np.float64]) -> int:
        """Draw an index with probability proportional to exp(logits)."""

    def exponential_rows(self, logits: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw one index per row of ``logits`` (k, d), independently: (k,) int64."""
        return np.array([self.exponential(row) for row in logits], dtype=np.int64)

    def generator(self) -> np.random.Generator:
        """Return a generator for one draw of a :class:`Sampler`."""
        raise NotImplementedError(f"{type(self).__name__} has no generator for samplers")


Noise = Callable[[int], NoiseSource]
"""Makes the noise source of draw number ``index``."""


class Sampler(ABC):
    """Draws from a law that depends on exact data. NOT PRIVATE by itself: it holds the data.

    A subclass states what one draw costs, whatever the data, and proves it in its docstring.
    """

    @property
    @abstractmethod
    def release(self) -> Release:
        """What one draw costs a user; a function of public numbers only."""

    @abstractmethod
    def draw(self, rng: np.random.Generator) -> NDArray[Any]:
        """Draw once. The shape of the result is public; no view of the data is returned."""


def seeded_laplace(rng: np.random.Generator, shape: Shape, scale: float) -> NDArray[np.int64]:
    """Draw integers with P(k) ~ exp(-|k| / scale), as the difference of two geometrics."""
    if checked_scale(scale, MOST_SCALE) == 0:
        return np.zeros(shape, dtype=np.int64)
    stop = -math.expm1(-1 / scale)
    draws = rng.geometric(stop, shape) - rng.geometric(stop, shape)
    return np.asarray(draws, dtype=np.int64)


def seeded_gaussian(rng: np.random.Generator, shape: Shape, std: float) -> NDArray[np.int64]:
    """Draw integers with P(k) ~ exp(-k^2 / (2 std^2)), by rejection from discrete Laplace.

    With t = floor(std) + 1, a proposal y of scale t is kept with probability
    exp(-(|y| - std^2 / t)^2 / (2 std^2)) [1, Algorithm 3].
    """
    out = np.zeros(math.prod(shape), dtype=np.int64)
    if checked_scale(std, MOST_SCALE) == 0:
        return out.reshape(shape)
    t = min(math.floor(std) + 1, 1 << 50)  # any t gives the law; this one the fewest refusals
    filled = 0
    while filled < len(out):
        missing = len(out) - filled
        y = seeded_laplace(rng, (2 * missing + 16,), float(t))
        exponent = ((np.abs(y) - std * (std / t)) / std) ** 2 / 2
        accepted = y[rng.standard_exponential(len(y)) > exponent][:missing]
        out[filled : filled + len(accepted)] = accepted
        filled += len(accepted)
    return out.reshape(shape)


def exact_noise(kind: str, shape: Shape, scale: float) -> NDArray[np.int64]:
    """Draw integers from system entropy, exactly: kind "laplace" or "gaussian", as above."""
    n, size = math.prod(shape), checked_scale(scale, MOST_SCALE)  # checked whatever the data
    if n == 0 or size == 0:
        return np.zeros(shape, dtype=np.int64)
    dp = opendp()  # whose default for Python's int has 32 bits and saturates
    metric = dp.l1_distance(T="i64") if kind == "laplace" else dp.l2_distance(T=float)
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    noise = getattr(dp.m, f"make_{kind}")(domain, metric, scale=scale)
    return np.array(noise([0] * n), dtype=np.int64).reshape(shape)


OLDEST_OPENDP = (0, 14, 2)


@cache
def opendp() -> Any:
    """Import OpenDP, which takes half a second: for exact noise only."""
    version = metadata.version("opendp")
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < OLDEST_OPENDP:
        raise ValueError(
            f"exact noise needs opendp 0.14.2 or later, got {version}, whose noise is biased: "
            "pip install --upgrade opendp"
        )
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp


def checked_scale(scale: float, most: float = math.inf) -> float:
    """Return the size of noise, or raise ValueError unless it is finite and in [0, most]."""
    if not (0 <= scale <= most and math.isfinite(scale)):
        raise ValueError(f"a noise scale must lie in [0, {most:g}] and be finite, got {scale}")
    return scale
