"""Centred counts as a mechanism of ``distribution``: all users have m samples each."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace

import numpy as np
from scipy.special import chdtri

from fedhist.base.arrays import Floats
from fedhist.model.query import Query, Summary
from fedhist.protocols.distributions.centred_release import AskShares, CentredTask, centred
from fedhist.protocols.distributions.mechanisms import (
    Additive,
    DistributionTask,
    Learned,
    Mechanism,
    Search,
)
from fedhist.session.curator import Curator

SOURCE = "this project's own: centred counts"
COUNTS = Additive("counts", gaussian=False)


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
    """Predict the l1 error at p uniform, where counts are ``ratio`` times as wide as binomial.

    E|Z| 2 z R / s summed over spreads 1 / sqrt k. The radius R is what the intended part of the
    users exceeds, sqrt(chi^2 / m) h r, rounded up on the candidates by 2^(1/8) on average; and
    h = hypot(1, 2.83 sqrt(k m) / (s epsilon_1)) for the noise of the centre. About
    2 z k h r / (s sqrt m) in all where k is large. A part of the centre's own error stays where
    few symbols and users make clipping take from the offset.
    """
    found = centred_task(task)
    if not (found.runs and found.selects):
        return math.inf
    s, k, m = task.n_users, task.k, task.m
    h = math.hypot(1.0, 2.83 * math.sqrt(k * m) / (s * found.first))
    radius = 2**0.125 * math.sqrt(chdtri(max(k - 1, 1), found.clipped / s) / m) * h * ratio
    noise = math.sqrt(2 / math.pi) * 2 * found.multiplier * radius / s * math.sqrt(k)
    return math.hypot(noise, 0.5 * found.lost * k * 2 / (s * found.first))


def _error(task: DistributionTask, p: Floats, pooled: bool) -> float:
    sampling = 0.0 if pooled else float(np.sqrt(p * (1 - p) / task.m / task.n_users).sum()) * 0.8
    return math.hypot(centred_error(task), sampling)


def _floor(task: DistributionTask) -> float:
    """Users from which a radius can be selected; inf without a delta or with too many symbols."""
    found = centred_task(task)
    return found.clipped / 0.3 if found.runs else math.inf


CENTRED = Mechanism(
    "centred", search, _error, rounds=3, pure=False, source=SOURCE, floor=_floor, automatic=False
)
"""Average of the users' shares, whatever distributions they have."""
