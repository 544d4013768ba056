"""What no local estimator can beat: bounds by two hypotheses and by packings.

All hold for every protocol in which each user sends one message of an epsilon-LDP channel, chosen
by the messages before it (sequential interaction), and for every epsilon.

One user's message about two hypotheses P+, P- of its record has
KL(M+ || M-) <= min{(e^eps - 1)^2 TV(P+, P-)^2, tanh^2(eps / 2) KL(P+ || P-), eps tanh(eps / 2)}:

* of an output z the densities given two records lie in [q, e^eps q], so that |m+ - m-| <=
  (e^eps - 1) q TV and m- >= q: chi^2, hence KL, is at most (e^eps - 1)^2 TV^2, as q integrates to 1
  at most [1]_;
* the second is the contraction of an epsilon-LDP channel [2]_, that of randomized response;
* the ratio m+ / m- lies in [e^-eps, e^eps] and has mean 1 under M-: at its ends KL is largest.

Given what came before, the messages' divergences add up. With hypotheses theta = +-D the average
risk of any estimator is at least D^2 (1 - TV) = D^2 integral min(m+, m-), where 1 - TV is at least
1 - sqrt(KL / 2) and 1 - sqrt(1 - e^-KL).

References
----------
.. [1] Duchi, Jordan & Wainwright, "Minimax optimal procedures for locally private estimation",
   JASA 2018, Theorem 1, which has min(4, e^(2 eps)) for the factor 1 here.
.. [2] Zamanlooy & Asoodeh, "Strong data processing inequalities for locally differentially private
   mechanisms", ISIT 2023 (from memory; the tests check it on random channels).
.. [3] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local differential
   privacy", arXiv 2405.11923, Theorem 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from fedhist.base.arrays import Floats


@dataclass(frozen=True)
class Sizes:
    """How many items users hold: so many users of each size."""

    items: Floats  # (k,)
    users: Floats  # (k,)

    @property
    def n(self) -> float:
        """All users."""
        return float(self.users.sum())

    @property
    def average_share(self) -> float:
        """The variance of the average of the users' means, for items of variance 1."""
        return float((self.users / self.items).sum()) / self.n**2


@dataclass(frozen=True)
class TwoPoints:
    """Hypotheses theta = +-D about one number, on a grid of D: any of them is a bound."""

    distance: Floats  # D: (k,)
    divergence: Floats  # KL of one item under the two
    variance: Floats  # of one item's statistic, whose mean is theta, under either of them
    distance_of: Callable[[float], Floats]  # TV of T items under the two, or a bound


def coins(distance: Floats | None = None) -> TwoPoints:
    """Return the hypotheses of items +-1 with the mean +-D: T of them are binomial."""
    d: Floats = np.geomspace(1e-6, 1 - 1e-9, 200) if distance is None else distance
    divergence = 2 * d * np.arctanh(d)
    return TwoPoints(d, divergence, 1 - d**2, lambda T: binomial_distance(T, d))


def binomial_distance(T: float, d: Floats) -> Floats:
    """Return TV(Bin(T, (1 + d) / 2), Bin(T, (1 - d) / 2)), exactly: P(X > T / 2) - P(X < T / 2).

    >>> bool(np.isclose(*(binomial_distance(T, np.array([0.5])) for T in (3, 4)))[0])
    True
    """
    from scipy.special import betainc  # scipy.stats takes a second to be imported

    more, rest = math.floor(T / 2) + 1, math.ceil(T / 2)
    above, below = (betainc(more, rest, (1 + s * d) / 2) for s in (1, -1))
    return np.asarray(above - below)


def waves(most: float) -> TwoPoints:
    """Return the hypotheses of densities 1 +- D sqrt2 cos(2 pi x), D up to ``most`` and 1/sqrt2."""
    d: Floats = np.geomspace(1e-6, min(most, (1 - 1e-9) / math.sqrt(2)), 200)
    x = (np.arange(2048) + 0.5) / 2048
    wave = d[:, None] * math.sqrt(2) * np.cos(2 * np.pi * x)
    divergence = (2 * wave * np.arctanh(wave)).mean(axis=1)  # KL, symmetrized: wave -> -wave
    one = np.abs(wave).mean(axis=1)

    def distance(T: float) -> Floats:
        by_divergence = np.sqrt(-np.expm1(-T * divergence))
        return np.asarray(np.minimum(np.minimum(1.0, T * one), by_divergence))

    return TwoPoints(d, divergence, 1 - d**2, distance)


def information(epsilon: float, distance: Floats, divergence: Floats) -> Floats:
    """Bound KL of one message, from TV and KL of the record under the two hypotheses."""
    if math.isinf(epsilon):
        return np.asarray(divergence)
    gain = math.tanh(epsilon / 2)
    with np.errstate(over="ignore"):
        by_distance = np.square(np.expm1(min(epsilon, 300.0)) * distance)
    by_divergence = np.minimum(gain**2 * divergence, epsilon * gain)
    return np.asarray(np.minimum(by_distance, by_divergence))


def overlap(divergence: Floats) -> Floats:
    """Return a lower bound on 1 - TV = integral min(m+, m-) from KL."""
    e = np.exp(-divergence)
    return np.asarray(np.maximum(1 - np.sqrt(divergence / 2), e / (1 + np.sqrt(1 - e))))


def two_point_bound(sizes: Sizes, epsilon: float, points: TwoPoints, power: int = 2) -> float:
    """Bound the risk about these users' own average, to a ``power`` of the absolute error, 1 or 2.

    The average is theta + W, W of variance V = variance avg(1 / T) / n. Given theta messages tell
    w = E[W | messages] of it, E w^2 <= t^2 V with t = tanh(eps / 2), the largest correlation that
    an epsilon-LDP channel leaves. Hence E (x - theta - W)^2 >= (sqrt R - t sqrt V)_+^2 +
    (1 - t^2) V, with R the bound about theta; and E |x - theta - W| >= R - t sqrt V for R of the
    absolute error, which is D (1 - TV).
    """
    total = np.zeros(len(points.distance))
    for T, users in zip(sizes.items, sizes.users, strict=True):
        of_one = information(epsilon, points.distance_of(float(T)), T * points.divergence)
        total += users * of_one
    shared = overlap(total)
    advantage = 1.0 if math.isinf(epsilon) else math.tanh(epsilon / 2)
    spread = np.sqrt(points.variance * sizes.average_share)
    if power == 1:
        return max(0.0, float((points.distance * shared - advantage * spread).max()))
    apart = np.maximum(0.0, points.distance * np.sqrt(shared) - advantage * spread)
    return float((apart**2 + (1 - advantage**2) * spread**2).max())


def packing_bound(n: float, epsilon: float, axes: Sequence[float], box: bool = False) -> float:
    """Bound the squared l2 risk about a point that every user knows: Theorem 1 of [3].

    max over delta of (delta / 2)^2 [1 - (n eps tanh(eps / 2) + log 2) / log N(delta)]: Fano, with
    the packing number of the first axes of an ellipsoid, or of a box, at least the ratio of its
    volume to that of a ball of radius delta. ``axes`` are half axes or half widths, falling.
    """
    if math.isinf(epsilon):
        return 0.0
    known = n * epsilon * math.tanh(epsilon / 2) + math.log(2)
    log_axes = np.cumsum(np.log(axes))
    k = np.arange(1, len(axes) + 1)
    lgamma = np.array([math.lgamma(j / 2 + 1) for j in k])
    shape = k * math.log(2) + lgamma - k / 2 * math.log(math.pi) if box else np.zeros(len(k))
    volume = log_axes + shape  # log of the ratio at delta = 1, of the first k axes
    step = np.linspace(1.05, 8.0, 140)[:, None]  # log N as a multiple of what is known
    log_delta = (volume - step * known) / k
    # two points of the set must be so far apart
    wide = log_delta <= math.log(2 * (math.sqrt(len(axes)) if box else 1.0) * axes[0])
    value = np.exp(2 * log_delta, where=wide, out=np.zeros(log_delta.shape))
    return float((value / 4 * (1 - 1 / step)).max(initial=0.0))
