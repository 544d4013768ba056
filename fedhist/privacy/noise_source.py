"""What noise is drawn from: NoiseSource and Sampler, for the Curator, and integer samplers.

The two grades of a NoiseSource are :mod:`server.noise`. Nodes draw their shares by the integer
samplers, too. *Seeded* ones take a NumPy generator: fast, reproducible, drawn through doubles.
*Exact* ones are OpenDP's, on system entropy: nothing is drawn in floating point, and there is no
seed.

References
----------
.. [1] Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020,
   Algorithms 1 to 3.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from importlib import metadata
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhist.privacy.guarantee import Release

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
