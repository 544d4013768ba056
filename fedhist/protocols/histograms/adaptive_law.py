"""Which thresholds ``adaptive-histogram`` chooses on known users, and how often. NOT PRIVATE."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from fedhist.base.arrays import Array, Floats
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.losses import L1
from fedhist.protocols.clip_choice import theory as theory_thresholds
from fedhist.protocols.clip_choice.by_exponential import law_of, slope_aim
from fedhist.protocols.clip_choice.measured.norm_index import NormIndex
from fedhist.protocols.clip_choice.rule import Aim, ThresholdTask
from fedhist.protocols.clip_choice.two_norms import norm_law
from fedhist.protocols.shared.clipped_totals import user_norms
from fedhist.protocols.shared.seen import Seen
from fedhist.users.batch import Users

if TYPE_CHECKING:
    from fedhist.protocols.histograms.adaptive_histogram import AdaptiveHistogram

CLOSE = 1.5
"""Ratio to the error at the best threshold from which on a prediction says so. Of few items there
is no way round it: few users who hold much are not seen (``docs/central.md``)."""

Parts = list[tuple[int, Floats, Floats]]
"""For each norm: thresholds, and the probability of each."""


def tails_for(p: AdaptiveHistogram, users: Users) -> dict[str, Array]:
    """Add up what the law of the choice follows from, in the steps of slopes. NOT PRIVATE."""
    if p.rule.aim is None and len(p.norms) == 1:
        return {}
    norms = user_norms(users, p.domain)
    return {
        f"tails {norm}": theory_thresholds.tails_in_steps(*norms, task.grid, norm, aim.radius)
        for norm, (task, aim) in _aims(p).items()
    }


def thresholds_of(p: AdaptiveHistogram, seen: Seen) -> tuple[Parts, bool, str]:
    """Return the law of the choice, whether it is exact, and where it comes from. NOT PRIVATE."""
    if len(p.norms) == 2:
        tasks = p.task_in(1), p.task_in(2)
        law = norm_law(*tasks, (_tails(p, seen, 1), _tails(p, seen, 2)))
        parts = [(t.norm, t.grid, w) for t, w in zip(tasks, law, strict=True)]
        exact, source = True, "mixture over both norms' exponential mechanisms"
    elif p.rule.aim is not None:
        task = p.task
        weights = law_of(p.rule.aim(task), task, _tails(p, seen, task.norm))
        parts = [(task.norm, task.grid, weights)]
        exact, source = True, "mixture over the exponential mechanism; Liu et al. 2023, Sec. 4"
    else:
        index = NormIndex(seen.users, p.domain)
        clips = index.clips(p.rule.search, p.task)
        chosen, times = np.unique(clips, return_counts=True)
        parts = [(p.norm, chosen, times / len(clips))]
        exact, source = False, f"mean over {len(clips)} runs of the rule on the exact norms"
        source += index.sampled
    return parts, exact, source


def bound_of(p: AdaptiveHistogram, seen: Seen) -> ErrorBound:
    """Predict the error: of the release at every threshold, by their law. NOT PRIVATE."""
    parts, exact, source = thresholds_of(p, seen)
    exact, source = (False, f"{source}; before the ratio") if p.debias else (exact, source)
    expected, least = 0.0, math.inf
    for norm, chosen, weights in parts:
        clips = np.array([p.release_clip(float(c)) for c in chosen])
        laws = [p.at(float(c), norm).noise for c in clips]
        what = seen.users, p.domain, clips, weights, laws, norm, p.nonneg, seen.truth
        mean, best = theory_thresholds.mixture_l1(*what)
        expected, least = expected + mean, min(least, best)
    if expected / CLOSE > least > 0:
        times = f"{expected / least:.2g}"
        source += f"; close: a clip known beforehand may err {times} times less than the chosen one"
    return ErrorBound(L1, expected, exact, source)


def _tails(p: AdaptiveHistogram, seen: Seen, norm: int) -> Floats:
    """Sum over users above each threshold of what the rule adds up. NOT PRIVATE."""
    steps: Floats = seen[f"tails {norm}"] * theory_thresholds.step_of(_aims(p)[norm][1].radius)
    return steps


@lru_cache(maxsize=8)  # asked for by every block of users
def _aims(p: AdaptiveHistogram) -> dict[int, tuple[ThresholdTask, Aim]]:
    """Return what is looked for, in each norm."""
    tasks = {norm: p.task_in(norm) for norm in p.norms}
    return {norm: (task, (p.rule.aim or slope_aim)(task)) for norm, task in tasks.items()}
