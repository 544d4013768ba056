"""Descents to a rank of the norms, and with the steps of the paper's proof.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Section 4.2, Corollary 4.4 and Section 7.1.
.. [2] Bassily, Smith & Thakurta, "Private empirical risk minimization", FOCS 2014, Algorithm 1.
.. [3] Andrew, Thakkar, McMahan & Ramaswamy, "Differentially private learning with adaptive
   clipping", NeurIPS 2021, Section 2.
.. [4] Huang, Liang & Yi, "Instance-optimal mean estimation under differential privacy", NeurIPS
   2021, Section 3.
"""

from __future__ import annotations

import math

from fedhist.protocols.clip_choice.by_descent import (
    Series,
    descend,
    drowned,
    free_choice,
    slope_radius,
)
from fedhist.protocols.clip_choice.rule import (
    Choice,
    Search,
    ThresholdRule,
    ThresholdTask,
    at_the_ends,
)
from fedhist.session.curator import Curator
from server.histograms.clip_search import proof_step


def adaptive_quantile(task: ThresholdTask, server: Curator) -> Search:
    """Descend to the M-th largest norm (DP-M-quantile), by noisy counts of larger norms [3].

    For l1 norms M = k1 d / epsilon is the optimal rank [1, Lemma 4.2]. For l2 norms nothing
    supports it: the paper compares with it. The steps are those of ``dp-sgd``; Andrew et al. take
    a fixed rate of 0.2 on the FRACTION of users, slower the smaller M / n is.

    Privacy
    -------
    (epsilon', delta')-DP; counts have sensitivity 1, not 1/2: see :class:`Series`.
    """
    return descend(task, server, task.mass, 0.0, "adaptive-quantile")


def huang_quantile(task: ThresholdTask, server: Curator) -> Search:
    """Descend to the k2 sigma sqrt(d)-th largest l2 norm, optimal for the l2 error [4].

    As ``adaptive-quantile`` at another rank: it minimises sum over i of (v_i - C)^+ plus the l2
    norm of the noise, k2 C sigma sqrt(d).
    """
    return descend(task, server, task.rank, 0.0, "huang-quantile")


def dp_sgd_paper(task: ThresholdTask, server: Curator) -> Search:
    """Descend G with the step sizes of Corollary 4.4's proof; returns the last iterate.

    C <- C - C_m (M - S + noise) / sqrt(t (n^2 L^2 + noise^2)) with n L = n R + M, from the middle
    of [c_min, c_max], for T full-batch steps (of [2] only the batches are changed).

    What it really does: it hardly moves. A slope near M is divided by n R, so that all T steps
    together cover at most 2 sqrt(T) c_max (largest slope) / (n R), 0.4 % of the range for T = 40,
    n = 1e6, R = 10 and slopes of 3400. The rate of the corollary needs the n^2 steps.

    Raises
    ------
    ValueError
        Unless the task has a public number of users.
    """
    n_users = public_users("dp-sgd-paper", task)
    free = free_choice(task)
    if free is not None:
        return free
    series = Series(task, slope_radius(task), task.epsilon, task.delta)
    size = math.hypot(n_users * task.radius + task.mass, series.noise_std)

    def move(clip: float, number: int, tail: float) -> float:
        return proof_step(clip, number, task.mass - tail, size, (task.c_min, task.c_max))

    seen = yield from series.clips(server, "dp-sgd-paper", move, (task.c_min + task.c_max) / 2)
    warnings = at_the_ends(seen[-1], task) + drowned(series.equivalent_std, task.mass)
    return Choice(seen[-1], warnings, {"tail_noise_std": series.noise_std})


def public_users(name: str, task: ThresholdTask) -> int:
    """Return the public number of users, which a printed rule needs."""
    if task.n_users is None:
        raise ValueError(f"{name} needs a public number of users: set n_users")
    return task.n_users


def public_rounds(name: str, task: ThresholdTask) -> int:
    """Count the rounds of a descent that needs a public number of users; ValueError without it."""
    public_users(name, task)
    return task.steps


ADAPTIVE_QUANTILE = ThresholdRule(
    "adaptive-quantile",
    adaptive_quantile,
    "Liu et al. 2023, Section 7.1 (DP-M-quantile); Andrew et al. 2021, Section 2",
    needs_delta=True,
    rounds=lambda task: task.steps,
    by_sums=lambda task: 0.0,
)
HUANG_QUANTILE = ThresholdRule(
    "huang-quantile",
    huang_quantile,
    "Huang et al. 2021, Section 3",
    needs_delta=True,
    norms=(2,),
    rounds=lambda task: task.steps,
    by_sums=lambda task: 0.0,
)
DP_SGD_PAPER = ThresholdRule(
    "dp-sgd-paper",
    dp_sgd_paper,
    "Liu et al. 2023, Corollary 4.4, steps of the proof",
    needs_delta=True,
    norms=(2,),
    rounds=lambda task: public_rounds("dp-sgd-paper", task),
)
