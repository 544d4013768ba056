"""Centred counts as a mechanism of ``distribution``: all users have m samples each."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace

import numpy as np
from scipy.special import softmax

from fedhist.base.arrays import Floats
from fedhist.model.query import Query, Summary
from fedhist.privacy.noise_law import NoiseLaw
from fedhist.protocols.distributions import theory
from fedhist.protocols.distributions.centred_counts import CentredCounts, CentredNorms
from fedhist.protocols.distributions.centred_release import (
    FAR,
    AskShares,
    CentredTask,
    centred,
    combined,
    radius_scores,
)
from fedhist.protocols.distributions.mechanisms import (
    Additive,
    DistributionTask,
    Learned,
    Mechanism,
    Search,
)
from fedhist.protocols.shared.distribution_target import SeenShares
from fedhist.protocols.shared.projected_error import projected_l1
from fedhist.session.curator import Curator
from fedhist.users.keys import Keys
from server.distributions.simplex import project_simplex

SOURCE = "this project's own: centred counts"
COUNTS = Additive("counts", gaussian=False)
ROUNDING = 1 - 1e-9
"""Part of rho that is spent; what is left covers the rounding of conversions."""


def centred_task(task: DistributionTask) -> CentredTask:
    """Say what centred counts of users with m samples each work with."""
    return CentredTask(
        task.domain,
        task.m,
        task.m,
        own=False,
        n_users=task.n_users,
        epsilon=task.epsilon,
        delta=task.delta - task.delta0,
        rho=ROUNDING * task.rho if task.delta and not task.delta0 else 0.0,
        discrete=task.discrete,
    )


def noisy_counts(task: DistributionTask, server: Curator) -> AskShares:
    """Ask for counts, and release them over s m."""

    def ask(epsilon: float, label: str) -> Generator[Query, Summary, Learned]:
        return (yield from COUNTS.search(replace(task, epsilon=epsilon), server, label))

    return ask


def search(task: DistributionTask, server: Curator) -> Search:
    """Run the rounds."""
    return (yield from centred(centred_task(task), server, noisy_counts(task, server)))


def centred_error(task: DistributionTask, ratio: float = 1.0) -> float:
    """Predict the l1 error at p uniform, where counts are ``ratio`` times as wide as binomial."""
    return offsets_error(centred_task(task), ratio)


def offsets_error(found: CentredTask, ratio: float = 1.0) -> float:
    """Predict the l1 error at p uniform; inf where no radius can be selected."""
    return found.error(ratio) if found.runs and found.selects else math.inf


def _error(task: DistributionTask, p: Floats, pooled: bool) -> float:
    sampling = 0.0 if pooled else float(np.sqrt(p * (1 - p) / task.m / task.n_users).sum()) * 0.8
    return math.hypot(centred_error(task), sampling)


def _floor(task: DistributionTask) -> float:
    """Users from which a radius can be selected; inf without a delta or with too many symbols."""
    found = centred_task(task)
    return found.clipped / 0.3 if found.runs else math.inf


DRAWS, LIKELY = 3, 0.02
"""Centres drawn for a prediction, and the least chance of a radius that it looks at."""


def given(task: DistributionTask, seen: SeenShares, project: bool) -> float:
    """Predict the error on known users. NOT PRIVATE."""
    mean, _ = seen.moments(lambda users: theory.cut_moments(users, task.domain, task.m))
    return given_centred(centred_task(task), mean / (task.n_users * task.m), seen, project)


def given_centred(found: CentredTask, shares: Floats, seen: SeenShares, project: bool) -> float:
    """Predict the error on known users: the rounds without the noise of the offsets. NOT PRIVATE.

    Three centres are drawn around the average ``shares`` (k,) that users send; each radius that may
    be selected clips the users' exact offsets. What is left is Gaussian noise around a known bias.
    """
    if not found.selects:
        return _of_shares(seen.shares, shares, found, found.epsilon - found.first, project)
    rng, scale = np.random.default_rng(2020), found.share_std(found.first) / math.sqrt(2)
    starts = [shares + rng.laplace(0.0, scale, found.k) for _ in range(DRAWS)]
    norms = [CentredNorms(*_frame(found, start), found.radii) for start in starts]
    above = [q.above(answer) for q, answer in zip(norms, seen.answers(norms), strict=True)]
    scores = [radius_scores(a, int(found.n_users), found.clipped) for a in above]
    chances = [softmax(found.second / 2 * s) for s in scores]
    likely = [(i, int(j)) for i in range(DRAWS) for j in np.flatnonzero(chances[i] > LIKELY)]
    stds = {(i, j): found.offset_std(float(found.radii[j]), norms[i].spread) for i, j in likely}
    asked = {
        (i, j): CentredCounts(*_frame(found, starts[i]), float(found.radii[j]))
        for i, j in likely
        if not found.prefers_shares(stds[i, j])
    }
    answers = seen.answers([*asked.values()]) if asked else []
    offsets = {
        at: q.spread * (q.unit / found.n_users / (1 - found.lost)) * answer.sums["steps"] + q.centre
        for (at, q), answer in zip(asked.items(), answers, strict=True)
    }
    one = _of_shares(seen.shares, shares, found, found.third, project)
    first, totals = found.share_std(found.first), np.zeros((DRAWS, 2))
    for i, j in likely:
        error = one
        if (i, j) in offsets:
            alarm = _alarm(float(above[i][min(j + FAR, len(above[i]) - 1)]), found)
            middle = combined(starts[i], first, offsets[i, j], stds[i, j])
            noise = combined(np.zeros(found.k), first, stds[i, j], stds[i, j])
            law = NoiseLaw("gaussian", 0.0)
            off = _l1(seen.shares, middle - seen.shares, noise, law, project)
            error = alarm * one + (1 - alarm) * off
        totals[i] += chances[i][j] * np.array([error, 1.0])
    return float((totals[:, 0] / totals[:, 1]).mean())


def _frame(task: CentredTask, start: Floats) -> tuple[Keys, int, bool, Floats, Floats]:
    """Say around what the first round's shares have users looked at."""
    centre = project_simplex(start)
    return task.domain, task.cut, task.own, centre, task.spread(centre)


def _alarm(beyond: float, task: CentredTask) -> float:
    """Return the chance that noise takes so many users beyond the limit."""
    if not task.far:
        return 0.0
    room = beyond - task.most_far
    tail = 0.5 * math.exp(-abs(room) * task.far)
    return 1 - tail if room > 0 else tail


def _of_shares(
    truth: Floats, shares: Floats, task: CentredTask, second: float, project: bool
) -> float:
    """Predict the error of shares that were released twice."""
    std = task.share_std(math.hypot(task.first, second))
    law = NoiseLaw("laplace", std / math.sqrt(2))
    return _l1(truth, shares - truth, np.zeros(task.k), law, project)


def _l1(truth: Floats, bias: Floats, std: Floats, law: NoiseLaw, project: bool) -> float:
    """Predict the error of estimates with a bias, Gaussian noise and noise of one law."""
    if project:
        return projected_l1(truth, law, bias=bias, std=std)
    return float(theory.expected_absolute(bias, std, law).sum())


CENTRED = Mechanism(
    "centred",
    search,
    _error,
    rounds=3,
    pure=False,
    source=SOURCE,
    floor=_floor,
    given=given,
    automatic=False,
)
"""Average of the users' shares, whatever distributions they have."""
