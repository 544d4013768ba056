"""Lower bounds beside what a local protocol promises: from its public numbers and its users.

No protocol under the same guarantee can beat a bound on all populations.

Without a trusted server
------------------------
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

With a trusted server
---------------------
Two populations +-D, coupled user by user so that a user's record differs with the probability t_u,
the total variation between its laws: H users differ. Outputs on two data sets that differ in g
users are at most T(g) apart in total variation (group privacy), so that on every pair of data sets
whose truths are A apart the two absolute errors add up to A (1 - T(H)) at least, and the squared
ones to A^2 (1 - T(H)) / 2. In a coupling of largest agreement the users who differ all differ in
the same direction, and the truth is the users' own average: nothing is lost to sampling, and the
averages of A add up to 2 D. As 1 - T is convex, its mean is at least its value at the mean.

Nothing depends on the estimator, on the number of its rounds, nor on the size of n. A bound is of
the worst population of its kind: users of so many items, or users whose own means lie so far apart.

References
----------
.. [1] Duchi, Jordan & Wainwright, "Minimax optimal procedures for locally private estimation",
   JASA 2018, Theorem 1, which has min(4, e^(2 eps)) for the factor 1 here.
.. [2] Zamanlooy & Asoodeh, "Strong data processing inequalities for locally differentially private
   mechanisms", ISIT 2023 (from memory; the tests check it on random channels).
.. [3] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local differential
   privacy", arXiv 2405.11923, Theorem 1.
.. [4] Acharya, Sun & Zhang, "Differentially private Assouad, Fano, and Le Cam", ALT 2021: such
   couplings; here about the users' own average, with group privacy in one step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.model.protocol import Protocol
from fedhist.model.truths import L1, LowerBound
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust
from server.targets.sample_sizes import Held


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


Planned = tuple[float, float]


def sizes_of(held: Held, planned: float, n_users: float = 0.0) -> Sizes:
    """Count users by their numbers of items, those without any left out. NOT PRIVATE.

    A planned number above the average held takes its place: one item may stand for the mean of so
    many, and no bound may be above what such users allow. So does a planned number of users.
    """
    items, users = held.some
    n, times = float(users.sum()), max(1.0, n_users / max(held.n_users, 1))
    if not n or items @ users < planned * n:
        one = np.array([float(math.ceil(max(planned * (1 - 1e-9), 1.0)))])
        return Sizes(one, np.array([times * max(n, 1.0)]))
    return Sizes(items, times * users)


def share_bounds(
    guarantee: Guarantee, held: Held, planned: Planned, loss: str, power: Literal[1, 2]
) -> tuple[LowerBound, ...]:
    """Return the bound on the l1 or squared l2 error of the shares of symbols. NOT PRIVATE.

    Of two symbols with shares (1 +- theta) / 2 the difference is theta: its error is at most the
    l1 distance, and its square at most twice the squared l2 distance.
    """
    two = coins(), "about two symbols", 1 / power, power
    return local_bounds(guarantee, held, planned, loss, *two)


def local_bounds(
    guarantee: Guarantee,
    held: Held,
    planned: Planned,
    loss: str,
    points: TwoPoints,
    about: str,
    times: float = 1.0,
    power: int = 2,
) -> tuple[LowerBound, ...]:
    """Bound the error if every user's own message is private. NOT PRIVATE: it counts samples.

    ``planned`` are the samples per user and the users, 0 where there are no such numbers; the error
    is at least ``times`` that of a parameter of two ``points``, to a ``power``.
    """
    if guarantee.trust is not Trust.LOCAL or guarantee.unit != "user" or guarantee.delta:
        return ()
    sizes = sizes_of(held, *planned)
    value = times * two_point_bound(sizes, float(guarantee.epsilon), points, power)
    return (LowerBound(loss, value, source=f"two hypotheses (Le Cam) {about}"),)


def planned_sizes(protocol: Protocol) -> tuple[float, float]:
    """Return the samples per user and the users that a protocol plans with; 0 if it does not."""
    size, n = (getattr(protocol, name, None) for name in ("samples_per_user", "n_users"))
    return float(size or 0.0), float(n or 0.0)


# -- with a trusted server -------------------------------------------------------------------------


DISTANCES: Floats = np.geomspace(1e-6, 1 - 1e-9, 80)
"""Distances D of the hypotheses that are looked at; any of them is a bound."""


def kept_apart(epsilon: float, delta: float, users: Floats) -> Floats:
    """Return 1 - T(g): how much outputs on data sets must overlap that differ in g users.

    With E = g epsilon and Delta = delta (e^E - 1) / (e^epsilon - 1) each output law is at most e^E
    times the other plus Delta, hence T <= (e^E - 1 + 2 Delta) / (e^E + 1), and that is attained.

    >>> kept_apart(1.0, 0.0, np.array([0.0, 1.0])).round(4).tolist()
    [1.0, 0.5379]
    """
    part = delta / math.expm1(epsilon) if epsilon < 700 else 0.0
    x = np.minimum(np.asarray(users, dtype=np.float64) * epsilon, 700.0)
    return np.asarray(np.clip(2 * (1 + 2 * part) / (np.exp(x) + 1) - 2 * part, 0.0, 1.0))


def grouped(sizes: Sizes) -> Sizes:
    """Round users' numbers of items up to 24 sizes; more items make two laws differ more."""
    if len(sizes.items) <= 24:
        return sizes
    edges = np.unique(np.ceil(np.geomspace(sizes.items.min(), sizes.items.max(), 24)))
    at = np.searchsorted(edges, sizes.items)
    users = np.asarray(np.bincount(at, sizes.users, minlength=len(edges)), dtype=np.float64)
    return Sizes(edges[users > 0], users[users > 0])


def coin_bound(
    sizes: Sizes,
    epsilon: float,
    delta: float,
    *,
    power: int = 2,
    pairs: int = 1,
    steps: int = 1,
) -> float:
    """Bound the error about the users' own average of items +-1, or of shares of symbols.

    Power 1, of the absolute error: max over D of D (1 - T(1 + S)), S the sum of all t_u. Power 2,
    for one pair only: that of D^2 times (sum 1 / t_u) / n^2 (1 - T(1 + S)) + (1 - 1/n) (1 - T(2 +
    S)). With ``pairs`` of symbols of the probabilities (1 +- D) / (2 pairs) the l1 error of the
    shares is bounded (Assouad: a pair's part of it, with the others given). ``steps`` are how many
    neighbours apart two records of one user are.

    >>> users = Sizes(np.array([1.0]), np.array([1000.0]))
    >>> 0.23 < 1000 * coin_bound(users, 1.0, 0.0, power=1) < 0.5569
    True
    """
    if math.isinf(epsilon):
        return 0.0
    if power == 2 and pairs != 1:
        raise ValueError(f"squared errors have one pair, got pairs = {pairs}")
    sizes, d = grouped(sizes), DISTANCES
    total, inverse = np.zeros(len(d)), np.zeros(len(d))
    for items, users in zip(sizes.items, sizes.users, strict=True):
        t = _apart(items, d, pairs)
        total += users * t
        inverse += users / np.maximum(t, 1e-300)
    one = kept_apart(epsilon, delta, steps * (1 + total))
    if power == 1:
        return float((d * one).max())
    two = kept_apart(epsilon, delta, steps * (2 + total))
    n = sizes.n
    return float((d**2 * (inverse / n**2 * one + max(0.0, 1 - 1 / n) * two)).max())


def _apart(items: float, d: Floats, pairs: int) -> Floats:
    """Return t: total variation of a user's items in one pair, given how many they are."""
    from scipy.stats import binom

    if pairs == 1:
        return binomial_distance(items, d)
    low, high = (int(x) for x in binom.ppf((5e-11, 1 - 5e-11), items, 1 / pairs))
    at = np.arange(low, high + 1)
    mass = binom.pmf(at, items, 1 / pairs)
    total = np.full(len(d), max(0.0, 1 - float(mass.sum())))  # the rest tells everything
    for b, share in zip(at, mass, strict=True):
        total += share * binomial_distance(float(b), d) if b else 0.0
    return np.asarray(np.minimum(total, 1.0))


def _coupled(kind: str) -> str:
    return f"two populations user by user (coupling), group privacy; {kind}"


def covered(guarantee: Guarantee) -> bool:
    """Say whether the bounds are about such a guarantee: a whole record, and a trusted server."""
    central = guarantee.trust is Trust.CENTRAL and guarantee.unit == "user"
    return central and guarantee.private


def steps_of(guarantee: Guarantee) -> int:
    """How many neighbours apart two records of one user are: by way of the empty one, two."""
    return 1 if guarantee.adjacency is Adjacency.REPLACE_USER else 2


def central_share_bounds(guarantee: Guarantee, sizes: Sizes, symbols: int) -> list[LowerBound]:
    """Bound the l1 error of the shares of symbols from below, for users of such sizes."""
    if not covered(guarantee) or symbols < 2:
        return []
    eps, delta, steps = guarantee.epsilon, guarantee.delta, steps_of(guarantee)
    pairs = sorted({1, symbols // 2})
    value = max(coin_bound(sizes, eps, delta, power=1, pairs=j, steps=steps) for j in pairs)
    return [LowerBound(L1, value, source=_coupled("items of one law"))]


def central_mean_bounds(
    guarantee: Guarantee,
    n_users: float,
    radius: float,
    loss: str,
    power: int,
    kind: str = "users' means as far apart as here",
) -> list[LowerBound]:
    """Bound the l2 error of a mean, or its square, where users' means lie ``radius`` from it."""
    if not covered(guarantee) or not n_users or not radius > 0:
        return []
    eps, delta, steps = guarantee.epsilon, guarantee.delta, steps_of(guarantee)
    sizes = Sizes(np.ones(1), np.array([float(n_users)]))
    value = radius**power * coin_bound(sizes, eps, delta, power=power, steps=steps)
    return [LowerBound(loss, value, source=_coupled(kind))]
