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
from fedhist.protocols.distributions.theory import average_distribution, presence_moments
from fedhist.protocols.shared.clipped_totals import user_norms
from fedhist.protocols.shared.projected_error import projected_l1
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams, Streams
from server.distributions.fit_statistic import STEPS as FIT_STEPS
from server.distributions.fit_statistic import fit_limit

DRAWS, NODES = 8, 3
"""Draws of m-hat samples, and values of s-hat, that a prediction looks at."""

LIKELY = 0.01
"""Branches of less than this probability are left out."""

SOURCE = "this project's own: the users' own shares"


def predicted_average(choice: Choice, mechanism: str, users: Users, project: bool) -> ErrorBound:
    """Predict the expected l1 error of "frequencies", "centred" or "auto" on known users."""
    task = choice.task
    if mechanism == "frequencies":
        expected = shares_l1(task, users, project)
    elif mechanism == "centred":
        expected = centred_l1(task, users, project)
    else:
        expected = _chosen(choice, users, project)
    exact = mechanism == "frequencies" and not project
    return ErrorBound(L1, expected, exact, SOURCE + ("; projected, closed form" if project else ""))


def shares_l1(task: AverageTask, users: Users, project: bool) -> float:
    """Predict noise on shares: whoever has none is left out."""
    p = average_distribution(users, task.domain)
    n = max(1, int(np.count_nonzero(user_norms(users, task.domain)[0])))
    law = task.law(n, task.rest)
    return projected_l1(p, law) if project else len(p) * law.mean_absolute


def centred_l1(task: AverageTask, users: Users, project: bool) -> float:
    """Predict centred shares."""
    p = average_distribution(users, task.domain)
    n = task.n_users or max(1, int(np.count_nonzero(user_norms(users, task.domain)[0])))
    return given_centred(task.centred(n), p, p, users, project)


def appendix_l1(
    task: RaggedTask, users: Users, sizes: Floats, users_std: float, project: bool
) -> float:
    """Predict presence or one selection from m-hat samples of the large users.

    Averaged over draws, and over the noise of s-hat, a Laplace law at its middles.

    Parameters
    ----------
    task : RaggedTask
    users : Users
    sizes : (n,) float64
        Samples in the domain.
    users_std : float
        Of s-hat.
    project : bool
    """
    p, kept = average_distribution(users, task.domain), sizes >= task.size
    s = float(np.count_nonzero(kept))
    (step,) = task.steps(s)
    at = (np.arange(NODES) + 0.5) / NODES - 0.5
    noisy = s - users_std / math.sqrt(2) * np.sign(at) * np.log(1 - 2 * np.abs(at))
    released = np.maximum(1, np.rint(noisy)).astype(np.int64).tolist()
    if step == "presence":
        large = users.take(np.flatnonzero(kept))
        mean, variance = presence_moments(large, task.domain, task.size)
        how = task.law, task.cmax, project
        found = [presence_l1(p, mean, np.sqrt(variance), task.size, s, *how) for s in released]
        return float(np.mean(found))
    plan, total = task.plan(step, s), 0.0
    query = RaggedCounts(task.domain, task.size, plan.thresholds)
    for seed, n in product(range(DRAWS), released):
        above = query.above(query.answer_folded(users, partial(_streams, seed=seed)))
        scores = plan.scores(np.clip(n - above, 0, n), n)
        total += selection_l1(p, chosen_with(scores, task.epsilon_each / 2), plan.p, project)
    return total / (DRAWS * NODES)


def _chosen(choice: Choice, users: Users, project: bool) -> float:
    """Average over m-hat, and over the outcomes of the tests."""
    if not choice.promising:
        return shares_l1(choice.task, users, project)
    sizes = user_norms(users, choice.task.domain)[0]
    task = choice.median_task(choice.size_epsilon)
    total = weight = 0.0
    for size, kept, chance in possible_sizes(sizes, task, "em"):
        if chance > LIKELY:
            total += chance * _given_size(choice, size, kept, users, project)
            weight += chance
    if weight > 0.5:
        return total / weight
    return shares_l1(choice.left(choice.size_epsilon), users, project)


def _given_size(choice: Choice, size: int, kept: float, users: Users, project: bool) -> float:
    """Predict what follows a released m-hat, s-hat being taken without noise."""
    spent = [choice.size_epsilon]
    if not choice.selects(size, kept):
        return _averaged(choice, spent, size, users, project)
    fine, close = _chances(choice, size, kept, users)
    found = 0.0
    spent.append(choice.fit_epsilon)
    if fine < 1 - LIKELY:
        found += (1 - fine) * _averaged(choice, spent, size, users, project)
    spent.append(choice.gap_epsilon)
    if fine * (1 - close) > LIKELY:
        found += fine * (1 - close) * _averaged(choice, spent, size, users, project)
    if fine * close > LIKELY:
        found += fine * close * _selected(choice, size, kept, users, project)
    return found


def _averaged(choice: Choice, spent: list[float], size: int, users: Users, project: bool) -> float:
    left = choice.left(*spent)
    way = centred_l1 if choice.centres(left, size) else shares_l1
    return way(left.of_size(size), users, project)


def _streams(some: Users, seed: int = 0) -> Streams:
    return SeededStreams(some.ids, seed, "given")  # few draws stand for all of who has more


def _chances(choice: Choice, size: int, kept: float, users: Users) -> tuple[float, float]:
    """Probability that the fit passes, and that the gap does."""
    task, k = choice.task, len(choice.task.domain)
    plan = selection_plan(choice, size, kept)
    query = RaggedCounts(task.domain, size, plan.thresholds, count_kept=True)
    statistic, eta = fit_of(query, query.answer_folded(users, _streams))
    most = fit_limit(k, round(kept), eta, choice.fit_epsilon)
    fine = _below(most - statistic / FIT_STEPS, 1 / choice.fit_epsilon)
    summary = OwnShares(task.domain, size).answer_folded(users, _streams)
    scale = gap_sensitivity(len(users), k) / choice.gap_epsilon
    close = _below(choice.gap_limit(size) * STEPS * kept - gap_steps(summary), scale)
    return fine, close


def _below(room: float, scale: float) -> float:
    """Probability that Laplace noise stays below."""
    tail = 0.5 * math.exp(-abs(room) / scale)
    return 1 - tail if room > 0 else tail


def _selected(choice: Choice, size: int, kept: float, users: Users, project: bool) -> float:
    """Predict the selection from the users' own scores."""
    task, plan = choice.task, selection_plan(choice, size, kept)
    query = RaggedCounts(task.domain, size, plan.thresholds, count_kept=True)
    summary = query.answer_folded(users, _streams)
    rest = choice.selection_task(size)
    exact = rest.touched == len(task.domain)
    scores = selection_scores(query, summary, plan, kept, exact=exact)
    chances = chosen_with(scores, rest.epsilon_each / 2)
    p: Floats = average_distribution(users, task.domain)
    return selection_l1(p, chances, plan.p, project)
