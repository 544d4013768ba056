"""All private rules for the clipping threshold, by name: those to choose from, and the measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from fedhist.base.errors import nearest
from fedhist.protocols.clip_choice.by_curve import SLOPE_CURVE
from fedhist.protocols.clip_choice.by_descent import DP_SGD
from fedhist.protocols.clip_choice.by_exponential import EM_QUANTILE, EM_SLOPE
from fedhist.protocols.clip_choice.measured.by_points import EM_SLOPE_POINT
from fedhist.protocols.clip_choice.measured.descents import (
    ADAPTIVE_QUANTILE,
    DP_SGD_PAPER,
    HUANG_QUANTILE,
)
from fedhist.protocols.clip_choice.measured.output_perturbation import (
    OUTPUT_PERTURBATION,
    OUTPUT_PERTURBATION_PAPER,
)
from fedhist.protocols.clip_choice.rule import Aim, ThresholdRule, ThresholdTask

FIRST = (EM_SLOPE, EM_QUANTILE, SLOPE_CURVE, DP_SGD)
"""What a user would choose from."""

MEASURED = (
    EM_SLOPE_POINT,
    ADAPTIVE_QUANTILE,
    HUANG_QUANTILE,
    OUTPUT_PERTURBATION,
    DP_SGD_PAPER,
    OUTPUT_PERTURBATION_PAPER,
)
"""What experiments compare these with; selectable by name all the same."""

RULES: Mapping[str, ThresholdRule] = MappingProxyType({r.name: r for r in (*FIRST, *MEASURED)})

AIMS: Mapping[str, Callable[[ThresholdTask], Aim]] = MappingProxyType(
    {name: rule.aim for name, rule in RULES.items() if rule.aim is not None}
)
"""The rules by the exponential mechanism, and what they look for."""


def threshold_rule(name: str) -> ThresholdRule:
    """Look up a rule by name; ValueError, with the nearest known name, if there is none.

    >>> threshold_rule("em-slope").needs_delta
    False
    """
    if name not in RULES:
        known = f"{nearest(name, sorted(RULES))}; there are {', '.join(RULES)}"
        raise ValueError(f"unknown threshold rule {name!r}{known}")
    return RULES[name]
