"""Figure 1 of Liu et al. (NeurIPS 2020): the l1 distance of two binomial laws against m.

Nothing is sampled, and nothing is private: every distance is a sum over the probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.stats import binom

from simulations.experiments.experiment import Findings, power_law

SMALL, LARGE = "(a) small m", "(b) larger m"
THEOREM = "Theorem 5"


def run(findings: Findings) -> None:
    """Compute both panels exactly, and the constants of Theorem 5 over a grid of laws."""
    s = findings.settings
    small = np.arange(1, s.small + 1)
    large = np.unique(np.rint(np.geomspace(s.large[0], s.large[1], s.points)).astype(np.int64))
    for panel, ms, power in ((SMALL, small, 1.0), (LARGE, large, 0.5)):
        distance = np.array([l1_distance(int(m), s.p, s.q) for m in ms])
        exponent, factor = power_law(ms, distance)
        x = ms.astype(np.float64) ** power
        line = np.polyval(np.polyfit(x, distance, 1), x)
        off = float(np.abs(line - distance).max() / distance.max())
        where = f"{panel}: m = {ms[0]:,} to {ms[-1]:,}"
        findings.check(panel, "log-log slope", exponent)
        findings.check(panel, "largest distance from the straight line / largest l1", off)
        findings.draw(where, "l1 distance, exact", ms, distance, style="-")
        findings.draw(where, "best line in m (a), in sqrt(m) (b)", ms, line, style="--")
        findings.draw(where, "power law", ms, factor * ms**exponent, style=":")
    for name, ratio in zip(("smallest", "largest"), constants(s.sizes, s.laws), strict=True):
        findings.check(THEOREM, f"{name} l1 / min(...)", ratio)


def l1_distance(m: int, p: float, q: float) -> float:
    """Return the sum over x of |Bin(m, p)(x) - Bin(m, q)(x)|.

    >>> round(l1_distance(1, 0.25, 0.75), 12)
    1.0
    """
    x = np.arange(m + 1)
    return float(np.abs(binom.pmf(x, m, p) - binom.pmf(x, m, q)).sum())


def constants(sizes: Sequence[int], laws: int) -> tuple[float, float]:
    """Return the smallest and the largest quotient of the two sides of Theorem 5 over a grid.

    The quotient is the l1 distance over min(m |p - q|, sqrt(m) |p - q| / sqrt(p (1 - p)), 1).

    ``sizes``: every m; ``laws``: values of p and q strictly between 0 and 1, evenly spaced in
    arcsine(sqrt(p)).
    """
    p = np.sin((np.arange(laws) + 0.5) * np.pi / (2 * laws)) ** 2
    gap = np.abs(p[:, None] - p)
    low, high = math.inf, 0.0
    for m in sizes:
        pmf = binom.pmf(np.arange(m + 1), m, p[:, None])
        distance = np.array([np.abs(row - pmf).sum(axis=1) for row in pmf])
        rate = np.sqrt(m / (p * (1 - p)))[:, None]
        bound = np.minimum(np.minimum(m, rate) * gap, 1.0)
        ratio = distance[gap > 0] / bound[gap > 0]
        low, high = min(low, float(ratio.min())), max(high, float(ratio.max()))
    return low, high
