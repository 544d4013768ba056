"""The Curator's noise, in two grades.

``SimulatedNoise`` draws from a seeded NumPy generator: fast, reproducible, and a float sampler,
hence not formally differentially private in its low bits. ``SecureNoise`` draws from OpenDP's
exact samplers with system entropy: integers only, no seed, nothing drawn in floating point.

References
----------
.. [1] Mironov, "On significance of the least significant bits for differential privacy", CCS 2012.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedhist.base.hashing import MASK64, digest64
from fedhist.model.codec import protocol_digest
from fedhist.model.protocol import Protocol
from fedhist.privacy.noise_law import (
    Noise,
    NoiseSource,
    Shape,
    checked_scale,
    exact_noise,
    opendp,
    seeded_gaussian,
    seeded_laplace,
)


class SimulatedNoise(NoiseSource):
    """Seeded NumPy noise for draw number ``index``: Philox keyed by both.

    >>> one, again = SimulatedNoise(7, 0), SimulatedNoise(7, 0)
    >>> bool((one.discrete_laplace((3,), 2.0) == again.discrete_laplace((3,), 2.0)).all())
    True
    """

    grade: ClassVar[str] = "simulated"

    def __init__(self, seed: int, index: int) -> None:
        key = digest64("fedhist.curator", seed) << 64 | index & MASK64
        self._rng = np.random.Generator(np.random.Philox(key=key))

    def laplace(self, shape: Shape, scale: float) -> NDArray[np.float64]:
        return np.asarray(self._rng.laplace(0.0, checked_scale(scale), shape))

    def gaussian(self, shape: Shape, std: float) -> NDArray[np.float64]:
        return np.asarray(self._rng.normal(0.0, checked_scale(std), shape))

    def discrete_laplace(self, shape: Shape, scale: float) -> NDArray[np.int64]:
        return seeded_laplace(self._rng, shape, scale)

    def discrete_gaussian(self, shape: Shape, std: float) -> NDArray[np.int64]:
        return seeded_gaussian(self._rng, shape, std)

    def exponential(self, logits: NDArray[np.float64]) -> int:
        return int(np.argmax(_checked_logits(logits) + self._rng.gumbel(size=len(logits))))

    def generator(self) -> np.random.Generator:
        return self._rng

    def exponential_rows(self, logits: NDArray[np.float64]) -> NDArray[np.int64]:
        x = np.asarray(logits, dtype=np.float64)
        if x.ndim != 2 or not x.size or not np.isfinite(x.max(axis=1)).all():
            raise ValueError(f"logits must be (k, d) with finite row maxima, got {logits}")
        return np.asarray(np.argmax(x + self._rng.gumbel(size=x.shape), axis=1), dtype=np.int64)


AGAINST_US = 2.0**-20
"""What the exact exponential mechanism gives away of its epsilon, so that the stated one holds for
logits in doubles. With weights exp(epsilon s / (2 D)), D the sensitivity, the logits of neighbours
may differ by epsilon / 2. Scores computed within e of their value add e / D of epsilon; roundings
of a logit, g sensitivities below the largest, add 2^-51 g. Together less than 2^-20 for e up to
2^-22 D and g up to 2^28. How far our scores are off, in sensitivities, for n users:

- a threshold or radius by tail counts: whole numbers less a public real number each, n 2^-51;
- the median number of samples, bins of medians: halves of whole numbers, or whole ones, 0;
- binomial hypotheses (ks, phs, sparse): whole numbers less targets rounded to powers of two, 0;
- quantiles: multiples of 2^-24 less q n, over max(q, 1 - q), n 2^-50;
- the bound of unbounded-histogram: sums of expected counts of n users at K thresholds, in
  B = items K / 2^20 + 1 blocks, (K + B + 40) n 2^-52.

All are within 2^-22 for up to 2^22 users; the last one for n (K + B + 40) up to 2^30.
"""


class SecureNoise(NoiseSource):
    """OpenDP's exact samplers on system entropy, unseeded; integers only, as reals leak [1]_."""

    grade: ClassVar[str] = "secure"

    def laplace(self, shape: Shape, scale: float) -> NDArray[np.float64]:
        raise _real("laplace")

    def gaussian(self, shape: Shape, std: float) -> NDArray[np.float64]:
        raise _real("gaussian")

    def discrete_laplace(self, shape: Shape, scale: float) -> NDArray[np.int64]:
        return exact_noise("laplace", shape, scale)

    def discrete_gaussian(self, shape: Shape, std: float) -> NDArray[np.int64]:
        return exact_noise("gaussian", shape, std)

    def exponential(self, logits: NDArray[np.float64]) -> int:
        """Draw an index with probability ~ exp(logits), exactly: Gumbel-max in rationals.

        OpenDP's noisy max adds Gumbel noise for the zCDP measure; it compares the noisy scores
        bit by bit until they differ, so that no rounding enters there. The logits themselves are
        doubles: they are shrunk by :data:`AGAINST_US` first, which is more than their rounding
        can add to what two of them differ by.
        """
        scores = _checked_logits(logits) * (1 - AGAINST_US)
        possible = np.flatnonzero(np.isfinite(scores))
        dp = opendp()
        domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
        choose: Any = dp.m.make_noisy_max(
            domain, dp.linf_distance(T=float), dp.zero_concentrated_divergence(), scale=1.0
        )
        return int(possible[choose(scores[possible].tolist())])

    def generator(self) -> np.random.Generator:
        raise ValueError(
            "secure noise has no exact sampler for this mechanism, which draws in floating point"
        )


def noise_source(grade: str, seed: int, protocol: Protocol) -> Noise:
    """Make the Curator's noise: one independent source per draw.

    Seeded noise is a function of the seed AND of the protocol with all its fields: two budgets
    under one seed would otherwise share their noise, and their difference would have none.
    """
    return NoiseFactory(grade, digest64("fedhist.server", seed, protocol_digest(protocol)))


@dataclass(frozen=True)
class NoiseFactory:
    """Makes one independent noise source per draw, of one grade."""

    grade: str
    key: int

    def __call__(self, index: int) -> NoiseSource:
        """Make the source of draw number ``index``."""
        return SecureNoise() if self.grade == "secure" else SimulatedNoise(self.key, index)


def _real(name: str) -> ValueError:
    discrete = f"use discrete_{name} on a grid"
    return ValueError(f"secure noise is integer-valued: {name} cannot be drawn, {discrete}")


def _checked_logits(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    x = np.asarray(logits, dtype=np.float64)
    if x.ndim != 1 or np.isnan(x).any() or not (x < np.inf).all() or not np.isfinite(x).any():
        raise ValueError(f"logits must be a vector below inf with a finite entry, got {logits}")
    return x
