"""The levels of trust under which a protocol is audited, beside its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from fedhist.model.protocol import Protocol
from fedhist.model.registry import parameters
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import Trust
from fedhist.privacy.shuffler import Shuffling
from server.trust.shuffles import Shuffles
from simulations.runs.config import FIELD

DELTA = 1e-6
"""Of shuffled reports."""
SHUFFLED = ({}, {"method": "folds"}, {"method": "vote"})
"""What reports that are read alike may need to be set, if an example sets it otherwise."""


def levels_of(protocol: Protocol) -> list[Protocol]:
    """Put an example under every other level of trust that it has."""
    return [p for p in (shuffled(protocol), aggregated(protocol)) if p is not None]


def shuffled(protocol: Protocol) -> Protocol | None:
    """Put an example of local trust behind a shuffler, if it has such a form."""
    cls: type[Protocol] = type(protocol)
    guarantee = protocol.guarantee
    if guarantee.trust is not Trust.LOCAL or not issubclass(cls, Shuffles):
        return None
    shown = fields(protocol)  # type: ignore[arg-type]
    names = {f.name for f in shown if f.init} - {FIELD, "epsilon"}
    given = {name: getattr(protocol, name) for name in names}
    trust = Shuffling(guarantee.epsilon, DELTA, len(cls.example_users()))
    return _first(lambda more: cls.shuffled(trust, **given | more), names, SHUFFLED)


def aggregated(protocol: Protocol) -> Protocol | None:
    """Put an example under aggregate trust, if it has such a form: ten nodes, on integers."""
    cls, clip = type(protocol), getattr(protocol, "clip", None)
    if FIELD not in parameters(cls) or protocol.guarantee.trust is not Trust.CENTRAL:
        return None
    tried: list[dict[str, Any]] = [{}, {"discrete": True}]
    if isinstance(clip, int | float):
        tried.append({"grid": clip / 1024})
    trust = {FIELD: Aggregation(10)}
    return _first(
        lambda more: replace(protocol, **trust, **more),  # type: ignore[type-var]
        set(parameters(cls)),
        tried,
    )


def _first(
    build: Callable[[Mapping[str, Any]], Protocol],
    names: set[str],
    tried: Sequence[Mapping[str, Any]],
) -> Protocol | None:
    """Build with the first settings that the class knows and takes."""
    for settings in tried:
        if settings.keys() <= names:
            with suppress(ValueError):
                return build(settings)
    return None
