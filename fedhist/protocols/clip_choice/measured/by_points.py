"""The exponential mechanism on slopes by points: better in large populations, worse in small ones.

A grid point is scored by |S(C_k) - L|, and not by the interval of tails that it closes
(:mod:`fedhist.protocols.clip_choice.by_exponential`): where users are alike or few, S falls by
jumps, and all points above the last one score alike.
"""

from __future__ import annotations

from fedhist.protocols.clip_choice.by_exponential import aim_at, exponential_rule
from fedhist.protocols.clip_choice.rule import Aim, ThresholdTask


def point_aim(task: ThresholdTask) -> Aim:
    """Look for a C at which the sum of slopes is M."""
    return aim_at(task, task.radius if task.norm == 2 else 0.0, interval=False)


EM_SLOPE_POINT = exponential_rule(
    "em-slope-point",
    point_aim,
    "exponential mechanism on the slope of the error, scored by points",
)
