"""Centred counts as a mechanism of ``distribution``: all users have m samples each."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace

import numpy as np

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
from fedhist.protocols.shared.projected_error import projected_l1
from fedhist.session.curator import Curator
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams, Streams
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


def given(task: DistributionTask, users: Users, project: bool) -> float:
    """Predict the error on known users. NOT PRIVATE."""
    truth = theory.average_distribution(users, task.domain)
    shares = theory.cut_moments(users, task.domain, task.m)[0] / (task.n_users * task.m)
    return given_centred(centred_task(task), truth, shares, users, project)


def given_centred(
    found: CentredTask, truth: Floats, shares: Floats, users: Users, project: bool
) -> float:
    """Predict the error on known users: the rounds without the noise of the offsets. NOT PRIVATE.

    Three centres are drawn around the average ``shares`` (k,) that users send; each radius that may
    be selected clips the users' exact offsets. What is left is Gaussian noise around a known bias.
    """
    if not found.selects:
        return _of_shares(truth, shares, found, found.epsilon - found.first, project)
    rng, total = np.random.default_rng(2020), 0.0
    for _ in range(DRAWS):
        start = shares + rng.laplace(0.0, found.share_std(found.first) / math.sqrt(2), found.k)
        total += _from_centre(truth, shares, start, found, users, project)
    return total / DRAWS


def _from_centre(
    truth: Floats, shares: Floats, start: Floats, task: CentredTask, users: Users, project: bool
) -> float:
    """Predict the error where the first round released ``start``."""

    def streams(some: Users) -> Streams:
        return SeededStreams(some.ids, 0, "given")  # one draw stands for all of who has more

    centre = project_simplex(start)
    spread = task.spread(centre)
    where = task.domain, task.cut, task.own, centre, spread
    asked = CentredNorms(*where, task.radii)
    above = asked.above(asked.answer_folded(users, streams))
    weight = task.second / 2 * radius_scores(above, int(task.n_users), task.clipped)
    chance = np.exp(weight - weight.max())
    chance /= chance.sum()
    total = 0.0
    for j in np.flatnonzero(chance > LIKELY):
        radius = float(task.radii[j])
        std = task.offset_std(radius, spread)
        beyond = above[min(int(j) + FAR, len(above) - 1)]
        alarm = _alarm(float(beyond), task) if task.far else 0.0
        one = _of_shares(truth, shares, task, task.third, project)
        if not task.prefers_shares(std):
            query = CentredCounts(*where, radius)
            steps = query.answer_folded(users, streams).sums["steps"]
            scale = query.unit / task.n_users / (1 - task.lost)
            first = task.share_std(task.first)
            middle = combined(start, first, centre + spread * scale * steps, std)
            noise = combined(np.zeros(task.k), first, std, std)
            law = NoiseLaw("gaussian", 0.0)
            one = alarm * one + (1 - alarm) * _l1(truth, middle - truth, noise, law, project)
        total += float(chance[j]) * one
    return total / float(chance[chance > LIKELY].sum())


def _alarm(beyond: float, task: CentredTask) -> float:
    """Return the chance that noise takes so many users beyond the limit."""
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
