"""How many coefficients of a density to estimate, and how: public numbers only.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 5, eq. (19), (49).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from clients.records.functionals import BasisName, SeriesMeans
from fedhist.channels.oracles import oracle_channel
from server.centred.stages import CentredPlan, plan_centred
from server.densities.series import GRID, frequencies
from server.localize.choice import plan_univariate


def tail_energy(level: int, smoothness: float, radius: float) -> float:
    """Bound the energy beyond J terms in the Sobolev ellipsoid: r^2 (J + 1)^(-2 beta)."""
    return float(radius**2 * (level + 1.0) ** (-2 * smoothness))


def best_level(
    variance: Callable[[int], float], smoothness: float, radius: float, most: int
) -> int:
    """Return the odd level of least variance plus :func:`tail_energy`; the least of equal ones."""
    best, least = 1, tail_energy(1, smoothness, radius)
    for level in range(3, most + 1, 2):
        spread = variance(level)
        if spread >= least:
            break
        total = spread + tail_energy(level, smoothness, radius)
        if total < least:
            best, least = level, total
    return best


@lru_cache(maxsize=256)
def density_level(
    n_users: int,
    mean_scale: float,
    epsilon: float,
    kind: str = "auto",
    smoothness: float = 1.0,
    radius: float = 1.5,
    most: int = GRID - 1,
) -> int:
    """Choose the terms J of a series by folds: odd, of least predicted integrated squared error.

    2 (J - 1) risk(n / (J - 1)) of the plan of a mean in [-1, 1], where phi_j / sqrt(2) lies, plus
    the largest energy of the others [1, eq. (19)]. Infeasible levels do not count.

    >>> density_level(20_000, 200**-0.5, 1.0), density_level(500, 0.7, 0.1)
    (19, 1)
    """

    def variance(level: int) -> float:
        k = level - 1
        plan = plan_univariate(n_users / k, mean_scale, 1.0, epsilon, kind)
        return 2 * k * plan.risk if plan.feasible else math.inf

    return best_level(variance, smoothness, radius, most)


def paper_level(
    n_users: int, samples: float, epsilon: float, smoothness: float, most: int = GRID - 1
) -> int:
    """Return the level of the paper [1, eq. (49)] with c = 1/100 for its unnamed constant.

    M = min((n T epsilon^2)^(1 / (2 beta + 2)), c n epsilon^2 / log(n epsilon^2)), rounded down, at
    least 1. The paper takes epsilon <= 1: a larger one counts as 1.

    >>> paper_level(10**6, 100, 1.0, 1.0), paper_level(1000, 100, 1.0, 1.0)
    (100, 1)
    """
    strength = n_users * min(epsilon, 1.0) ** 2
    polynomial = float((strength * samples) ** (1 / (2 * smoothness + 2)))
    exponential = 0.01 * strength / math.log(strength) if strength > math.e else 0.0
    return min(most, max(1, math.floor(min(polynomial, exponential) + 1e-9)))


@dataclass(frozen=True)
class SeriesPlan:
    """What centred reports estimate, from public numbers only."""

    n_coefficients: int  # J; 0 where the uniform density is the best guess
    n_bins: int  # of the first report; 0 where that is one of a vector, too
    stages: CentredPlan | None  # None without coefficients
    energy: float  # largest of the terms left out, and of those that bins take for others

    @property
    def ise(self) -> float:
        """Predicted integrated squared error, before shrinkage and projection."""
        return self.energy + (0.0 if self.stages is None else self.stages.risk)


@lru_cache(maxsize=512)
def plan_series(
    n_users: int,
    samples: float,
    epsilon: float,
    basis: BasisName,
    smoothness: float,
    radius: float,
    most: int,
    n_coefficients: int | None = None,
    mean_scale: float | None = None,
) -> SeriesPlan:
    """Choose the coefficients of least predicted variance plus largest energy left out.

    Own idea: the first users tell one sample's bin by a frequency oracle, which uses that a sample
    is somewhere, where reports of vectors only use that it is in a ball. ``samples`` is T, ``most``
    the largest J, ``n_coefficients`` J where it is given; an infinite epsilon takes all of them.

    >>> plan = plan_series(40_000, 20, 1.0, "cosine", 2.0, 9.0, 1023)
    >>> plan.n_coefficients, plan.stages.n_stages
    (12, 3)
    >>> plan_series(20, 1, 0.1, "cosine", 2.0, 9.0, 1023).n_coefficients
    0
    """
    spread = (mean_scale or 1 / math.sqrt(2 * samples)) * math.sqrt(2)

    def bins(count: int) -> tuple[int, float]:
        """Choose the bins of the first report: how many, and n times its total variance."""

        def total(n_bins: int) -> tuple[float, int, float]:
            # noise of the bins' shares, and of which sample of a user's is drawn
            left = np.square(np.sinc(frequencies(basis, count) / n_bins))
            variance = float((oracle_channel("auto", epsilon, n_bins).v / left + 1.0).sum())
            taken = tail_energy(2 * n_bins - count - 1, smoothness, radius)
            return variance / n_users + taken, n_bins, variance

        ratios = (1.25, 1.5, 2.0, 3.0, 4.0)  # bins for each coefficient
        _, n_bins, variance = min(total(max(4, math.ceil(count * f) + 1)) for f in ratios)
        return n_bins, variance

    def plan(count: int) -> SeriesPlan:
        level = count + 1
        left = min(1.0, tail_energy(level, smoothness, radius))
        if count == 0:
            return SeriesPlan(0, 0, None, left)
        size = SeriesMeans(basis, count).bound

        def stages(first_v: float | None) -> CentredPlan:
            sigma = min(size, spread * math.sqrt(count))
            return plan_centred(float(n_users), sigma, size, epsilon, count, first_v)

        whole = stages(None)
        plain = SeriesPlan(count, 0, whole, left)
        if math.isinf(epsilon):
            return plain
        n_bins, first_v = bins(count)
        if first_v >= whole.first_v:
            return plain
        begun = stages(first_v)
        alike = tail_energy(2 * n_bins - level, smoothness, radius) * (begun.n_stages == 1)
        return min(plain, SeriesPlan(count, n_bins, begun, left + alike), key=lambda p: p.ise)

    if n_coefficients is not None:
        return plan(n_coefficients)
    if math.isinf(epsilon):
        return plan(most)
    step = 1 if basis == "cosine" else 2  # a cosine and its sine belong together
    best, count = plan(0), 0
    while True:  # all numbers up to 12, from there on in steps of an eighth
        count = count + step if count < 12 else math.ceil(count * 1.12 / step) * step
        if count > most:
            return best
        one = plan(count)
        best = min(best, one, key=lambda p: p.ise)
        if one.stages is not None and one.stages.risk > best.ise:
            return best
