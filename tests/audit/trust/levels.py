"""The trust under which a protocol is audited, beside its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields
from typing import Any

from fedhist.model.protocol import Protocol
from fedhist.model.registry import parameters
from fedhist.privacy.guarantee import Trust
from fedhist.privacy.shuffler import Shuffling
from server.trust.shuffles import Shuffles
from simulations.runs.config import FIELD, unshuffled

DELTA = 1e-6
"""Of shuffled reports."""
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
    if trust == Trust.SHUFFLE.value:
        return _shuffled(protocol)
    raise ValueError(f"{protocol.name} is under {protocol.guarantee.trust.value} trust by nature")


def every_level(protocol: Protocol) -> Iterator[Protocol]:
    """Yield a protocol, and what it is under shuffle trust if it has that."""
    yield protocol
    if protocol.guarantee.trust is Trust.LOCAL:
        with suppress(ValueError):  # it has no such form, or not as its example is configured
            yield under(protocol, Trust.SHUFFLE.value)


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
