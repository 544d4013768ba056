"""Which thresholds ``adaptive-histogram`` chooses on known users, and how often. NOT PRIVATE."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.protocols.clip_choice import theory as theory_thresholds
from fedhist.protocols.clip_choice.by_exponential import law_of, slope_aim
from fedhist.protocols.clip_choice.measured.norm_index import NormIndex
from fedhist.protocols.clip_choice.rule import ThresholdTask
from fedhist.protocols.clip_choice.two_norms import norm_law
from fedhist.users.batch import Users

if TYPE_CHECKING:
    from fedhist.protocols.histograms.adaptive_histogram import AdaptiveHistogram

Parts = list[tuple[int, Floats, Floats]]
"""For each norm: thresholds, and the probability of each."""


def thresholds_of(p: AdaptiveHistogram, users: Users) -> tuple[Parts, bool, str]:
    """Return the law of the choice, whether it is exact, and where it comes from. NOT PRIVATE."""
    if len(p.norms) == 2:
        tasks = p.task_in(1), p.task_in(2)
        law = norm_law(*tasks, (_tails(p, users, tasks[0]), _tails(p, users, tasks[1])))
        parts = [(t.norm, t.grid, w) for t, w in zip(tasks, law, strict=True)]
        exact, source = True, "mixture over both norms' exponential mechanisms"
    elif p.rule.aim is not None:
        task = p.task
        weights = law_of(p.rule.aim(task), task, _tails(p, users, task))
        parts = [(task.norm, task.grid, weights)]
        exact, source = True, "mixture over the exponential mechanism; Liu et al. 2023, Sec. 4"
    else:
        found = NormIndex(users, p.domain).clips(p.rule.search, p.task)
        chosen, times = np.unique(found, return_counts=True)
        parts = [(p.norm, chosen, times / len(found))]
        exact, source = False, f"mean over {len(found)} runs of the rule on the exact norms"
    return parts, exact, source


def _tails(p: AdaptiveHistogram, users: Users, task: ThresholdTask) -> Floats:
    """Sum over users above each threshold of what the rule adds up. NOT PRIVATE."""
    aim = (p.rule.aim or slope_aim)(task)
    return theory_thresholds.tail_sums(users, p.domain, task.grid, task.norm, aim.radius)
