"""All private rules for the clipping threshold, by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from fedhist.base.errors import nearest
from fedhist.model.renamed import instead
from fedhist.protocols.clip_choice.by_descent import ADAPTIVE_QUANTILE, DP_SGD
from fedhist.protocols.clip_choice.by_exponential import EM_QUANTILE, EM_SLOPE
from fedhist.protocols.clip_choice.output_perturbation import OUTPUT_PERTURBATION
from fedhist.protocols.clip_choice.rule import ThresholdRule

CHOICE_SHARE = 0.2
"""Share of epsilon that pays for C. Exact mixtures over 96 settings: 0.09 (the paper's, Section
7.1), 0.15 and 0.2 err alike within 4 % in geometric mean; but of five items and one user in twenty
with fifty times as much as the others, 0.15 errs up to 5 times as much as 0.2."""

RULES: Mapping[str, ThresholdRule] = MappingProxyType(
    {r.name: r for r in (EM_SLOPE, EM_QUANTILE, DP_SGD, ADAPTIVE_QUANTILE, OUTPUT_PERTURBATION)}
)
"""The rules to choose from; those as printed are added by :func:`threshold_rule`."""

PRINTED = "fedhist.protocols.printed.clip_rules"
PRINTED_NAMES = ("dp-sgd-paper", "output-perturbation-paper")


def threshold_rule(name: str) -> ThresholdRule:
    """Look up a rule by name; ValueError, with the nearest known name, if there is none.

    >>> threshold_rule("em-slope").needs_delta
    False
    """
    if name in PRINTED_NAMES:  # a layer above: it is loaded by whoever asks for it
        printed: tuple[ThresholdRule, ...] = import_module(PRINTED).PRINTED_RULES
        return printed[PRINTED_NAMES.index(name)]
    if name not in RULES:
        every = (*RULES, *PRINTED_NAMES)
        gone = instead(f"adaptive-histogram.threshold={name}")
        known = gone or f"{nearest(name, sorted(every))}; there are {', '.join(every)}"
        raise ValueError(f"unknown threshold rule {name!r}{known}")
    return RULES[name]
