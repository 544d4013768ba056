"""Shuffling: the premise of shuffle trust, and what it adds to local privacy, with its calibration.

n users send reports of one epsilon_0-local randomizer to a shuffler, which hands on the multiset.
Whoever sees it cannot say which report is whose, and the multiset is (epsilon, delta)-DP under
replacement of a user's record, with an epsilon far below epsilon_0. Every function bounds delta
from above, for all inputs of the others, all pairs of inputs of the user, and all randomizers that
:class:`Hiding` describes.

Derivation
----------
*Clones.* Let R(x0), R(x1) be the user's two laws and e = e^epsilon_0. If every law of another user
is a mixture that draws with probability q from (V0 + V1) / 2, and R(x0) = a V0 + (1 - a) V1,
R(x1) = (1 - a) V0 + a V1 with a = e / (e + 1), then the multiset is a function of how many reports
came from V0 and V1: C ~ Bin(n - 1, q) clones, A ~ Bin(C, 1/2) of them from V0, and the user's own.
:func:`clone_delta` is the hockey-stick divergence D(n, q) of these counts.

(A) q = 1 / e: R(x) >= (V0 + V1) / 2 / e, because both V lie in the hull of laws within e of R(x),
by the reduction of [1]_. Holds for every randomizer.

(C) q = 2 / (e + 1), if (e + 1) R(x) >= R(x0) + R(x1) for all x and all x0 != x1, as outcomes go:
then R(x) - q (R(x0) + R(x1)) / 2 is no negative measure, and (R(x0) + R(x1)) / 2 = (V0 + V1) / 2.
k-ary randomized response and one bit satisfy it, few others do; that it held for all was claimed
and withdrawn [2]_.

(B) Let t be the total variation of R(x0) and R(x1), and t (U0 - U1) = R(x0) - R(x1) with U0, U1 on
disjoint outcomes; p = t / (e - 1). On the outcomes of U0, R(x0) <= e R(x1) gives R(x1) >= p U0 and
R(x0) >= e p U0, likewise for U1. So R(x0) = e p U0 + p U1 + S and R(x1) = p U0 + e p U1 + S with
one S, and R(x) >= R(x0) / e gives R(x) >= p U0 + p U1 for every x. Reveal whether the user's report
came from S, which has the same probability 1 - (e + 1) p under both: if so, nothing tells the two
apart, and if not, others are clones with probability 2 p: delta <= (e + 1) p D(n, 2 p). The largest
over the pairs counts, and it is no monotone function of t.

Numbers
-------
Given C = c and T = c + 1, the counts of V0 have the laws a Bin(c, 1/2) + 1 + (1 - a) Bin(c, 1/2)
and the reverse, and P - e^epsilon Q at A is Pr[Bin(T, 1/2) = A] (f A + h) with
f = (2 / T)(2 a - 1)(1 + e^epsilon) and h = 2 (1 - a - e^epsilon a): a difference of two tails. The
divergence falls with c (one clone more is post-processing), so a block of counts is bounded by its
least, counts beyond the last block by that block, and those below the first, of probability 1e-18,
by 1. Rounding is bounded and added.

References
----------
.. [1] Feldman, McMillan & Talwar, "Hiding among the clones", FOCS 2021, Theorem 3.1.
.. [2] Feldman, McMillan & Talwar, "Stronger privacy amplification by shuffling for Renyi and
   approximate differential privacy", SODA 2023, arXiv 2208.04591, with its errata.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from fedhist.base.arrays import Floats, PlainArguments
from fedhist.base.checks import check_count, check_integer, check_within
from fedhist.privacy.guarantee import check_budget


@dataclass(frozen=True)
class Shuffler(metaclass=PlainArguments):
    """What a configuration says of a shuffler; with a budget and users it is :class:`Shuffling`."""

    delta: float
    tau: float = 0.1
    colluders: int = 0

    def over(self, epsilon: float, n_users: int) -> Shuffling:
        """Return the target for so many users."""
        return Shuffling(float(epsilon), self.delta, n_users, self.tau, self.colluders)


@dataclass(frozen=True)
class Shuffling(metaclass=PlainArguments):
    """What users are promised if the shuffler is honest, and who must report for it.

    A shuffler passes a batch's reports on as a multiset: without ids, nodes, order and times. The
    local protocol below it has a larger epsilon, its own field, which holds against the shuffler.
    ``tau`` is the largest share of the users who are asked that may not report, in [0, 0.5), read
    as the decimal that is written; ``colluders`` are users of any one batch who may tell the server
    what they have reported, or who report something made up: that hides nobody, and no count can
    tell.

    Privacy
    -------
    Replacement of one user's record: the users, and so cohorts and folds, are public. A batch that
    is too small is withheld, so the promise never rests on how many happen to report, but it does
    on their reports: all but ``colluders`` of them must be honest and in confidence.

    >>> trust = Shuffling(1.0, 1e-6, 20_000)
    >>> trust.least(), trust.least(1.0, 20)
    (18000, 757)
    """

    epsilon: float
    delta: float
    n_users: int
    tau: float = 0.1
    colluders: int = 0

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        if not self.delta > 0:
            raise ValueError(f"shuffling needs a delta in (0, 1), got {self.delta}")
        check_integer("n_users", self.n_users, 1 << 40)
        check_integer("colluders", self.colluders, 1 << 40, least=0)
        check_within("tau", self.tau, 0, 0.5, "[)")

    def least(self, share: float = 1.0, batches: int = 1) -> int:
        """Honest users who are certain to report in a batch, the one in question included.

        A hash splits a share of the users into batches: floor((1 - tau)(n / k - 5 sqrt(n / k)))
        less the colluders, n / k users being expected, of which a hash makes a batch 5 standard
        deviations smaller with a chance of 3e-7; of everybody in one batch (1 - tau) n, as
        their number is known. 1 at least.
        """
        expected = self.n_users * share / batches
        if share < 1 or batches > 1:
            expected -= 5 * math.sqrt(expected)
        report = (1 - Fraction(repr(float(self.tau)))) * Fraction(expected)
        return max(math.floor(report) - self.colluders, 1)


TAIL_ROUNDING = 1e-11
"""Relative error of a tail in doubles, generously; it is added."""
MOST_LOCAL = 64.0
"""From this epsilon_0 on nothing is promised: e^-64 of a million users are no clones."""


@dataclass(frozen=True)
class Hiding:
    """What is known of a randomizer besides its epsilon_0.

    ``mixes``: whether (e^epsilon_0 + 1) R(x) >= R(x0) + R(x1) for all x and x0 != x1, bound (C).
    ``distances``: the total variations of ALL pairs of its laws, bound (B). Others may be among
    them, but none may stand for a smaller one, which can be worse. Empty: not known.
    """

    mixes: bool = False
    distances: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not all(0 <= t <= 1 for t in self.distances):
            raise ValueError(f"a total variation lies in [0, 1], got {self.distances}")


Known = Callable[[float], Hiding]
"""What is known of a family of randomizers, by epsilon_0."""


def clone_delta(n: int, q: float, local: float, epsilon: float) -> float:
    """Bound D(n, q) from above: n - 1 others of whom each is a clone with probability q.

    >>> alone = clone_delta(1, 0.5, math.log(3), 0.0)
    >>> round(alone, 9)  # total variation of randomized response
    0.5
    """
    check_count("n", n)
    if epsilon >= local:
        return 0.0
    if local > MOST_LOCAL:
        return 1.0
    least, weights, cut = _clones(n - 1, q)
    total = float(weights @ _given_clones(least, local, epsilon))
    return min(total * (1 + TAIL_ROUNDING) + cut, 1.0)


@lru_cache(maxsize=64)
def _clones(others: int, q: float) -> tuple[Floats, Floats, float]:
    """List the least count of each block of counts of clones, its probability, and the cut."""
    if others == 0 or q == 0:
        return np.zeros(1), np.ones(1), 0.0
    if q == 1:
        return np.array([float(others)]), np.ones(1), 0.0
    from scipy.stats import binom  # for the server's side only

    # Bernstein: beyond the radius on either side lies less than 1e-18, which is added
    log = 18 * math.log(10)
    radius = log / 3 + math.sqrt(log * log / 9 + 2 * others * q * (1 - q) * log)
    low = max(math.floor(others * q - radius), 0)
    high = min(math.ceil(others * q + radius), others)
    step = max(1, math.ceil((high - low + 1) / 4096))
    least = np.arange(low, high + 1, step, dtype=np.float64)
    # below[i]: fewer than least[i] clones; the last block has all that are above it
    above_mean = least > others * q
    below, rest = binom.cdf(least - 1, others, q), binom.sf(least - 1, others, q)
    upper = np.append(below[1:], 1.0) - below
    lower = rest - np.append(rest[1:], 0.0)
    weights = np.maximum(np.where(above_mean, lower, upper), 0.0)
    weights[-1] = max(weights[-1], rest[-1])
    # what rounding can have taken from a difference of two tails
    weights += TAIL_ROUNDING * 1e-2 * np.where(above_mean, rest, np.append(below[1:], 1.0))
    return least, weights, float(below[0])


def _given_clones(clones: Floats, local: float, epsilon: float) -> Floats:
    """Hockey-stick divergence at e^epsilon, given how many of the others are clones."""
    from scipy.stats import binom  # for the server's side only

    trials = clones + 1
    truth, gap = 1 / (1 + math.exp(-local)), math.tanh(local / 2)  # a and 2 a - 1
    slope = gap * (1 + math.exp(epsilon))  # f T / 2
    fixed = 2 * (math.expm1(epsilon) * truth + gap)  # -h
    least = np.floor(trials * (fixed / 2) / slope) + 1
    # slope - fixed = 1 - e^epsilon, and Pr[Bin(T) >= a] is Pr[Bin(T - 1) >= a - 1] less half of
    # Pr[Bin(T - 1) = a - 1]: so no two tails are taken from each other
    own = binom.sf(least - 2, trials - 1, 0.5)
    gained = fixed / 2 * np.where(least <= trials, binom.pmf(least - 1, trials - 1, 0.5), 0.0)
    lost = math.expm1(epsilon) * own
    slack = TAIL_ROUNDING / 100 * (1 + trials / 1e3)  # from 1,000 on the error grows with them
    return np.asarray(np.clip(gained - lost + slack * gained, 0.0, 1.0))


@lru_cache(maxsize=4096)
def shuffled_delta(n: int, local: float, epsilon: float, hiding: Hiding = Hiding()) -> float:
    """Bound delta at an epsilon for the multiset of n reports: the least of (A), (B), (C).

    Privacy
    -------
    (epsilon, delta)-DP per user, replace; rests on the shuffler and on the n reports, not on what
    the others hold.

    >>> 0.9e-6 < shuffled_delta(100_000, 4.0, 0.1698) < 1.1e-6
    True
    """
    if epsilon >= local:
        return 0.0
    odds = math.exp(-local)
    bounds = [1.0, clone_delta(n, odds, local, epsilon)]
    if hiding.mixes:
        bounds.append(clone_delta(n, 2 * odds / (1 + odds), local, epsilon))
    if hiding.distances and local <= MOST_LOCAL:
        bounds.append(max(_by_distance(n, t, local, epsilon) for t in hiding.distances))
    return min(bounds)


def _by_distance(n: int, distance: float, local: float, epsilon: float) -> float:
    """Return bound (B) for pairs of one total variation."""
    p = distance / math.expm1(local)
    differs = min(p * (math.exp(local) + 1), 1.0)
    return differs * clone_delta(n, min(2 * p, 1.0), local, epsilon)


@lru_cache(maxsize=1024)
def shuffled_epsilon(n: int, local: float, delta: float, hiding: Hiding = Hiding()) -> float:
    """Least epsilon, rounded up, at which :func:`shuffled_delta` is at most delta.

    >>> round(shuffled_epsilon(100_000, 4.0, 1e-6), 4)
    0.1698
    >>> round(shuffled_epsilon(100_000, 4.0, 1e-6, Hiding(mixes=True)), 4)
    0.1182
    """
    _check_delta(delta)
    check_budget(local)
    if shuffled_delta(n, local, 0.0, hiding) <= delta:
        return 0.0
    if local > MOST_LOCAL:
        return local
    return _last(0.0, local, lambda e: shuffled_delta(n, local, e, hiding) > delta)[1]


def calibrate(epsilon: float, delta: float, n: int, known: Known | None = None) -> float:
    """Largest epsilon_0, rounded down, whose n shuffled reports are (epsilon, delta)-DP.

    >>> round(calibrate(1.0, 1e-6, 10_000), 2)
    4.8
    >>> round(calibrate(1.0, 1e-6, 10_000, lambda local: Hiding(mixes=True)), 2)
    5.47
    """
    _check_delta(delta)
    check_budget(epsilon)
    if math.isinf(epsilon):
        return epsilon

    def holds(local: float) -> bool:
        if local > MOST_LOCAL:
            return False
        hiding = Hiding() if known is None else known(local)
        return shuffled_delta(n, local, epsilon, hiding) <= delta

    low, high = epsilon, max(2 * epsilon, 1.0)
    while holds(high):
        low, high = high, 2 * high
    return _last(low, high, holds)[0]


def _last(low: float, high: float, holds: Callable[[float], bool]) -> tuple[float, float]:
    """Bisect where a statement that holds at ``low`` ends, up to 1e-10; it fails at ``high``."""
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise ValueError(f"shuffling needs a delta in (0, 1), got {delta}")
