"""Certified lower bounds on epsilon and delta from counts of an event under two inputs.

If a mechanism is (epsilon, delta)-DP, then P(E | x) <= e^epsilon P(E | y) + delta for every event E
and every pair of neighbouring inputs. An event that happened h times of n under x and k times of m
under y therefore refutes every epsilon below

    log((low(h, n) - delta) / high(k, m)),

with low and high the ends of exact (Clopper-Pearson) intervals, each wrong with probability at most
alpha / 2. The event must be fixed before these draws are looked at; where several are certified
on the same draws, alpha is divided by their number (Bonferroni).

References
----------
.. [1] Clopper & Pearson, "The use of confidence or fiducial limits illustrated in the case of the
   binomial", Biometrika 1934.
.. [2] Ding, Wang, Wang, Zhang & Kifer, "Detecting violations of differential privacy", CCS 2018.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainccinv, betaincinv

from fedhist.base.arrays import Floats

TOTAL_ALPHA = 1e-6
"""Most probability that any finding of a whole audit, or of the bank of tests, is a false alarm."""

MOST_CHECKS = 2000
"""Most statistical findings that one audit, or the bank together with the registry, makes."""

ALPHA = TOTAL_ALPHA / MOST_CHECKS
"""Error probability of one finding: by the union bound, at most TOTAL_ALPHA over all of them."""

_ROUNDING = 1e-9
"""Relative margin for the accuracy of the inverse beta function, outwards."""


def proportion_low(hits: ArrayLike, n: ArrayLike, alpha: float) -> Floats:
    """Lower confidence limit of a probability: above the truth with probability at most alpha.

    ``hits``, ``n``: 0 <= hits <= n, n positive; ``alpha``: in (0, 1).

    Examples
    --------
    >>> round(float(proportion_low(10, 10, 0.05)), 6) == round(0.05 ** 0.1, 6)
    True
    """
    h, m = np.asarray(hits, np.float64), np.asarray(n, np.float64)
    low = betaincinv(np.maximum(h, 1.0), m - h + 1.0, alpha) * (1.0 - _ROUNDING)
    return np.asarray(np.where(h > 0, low, 0.0))


def proportion_high(hits: ArrayLike, n: ArrayLike, alpha: float) -> Floats:
    """Upper confidence limit of a probability: below the truth with probability at most alpha."""
    h, m = np.asarray(hits, np.float64), np.asarray(n, np.float64)
    # betainccinv takes the upper tail itself: 1 - alpha would lose the digits of a small alpha
    rest = np.maximum(m - h, 1.0)
    high = betainccinv(h + 1.0, rest, alpha) * (1.0 + _ROUNDING)
    # near 1 the margin belongs to the complement; both are limits, so the smaller one is
    complement = betaincinv(rest, h + 1.0, alpha) * (1.0 - _ROUNDING)
    high = np.minimum(high, 1.0 - complement + 2.0**-52)
    return np.asarray(np.where(h < m, np.minimum(high, 1.0), 1.0))


def epsilon_low(
    hits: ArrayLike,
    n: ArrayLike,
    other_hits: ArrayLike,
    other_n: ArrayLike,
    *,
    delta: float = 0.0,
    alpha: float = ALPHA,
) -> Floats:
    """Lower confidence limit of epsilon from one event under two inputs.

    ``hits``, ``n``: how often the event happened under one input, of how many independent draws;
    ``other_hits``, ``other_n``: the same under the other input; ``delta``: the delta at which
    epsilon is asked for; ``alpha``: probability that a returned limit lies above the mechanism's
    true epsilon; for several events on the same draws, divide it by their number first.

    Examples
    --------
    Randomized response that tells the truth with probability 3/4 (epsilon = log 3 = 1.0986):

    >>> round(float(epsilon_low(75_000, 100_000, 25_000, 100_000, alpha=0.05)), 2)
    1.08
    """
    p = proportion_low(hits, n, alpha / 2) - delta
    q = proportion_high(other_hits, other_n, alpha / 2)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(p / q, 1.0)))


def delta_low(
    hits: int, n: int, other_hits: int, other_n: int, epsilon: ArrayLike, alpha: float = ALPHA
) -> Floats:
    """Lower confidence limit of delta at each epsilon, from one event; at least 0.

    One pair of intervals serves all epsilon: the whole curve holds with confidence 1 - alpha.
    """
    p = proportion_low(hits, n, alpha / 2)
    q = proportion_high(other_hits, other_n, alpha / 2)
    return np.asarray(np.maximum(p - np.exp(np.asarray(epsilon, dtype=np.float64)) * q, 0.0))


def claimed_delta(epsilon: ArrayLike, claim_epsilon: float, claim_delta: float) -> Floats:
    """Return the largest delta that an (epsilon, delta)-DP claim allows at another epsilon.

    The claim's own delta from its epsilon on; below, the hockey-stick divergence of the worst pair
    of laws that keeps it: delta + (1 - delta) (e^claim - e^epsilon) / (e^claim + 1).

    Examples
    --------
    >>> claimed_delta([0.0, 1.0, 2.0], 1.0, 1e-3).round(4).tolist()
    [0.4627, 0.001, 0.001]
    """
    e = np.asarray(epsilon, dtype=np.float64)
    rest = np.clip(-np.expm1(e - claim_epsilon), 0.0, None) / (1.0 + np.exp(-claim_epsilon))
    return np.asarray(claim_delta + (1.0 - claim_delta) * rest)
