"""The trust under which a protocol is audited, beside its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from fedhist.model.protocol import Protocol
from fedhist.model.registry import parameters
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import Trust
from fedhist.privacy.shuffler import Shuffling
from fedhist.protocols.shared.shuffles import Shuffles
from simulations.runs.trust import FIELD, reason, unshuffled

PARTIES = 10
"""Nodes of an audited run: what counts is the honest shares in a sum, whatever their number."""
DELTA = 1e-6
"""Of shuffled reports."""
STEPS = 1 << 10
"""Grid steps of a clip, where an example has no grid that nodes could add noise on."""
SHUFFLED: tuple[dict[str, Any], ...] = (
    {},
    {"method": "folds"},
    {"method": "vote"},
)
"""What reports that are read alike may need to be set, if an example sets it otherwise."""


def under(protocol: Protocol, trust: str) -> Protocol:
    """Configure a protocol for a level of trust.

    Parameters
    ----------
    protocol : Protocol
        Under its own trust; an epsilon is the target.
    trust : str

    Raises
    ------
    ValueError
        If the protocol has no form for it, with its reason.
    """
    if Trust(trust) is protocol.guarantee.trust:
        return protocol
    if trust == Trust.AGGREGATE.value:
        return _aggregated(protocol)
    if trust == Trust.SHUFFLE.value:
        return _shuffled(protocol)
    raise ValueError(f"{protocol.name} is under {protocol.guarantee.trust.value} trust by nature")


def every_level(protocol: Protocol) -> Iterator[Protocol]:
    """Yield a protocol, and what it is under the levels between central and local that it has."""
    yield protocol
    own = protocol.guarantee.trust
    between = {Trust.CENTRAL: Trust.AGGREGATE, Trust.LOCAL: Trust.SHUFFLE}.get(own)
    if between is None:
        return
    try:
        level = under(protocol, between.value)
    except ValueError:  # it has no such form, or not as its example is configured
        return
    yield level


def _aggregated(protocol: Protocol) -> Protocol:
    cls = type(protocol)
    if FIELD not in parameters(cls) or protocol.guarantee.trust is not Trust.CENTRAL:
        raise ValueError(f"{protocol.name} does not run under aggregate trust: {reason(cls)}")
    told, clip = {FIELD: Aggregation(PARTIES)}, getattr(protocol, "clip", None)
    integers: list[dict[str, Any]] = [{}, {"discrete": True}]
    if isinstance(clip, int | float):
        integers.append({"grid": clip / STEPS})
    known = parameters(cls)
    tried = [{**told, **more} for more in integers if more.keys() <= set(known)]
    return _first(lambda given: replace(protocol, **given), tried)  # type: ignore[type-var]


def _first(build: Callable[[dict[str, Any]], Protocol], tried: list[dict[str, Any]]) -> Protocol:
    """Build with the first settings that can be; where none can, say what is wrong at first."""
    wrong: list[ValueError] = []
    for given in tried:
        try:
            return build(given)
        except ValueError as error:
            wrong.append(error)
    raise wrong[0]


def _shuffled(protocol: Protocol) -> Protocol:
    cls: type[Protocol] = type(protocol)
    if not issubclass(cls, Shuffles) or FIELD not in parameters(cls):
        raise ValueError(f"{protocol.name} does not run under shuffle trust: {unshuffled(cls)}")
    shown = fields(protocol)  # type: ignore[arg-type]
    names = [f.name for f in shown if f.init and f.name not in (FIELD, "epsilon")]
    given = {name: getattr(protocol, name) for name in names}
    n_users = len(cls.example_users())
    trust = Shuffling(protocol.guarantee.epsilon, DELTA, n_users)
    tried = [{**given, **more} for more in SHUFFLED if more.keys() <= set(names)]
    return _first(lambda settings: cls.shuffled(trust, **settings), tried)
