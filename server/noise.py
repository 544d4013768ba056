"""The Curator's noise, in two grades.

``SimulatedNoise`` draws from a seeded NumPy generator: fast, reproducible, and a float sampler,
hence not formally differentially private in its low bits. ``SecureNoise`` draws from OpenDP's
exact samplers with system entropy: integers only, no seed, nothing drawn in floating point.

References
----------
.. [1] Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020,
   Algorithms 1 to 3.
.. [2] Mironov, "On significance of the least significant bits for differential privacy", CCS 2012.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhist.base.hashing import MASK64, digest64
from fedhist.privacy.noise_source import NoiseSource, Shape

INTEGER = "i64"
"""OpenDP's integer type; its default for Python's int has 32 bits and saturates."""

MOST_SCALE = 2.0**50
"""Largest scale of the integer samplers; draws then stay clear of the ends of int64."""


class SimulatedNoise(NoiseSource):
    """Seeded NumPy noise for one draw (Philox keyed by seed and number of the draw).

    Parameters
    ----------
    seed : int or None
        None takes system entropy.
    index : int
        Number of the draw; different draws of one seed are independent.

    Examples
    --------
    >>> one, again = SimulatedNoise(7, 0), SimulatedNoise(7, 0)
    >>> bool((one.discrete_laplace((3,), 2.0) == again.discrete_laplace((3,), 2.0)).all())
    True
    """

    grade: ClassVar[str] = "simulated"

    def __init__(self, seed: int | None, index: int) -> None:
        if seed is None:
            bits = np.random.Philox()
        else:
            bits = np.random.Philox(key=digest64("fedhist.curator", seed) << 64 | index & MASK64)
        self._rng = np.random.Generator(bits)

    def laplace(self, shape: Shape, scale: float) -> NDArray[np.float64]:
        """Draw Laplace noise with density exp(-|x| / scale) / (2 scale)."""
        return np.asarray(self._rng.laplace(0.0, _checked(scale), shape))

    def gaussian(self, shape: Shape, std: float) -> NDArray[np.float64]:
        """Draw centred Gaussian noise."""
        return np.asarray(self._rng.normal(0.0, _checked(std), shape))

    def discrete_laplace(self, shape: Shape, scale: float) -> NDArray[np.int64]:
        """Draw integers with P(k) ~ exp(-|k| / scale), as the difference of two geometrics."""
        if _checked(scale, MOST_SCALE) == 0:
            return np.zeros(shape, dtype=np.int64)
        return self._geometrics(shape, scale)

    def _geometrics(self, shape: Shape, scale: float) -> NDArray[np.int64]:
        stop = -math.expm1(-1 / scale)
        draws = self._rng.geometric(stop, shape) - self._rng.geometric(stop, shape)
        return np.asarray(draws, dtype=np.int64)

    def discrete_gaussian(self, shape: Shape, std: float) -> NDArray[np.int64]:
        """Draw integers with P(k) ~ exp(-k^2 / (2 std^2)), by rejection from discrete Laplace.

        With t = floor(std) + 1, a proposal y of scale t is kept with probability
        exp(-(|y| - std^2 / t)^2 / (2 std^2)) [1, Algorithm 3].
        """
        out = np.zeros(math.prod(shape), dtype=np.int64)
        if _checked(std, MOST_SCALE) == 0:
            return out.reshape(shape)
        t = math.floor(std) + 1
        filled = 0
        while filled < len(out):
            missing = len(out) - filled
            y = self._geometrics((2 * missing + 16,), float(t))
            exponent = ((np.abs(y) - std * (std / t)) / std) ** 2 / 2
            kept = y[self._rng.standard_exponential(len(y)) > exponent][:missing]
            out[filled : filled + len(kept)] = kept
            filled += len(kept)
        return out.reshape(shape)

    def exponential(self, logits: NDArray[np.float64]) -> int:
        """Draw an index with probability ~ exp(logits), by the Gumbel-max trick."""
        return int(np.argmax(_checked_logits(logits) + self._rng.gumbel(size=len(logits))))

    def generator(self) -> np.random.Generator:
        """Return the seeded generator of this draw."""
        return self._rng

    def exponential_rows(self, logits: NDArray[np.float64]) -> NDArray[np.int64]:
        """Draw one index per row, by the Gumbel-max trick over the whole matrix."""
        x = np.asarray(logits, dtype=np.float64)
        if x.ndim != 2 or not x.size or not np.isfinite(x.max(axis=1)).all():
            raise ValueError(f"logits must be (k, d) with finite row maxima, got {logits}")
        return np.asarray(np.argmax(x + self._rng.gumbel(size=x.shape), axis=1), dtype=np.int64)


AGAINST_US = 2.0**-20
"""What the exact exponential mechanism gives away of its epsilon, so that the stated one holds for
logits in doubles. With weights exp(epsilon s / (2 D)), D the sensitivity, the logits of neighbours
may differ by epsilon / 2. Scores computed within e of their value add e / D of epsilon; roundings
of a logit, g sensitivities below the largest, add 2^-51 g. Together less than 2^-20 for e up to
2^-22 D and g up to 2^28. How exact the scores are that we choose by is listed in docs/privacy.md.
"""


class SecureNoise(NoiseSource):
    """OpenDP's exact samplers on system entropy; integer-valued noise only, never seeded."""

    grade: ClassVar[str] = "secure"

    def laplace(self, shape: Shape, scale: float) -> NDArray[np.float64]:
        """Refuse: real-valued samplers leak through their low bits [2]."""
        raise ValueError(_REAL.format("laplace", "discrete_laplace"))

    def gaussian(self, shape: Shape, std: float) -> NDArray[np.float64]:
        """Refuse: real-valued samplers leak through their low bits [2]."""
        raise ValueError(_REAL.format("gaussian", "discrete_gaussian"))

    def discrete_laplace(self, shape: Shape, scale: float) -> NDArray[np.int64]:
        """Draw integers with P(k) ~ exp(-|k| / scale), exactly."""
        dp = _opendp()
        metric = dp.l1_distance(T=INTEGER)
        return self._integers(dp.m.make_laplace, metric, shape, scale)

    def discrete_gaussian(self, shape: Shape, std: float) -> NDArray[np.int64]:
        """Draw integers with P(k) ~ exp(-k^2 / (2 std^2)), exactly."""
        dp = _opendp()
        metric = dp.l2_distance(T=float)
        return self._integers(dp.m.make_gaussian, metric, shape, std)

    def exponential(self, logits: NDArray[np.float64]) -> int:
        """Draw an index with probability ~ exp(logits), exactly: Gumbel-max in rationals.

        OpenDP's noisy max adds Gumbel noise for the zCDP measure; it compares the noisy scores
        bit by bit until they differ, so that no rounding enters there. The logits themselves are
        doubles: they are shrunk by :data:`AGAINST_US` first, which is more than their rounding
        can add to what two of them differ by.
        """
        scores = _checked_logits(logits) * (1 - AGAINST_US)
        possible = np.flatnonzero(np.isfinite(scores))
        dp = _opendp()
        domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
        choose: Any = dp.m.make_noisy_max(
            domain, dp.linf_distance(T=float), dp.zero_concentrated_divergence(), scale=1.0
        )
        return int(possible[choose(scores[possible].tolist())])

    def generator(self) -> np.random.Generator:
        """Refuse: such a sampler draws in doubles, and its law holds only up to rounding."""
        raise ValueError(
            "secure noise has no exact sampler for this mechanism, which draws in floating point"
        )

    @staticmethod
    def _integers(make: Any, metric: Any, shape: Shape, scale: float) -> NDArray[np.int64]:
        n, size = math.prod(shape), _checked(scale, MOST_SCALE)  # checked whatever the data
        if n == 0 or size == 0:
            return np.zeros(shape, dtype=np.int64)
        dp = _opendp()
        noise = make(dp.vector_domain(dp.atom_domain(T=INTEGER)), metric, scale=scale)
        return np.array(noise([0] * n), dtype=np.int64).reshape(shape)


_REAL = "secure noise is integer-valued: {} cannot be drawn, use {} on a grid"


@cache
def _opendp() -> Any:
    import opendp.prelude as dp  # takes half a second: for exact noise only

    dp.enable_features("contrib")
    return dp


def _checked(scale: float, most: float = math.inf) -> float:
    if not (0 <= scale <= most and math.isfinite(scale)):
        raise ValueError(f"a noise scale must lie in [0, {most:g}] and be finite, got {scale}")
    return scale


def _checked_logits(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.asarray(logits, dtype=np.float64)
    if x.ndim != 1 or np.isnan(x).any() or not (x < np.inf).all() or not np.isfinite(x).any():
        raise ValueError(f"logits must be a vector below inf with a finite entry, got {logits}")
    return x
