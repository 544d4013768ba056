"""Mechanisms that select a binomial hypothesis for every symbol by the exponential mechanism [1]_.

The number of times that a user holds symbol i is Bin(m, p_i). From how many users hold it at most
t times, public hypotheses Bin(m, p) are scored (:mod:`server.distributions.ks_scores`,
:mod:`server.distributions.phs_scores`), and one is drawn with probability ~ exp(epsilon score / 2).
What privacy costs then falls with m like the sampling error does, which noise on counts does not.

One user changes the scores of at most q = min(k, 2m) symbols, by at most 1 each. A selection has
bounded range, epsilon^2 / 8 in zCDP, so each symbol gets sqrt(8 rho / q). Corrected against the
paper: its budgets are for a minimum with m in place of 2m, and still spend a small part of what
they promise (:mod:`fedhist.protocols.printed.distribution`).

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Algorithms 1 to 3 and 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np

from fedhist.base.arrays import Array, Floats, Integers
from fedhist.model.query import Query, Summary
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Release, pure
from fedhist.privacy.noise_law import NoiseLaw
from fedhist.protocols.distributions import selection_theory as theory_selection
from fedhist.protocols.distributions import theory as theory_distribution
from fedhist.protocols.distributions.exceedance_counts import MOST_M, ExceedanceCounts
from fedhist.protocols.distributions.given_users import chosen_with, selection_l1
from fedhist.protocols.distributions.mechanisms import (
    DistributionTask,
    Given,
    Learned,
    Mechanism,
    Search,
)
from fedhist.protocols.distributions.selection_theory import KS_HEIGHT, PHS_HEIGHT
from fedhist.protocols.shared.distribution_target import SeenShares
from fedhist.protocols.shared.item_encodings import Presence
from fedhist.session.curator import Curator
from server.distributions.binomial_grid import (
    MOST_CELLS,
    MOST_HYPOTHESES,
    SENSITIVITY,
    SMALL,
    SelectionPlan,
    pick_eta,
)
from server.distributions.ks_scores import KSPlan, oversized
from server.distributions.phs_scores import PHSPlan
from server.distributions.simplex import CMAX, presence_to_probability

Build = Callable[[int, float], SelectionPlan]

MOST_SCORES = 1 << 26
"""Most scores, symbols times hypotheses: 512 MB."""


@dataclass(frozen=True)
class Budgets:
    """What each stage may spend.

    Attributes
    ----------
    each : float
        Epsilon of each symbol's selection.
    rho : float
        Of the presence totals of all symbols together, Gaussian noise; 0: see ``laplace``.
    laplace : float
        Epsilon for each symbol's presence, Laplace noise; 0: see ``rho``. Neither: one stage.
    """

    each: float
    rho: float = 0.0
    laplace: float = 0.0


def corrected(task: DistributionTask) -> Budgets:
    """Spend it all on one stage."""
    found = task.epsilon, task.delta - task.delta0, task.rho, task.touched
    return Budgets(theory_selection.epsilon_per_symbol(*found))


def corrected_sparse(task: DistributionTask) -> Budgets:
    """Split zCDP evenly: rho / 2 for all selections, rho / 2 for the presence of all symbols."""
    if not task.private:
        return Budgets(math.inf, math.inf)
    return Budgets(math.sqrt(4 * task.rho / task.touched), task.rho / 2)


def costs(task: DistributionTask, budgets: Budgets) -> tuple[Release, ...]:
    """List what the stages charge, as the Curator does."""
    q = task.touched
    selection = theory_selection.selection_cost(budgets.each, q)
    if budgets.rho:
        return selection, Release(math.inf, 0.0, budgets.rho)
    return (selection, pure(q * budgets.laplace)) if budgets.laplace else (selection,)


# -- scripts ---------------------------------------------------------------------------------------


def select(
    task: DistributionTask, server: Curator, build: Build, each: float, label: str
) -> Generator[Query, Summary, tuple[Floats, dict[str, float]]]:
    """Select a hypothesis for every symbol; one round.

    The width of the grid follows from the number of users and the budget. NOT PRIVATE without
    noise, like every exact score.
    """
    _check_size(task, each)
    plan = build(task.m, pick_eta(task.n_users, each))
    query = ExceedanceCounts(task.domain, task.m, plan.thresholds)
    summary = yield query
    return choose(task, server, plan, query.below(summary), each, label)


def choose(
    task: DistributionTask,
    server: Curator,
    plan: SelectionPlan,
    below: Integers,
    each: float,
    label: str,
) -> tuple[Floats, dict[str, float]]:
    """Select a hypothesis for every symbol by the users who hold it at most t times: (k, T)."""
    scores = plan.scores(below, task.n_users)
    chosen = server.exponential_rows(
        scores, sensitivity=SENSITIVITY, epsilon_each=each, changed=task.touched, label=label
    )
    public = {
        "epsilon_per_symbol": each,
        "hypotheses": float(len(plan.p)),
        "thresholds": float(len(plan.thresholds)),
    }
    return np.asarray(plan.p[chosen]), public


def one_stage(
    build: Build, budgets: Callable[[DistributionTask], Budgets]
) -> Callable[[DistributionTask, Curator], Search]:
    """Make the script that selects every symbol (Algorithm 3)."""

    def search(task: DistributionTask, server: Curator) -> Search:
        each = budgets(task).each
        p, public = yield from select(task, server, build, each, "selection")
        return Learned(p, (), public)

    return search


def two_stages(
    build: Build, budgets: Callable[[DistributionTask], Budgets]
) -> Callable[[DistributionTask, Curator], Search]:
    """Make the script that reads rare symbols from presence instead (Algorithm 5).

    Corrected against the paper: line 3 selects with the budget of one symbol, and does not split
    it again; and presence is asked of all symbols at once, from fresh draws where users hold more
    than m items.
    """

    def search(task: DistributionTask, server: Curator) -> Search:
        budget = budgets(task)
        p, public = yield from select(task, server, build, budget.each, "selection")
        query = Presence(task.domain, task.m)
        summary = yield query
        noisy = _release(task, server, query, summary.sums["presence"], budget)
        # each e^-c is the share of users without a symbol: c is meant up to SMALL, noise adds
        small = presence_to_probability(noisy, task.n_users, task.m, CMAX)
        rare = p * task.m < SMALL
        public |= {"rare": float(rare.sum())}
        return Learned(np.where(rare, small, p), (), public)

    return search


def _release(
    task: DistributionTask, server: Curator, query: Presence, present: Array, budget: Budgets
) -> Array:
    """Add noise to the presence totals."""
    if budget.rho:
        return server.gaussian_zcdp(
            present,
            l2_sensitivity=query.l2_sensitivity,
            rho=budget.rho,
            discrete=task.discrete,
            label="presence",
        )
    draw = server.discrete_laplace if task.discrete else server.laplace
    q = query.l1_sensitivity
    return draw(present, l1_sensitivity=q, epsilon=q * budget.laplace, label="presence")


def too_large(task: DistributionTask, each: float) -> str:
    """Say what is too large to be held in memory, from public numbers; empty if nothing is."""
    d = math.pi * math.sqrt(task.m) / (4 * pick_eta(task.n_users, each)) + 3
    if task.m > MOST_M or d > MOST_HYPOTHESES or oversized(task.m, d):
        return f"{task.m} samples per user are too many to select from"
    if (
        task.k * d > MOST_SCORES
        or task.k * min(task.m, 2 * math.pi * task.m**0.5 + 40) > MOST_CELLS
    ):
        return f"{task.k} symbols times {d:.0f} hypotheses are too many scores: use presence"
    return ""


def _check_size(task: DistributionTask, each: float) -> None:
    reason = too_large(task, each)
    if reason:
        raise ValueError(reason)


# -- theory ----------------------------------------------------------------------------------------

ErrorOf = Callable[[Floats, int, int, float, bool], Floats]
BudgetsOf = Callable[[DistributionTask], Budgets]


def _error(
    error_of: ErrorOf, budgets: BudgetsOf
) -> Callable[[DistributionTask, Floats, bool], float]:
    def error(task: DistributionTask, p: Floats, pooled: bool) -> float:
        values, times = np.unique(p, return_counts=True)
        each = budgets(task).each
        return float(times @ error_of(values, task.m, task.n_users, each, pooled))

    return error


def _given(family: Family, budgets: BudgetsOf) -> Given:
    """Make the prediction on known users: the law of the choices, from the users' own scores."""

    def given(task: DistributionTask, seen: SeenShares, project: bool) -> float:
        each = budgets(task).each
        plan = family.build(task.m, pick_eta(task.n_users, each))
        query = ExceedanceCounts(task.domain, task.m, plan.thresholds)
        (summary,) = seen.answers([query])
        scores = plan.scores(query.below(summary), task.n_users)
        chances = chosen_with(scores, each / 2)
        return selection_l1(seen.shares, chances, plan.p, project)

    return given


def presence_law(task: DistributionTask, budgets: Budgets) -> NoiseLaw:
    """Law of the noise on each presence total of the second stage."""
    if budgets.rho:
        scale = math.sqrt(task.touched / (2 * budgets.rho))
        return NoiseLaw("discrete-gaussian" if task.discrete else "gaussian", scale)
    return NoiseLaw("discrete-laplace" if task.discrete else "laplace", 1 / budgets.laplace)


def _sparse_error(
    error_of: ErrorOf, budgets: BudgetsOf
) -> Callable[[DistributionTask, Floats, bool], float]:
    def error(task: DistributionTask, p: Floats, pooled: bool) -> float:
        rare = p * task.m < SMALL
        common = _error(error_of, budgets)(task, p[~rare], pooled)
        law = presence_law(task, budgets(task))
        return common + theory_distribution.presence_error(
            p[rare], task.m, task.n_users, law, pooled, CMAX
        )

    return error


def _floor(budgets: BudgetsOf, height: float) -> Callable[[DistributionTask], float]:
    """Users that the selection needs; infinitely many where it would not fit into memory."""

    def floor(task: DistributionTask) -> float:
        each = budgets(task).each
        if too_large(task, each):
            return math.inf
        return theory_selection.users_needed(task.m, each, height)

    return floor


@dataclass(frozen=True)
class Family:
    """Scores of binomial hypotheses, and what theory says of a selection by them."""

    build: Build
    error: ErrorOf
    height: float


KS = Family(KSPlan.of, theory_selection.ks_error, KS_HEIGHT)
PHS = Family(PHSPlan.of, theory_selection.phs_error, PHS_HEIGHT)


def selection(
    name: str, family: Family, budgets: BudgetsOf, source: str, *, automatic: bool = False
) -> Mechanism:
    """Make the mechanism that selects every symbol; where it is "sparse", the common ones only."""
    sparse = name == "sparse"
    return Mechanism(
        name,
        (two_stages if sparse else one_stage)(family.build, budgets),
        (_sparse_error if sparse else _error)(family.error, budgets),
        rounds=2 if sparse else 1,
        pure=budgets is corrected,
        source=source,
        floor=_floor(budgets, family.height),
        automatic=automatic,
        estimates=Truth.COMMON,
        given=None if sparse else _given(family, budgets),
    )


_KS = "after Liu et al., NeurIPS 2020, Algorithm {}; Kolmogorov-Smirnov scores"

MECHANISMS = (
    selection("ks", KS, corrected, _KS.format(3), automatic=True),
    selection("phs", PHS, corrected, "Liu et al., NeurIPS 2020, Algorithms 1 to 3"),
    selection("sparse", KS, corrected_sparse, _KS.format(5)),
)
"""Selection in one stage and in two."""
