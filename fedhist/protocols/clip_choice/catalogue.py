"""All private rules for the clipping threshold, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fedhist.base.errors import nearest
from fedhist.protocols.clip_choice import by_curve as threshold_curve
from fedhist.protocols.clip_choice import by_descent as threshold_descent
from fedhist.protocols.clip_choice import by_exponential as threshold_em
from fedhist.protocols.clip_choice.rule import ThresholdRule

RULES: Mapping[str, ThresholdRule] = MappingProxyType(
    {
        rule.name: rule
        for rule in (*threshold_em.RULES, *threshold_curve.RULES, *threshold_descent.RULES)
    }
)


def threshold_rule(name: str) -> ThresholdRule:
    """Look up a rule by name; ValueError, with the nearest known name, if there is none.

    >>> threshold_rule("em-slope").needs_delta
    False
    """
    if name not in RULES:
        known = f"{nearest(name, sorted(RULES))}; there are {', '.join(RULES)}"
        raise ValueError(f"unknown threshold rule {name!r}{known}")
    return RULES[name]
