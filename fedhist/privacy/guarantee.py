"""Guarantees, releases and the arithmetic of differential privacy: the one place they are stated.

A *guarantee* is what a protocol promises; a *release* is what one answer or one draw costs.
Both are plain data that the ledger, the guard, the results and the tests read.

Under another adjacency
-----------------------
A total has one adjacency; :func:`convert` says what a release that is stated under another costs.
A user may be added or removed, may have its record emptied, or may get another record. The table,
where only (epsilon, delta) and rho are known; "two steps" is group privacy of two, see
:func:`two_steps`:

=================  ==================  ==================  ===================
stated under       add or remove       zero out            replace
=================  ==================  ==================  ===================
add or remove      as stated           N: as stated,       two steps
                                       else two steps
zero out           N: as stated,       as stated           two steps
                   else nothing
replace            N: as stated,       as stated           as stated
                   else nothing
=================  ==================  ==================  ===================

N: where the run is null-safe: a user with an empty record changes the law of nothing that comes
out, and the exact number of users is neither used nor published. Then D and D with an empty record
are one and the same. Emptying a record is removing it (one step) and adding an empty one (no step
if N, else a second one). A replacement is two steps either way: away and back. An empty record is a
record, so that a replacement covers emptying. Without N nothing is said about adding: n may be
public, and then one answer proves it.

Where it is known how far one user moves a statistic under each adjacency (:class:`Moves`), the
noise says what that costs, and the table is not needed: a Gaussian histogram of rho under zeroing
out costs 2 rho under replacement, not 4 rho. Adding needs N all the same, since what a run
publishes beside its releases (n, a status that depends on n) is not a charge.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Self

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


USER_LEVEL = (Adjacency.ADD_REMOVE_USER, Adjacency.ZERO_OUT_USER, Adjacency.REPLACE_USER)
"""The adjacencies that a total of users' losses can be stated under."""


@dataclass(frozen=True)
class Moves:
    """How far one user moves a statistic at most, in one norm and one unit, under each adjacency.

    An infinite number says that nothing bounds it.

    >>> Moves.of(lambda a: 6.0 if a is Adjacency.REPLACE_USER else 3.0)
    Moves(add_remove=3.0, zero_out=3.0, replace=6.0)
    """

    add_remove: float
    zero_out: float
    replace: float

    @classmethod
    def of(cls, sensitivity: Callable[[Adjacency], float]) -> Self:
        """Ask the function that the noise is sized by."""
        return cls(*(float(sensitivity(a)) for a in USER_LEVEL))

    def under(self, adjacency: Adjacency) -> float:
        """Return the move under an adjacency."""
        return (self.add_remove, self.zero_out, self.replace)[USER_LEVEL.index(adjacency)]


ONE_COUNT = Moves(1.0, 1.0, 1.0)
"""A count of users, or a sum of numbers in [0, C] by C; scores that are made of such counts."""


class NoTotalError(ValueError):
    """A release says nothing under an adjacency."""


def convert(
    r: Release,
    source: Adjacency,
    target: Adjacency,
    *,
    null_safe: bool = False,
    moves: Moves | None = None,
) -> Release:
    """State a release under another adjacency, by the table above or by what is known of it.

    ``null_safe`` is the run's, see above; ``moves`` are those of the statistic that the noise, or
    the exponential mechanism, was sized for. NoTotalError, with both adjacencies, if the release
    says nothing under the target.
    """
    if source is target:
        return r
    adds = target is Adjacency.ADD_REMOVE_USER and not null_safe
    if Adjacency.REPLACE_ITEM in (source, target) or adds:
        why = ": there the number of users is public" if adds and source in USER_LEVEL else ""
        raise NoTotalError(f"a release under {source.value} says nothing under {target.value}{why}")
    known = None if moves is None else scaled(r, moves.under(target), moves.under(source))
    if known is not None:
        return known
    if source is Adjacency.REPLACE_USER or (null_safe and target is not Adjacency.REPLACE_USER):
        return r
    return two_steps(r)


def two_steps(r: Release) -> Release:
    """Bound what two changes, one after the other, cost: group privacy [1]_.

    (2 epsilon, (1 + e^epsilon) delta), and 4 rho: the root of rho is a metric, by Cauchy-Schwarz
    on Renyi divergences [2]_. Approximate zCDP is made (epsilon, delta) first.

    >>> two_steps(Release(0.5, 0.0, 0.125))
    Release(epsilon=1.0, delta=0.0, rho=0.5, slack=0.0)

    References
    ----------
    .. [1] Dwork & Roth, "The algorithmic foundations of differential privacy", 2014, Section 2.3.
    .. [2] Bun & Steinke, "Concentrated differential privacy", TCC 2016, Proposition 1.9.
    """
    epsilon, delta, rho = r.epsilon, r.delta, 4 * r.rho
    if r.slack:
        rho = math.inf
        if math.isinf(epsilon):
            epsilon, delta = zcdp_epsilon(r.rho, r.slack), 2 * r.slack
    if delta:
        delta = min(1.0, delta * (1 + math.exp(min(epsilon, 700.0))))
    return Release(2 * epsilon, delta, rho)


def scaled(r: Release, to: float, of: float) -> Release | None:
    """State a release whose statistic moves by ``to`` where its noise was sized for ``of``.

    ``r`` is what the formula of its noise says, as a Curator charges it; a cost that was found in
    another way need not go with the move. Laplace noise and exponential mechanisms: epsilon goes
    with the move, rho with its square.
    Gaussian noise: rho with the square, from which epsilon at the same delta follows; that of a
    smaller move is no larger. None where the noise is not known to be one of these.

    >>> scaled(Release(1.0, 0.0, 0.5), 2.0, 1.0)
    Release(epsilon=2.0, delta=0.0, rho=2.0, slack=0.0)
    """
    if r.slack or not (0 <= to < math.inf and 0 < of < math.inf):
        return None
    factor = to / of
    if factor == 0:
        return Release(0.0, 0.0, 0.0)
    rho = r.rho * factor * factor
    if not r.delta:
        return Release(r.epsilon * factor, 0.0, rho)
    if math.isinf(r.rho):
        return None
    return Release(r.epsilon if factor <= 1 else zcdp_epsilon(rho, r.delta), r.delta, rho)


def sensitivity_multipliers(adjacency: Adjacency, d: int) -> tuple[float, float]:
    """l1 and l2 sensitivity of a sum of non-negative vectors, per unit of their norm bound.

    (1, 1) where a user is added, removed or zeroed out. Under replacement (2, sqrt 2) for d >= 2,
    by disjoint supports: ||a - b||_1 <= ||a||_1 + ||b||_1, and ||a - b||_2^2 <= ||a||_2^2 +
    ||b||_2^2 because a . b >= 0; and (1, 1) for d = 1, where both values lie in [0, C]. All are
    attained.

    >>> sensitivity_multipliers(Adjacency.ZERO_OUT_USER, 5)
    (1.0, 1.0)
    """
    if adjacency is Adjacency.REPLACE_USER and d > 1:
        return 2.0, math.sqrt(2.0)
    return 1.0, 1.0


def sqrt_up(n: int) -> float:
    """Square root of an integer, rounded up: a sensitivity is never understated."""
    root = math.sqrt(n)
    return root if Fraction(root) ** 2 >= n else math.nextafter(root, math.inf)
