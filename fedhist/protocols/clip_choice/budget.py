"""How one budget is split between choosing a threshold and releasing a histogram with it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedhist.protocols.clip_choice.rule import ThresholdRule

CHOICE_SHARE = 1 / 11
"""Share of epsilon that pays for C: 0.1 where the release has 1, as in Liu et al., Section 7.1."""

ITEM_SHARES = (
    (60.0, 0.45),
    (120.0, 0.3),
    (700.0, 0.25),
    (2000.0, 0.36),
    (4000.0, 0.25),
    (math.inf, 0.2),
)
"""Share for one item, by n epsilon below a bound, of the exact mixtures: about what Poisson counts
lose least with, but more where it finds one user in twenty with fifty times as many, who are 35 to
100 users then and cost up to ten times the error if they are missed.
"""

RATIO_SHARE = 0.1
"""Share of epsilon that pays for a private total, where there is one."""


def item_share(n_users: int, epsilon: float) -> float:
    """Share of epsilon that pays for the threshold of one item's counts; from public numbers.

    An eleventh, as in the paper, has up to fifty times the error of the best share where users are
    few: the threshold is then among the largest ones, and the noise with it.

    >>> [item_share(n, 0.5) for n in (100, 1000, 100_000)]
    [0.45, 0.25, 0.2]
    """
    return next((s for bound, s in ITEM_SHARES if n_users * epsilon < bound), ITEM_SHARES[-1][1])


def domain_share(d: int, n_users: int | None, epsilon: float) -> float:
    """Share of epsilon that pays for the threshold of a whole histogram over d items.

    The more items, the more users exceed the best threshold, and the easier it is to find: 0.4
    d^-0.25, but an eleventh at least, and at most what one item takes. Least regret, of the exact
    mixtures, over 2,200 populations of users alike, in clusters, of Pareto sizes and with few who
    have much: exponents of -0.15 to -0.3 and factors of 0.35 to 0.5 are as good within 2 %.

    >>> [round(domain_share(d, None, 1.0), 3) for d in (5, 30, 5000)]
    [0.267, 0.171, 0.091]
    >>> [round(domain_share(1, n, 1.0), 3) for n in (50, 10_000)]
    [0.4, 0.2]
    """
    most = 0.4 if n_users is None else item_share(n_users, epsilon)
    return min(max(0.4 * math.pow(d, -0.25), CHOICE_SHARE), most)


def sums_share(d: int) -> float:
    """Share of epsilon for a threshold found by noisy sums, of a histogram over d items.

    They need more than the exponential mechanism: nothing before the data keeps their noise out of
    the empty tail. 1.1 / sqrt(d), but an eleventh at least, and 0.4 at most: whole counts with less
    noise could not be shared among ten nodes.

    >>> [round(sums_share(d), 3) for d in (1, 5, 30, 5000)]
    [0.4, 0.4, 0.201, 0.091]
    """
    return min(max(1.1 / math.sqrt(d), CHOICE_SHARE), 0.4)


@dataclass(frozen=True)
class Shares:
    """The parts of a budget; they add up to it.

    Attributes
    ----------
    choice_epsilon, choice_delta : float
        For the choice of C, (epsilon', delta').
    ratio_epsilon : float
        For a private total; 0 where there is none.
    release_epsilon, release_delta : float
        What is left.
    """

    choice_epsilon: float
    choice_delta: float
    ratio_epsilon: float
    release_epsilon: float
    release_delta: float


def split_budget(
    epsilon: float,
    delta: float,
    rule: ThresholdRule,
    *,
    share: float = CHOICE_SHARE,
    epsilon_choice: float | None = None,
    delta_choice: float | None = None,
    epsilon_ratio: float | None = None,
    ratio: bool = False,
) -> Shares:
    """Split (epsilon, delta); shares that are not given take their defaults.

    Parameters
    ----------
    epsilon, delta : float
        The whole. An infinite epsilon makes every epsilon infinite: no noise anywhere.
    rule : ThresholdRule
    share : float
        Of epsilon for the choice, where ``epsilon_choice`` is not given.
    epsilon_choice, delta_choice, epsilon_ratio : float, optional
        Defaults: the share of epsilon; half of delta for rules that need one, otherwise 0; a
        tenth of epsilon.
    ratio : bool
        Whether a private total is paid for.

    Raises
    ------
    ValueError
        If a share is out of range, belongs to nothing, or leaves nothing to the release.
    """
    for name, part in (("epsilon_choice", epsilon_choice), ("epsilon_ratio", epsilon_ratio)):
        if part is not None and not part > 0:
            raise ValueError(f"{name} must be positive, got {part}")
    if epsilon_ratio is not None and not ratio:
        raise ValueError(f"epsilon_ratio = {epsilon_ratio} is for debias = true only")
    choice = share * epsilon if epsilon_choice is None else epsilon_choice
    total = (RATIO_SHARE * epsilon if epsilon_ratio is None else epsilon_ratio) if ratio else 0.0
    left = epsilon - choice - total
    if math.isinf(epsilon):
        choice = left = math.inf
        total = math.inf if ratio else 0.0
    if not left > 0:
        parts = f"epsilon_choice = {choice}" + (f" and epsilon_ratio = {total}" if ratio else "")
        raise ValueError(f"{parts} leave nothing of epsilon = {epsilon} to the release")
    if delta_choice is None:
        delta_choice = delta / 2 if rule.needs_delta else 0.0
    if rule.needs_delta and not 0 < delta_choice < delta:
        raise ValueError(
            f"the rule {rule.name!r} needs delta_choice in (0, delta = {delta}), got {delta_choice}"
        )
    if not rule.needs_delta and delta_choice:
        raise ValueError(f"the rule {rule.name!r} spends no delta; got delta_choice {delta_choice}")
    return Shares(choice, delta_choice, total, left, delta - delta_choice)
