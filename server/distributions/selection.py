"""Mechanisms that select a binomial hypothesis for every symbol by the exponential mechanism [1]_.

One user changes the scores of at most q = min(k, 2m) symbols, by at most 1 each. A selection has
bounded range, epsilon^2 / 8 in zCDP, so each symbol gets sqrt(8 rho / q). Corrected against the
paper: its budgets are for a minimum with m in place of 2m, and still spend a small part of what
they promise (:mod:`server.printed.distribution`).

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Algorithms 1 to 3 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, xlog1py, xlogy

from clients.distributions.queries import MOST_EXCEEDANCES, ExceedanceCounts
from fedhist.base.arrays import Array
from fedhist.base.errors import warned
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import sqrt_up
from server.distributions.binomial_scores import (
    MOST_HYPOTHESES,
    SCORE_SENSITIVITY,
    KSPlan,
    PHSPlan,
    SelectionPlan,
    oversized,
    pick_eta,
)
from server.distributions.mechanisms import (
    MEAN_ABSOLUTE,
    DistributionTask,
    Learned,
    Mechanism,
    Search,
)
from server.session.curator import Curator
from server.targets.domains import presence_to_probability

SMALL = 2.0
"""Symbols selected with m p below this are read from presence [1, Algorithm 5, line 6]."""


@dataclass(frozen=True)
class Family:
    """Scores of binomial hypotheses, and what a selection by them does.

    Scores are tents, ``height`` users per s high and ``slower`` times as flat as those of the KS
    scores. Without noise a selection makes ``sampling`` times u / sqrt(s) of u = sqrt(p (1 - p) /
    m). With m p below ``blind`` no smaller hypothesis competes, and scores rise away from the
    truth.
    """

    build: Callable[[int, float], SelectionPlan]
    height: float
    sampling: float
    slower: float
    blind: float


KS = Family(KSPlan.of, 1.0, MEAN_ABSOLUTE, 1.0, 0.0)

PHS = Family(PHSPlan.of, 0.4, 1.02, 2.27, math.log(5.0))
"""With c = 0.4 competitors are 1.28 deviations away, where TV is 2 c: 1.02 is the error of a test
there, 2.27 a normal's density at 0 over that at 1.28, and (1 - p)^m = 1 - 2 c at m p = log 5."""


@dataclass(frozen=True)
class Budgets:
    """Epsilon of each selection, and what presence may spend: rho of all, or epsilon of each."""

    each: float
    rho: float = 0.0
    laplace: float = 0.0


@dataclass(frozen=True)
class Selection(Mechanism):
    """Select every symbol (Algorithm 3); "sparse" reads the rare ones from presence (Algorithm 5).

    Corrected against the paper: line 3 of Algorithm 5 selects with the budget of one symbol, and
    does not split it again; and presence is asked of all symbols at once, from fresh draws where
    users hold more than m items.
    """

    family: Family = KS

    @property
    def sparse(self) -> bool:
        """Whether there is a second stage."""
        return self.name == "sparse"

    @property
    def rounds(self) -> int:  # type: ignore[override]
        """One for each stage."""
        return 2 if self.sparse else 1

    @property
    def pure(self) -> bool:
        return not self.sparse

    @property
    def estimates(self) -> Truth:
        return Truth.COMMON

    def budgets(self, task: DistributionTask) -> Budgets:
        """Spend sqrt(8 rho / q) a symbol, or epsilon / q if that is more."""
        if math.isinf(task.epsilon):
            return Budgets(math.inf, math.inf)
        if self.sparse:
            return Budgets(math.sqrt(4 * task.rho / task.touched), task.rho / 2)
        basic = task.epsilon / task.touched
        return Budgets(max(basic, math.sqrt(8 * task.rho / task.touched)) if task.delta else basic)

    def floor(self, task: DistributionTask) -> float:
        """Fewest users at which the error formula holds; inf where there are too many scores."""
        each = self.budgets(task).each
        if too_large(task, each):
            return math.inf
        return users_needed(task.m, each, self.family.height)

    def error(self, task: DistributionTask) -> float:
        """Add up the errors of all symbols."""
        each = self.budgets(task).each
        return task.k * selection_error(self.family, 1 / task.k, task.m, task.n_users, each)

    def search(self, task: DistributionTask, server: Curator) -> Search:
        budget = self.budgets(task)
        each = budget.each
        if reason := too_large(task, each):
            raise ValueError(reason)
        plan = self.family.build(task.m, pick_eta(task.n_users, each))
        asked = ExceedanceCounts(task.domain, task.m, plan.thresholds)
        summary = yield asked
        chosen = server.exponential_rows(
            plan.scores(asked.below(summary), task.n_users),
            sensitivity=SCORE_SENSITIVITY,
            epsilon_each=each,
            changed=task.touched,
            label="selection",
        )
        p = np.asarray(plan.p[chosen])
        public = {
            "epsilon_per_symbol": each,
            "hypotheses": float(len(plan.p)),
            "thresholds": float(len(plan.thresholds)),
        }
        if self.sparse:
            query = ExceedanceCounts(task.domain, task.m, (0,))
            summary = yield query
            present, q = summary.sums["users"][:, 0], task.touched
            spent = budget.rho, q * budget.laplace
            noisy = release_presence(server, present, q, *spent, task.discrete)
            # each e^-c is the share of users without a symbol: c is meant up to SMALL, noise adds
            small = presence_to_probability(noisy, task.n_users, task.m)
            rare = p * task.m < SMALL
            return Learned(np.where(rare, small, p), (), public | {"rare": float(rare.sum())})
        # what is selected is about no common distribution if its sum alone is off by three times
        # the error of all symbols together: of two symbols, one run in a hundred at most
        mass = float(p.sum())
        off = abs(mass - 1) > 3 * self.error(task)
        return Learned(p, (_differ_in_words(mass),) * off, {**public, "mass": mass})


def _differ_in_words(mass: float) -> str:
    return warned(
        f"the selected probabilities add up to {mass:.3g}, not 1",
        "the users do not look as if they all drew from one distribution, and the estimate is then "
        "about none of them",
        'for their average take mechanism = "centred" or "laplace"',
    )


def release_presence(
    server: Curator, present: Array, q: int, rho: float, epsilon: float, discrete: bool = True
) -> Array:
    """Add noise to presence totals, of which one user moves ``q`` by 1: for rho, or for epsilon."""
    if rho:
        return server.gaussian_zcdp(
            present, l2_sensitivity=sqrt_up(q), rho=rho, discrete=discrete, label="presence"
        )
    draw = server.discrete_laplace if discrete else server.laplace
    return draw(present, l1_sensitivity=q, epsilon=epsilon, label="presence")


def too_large(task: DistributionTask, each: float) -> str:
    """Say what is too large to be held in memory, from public numbers; empty if nothing is."""
    d = math.pi * math.sqrt(task.m) / (4 * pick_eta(task.n_users, each)) + 3
    if d > MOST_HYPOTHESES or oversized(task.m, d):
        return f"{task.m} samples per user are too many to select from"
    thresholds = min(task.m, 2 * math.pi * task.m**0.5 + 40)
    if task.k * max(d, thresholds) > MOST_EXCEEDANCES:
        return f"{task.k} symbols times {d:.0f} hypotheses are too many scores: use presence"
    return ""


# -- what a selection does, in theory --------------------------------------------------------------


def users_needed(m: int, epsilon_each: float, height: float = 1.0) -> float:
    """Fewest users s at which a typical symbol's selection is where the error formula says.

    Solves x = 2 log(sqrt(m) x) + 6 for x = height epsilon s.

    >>> users_needed(300, 1.0)
    18.0
    """
    if math.isinf(epsilon_each):
        return 1.0
    x = 20.0
    for _ in range(60):
        x = 2 * math.log(math.sqrt(m) * max(x, 1.0)) + 6
    return float(math.ceil(x / (height * epsilon_each)))


def selection_error(family: Family, p: float, m: int, n_users: float, epsilon_each: float) -> float:
    """Predict E|p-hat - p| of one symbol's selection; measured to be within some 25 %.

    With u = sqrt(p (1 - p) / m), a hypothesis p + x lies at the Kolmogorov-Smirnov distance |x| m
    b(m - 1, p), b the mode of the binomial's mass function: so scores are tents, and what is
    selected has a Laplace law of scale b = 2 / (epsilon s slope) around the best hypothesis.
    Sampling, the grid eta u and b add up in quadrature; where b exceeds p errors are down to half
    as large. With odds of about .31 epsilon s sqrt(m) exp(-epsilon s / 2) a hypothesis far away is
    selected, at the mean distance .5 - .73 p (1 - p). Private hypothesis selection has a bias of
    about (1.1 - .45 m p) / m, measured, where it is blind: good to a factor of 2 only.
    """
    s, u, eta = n_users, math.sqrt(p * (1 - p) / m), pick_eta(round(n_users), epsilon_each)
    near = far = 0.0
    if not math.isinf(epsilon_each):
        b = family.slower * 2 / (epsilon_each * s * ks_slope(p, m))
        near = b * min(1.0, 0.5 + 0.25 * min(p, 1 - p) / b)
        x = family.height * epsilon_each * s
        odds = math.exp(-x / 2) * max(1.0, 0.3134 * x * math.sqrt(m))
        far = odds / (1 + odds)
    distance = 0.5 - 0.73 * p * (1 - p)
    usual = math.sqrt((family.sampling * u) ** 2 / s + (eta * u) ** 2 + near**2)
    mean = m * min(p, 1 - p)
    bias = max(1.1 - 0.45 * mean, 0.0) / m if mean < family.blind else 0.0
    return min((1 - far) * min(usual, distance) + far * distance + bias, 0.5)


def ks_slope(p: float, m: int) -> float:
    """Kolmogorov-Smirnov distance of Bin(m, p) and Bin(m, p + x) per unit of x, at x = 0.

    >>> ks_slope(0.0, 3), round(ks_slope(0.5, 3), 9)
    (3.0, 1.5)
    """
    n = m - 1
    t = min(math.floor(m * p), n)
    log = gammaln(n + 1) - gammaln(t + 1) - gammaln(n - t + 1) + xlogy(t, p) + xlog1py(n - t, -p)
    return float(m * np.exp(log))
