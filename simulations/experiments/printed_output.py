"""Algorithm 2 of Liu et al. (ICML 2023) as printed, with a fixed C_m: Figure 5 needs it.

Not among the rules of ``adaptive-histogram``: its noise is four times what the privacy needs.
"""

from __future__ import annotations

import math

import numpy as np

from clients.histograms.contributions import NormHistogram
from server.clip_choice.rule import Choice, Search, ThresholdTask, at_the_ends
from server.session.curator import Curator

BINS = 4096


def printed_output(task: ThresholdTask, server: Curator) -> Search:
    """Minimise G(C) + (n lambda / 2) C^2 over C >= 0 and add Laplace noise, C_m being c_max.

    lambda = 2 sqrt(2 s) / (C_m sqrt(n epsilon')), where the algorithm prints epsilon for epsilon'
    (Corollary 4.5 has it right); noise of scale 4 sqrt(s) / (lambda n epsilon'). Added to what is
    printed: slopes are cut to sqrt(s), C is projected to [c_min, c_max], and norms are rounded up
    to one of 4,096 values.

    Privacy
    -------
    epsilon' is charged, as the paper states; a quarter of it is what the noise needs, because the
    minimiser changes by at most sqrt(s) / (lambda n) with one user.
    """
    if task.n_users is None:
        raise ValueError(f"n_users must be public, got {task.n_users}")
    edges = np.geomspace(task.c_min, task.c_max, BINS)
    query = NormHistogram(task.domain, tuple(edges.tolist()), task.norm, task.radius)
    summary = yield query
    strength = 2 * math.sqrt(2 * task.n_users / task.epsilon) * task.radius / task.c_max
    # M + strength C - S(C) rises; with S constant between edges it meets zero at the smallest of
    crossing = (query.unit * query.tails(summary) - task.mass) / strength
    best = float(np.maximum(np.append(0.0, edges[1:]), crossing).min())
    sensitivity = 4 * task.radius / strength
    noisy = server.laplace(
        np.array(best), l1_sensitivity=sensitivity, epsilon=task.epsilon, label="printed-output"
    )
    clip = min(max(float(noisy), task.c_min), task.c_max)
    return Choice(clip, at_the_ends(clip, task))
