"""How many coefficients of a density centred reports shall estimate, and how they begin.

Own idea: the first users tell one sample's bin by a frequency oracle, which uses that a sample is
somewhere, where reports of vectors only use that it is in a ball. With few samples a user that is
all there is; with more it is the first of several stages.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedhist.channels.oracles import oracle_channel
from server.densities.bases import BASES
from server.densities.series import tail_energy
from server.means.centred import CentredPlan, plan_centred

_BINS = (1.25, 1.5, 2.0, 3.0, 4.0)
"""Bins of the first report for each coefficient."""
_EACH, _GROWTH = 12, 1.12
"""All numbers of coefficients up to the first are tried, from there on in such steps."""


@dataclass(frozen=True)
class SeriesPlan:
    """What is estimated, from public numbers only.

    Attributes
    ----------
    n_coefficients : int
        J; 0 where the uniform density is the best guess.
    n_bins : int
        Bins of the first report; 0 where that is one of a vector, too.
    stages : CentredPlan, optional
        None without coefficients.
    energy : float
        Largest energy of the terms left out, 1 at most, and of those that the bins take for others.
    """

    n_coefficients: int
    n_bins: int
    stages: CentredPlan | None
    energy: float

    @property
    def ise(self) -> float:
        """Predicted integrated squared error, before shrinkage and projection."""
        return self.energy + (0.0 if self.stages is None else self.stages.risk)


@lru_cache(maxsize=512)
def plan_series(
    n_users: int,
    samples: float,
    epsilon: float,
    basis: str,
    smoothness: float,
    radius: float,
    most: int,
    n_coefficients: int | None = None,
    mean_scale: float | None = None,
) -> SeriesPlan:
    """Choose the coefficients of least predicted variance plus largest energy left out.

    Parameters
    ----------
    n_users : int
    samples : float
        T.
    epsilon : float
        inf: all of them, and one exact report.
    basis : {"cosine", "fourier"}
    smoothness, radius : float
        beta and r of the ellipsoid sum_j j^(2 beta) theta_j^2 <= r^2.
    most : int
        Largest J.
    n_coefficients : int, optional
        J, where it is given.
    mean_scale : float, optional
        Standard deviation of a user's mean of phi_j / sqrt(2); by default 1 / sqrt(2 T).

    Examples
    --------
    >>> plan = plan_series(40_000, 20, 1.0, "cosine", 2.0, 9.0, 1023)
    >>> plan.n_coefficients, plan.stages.n_stages
    (12, 3)
    >>> plan_series(20, 1, 0.1, "cosine", 2.0, 9.0, 1023).n_coefficients
    0
    """
    spread = (mean_scale or 1 / math.sqrt(2 * samples)) * math.sqrt(2)

    def plan(count: int) -> SeriesPlan:
        level = count + 1
        left = min(1.0, tail_energy(level, smoothness, radius))
        if count == 0:
            return SeriesPlan(0, 0, None, left)
        size = BASES[basis].largest_norm(count)

        def stages(first_v: float | None) -> CentredPlan:
            sigma = min(size, spread * math.sqrt(count))
            return plan_centred(float(n_users), sigma, size, epsilon, count, first_v)

        found = [SeriesPlan(count, 0, stages(None), left)]
        if not math.isinf(epsilon):
            n_bins, first_v = _bins(n_users, epsilon, basis, count, smoothness, radius)
            if first_v < found[0].stages.first_v:  # type: ignore[union-attr]
                begun = stages(first_v)
                taken = tail_energy(2 * n_bins - level, smoothness, radius)
                energy = left + (taken if begun.n_stages == 1 else 0.0)
                found.append(SeriesPlan(count, n_bins, begun, energy))
        return min(found, key=lambda p: p.ise)

    if n_coefficients is not None:
        return plan(n_coefficients)
    if math.isinf(epsilon):
        return plan(most)
    step = BASES[basis].step
    best, count = plan(0), 0
    while True:
        count = count + step if count < _EACH else math.ceil(count * _GROWTH / step) * step
        if count > most:
            return best
        one = plan(count)
        best = min(best, one, key=lambda p: p.ise)
        if one.stages is not None and one.stages.risk > best.ise:
            return best


def _bins(
    n_users: int, epsilon: float, basis: str, count: int, smoothness: float, radius: float
) -> tuple[int, float]:
    """Choose the bins of the first report: how many, and n times its total variance."""
    turns = BASES[basis].frequencies(count)

    def total(n_bins: int) -> tuple[float, int, float]:
        # noise of the bins' shares, and of which sample of a user's is drawn
        kept = np.square(np.sinc(turns / n_bins))
        variance = float((oracle_channel("auto", epsilon, n_bins).v / kept + 1.0).sum())
        taken = tail_energy(2 * n_bins - count - 1, smoothness, radius)
        return variance / n_users + taken, n_bins, variance

    _, n_bins, variance = min(total(max(4, math.ceil(count * f) + 1)) for f in _BINS)
    return n_bins, variance
