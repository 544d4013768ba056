"""Clipping thresholds by output perturbation [2]_: the minimiser of a regularized objective [1]_.

One histogram of norms gives the whole curve S(C); only the minimiser is released.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Section 4.2, Algorithm 2 and Appendix A.
.. [2] Chaudhuri, Monteleoni & Sarwate, "Differentially private empirical risk minimization",
   JMLR 2011.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from fedhist.model.query import Query, Summary
from fedhist.protocols.clip_choice.by_descent import (
    Series,
    free_choice,
    log_descent,
    mostly_noise,
    slope_radius,
)
from fedhist.protocols.clip_choice.measured.descents import public_rounds, public_users
from fedhist.protocols.clip_choice.rule import (
    Choice,
    Search,
    ThresholdRule,
    ThresholdTask,
    at_the_ends,
)
from fedhist.protocols.shared.contributions import NormHistogram
from fedhist.session.curator import Curator
from server.histograms.clip_search import MOST_LEVEL, regularized_minimum

FINE_BINS = 4096
"""Bins of the histogram behind a minimiser; over ten octaves a bin is 0.17 % wide."""

DROWNED_RANGE = 0.1
"""A threshold whose noise exceeds this part of the range is reported."""


def _perturbed(
    task: ThresholdTask,
    server: Curator,
    strength: float,
    epsilon: float,
    looseness: int,
    label: str,
) -> Generator[Query, Summary, tuple[float, float]]:
    """Release argmin over C >= 0 of G_R(C) + (strength / 2) C^2 with Laplace noise.

    Parameters
    ----------
    strength : float
        Lambda, in slope per count; 0 only without noise.
    epsilon : float
    looseness : int
        Multiple of the exact sensitivity to calibrate to.

    Returns
    -------
    clip, noise_std : float
        In counts; the clip is projected to [c_min, c_max].

    Privacy
    -------
    The minimiser solves M + Lambda C = S_R(C), and changes by at most R / Lambda with one user,
    under every adjacency (attained). Proof for what is computed, in integers: with one step of C
    worth unit / Lambda it is min over bins of max(edge, tail - M), see
    :func:`regularized_minimum`, and every tail changes by at most R. Binning keeps this true: a
    user's norm is rounded up to the next edge, and to 0 below c_min, before anything is added up.
    """
    edges = np.unique(np.geomspace(task.c_min, task.c_max, FINE_BINS))
    query = NormHistogram(task.domain, tuple(edges.tolist()), task.norm, slope_radius(task))
    summary = yield query
    tails = query.tails(summary)
    level = min(round(task.mass / query.unit), MOST_LEVEL)
    release = server.discrete_laplace if task.secure else server.laplace
    if strength == 0:  # without noise: the minimum of G itself, by the index of its edge
        best = int(np.searchsorted(-tails, -level))
        at = release(np.array(best), l1_sensitivity=1.0, epsilon=epsilon, label=label)
        return float(edges[min(int(at), len(edges) - 1)]), 0.0
    step = query.unit / strength
    lower = np.rint(np.minimum(edges / step, MOST_LEVEL)).astype(np.int64)
    top = int(lower[-1])
    lower[0] = 0  # users below c_min weigh nothing: the first piece reaches down to 0
    best = min(regularized_minimum(tails, lower, level), top)
    sensitivity = float(looseness * query.most)
    noisy = release(np.array(best), l1_sensitivity=sensitivity, epsilon=epsilon, label=label)
    clip = step * float(noisy)
    noise = math.sqrt(2) * step * sensitivity / epsilon
    return min(max(clip, task.c_min), task.c_max), noise


def output_perturbation(task: ThresholdTask, server: Curator) -> Search:
    """Minimise G_R(C) + (Lambda / 2) C^2 with Lambda = M / c_max, and add Laplace noise.

    Corrected against the paper: the sensitivity is R / Lambda, four times below the printed one;
    the result is projected to [c_min, c_max]. Lambda = M / c_max moves the level from M to M (1 +
    C / c_max) and makes the noise c_max R / (M epsilon'); the paper's Lambda needs n and is tuned
    to the worst case.

    Privacy
    -------
    Pure epsilon'-DP; see :func:`_perturbed`.
    """
    free = free_choice(task)
    if free is not None:
        return free
    clip, noise = yield from _perturbed(
        task, server, task.mass / task.c_max, task.epsilon, 1, "output-perturbation"
    )
    return Choice(clip, _clip_warnings(clip, noise, task), {"clip_noise_std": noise})


def output_perturbation_paper(task: ThresholdTask, server: Curator) -> Search:
    """Run Algorithm 2 as printed, with C_m from DP-M-quantile on half of epsilon' (Section 7.1).

    lambda = 2 sqrt(2 s) / (C_m sqrt(n epsilon')), where the algorithm prints epsilon for epsilon'
    (Corollary 4.5 has it right); noise of scale Delta / epsilon' with Delta = 4 sqrt(s) / (lambda
    n). Here Lambda = n lambda and R = sqrt(s). Only the projection to [c_min, c_max] is added.

    C_m is often below C*, hence no upper bound, and the corollary does not apply then.

    Privacy
    -------
    (epsilon', delta')-DP as the paper states, and that is what the ledger is charged: (epsilon' /
    2, delta') for C_m and epsilon' / 2 for the output. In truth it is better: Delta is four times
    the exact sensitivity R / Lambda, so the output costs epsilon' / 8 and the whole is
    (5 epsilon' / 8, delta')-DP.

    Raises
    ------
    ValueError
        Unless the task has a public number of users.
    """
    n_users = public_users("output-perturbation-paper", task)
    free = free_choice(task)
    if free is not None:
        return free
    half = task.epsilon / 2
    series = Series(task, 0.0, half, task.delta)
    c_m = yield from log_descent(series, server, task.mass, "output-perturbation: C_m")
    strength = 2 * math.sqrt(2 * n_users / half) * task.radius / c_m
    clip, noise = yield from _perturbed(task, server, strength, half, 4, "output-perturbation")
    warnings = _clip_warnings(clip, noise, task)
    return Choice(clip, warnings, {"clip_noise_std": noise, "c_m": c_m})


def _clip_warnings(clip: float, noise: float, task: ThresholdTask) -> tuple[str, ...]:
    """Warn at the ends of the range, and where the noise on C exceeds a tenth of it."""
    found = at_the_ends(clip, task)
    if noise > DROWNED_RANGE * task.c_max:
        found += (mostly_noise(f"its std is {noise:.4g}, and clip_max is {task.c_max:g}"),)
    return found


OUTPUT_PERTURBATION = ThresholdRule(
    "output-perturbation",
    output_perturbation,
    "Liu et al. 2023, Algorithm 2, with the exact sensitivity",
)
OUTPUT_PERTURBATION_PAPER = ThresholdRule(
    "output-perturbation-paper",
    output_perturbation_paper,
    "Liu et al. 2023, Algorithm 2 as printed, C_m by DP-M-quantile",
    needs_delta=True,
    norms=(2,),
    rounds=lambda task: public_rounds("output-perturbation-paper", task) + 1,
)  # the ledger is charged what the paper states, although less can be proved
