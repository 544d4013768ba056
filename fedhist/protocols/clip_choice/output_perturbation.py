"""Clipping thresholds by output perturbation [2]_: the minimiser of a regularized objective [1]_.

One histogram of norms gives the whole curve S(C); only the minimiser is released.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Section 4.2, Algorithm 2 and Appendix A.
.. [2] Chaudhuri, Monteleoni & Sarwate, "Differentially private empirical risk minimization",
   JMLR 2011.
"""

from __future__ import annotations

import math
from collections.abc import Generator

import numpy as np

from fedhist.base.arrays import Integers
from fedhist.model.query import Query, Summary
from fedhist.protocols.clip_choice.rule import (
    Choice,
    Search,
    ThresholdRule,
    ThresholdTask,
    at_the_ends,
    free_choice,
    mostly_noise,
)
from fedhist.protocols.shared.contributions import NormHistogram
from fedhist.session.curator import Curator

FINE_BINS = 4096
"""Bins of the histogram behind a minimiser; over ten octaves a bin is 0.17 % wide."""

MOST_LEVEL = 1 << 60
"""No sum over users comes near; a public level beyond it acts as if it were infinite."""

DROWNED_RANGE = 0.1
"""A threshold whose noise exceeds this part of the range is reported."""


def regularized_minimum(tails: Integers, lower: Integers, level: int) -> int:
    """Where C + level first reaches a non-increasing step function; all in the same integer steps.

    That is the minimiser over C >= 0 of G(C) + (Lambda / 2) C^2, whose slope is
    M + Lambda C - S(C): divide by Lambda. S = tails[k] from lower[k] on; lower increases from 0.

    The least over k of max(lower[k], tails[k] - level): on piece k the condition holds from
    tails[k] - level on; beyond the piece S is smaller still, so every term is a solution, and the
    first solution is one of the terms.

    Privacy
    -------
    Changes by at most max |change of tails|: minima and maxima do not expand differences. So the
    sensitivity is that of one tail, R / Lambda in C, under every adjacency.

    Examples
    --------
    >>> regularized_minimum(np.array([9, 5, 1]), np.array([0, 4, 8]), level=2)
    4
    >>> regularized_minimum(np.array([9, 7, 1]), np.array([0, 4, 8]), level=2)
    5
    """
    return int(np.minimum.reduce(np.maximum(lower, tails - min(level, MOST_LEVEL))))


def perturbed(
    task: ThresholdTask,
    server: Curator,
    strength: float,
    epsilon: float,
    looseness: int,
    label: str,
) -> Generator[Query, Summary, tuple[float, float]]:
    """Release argmin over C >= 0 of G_R(C) + (strength / 2) C^2 with Laplace noise.

    Returns C, projected to [c_min, c_max], and the std of its noise, which fits ``looseness`` times
    the exact sensitivity; a ``strength`` of 0 is for runs without noise.

    Privacy
    -------
    The minimiser solves M + Lambda C = S_R(C), and changes by at most R / Lambda with one user,
    under every adjacency (attained). Proof for what is computed, in integers: with one step of C
    worth unit / Lambda it is min over bins of max(edge, tail - M), see
    :func:`regularized_minimum`, and every tail changes by at most R. Binning keeps this true: a
    user's norm is rounded up to the next edge, and to 0 below c_min, before anything is added up.
    """
    edges = np.unique(np.geomspace(task.c_min, task.c_max, FINE_BINS))
    query = NormHistogram(task.domain, tuple(edges.tolist()), task.norm, task.slope_radius)
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
    to the worst case. Pure epsilon'-DP; see :func:`perturbed`.
    """
    free = free_choice(task)
    if free is not None:
        return free
    clip, noise = yield from perturbed(
        task, server, task.mass / task.c_max, task.epsilon, 1, "output-perturbation"
    )
    return Choice(clip, clip_warnings(clip, noise, task), {"clip_noise_std": noise})


def clip_warnings(clip: float, noise: float, task: ThresholdTask) -> tuple[str, ...]:
    """Warn at the ends of the range, and where the noise on C exceeds a tenth of it."""
    ends = at_the_ends(clip, task)
    if noise > DROWNED_RANGE * task.c_max:
        ends += (mostly_noise(f"its std is {noise:.4g}, and clip_max is {task.c_max:g}"),)
    return ends


OUTPUT_PERTURBATION = ThresholdRule(
    "output-perturbation",
    output_perturbation,
    "Liu et al. 2023, Algorithm 2, with the exact sensitivity",
)
