"""Means from few users: how many are needed, how much of the budget each draw gets.

Everything here is a function of public numbers.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Theorems 4, 6, 7, Corollaries 5 and 8.
.. [2] Levy, Sun, Amin, Kale, Kulesza, Mohri & Suresh, "Learning with user-level privacy",
   NeurIPS 2021.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from fedhist.base.search import MOST_USERS, first_true
from fedhist.channels.hadamard import next_power_of_two
from fedhist.privacy.guarantee import zcdp_rho
from server.few_users.sampler import BucketsOf, bucket_params, least_inside

CLIP_RADII = 1.6
"""Radius of the large-n branch's clip, in typical distances r."""

MEDIAN_SHARE = 0.3
"""Share of rho that the large-n branch spends on the medians."""


def ball_volume(lam: float, kappa: float, corrupted: float = 0.0) -> float:
    """Share v(lam, kappa) of the proposals that lie within R of a share kappa of all users.

    The volume of all such points, in balls, is between v and v / kappa.

    For users at distance r from their mean and R = lam r sqrt(d), as d grows: E exp(-((a + z) /
    lam + 1 / lam^2)_+) with a standard normal and z the quantile of kappa / (1 - corrupted). The
    closed form of that integral. It does not depend on the dimension.

    >>> [round(ball_volume(*x), 3) for x in ((0.5, 0.6), (1.0, 0.6), (0.35, 0.6))]
    [0.061, 0.388, 0.006]
    """
    share = kappa / (1 - corrupted)
    if not 0 < share < 1:
        return 0.0 if share >= 1 else 1.0
    z = float(ndtri(share))
    return float(ndtr(-z - 1 / lam) + math.exp(-z / lam - 0.5 / lam**2) * ndtr(z))


def finite_volume(lam: float, kappa: float, corrupted: float, n_users: int) -> float:
    """:func:`ball_volume` for as many users as there are: their quantiles are finite.

    Where kappa takes every honest user, the quantile is that of the largest of g normal numbers.
    """
    honest = n_users - math.floor(corrupted * n_users * (1 + 1e-12))
    most = 1 - 1 / (honest + 1)
    return ball_volume(lam, min(kappa / (1 - corrupted), most))


def few_n_min(
    epsilon: float,
    delta: float,
    buckets: BucketsOf = bucket_params,
    *,
    kappa: float = 0.6,
    lam: float = 0.5,
    corrupted: float = 0.0,
    failure: float = 0.01,
) -> int:
    """Fewest users with which one draw succeeds with probability about 1 - failure.

    n >= ln(G / (v failure)) / (kappa epsilon0), and with corrupted users also n >=
    ln(1 / (v failure)) / ((kappa - corrupted) epsilon0).

    >>> few_n_min(1.0, 1e-6)
    73
    """
    if kappa <= corrupted:
        raise ValueError(f"kappa = {kappa:g} must exceed the corrupted share, {corrupted:g}")

    def enough(n: int) -> bool:
        v = finite_volume(lam, kappa, corrupted, n)
        b = buckets(1, epsilon, delta, kappa)
        first = (b.log_garbage - math.log(v * failure)) / (kappa * b.epsilon0)
        wrong = -math.log(v * failure) / ((kappa - corrupted) * b.epsilon0) if corrupted else 0.0
        return n >= max(first, wrong) and least_inside(n, kappa) <= n - math.floor(corrupted * n)

    return first_true(enough, MOST_USERS) or MOST_USERS


def rounds_needed(v: float, kappa: float, failure: float) -> int:
    """N = ceil(2 / (failure (kappa / 2) v)): then P(G2) <= failure / 2.

    >>> rounds_needed(ball_volume(0.5, 0.6), 0.6, 0.01)
    10922
    """
    return math.ceil(min(2 / (failure * (kappa / 2) * v), 2.0**40))


def part_budget(epsilon: float, delta: float, parts: int) -> tuple[float, float]:
    """Budget of each of several draws that are (epsilon, delta)-DP together.

    delta / 2 goes to the draws' own slack; the better of basic composition and of rho(epsilon,
    delta / 2) shared by draws that are delta-approximate epsilon^2/8-zCDP.
    """
    if parts == 1:
        return epsilon, delta
    each = max(epsilon / parts, math.sqrt(8 * zcdp_rho(epsilon, delta / 2) / parts))
    return each, delta / (2 * parts)


def large_epsilon(epsilon: float, delta: float, padded: int) -> float:
    """Budget of each coordinate's median: sqrt(8 * .3 rho / D), epsilon-bounded-range."""
    return math.sqrt(8 * MEDIAN_SHARE * zcdp_rho(epsilon, delta) / padded)


def n_bins(radius: float, box: float, padded: int) -> int:
    """Bins of width 2 r / sqrt(D) that cover [-box, box]."""
    return max(1, math.ceil(box * math.sqrt(padded) / radius * (1 - 1e-12)))


def large_n_min(
    epsilon: float,
    delta: float,
    dimension: int,
    radius: float,
    box: float,
    *,
    corrupted: float = 0.0,
    failure: float = 0.01,
) -> int:
    """Fewest users of the large-n branch: (4 / epsilon1) ln(bins D / failure) / (1 - 2 corrupted).

    Below it the medians are drawn from anywhere in the box, and nothing would show it.

    >>> large_n_min(1.0, 1e-6, 64, 0.25, 1.0)
    1619
    """
    padded = next_power_of_two(dimension)
    each = large_epsilon(epsilon, delta, padded)
    needed = 4 / each * math.log(n_bins(radius, box, padded) * padded / failure)
    return math.ceil(needed / (1 - 2 * corrupted))


MOST_BIASED = 64
"""From this dimension on the clip's bias is below 1e-6 r."""


@lru_cache(maxsize=8)
def clip_bias(padded: int) -> float:
    """Root mean square, in r, of what the large-n branch's clip moves the mean by.

    Users lie at x ~ N(0, I / D) around the common mean, in units of r, and a centre is the middle
    of a bin that is 2 / sqrt(D) wide: at a v with v_i uniform in +-1 / sqrt(D). The bias is
    E (1 - c / |y|)_+ y_1 with y = x - v, c = 1.6, the first axis along v. Quadrature over
    quantiles; |v|^2 is taken as Beta with its two moments. Within 3 % up to D = 4, a tenth low at
    D = 16.

    >>> [round(clip_bias(d), 3) for d in (1, 2, 4, 8, 64)]
    [0.084, 0.042, 0.017, 0.005, 0.0]
    """
    from scipy.special import betaincinv, gammaincinv, ndtri  # scipy.stats takes half a second

    if padded >= MOST_BIASED:
        return 0.0
    mean = (2.5 * padded - 1) / 3
    v = np.sqrt(betaincinv(mean, 2 * mean, _middles(16)))[:, None, None]
    y = (ndtri(_middles(512)) / math.sqrt(padded))[:, None] - v
    across = 2 * gammaincinv((padded - 1) / 2, _middles(64)) / padded if padded > 1 else np.zeros(1)
    away = np.maximum(1 - CLIP_RADII / np.sqrt(y**2 + across), 0.0)
    return float(np.sqrt(np.square((away * y).mean(axis=(1, 2))).mean()))


def _middles(n: int) -> NDArray[np.float64]:
    """Middles of n equal parts of [0, 1]."""
    return np.asarray((np.arange(n) + 0.5) / n)
