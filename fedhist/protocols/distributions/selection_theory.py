"""What theory predicts for selecting binomials: budgets per symbol, errors, users that are needed.

Shares no code with the scores. With u = sqrt(p (1 - p) / m), the deviation of one user's frequency,
a hypothesis p + x lies at the Kolmogorov-Smirnov distance |x| m b(m - 1, p), where b is the mode of
the binomial's mass function; that is |x| / (sqrt(2 pi) u) once m p is above 1, and m |x| far below.
So the scores are tents, and what is selected has a Laplace law around the best hypothesis.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammaln, xlog1py, xlogy

from fedhist.base.arrays import Floats
from fedhist.privacy.guarantee import Release, zcdp_epsilon
from server.distributions.binomial_grid import pick_eta

SAMPLING = 0.8
"""E|N(0, 1)|, and nearly what a selection without noise makes of u / sqrt(s)."""

POOLED = 0.3
"""The same against the pooled truth, measured: how far the two estimates are from each other."""

PHS_SAMPLING, PHS_POOLED = 1.02, 0.62
"""Tests at +-1.28 deviations, where TV is 2 c = 0.8: the first derived, the second measured."""

PHS_SLOWER = 2.27
"""Density of a normal at 0 over that at 1.28: how much flatter the tents are."""

KS_HEIGHT, PHS_HEIGHT = 1.0, 0.4
"""Height of a tent, in users: s of the KS scores, c s = .4 s of the Scheffe tests."""

PHS_BLIND = math.log(5.0)
"""Below this m p no smaller hypothesis is 2 c = 0.8 away, and scores rise away from the truth."""


# -- budgets ---------------------------------------------------------------------------------------


def epsilon_per_symbol(epsilon: float, delta: float, rho: float, changed: int) -> float:
    """Budget of each symbol's selection where one user changes ``changed`` of them.

    sqrt(8 rho / changed), as each costs epsilon^2 / 8 in zCDP, or epsilon / changed if that is more
    (up to 5 symbols at (1, 1e-6)) or delta is 0.

    >>> from fedhist.privacy.guarantee import zcdp_rho
    >>> round(epsilon_per_symbol(1.0, 1e-6, zcdp_rho(1.0, 1e-6), 100), 5)
    0.04414
    """
    if math.isinf(epsilon):
        return math.inf
    basic = epsilon / changed
    return basic if delta == 0 else max(basic, math.sqrt(8 * rho / changed))


def printed_dense(epsilon: float, delta: float, k: int) -> float:
    """Budget per symbol as printed in [1, Algorithm 3]."""
    return epsilon / (4 * math.sqrt(k) * math.log(1 / delta))


def printed_sparse(epsilon: float, delta: float, k: int, m: int) -> tuple[float, float]:
    """Budgets per symbol as printed in [1, Algorithm 5]: of the selection, and of SmallBinom.

    Line 3 calls Dense with the budget of one symbol, and Dense splits it once more.
    """
    one = epsilon / (8 * math.sqrt(min(k, m) * math.log(1 / delta)))
    return printed_dense(one, delta, k), one


def selection_cost(epsilon_each: float, changed: int) -> Release:
    """Cost of selections of which one user changes ``changed``: bounded range, composed."""
    return Release(changed * epsilon_each, 0.0, changed * epsilon_each**2 / 8)


def spent_by(costs: tuple[Release, ...], delta: float) -> float:
    """Epsilon at ``delta`` of releases made together: by the basic sum or by zCDP."""
    concentrated = zcdp_epsilon(sum(c.rho for c in costs), delta) if delta else math.inf
    return min(sum(c.epsilon for c in costs), concentrated)


# -- errors ----------------------------------------------------------------------------------------


def users_needed(m: int, epsilon_each: float, height: float = KS_HEIGHT) -> float:
    """Fewest users s at which a typical symbol's selection is where the error formula says.

    Solves x = 2 log(sqrt(m) x) + 6 for x = height epsilon s. Below it some selection in a hundred
    falls on a hypothesis far away.

    >>> users_needed(300, 1.0)
    18.0
    """
    if math.isinf(epsilon_each):
        return 1.0
    x = 20.0
    for _ in range(60):
        x = 2 * math.log(math.sqrt(m) * max(x, 1.0)) + 6
    return float(math.ceil(x / (height * epsilon_each)))


def ks_error(p: Floats, m: int, n_users: int, epsilon_each: float, pooled: bool) -> Floats:
    """Predict E|p-hat - p| of the KS-score selection, (k,); measured to be within some 25 %.

    Sampling .8 u / sqrt(s), the grid eta u, and the scale of the Laplace law b = 2 / (epsilon s
    slope), in quadrature. Where b exceeds p, hypotheses below 0 are missing and errors are down to
    half as large. With odds of about .31 epsilon s sqrt(m) exp(-epsilon s / 2) a hypothesis far
    away is selected, at the mean distance .5 - .73 p (1 - p) of angles drawn at random.
    """
    constant = POOLED if pooled else SAMPLING
    return _error(p, m, n_users, epsilon_each, constant, 1.0, KS_HEIGHT)


def phs_error(p: Floats, m: int, n_users: int, epsilon_each: float, pooled: bool) -> Floats:
    """Predict E|p-hat - p| of private hypothesis selection with c = 0.4, (k,).

    As :func:`ks_error` with flatter and lower tents; and where m p < log 5 (or m (1 - p)) a bias
    of about (1.1 - .45 m p) / m, measured: there the formula is good to a factor of 2 only.
    """
    constant = PHS_POOLED if pooled else PHS_SAMPLING
    found = _error(p, m, n_users, epsilon_each, constant, PHS_SLOWER, PHS_HEIGHT)
    mean = m * np.minimum(p, 1 - p)
    bias = np.where(mean < PHS_BLIND, np.maximum(1.1 - 0.45 * mean, 0.0) / m, 0.0)
    return np.asarray(np.minimum(found + bias, 0.5))


def _error(
    p: Floats,
    m: int,
    n_users: int,
    epsilon_each: float,
    sampling: float,
    slower: float,
    height: float,
) -> Floats:
    p = np.asarray(p, dtype=np.float64)
    u = np.sqrt(p * (1 - p) / m)
    if math.isinf(epsilon_each):
        near, far = np.zeros_like(p), 0.0
    else:
        x = epsilon_each * n_users
        b = slower * 2 / (x * ks_slope(p, m))
        near = b * np.minimum(1.0, 0.5 + 0.25 * np.minimum(p, 1 - p) / b)
        odds = math.exp(-height * x / 2) * max(1.0, 0.3134 * height * x * math.sqrt(m))
        far = odds / (1 + odds)
    eta, distance = pick_eta(n_users, epsilon_each), 0.5 - 0.73 * p * (1 - p)
    usual = np.sqrt((sampling * u) ** 2 / n_users + (eta * u) ** 2 + near**2)
    return np.asarray((1 - far) * np.minimum(usual, distance) + far * distance)


def ks_slope(p: Floats, m: int) -> Floats:
    """Kolmogorov-Smirnov distance of Bin(m, p) and Bin(m, p + x) per unit of x, at x = 0.

    d/dp P(Bin(m, p) <= t) = - m P(Bin(m - 1, p) = t), largest at the mode t = floor(m p).

    >>> ks_slope(np.array([0.0, 0.5]), 3).tolist()
    [3.0, 1.5]
    """
    p = np.asarray(p, dtype=np.float64)
    n = m - 1
    t = np.minimum(np.floor(m * p), n)
    log = gammaln(n + 1) - gammaln(t + 1) - gammaln(n - t + 1) + xlogy(t, p) + xlog1py(n - t, -p)
    return np.asarray(m * np.exp(log))
