"""A clipping threshold from a noisy curve: one round, for Gaussian noise.

From one histogram of norms, by weights per bin, follows the whole curve S(C); the rule releases it.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Theorem 4.3.
"""

from __future__ import annotations

import math

import numpy as np

from fedhist.base.text import warned
from fedhist.privacy.adjacency import Moves
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.sensitivity import sqrt_up
from fedhist.protocols.clip_choice.by_descent import (
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
from fedhist.protocols.shared.contributions import CODED_BITS, CodedNormHistogram, NormHistogram
from fedhist.session.curator import Curator
from server.histograms.clip_search import (
    FACTOR_BITS,
    first_below,
    prefix_factor,
    squared_change,
)


def slope_curve(task: ThresholdTask, server: Curator) -> Search:
    """Release S on the grid through a square root of the prefix sums; take the first point <= M.

    The bins x, from the largest norms down, are encoded by an integer matrix E close to a multiple
    of B, B B = prefix sums; noise is added to E x, and the decoder D with D E = prefix sums gives
    the curve, whose least-squares non-increasing fit is searched. The noise on the last point has
    std about ||B e_1||^2 R sigma' instead of sqrt(K) R sigma'. All after the release is
    post-processing. Under aggregate trust nodes send E x themselves: the sum is linear.

    Privacy
    -------
    (epsilon', delta')-DP: one Gaussian release. Sensitivity: :func:`squared_change`, R times the
    longest column of E, or under replacement the largest distance of two columns. E x is integer,
    so discrete noise fits it without rounding.
    """
    free = free_choice(task)
    if free is not None:
        return free
    grid = task.grid
    encoder, decoder = prefix_factor(len(grid), bits_of(task.trust))
    query = NormHistogram(task.domain, tuple(grid.tolist()), task.norm, slope_radius(task))
    sensitivity = sqrt_up(query.most**2 * squared_change(encoder, task.adjacency))
    summary = yield query
    sums = summary.sums
    coded = sums["coded"] if "coded" in sums else encoder @ sums["weight"][::-1]
    release = server.discrete_gaussian if task.secure else server.gaussian
    noisy = release(
        coded,
        l2_sensitivity=sensitivity,
        epsilon=task.epsilon,
        delta=task.delta,
        label="slope-curve",
        moves=Moves.of(lambda a: math.sqrt(squared_change(encoder, a))),
    )
    curve = query.unit * (decoder @ noisy.astype(np.float64))[::-1]
    noise = (
        task.multiplier * sensitivity * query.unit * float(np.linalg.norm(decoder, axis=1).max())
    )
    at = first_below(curve, task.mass)
    clip = task.c_max if at is None else float(grid[at])
    warnings = at_the_ends(clip, task) + drowned(noise, task.mass)
    if at is None:
        warnings += (
            warned(
                f"the released curve stays above M = {task.mass:.4g} up to clip_max",
                "the best clip lies beyond it, and what users hold there is cut away",
                "raise clip_max",
            ),
        )
    return Choice(clip, warnings, {"curve_noise_std": noise})


SLOPE_CURVE = ThresholdRule(
    "slope-curve",
    slope_curve,
    "S(C) of Liu et al. 2023, Theorem 4.3, by a square-root factorization",
    needs_delta=True,
    by_sums=slope_radius,
)


def shared_query(rule: ThresholdRule, query: NormHistogram) -> NormHistogram:
    """Return what nodes add noise to: for the curve, the bins as they are encoded."""
    if rule is not SLOPE_CURVE:
        return query
    return CodedNormHistogram(query.domain, query.edges, query.norm, query.radius, query.cohort)


def bits_of(trust: Aggregation | None) -> int:
    """Bits of the encoder: fewer where sums have room for 2^32 users."""
    return FACTOR_BITS if trust is None else CODED_BITS
