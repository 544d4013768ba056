"""What an average of known users' shares is off by; and the automatic choice. NOT PRIVATE.

For evaluation only: the branches that the choice can take, each with its probability on these very
users and with its own prediction.
"""

from __future__ import annotations

import math
from functools import partial
from itertools import product

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.losses import L1
from fedhist.model.query import Summary
from fedhist.protocols.distributions.centred_mechanism import given_centred
from fedhist.protocols.distributions.given_users import chosen_with, presence_l1, selection_l1
from fedhist.protocols.distributions.ragged.average import AverageTask
from fedhist.protocols.distributions.ragged.choice import (
    Choice,
    fit_of,
    selection_plan,
    selection_scores,
)
from fedhist.protocols.distributions.ragged.encodings import RaggedCounts
from fedhist.protocols.distributions.ragged.median_size import possible_sizes
from fedhist.protocols.distributions.ragged.own_shares import (
    STEPS,
    OwnShares,
    gap_sensitivity,
    gap_steps,
)
from fedhist.protocols.distributions.ragged.release import RaggedTask
from fedhist.protocols.distributions.theory import presence_moments
from fedhist.protocols.shared.clipped_totals import user_norms
from fedhist.protocols.shared.distribution_target import SeenShares
from fedhist.protocols.shared.projected_error import projected_l1
from fedhist.users.batch import Users
from server.distributions.fit_statistic import STEPS as FIT_STEPS
from server.distributions.fit_statistic import fit_limit

DRAWS, NODES = 8, 3
"""Draws of m-hat samples, and values of s-hat, that a prediction looks at."""

LIKELY = 0.01
"""Branches of less than this probability are left out."""

SOURCE = "this project's own: the users' own shares"


def predicted_average(
    choice: Choice, mechanism: str, seen: SeenShares, project: bool
) -> ErrorBound:
    """Predict the expected l1 error of "frequencies", "centred" or "auto" on known users."""
    task = choice.task
    if mechanism == "frequencies":
        expected = shares_l1(task, seen, project)
    elif mechanism == "centred":
        expected = centred_l1(task, seen, project)
    else:
        expected = _chosen(choice, seen, project)
    exact = mechanism == "frequencies" and not project
    return ErrorBound(L1, expected, exact, SOURCE + ("; projected, closed form" if project else ""))


def shares_l1(task: AverageTask, seen: SeenShares, project: bool) -> float:
    """Predict noise on shares: whoever has none is left out."""
    law = task.law(max(1, seen.holding), task.rest)
    return projected_l1(seen.shares, law) if project else len(seen.shares) * law.mean_absolute


def centred_l1(task: AverageTask, seen: SeenShares, project: bool) -> float:
    """Predict centred shares."""
    n = task.n_users or max(1, seen.holding)
    return given_centred(task.centred(n), seen.shares, seen, project)


def appendix_l1(task: RaggedTask, seen: SeenShares, users_std: float, project: bool) -> float:
    """Predict presence or one selection from m-hat samples of the large users.

    Averaged over draws, and over the noise of s-hat, a Laplace law at its middles.

    Parameters
    ----------
    task : RaggedTask
    seen : SeenShares
    users_std : float
        Of s-hat.
    project : bool
    """
    kept = float(seen.large(task.size))
    (step,) = task.steps(kept)
    at = (np.arange(NODES) + 0.5) / NODES - 0.5
    noisy = kept - users_std / math.sqrt(2) * np.sign(at) * np.log(1 - 2 * np.abs(at))
    released = np.maximum(1, np.rint(noisy)).astype(np.int64).tolist()
    if step == "presence":
        mean, variance = seen.moments(partial(_large_presence, task=task))
        how = task.law, task.cmax, project
        std = np.sqrt(variance)
        found = [presence_l1(seen.shares, mean, std, task.size, s, *how) for s in released]
        return float(np.mean(found))
    plan, total = task.plan(step, kept), 0.0
    query = RaggedCounts(task.domain, task.size, plan.thresholds)
    for answer, n in product(seen.answers([query], range(DRAWS)), released):
        scores = plan.scores(np.clip(n - query.above(answer), 0, n), n)
        chances = chosen_with(scores, task.epsilon_each / 2)
        total += selection_l1(seen.shares, chances, plan.p, project)
    return total / (DRAWS * NODES)


def _large_presence(users: Users, task: RaggedTask) -> tuple[Floats, Floats]:
    """Mean and variance of the presence totals of who has m-hat samples."""
    large = np.flatnonzero(user_norms(users, task.domain)[0] >= task.size)
    return presence_moments(users.take(large), task.domain, task.size)


def _chosen(choice: Choice, seen: SeenShares, project: bool) -> float:
    """Average over m-hat, and over the outcomes of the tests."""
    if not choice.promising:
        return shares_l1(choice.task, seen, project)
    task = choice.median_task(choice.size_epsilon)
    total = weight = 0.0
    for size, kept, chance in possible_sizes(seen.classes(task.classes), task, "em"):
        if chance > LIKELY:
            total += chance * _given_size(choice, size, kept, seen, project)
            weight += chance
    if weight > 0.5:
        return total / weight
    return shares_l1(choice.left(choice.size_epsilon), seen, project)


def _given_size(choice: Choice, size: int, kept: float, seen: SeenShares, project: bool) -> float:
    """Predict what follows a released m-hat, s-hat being taken without noise."""
    spent = [choice.size_epsilon]
    if not choice.selects(size, kept):
        return _averaged(choice, spent, size, seen, project)
    fine, close, summary = _chances(choice, size, kept, seen)
    found = 0.0
    spent.append(choice.fit_epsilon)
    if fine < 1 - LIKELY:
        found += (1 - fine) * _averaged(choice, spent, size, seen, project)
    spent.append(choice.gap_epsilon)
    if fine * (1 - close) > LIKELY:
        found += fine * (1 - close) * _averaged(choice, spent, size, seen, project)
    if fine * close > LIKELY:
        found += fine * close * _selected(choice, size, kept, summary, seen, project)
    return found


def _averaged(
    choice: Choice, spent: list[float], size: int, seen: SeenShares, project: bool
) -> float:
    left = choice.left(*spent)
    way = centred_l1 if choice.centres(left, size) else shares_l1
    return way(left.of_size(size), seen, project)


def _chances(
    choice: Choice, size: int, kept: float, seen: SeenShares
) -> tuple[float, float, Summary]:
    """Probability that the fit passes, and that the gap does; and what a selection would see."""
    task, k = choice.task, len(choice.task.domain)
    query = _selection(choice, size, kept)
    counts, shares = seen.answers([query, OwnShares(task.domain, size)])
    statistic, eta = fit_of(query, counts)
    most = fit_limit(k, round(kept), eta, choice.fit_epsilon)
    fine = _below(most - statistic / FIT_STEPS, 1 / choice.fit_epsilon)
    scale = gap_sensitivity(seen.n_users, k) / choice.gap_epsilon
    close = _below(choice.gap_limit(size) * STEPS * kept - gap_steps(shares), scale)
    return fine, close, counts


def _selection(choice: Choice, size: int, kept: float) -> RaggedCounts:
    """Ask for the counts that a selection reads."""
    thresholds = selection_plan(choice, size, kept).thresholds
    return RaggedCounts(choice.task.domain, size, thresholds, count_kept=True)


def _below(room: float, scale: float) -> float:
    """Probability that Laplace noise stays below."""
    tail = 0.5 * math.exp(-abs(room) / scale)
    return 1 - tail if room > 0 else tail


def _selected(
    choice: Choice, size: int, kept: float, counts: Summary, seen: SeenShares, project: bool
) -> float:
    """Predict the selection from the users' own scores."""
    task, plan = choice.task, selection_plan(choice, size, kept)
    rest = choice.selection_task(size)
    exact = rest.touched == len(task.domain)
    scores = selection_scores(_selection(choice, size, kept), counts, plan, kept, exact=exact)
    chances = chosen_with(scores, rest.epsilon_each / 2)
    return selection_l1(seen.shares, chances, plan.p, project)
