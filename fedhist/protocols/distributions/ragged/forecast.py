"""What an average of known users' shares is off by; and the automatic choice. NOT PRIVATE.

For evaluation only: the branches that the choice can take, each with its probability on these very
users and with its own prediction.
"""

from __future__ import annotations

import math

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.model.losses import L1
from fedhist.model.protocol import ErrorBound
from fedhist.protocols.distributions.centred_mechanism import given_centred
from fedhist.protocols.distributions.given_users import chosen_with, selection_l1
from fedhist.protocols.distributions.ragged.average import AverageTask
from fedhist.protocols.distributions.ragged.choice import (
    Choice,
    fit_of,
    selection_plan,
    selection_scores,
)
from fedhist.protocols.distributions.ragged.encodings import RaggedCounts
from fedhist.protocols.distributions.ragged.median_size import median_probabilities
from fedhist.protocols.distributions.ragged.own_shares import (
    STEPS,
    OwnShares,
    gap_sensitivity,
    gap_steps,
)
from fedhist.protocols.distributions.theory import average_distribution
from fedhist.protocols.shared.clipped_totals import user_norms
from fedhist.protocols.shared.projected_error import projected_l1
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams, Streams
from server.distributions.fit_statistic import STEPS as FIT_STEPS
from server.distributions.fit_statistic import fit_limit, spread_ratio

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


def _chosen(choice: Choice, users: Users, project: bool) -> float:
    """Average over m-hat, and over the outcomes of the tests."""
    if not choice.promising:
        return shares_l1(choice.task, users, project)
    sizes = user_norms(users, choice.task.domain)[0]
    task = choice.median_task(choice.size_epsilon)
    edges = [0.0, *(2.0**j for j in range(task.classes - 1)), math.inf]
    counts = np.histogram(sizes, edges)[0].astype(np.int64)
    total = weight = 0.0
    for j, chance in enumerate(median_probabilities(counts, task)):
        if chance > LIKELY:
            kept = float(counts[j + 1 :].sum())
            size = 1 << j if kept >= max(1.0, 2 * task.count_slack) else 0
            total += float(chance) * _given_size(choice, size, kept, users, project)
            weight += float(chance)
    return total / weight


def _given_size(choice: Choice, size: int, kept: float, users: Users, project: bool) -> float:
    """Predict what follows a released m-hat, s-hat being taken without noise."""
    if not size or not choice.tests(size, kept):
        return shares_l1(choice.left(choice.size_epsilon), users, project)
    spent = [choice.size_epsilon, choice.fit_epsilon]
    select = choice.selects(size, kept)
    if select:
        spent.append(choice.gap_epsilon)
    left, found = choice.left(*spent), 0.0
    close, fine, ratio = _chances(choice, size, kept, users, gap=select)
    taken = close * fine
    if taken < 1 - LIKELY:
        way = centred_l1 if choice.centres(left, size, ratio) else shares_l1
        found += (1 - taken) * way(left, users, project)
    if taken > LIKELY:
        found += taken * _selected(choice, size, kept, users, project)
    return found


def _streams(some: Users) -> Streams:
    return SeededStreams(some.ids, 0, "given")  # one draw stands for all of who has more


def _chances(
    choice: Choice, size: int, kept: float, users: Users, *, gap: bool
) -> tuple[float, float, float]:
    """Probability that gap and fit pass (0: the gap is not asked for); how wide the counts are."""
    task, close = choice.task, 0.0
    if gap:
        summary = OwnShares(task.domain, size).answer_folded(users, _streams)
        scale = gap_sensitivity(len(users), len(task.domain)) / choice.gap_epsilon
        close = _below(choice.gap_limit(size) * STEPS * kept - gap_steps(summary), scale)
    plan = selection_plan(choice, size, kept)
    query = RaggedCounts(task.domain, size, plan.thresholds, count_kept=True)
    summary = query.answer_folded(users, _streams)
    statistic, eta = fit_of(query, summary)
    off, k = statistic / FIT_STEPS, len(task.domain)
    most = fit_limit(k, round(kept), eta, choice.fit_epsilon)
    fine = _below(most - off, 1 / choice.fit_epsilon)
    return close, fine, spread_ratio(off, k, round(kept))


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
