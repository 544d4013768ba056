"""Figure 1 of Liu et al. (NeurIPS 2020): the l1 distance of two binomial laws against m.

Nothing is sampled, and nothing is private: every distance is a sum over the probabilities.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize
from scipy.stats import binom

from fedhist.base.arrays import Floats
from simulations.experiments.experiment import Findings, Request, Result, power_law

SMALL, LARGE = "(a) small m", "(b) larger m"
THEOREM = "Theorem 5"


def run(request: Request) -> Result:
    """Compute both panels exactly, and the constants of Theorem 5 over a grid of laws."""
    s = request.settings
    p, q = float(s["p"]), float(s["q"])
    small = np.arange(1, int(s["small"]) + 1)
    ends, points = [int(m) for m in s["large"]], int(s["points"])
    large = np.unique(np.rint(np.geomspace(ends[0], ends[1], points)).astype(np.int64))
    found = Findings(request)
    for panel, ms, power in ((SMALL, small, 1.0), (LARGE, large, 0.5)):
        distance = np.array([l1_distance(int(m), p, q) for m in ms])
        exponent, factor = power_law(ms, distance)
        fit = straight_line(ms.astype(np.float64) ** power, distance)
        off = float(np.abs(fit - distance).max() / distance.max())
        where = f"{panel}: m = {ms[0]:,} to {ms[-1]:,}"
        found.check(panel, "log-log slope", exponent)
        found.check(panel, "largest distance from the straight line / largest l1", off)
        found.draw(where, "l1 distance, exact", ms, distance, style="-")
        found.draw(where, "best line in m (a), in sqrt(m) (b)", ms, fit, style="--")
        found.draw(where, "power law", ms, factor * ms**exponent, style=":")
    for name, ratio in zip(("smallest", "largest"), constants(s["sizes"], s["laws"]), strict=True):
        found.check(THEOREM, f"{name} l1 / min(...)", ratio)
    return found.result(
        f"l1 distance of Bin(m, {p:g}) and Bin(m, {q:g})",
        "Figure 1",
        x_label="m",
        y_label="l1 distance",
        notes=(
            "sums over all m + 1 probabilities, no sampling; the paper approximates by samples",
            "Theorem 5: min(m |p - q|, sqrt(m) |p - q| / sqrt(p (1 - p)), 1); p and q on a grid "
            f"of {s['laws']} values, even in the arcsine, for every m of {list(s['sizes'])}; the "
            "smallest quotient is then refined by a local search",
            "no user's data are read: the usual NOT PRIVATE of figures does not apply",
        ),
        not_judged=("the curves themselves: the paper prints no numbers",),
        population="none: two binomial laws",
    )


def l1_distance(m: int, p: float, q: float) -> float:
    """Return the sum over x of |Bin(m, p)(x) - Bin(m, q)(x)|.

    >>> round(l1_distance(1, 0.25, 0.75), 12)
    1.0
    """
    x = np.arange(m + 1)
    return float(np.abs(binom.pmf(x, m, p) - binom.pmf(x, m, q)).sum())


def straight_line(x: Floats, y: Floats) -> Floats:
    """Return the values at x of the least-squares line through the points."""
    slope, level = np.polyfit(x, y, 1)
    return np.asarray(level + slope * x)


def quotient(m: int, p: float, q: float) -> float:
    """Return the l1 distance over min(m |p - q|, sqrt(m) |p - q| / sqrt(p (1 - p)), 1)."""
    gap = abs(p - q)
    return l1_distance(m, p, q) / min(m * gap, gap * math.sqrt(m / (p * (1 - p))), 1.0)


def constants(sizes: Sequence[int], laws: int) -> tuple[float, float]:
    """Return the smallest and the largest quotient of the two sides of Theorem 5.

    The smallest of a grid is refined by a local search; the largest is 2, at m = 1.

    ``sizes``: every m; ``laws``: values of p and q strictly between 0 and 1, evenly spaced in
    arcsine(sqrt(p)).
    """
    angle = (np.arange(laws) + 0.5) * np.pi / (2 * laws)
    p = np.sin(angle) ** 2
    gap = np.abs(p[:, None] - p)
    low, high = math.inf, 0.0
    for m in sizes:
        pmf = binom.pmf(np.arange(m + 1), m, p[:, None])
        distance = np.array([np.abs(row - pmf).sum(axis=1) for row in pmf])
        rate = np.sqrt(m / (p * (1 - p)))[:, None]
        bound = np.minimum(np.minimum(m, rate) * gap, 1.0)
        np.fill_diagonal(bound, np.inf)
        ratio = distance / bound
        high = max(high, float(ratio.max()))
        np.fill_diagonal(ratio, np.inf)
        i, j = np.unravel_index(int(ratio.argmin()), ratio.shape)
        low = min(low, float(ratio[i, j]), _refined(m, float(angle[i]), float(angle[j])))
    return low, high


def _refined(m: int, a: float, b: float) -> float:
    """Return the smallest quotient that a local search from two angles finds."""

    def at(angles: Floats) -> float:
        p, q = (np.sin(angles) ** 2).tolist()
        return math.inf if p == q or not 0 < p < 1 else quotient(m, p, q)

    return float(minimize(at, [a, b], method="Nelder-Mead", options={"fatol": 1e-7}).fun)
