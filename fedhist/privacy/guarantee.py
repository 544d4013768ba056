"""Guarantees, releases and the arithmetic of differential privacy: the one place they are stated.

A *guarantee* is what a protocol promises; a *release* is what one answer or one draw costs.
Both are plain data that the ledger, the guard, the results and the tests read.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from fedhist.base.arrays import PlainArguments
from fedhist.base.checks import Words, check_within, is_real, shown


class Trust(Words):
    """Whom the users must trust with their data; in the order of how little must be believed.

    CENTRAL: the server, which sees exact sums. AGGREGATE: the protocol that adds the nodes' numbers
    up, and all but a share of the nodes; the server sees one noisy sum. SHUFFLE: a shuffler, which
    passes on a multiset of reports. LOCAL: nobody.
    """

    CENTRAL = "central"
    AGGREGATE = "aggregate"
    SHUFFLE = "shuffle"
    LOCAL = "local"

    @property
    def rank(self) -> int:
        """0 for CENTRAL to 3 for LOCAL: the larger, the less must be believed."""
        return list(Trust).index(self)


class Adjacency(Words):
    """Which two populations must be hard to tell apart. The unit is one user.

    REPLACE_ITEM, of item-level baselines, is the exception: it protects no user's record.
    """

    ADD_REMOVE_USER = "add-remove-user"
    ZERO_OUT_USER = "zero-out-user"
    REPLACE_USER = "replace-user"
    REPLACE_ITEM = "replace-item"

    @property
    def in_words(self) -> str:
        """Return one sentence for a report."""
        return {
            Adjacency.ADD_REMOVE_USER: "one user is added or removed; the number of users is "
            "private",
            Adjacency.ZERO_OUT_USER: "one user's record is replaced by the empty one; the number "
            "of users is public",
            Adjacency.REPLACE_USER: "one user's whole record is replaced by any other; the users "
            "and cohorts are public",
            Adjacency.REPLACE_ITEM: "one sample of one user is replaced by any other; the users "
            "and their numbers of samples are public: NOT a user-level guarantee",
        }[self]


LEAST_DELTA = 1e-300


def check_budget(epsilon: float, delta: float = 0.0) -> None:
    """Raise ValueError unless 0 < epsilon (inf: noise off) and delta is 0 or in [1e-300, 1).

    Below 1e-300 the accounting's doubles lose digits.
    """
    if not (is_real(epsilon) and epsilon > 0):
        raise ValueError(f"epsilon must be positive, got {shown(epsilon)}")
    if delta != 0:
        check_within("delta", delta, LEAST_DELTA, 1, "[)")


@dataclass(frozen=True)
class Guarantee(metaclass=PlainArguments):
    """(epsilon, delta) differential privacy of a user's whole record, or of one item of it.

    Parameters
    ----------
    epsilon : float
        Positive; ``inf`` means that nothing is private: noise is off, or not what is needed.
    delta : float
    trust : Trust
    adjacency : Adjacency
    unit : str
        "user"; "item" for item-level baselines, which promise nothing about a user.
    premise : str
        What must hold of those who are trusted, in words, beyond their being honest.
    """

    epsilon: float
    delta: float
    trust: Trust
    adjacency: Adjacency
    unit: str = "user"
    premise: str = ""

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        if self.unit not in ("user", "item"):
            raise ValueError(f'unit must be "user" or "item", got {self.unit!r}')
        if (self.unit == "item") != (self.adjacency is Adjacency.REPLACE_ITEM):
            raise ValueError(f"unit {self.unit!r} does not go with {self.adjacency.value!r}")

    @property
    def private(self) -> bool:
        """False where epsilon is infinite: a reference run."""
        return math.isfinite(self.epsilon)

    @property
    def cost(self) -> Release:
        """What a user spends at most, as one release."""
        return approximate(self.epsilon, self.delta) if self.delta else pure(self.epsilon)

    @property
    def telling(self) -> str:
        """What the promise leaves to an attacker, in words."""
        chance = chance_of_telling(approximate(self.epsilon, self.delta))
        return (
            f"who knows everything else tells two such neighbours apart with {chance:.1%} at most"
        )

    def __str__(self) -> str:
        if not self.private:
            return "NOT PRIVATE (no finite epsilon holds)"
        budget = f"({self.epsilon:g}, {self.delta:g})" if self.delta else f"{self.epsilon:g}"
        unit = "item (NOT user-level)" if self.unit == "item" else self.unit
        premise = f" ({self.premise})" if self.premise else ""
        return f"{budget}-DP per {unit}, {self.trust.value} trust{premise}, {self.adjacency.value}"

    def __repr__(self) -> str:
        return f"<Guarantee: {self}>"


@dataclass(frozen=True)
class Release(metaclass=PlainArguments):
    """What one release costs a user, in both currencies.

    Attributes
    ----------
    epsilon, delta : float
        Cost under basic composition.
    rho, slack : float
        The same release is slack-approximate rho-zCDP (rho = inf where that is not known).
    """

    epsilon: float
    delta: float = 0.0
    rho: float = math.inf
    slack: float = 0.0

    def __post_init__(self) -> None:
        if not (self.epsilon >= 0 and self.delta >= 0 and self.rho >= 0 and self.slack >= 0):
            raise ValueError(f"a release cannot cost less than nothing, got {self}")


EXACT = Release(0.0, 0.0, 0.0)
"""An exact answer to a trusted server: it costs nothing until the Curator releases it."""


def pure(epsilon: float) -> Release:
    """Cost of an epsilon-DP release (Laplace, any local randomizer): epsilon^2/2-zCDP [1]_.

    References
    ----------
    .. [1] Bun & Steinke, "Concentrated differential privacy", TCC 2016, Prop. 1.4.
    """
    return Release(epsilon, 0.0, epsilon * epsilon / 2)


def bounded_range(epsilon: float) -> Release:
    """Cost of the exponential mechanism: epsilon-DP and epsilon^2/8-zCDP (bounded range) [1]_.

    References
    ----------
    .. [1] Cesar & Rogers, "Bounding, concentrating, and truncating", ALT 2021.
    """
    return Release(epsilon, 0.0, epsilon * epsilon / 8)


def approximate(epsilon: float, delta: float) -> Release:
    """Cost of an (epsilon, delta)-DP release about which nothing more is known."""
    return Release(epsilon, delta)


def gaussian(noise_multiplier: float, epsilon: float, delta: float) -> Release:
    """Cost of Gaussian noise of std noise_multiplier times the l2 sensitivity."""
    return Release(epsilon, delta, 0.5 / noise_multiplier**2)


def chance_of_telling(release: Release) -> float:
    """Bound the chance to tell which of two neighbouring records a user has, from what is released.

    Both are equally likely, and whoever guesses knows everything else: the best guess is right with
    probability (1 + t) / 2, t the total variation of the two laws [1]_. From (epsilon, delta):
    t <= delta + (1 - delta) tanh(epsilon / 2), which the worst pair attains, so that the chance is
    (e^epsilon + delta) / (e^epsilon + 1). From rho: KL <= rho, so that t <= sqrt(rho / 2) (Pinsker)
    and t <= sqrt(1 - e^-rho) (Bretagnolle & Huber); what has a slack is added. The least counts.

    >>> round(chance_of_telling(pure(1.0)), 3), round(chance_of_telling(approximate(1.0, 0.1)), 3)
    (0.731, 0.758)

    References
    ----------
    .. [1] Kairouz, Oh & Viswanath, "The composition theorem for differential privacy", ICML 2015,
       Theorem 2.1 and equation (5).
    """
    basic = math.tanh(release.epsilon / 2)
    divergence = math.sqrt(min(release.rho / 2, -math.expm1(-release.rho)))
    pairs = ((basic, release.delta), (divergence, release.slack))
    t = min(min(lost, 1.0) + (1 - min(lost, 1.0)) * of for of, lost in pairs)
    return (1 + t) / 2


@lru_cache(maxsize=1024)
def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """Smallest noise std per unit of l2 sensitivity for (epsilon, delta)-DP, exactly.

    The analytic Gaussian mechanism [1]_, any epsilon > 0. (1, 1/1.2e6) gives 4.262.

    References
    ----------
    .. [1] Balle & Wang, "Improving the Gaussian mechanism", ICML 2018, Theorem 8.
    """
    check_budget(epsilon, delta)
    if delta == 0:
        raise ValueError("the Gaussian mechanism needs delta > 0, got 0")
    if math.isinf(epsilon):
        return 0.0
    # the steps of dp_accounting.get_sigma_gaussian, whose import takes most of a second
    from scipy.special import log_ndtr  # here: SciPy takes a while to import

    def excess(std: float) -> float:
        far = epsilon * std + 1 / (2 * std)
        x, y = log_ndtr(1 / std - far), epsilon + log_ndtr(-far)
        log_delta = x + np.log1p(-np.exp(y - x)) if y < x else -math.inf
        return float(log_delta - np.log(delta))

    try:
        low, high = 0.1, 1.0
        while excess(low) < 0:
            low, high = low / 10, low
        while excess(high) > 0:
            low, high = high, high * 10
        return _root(excess, low, high, 1e-12, rtol=2.0**-50)
    except (ArithmeticError, RuntimeError, ValueError) as e:
        raise _uncalibrated(epsilon, delta) from e


@lru_cache(maxsize=4096)
def zcdp_delta(rho: float, epsilon: float) -> float:
    """Smallest delta at which rho-zCDP implies (epsilon, delta)-DP by the optimal Renyi bound [1]_.

    delta = min over a > 1 of exp((a - 1)(a rho - epsilon)) (1 - 1/a)^a / (a - 1).

    References
    ----------
    .. [1] Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy",
       NeurIPS 2020, Corollary 13.
    """
    if rho == 0:
        return 0.0

    def log_delta(log_excess: float) -> float:
        a = 1 + math.exp(log_excess)
        return (a - 1) * (a * rho - epsilon) + a * math.log1p(-1 / a) - math.log(a - 1)

    # the optimal order is near (epsilon + rho) / (2 rho); bracket it generously on a log scale
    centre = math.log(max((epsilon - rho) / (2 * rho), 1e-3))
    from scipy.optimize import minimize_scalar

    least = minimize_scalar(log_delta, bounds=(centre - 12, centre + 12), method="bounded")
    return math.exp(min(0.0, float(least.fun)))


@lru_cache(maxsize=4096)
def zcdp_epsilon(rho: float, delta: float) -> float:
    """Smallest epsilon at which rho-zCDP implies (epsilon, delta)-DP (inverse of zcdp_delta)."""
    if rho == 0:
        return 0.0
    if not 0 < delta < 1 or math.isinf(rho):
        return math.inf
    top = rho + 2 * math.sqrt(rho * math.log(1 / delta)) + 1e-12
    if zcdp_delta(rho, 0.0) <= delta:
        return 0.0
    if rho > 1e12:  # minima are lost in rounding there, and top always holds
        return top
    return _root(lambda e: zcdp_delta(rho, e) - delta, 0.0, top, 1e-13 * top)


@lru_cache(maxsize=1024)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Largest rho whose zCDP implies (epsilon, delta)-DP. (1, 1e-6) gives 0.024356."""
    check_budget(epsilon, delta)
    if delta == 0:
        raise ValueError("a zCDP budget needs delta > 0, got 0")
    if math.isinf(epsilon):
        return math.inf
    low = high = min(epsilon, 1.0)
    while zcdp_delta(high, epsilon) < delta:
        high *= 2
    while zcdp_delta(low, epsilon) > delta:
        low /= 4
    if low == high:
        return low
    try:
        return _root(lambda r: zcdp_delta(r, epsilon) - delta, low, high, low * 1e-12)
    except (ArithmeticError, RuntimeError, ValueError) as e:
        raise _uncalibrated(epsilon, delta) from e


def gaussian_cost(epsilon: float, delta: float) -> tuple[float, Release]:
    """Return the noise per unit of sensitivity, and its cost, of the analytic mechanism."""
    multiplier = gaussian_multiplier(epsilon, delta)
    if not multiplier:
        return multiplier, approximate(epsilon, delta)
    return multiplier, gaussian(multiplier, epsilon, delta)


def _uncalibrated(epsilon: float, delta: float) -> ValueError:
    budget = f"epsilon = {epsilon} at delta = {delta}"
    return ValueError(f"no noise can be calibrated in doubles to {budget}")


def _root(
    f: Callable[[float], float], low: float, high: float, accuracy: float, rtol: float = 1e-12
) -> float:
    from scipy.optimize import brentq

    return float(brentq(f, low, high, xtol=accuracy, rtol=rtol))
