"""Whom the users trust, in a configuration: ``protocol.trust`` and what goes with it.

The keys are written beside the protocol's own and become its field ``trust``: ``trust =
"aggregate"`` with ``tau_d``, ``tau_c`` and ``max_users``, ``trust = "shuffle"`` with ``delta``,
``tau`` and ``colluders``. The number of parties is the run's number of nodes; how many users hide
each other, and with it the local epsilon, is found when the protocol is resolved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, get_args

from fedhist.base.checks import check_choice
from fedhist.model.protocol import Protocol
from fedhist.model.registry import parameters
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import Guarantee, Trust
from fedhist.privacy.shuffler import Shuffler, Shuffling
from fedhist.protocols.shared.shuffles import Shuffles
from simulations.config.reading import converted, hints, required

FIELD = "trust"
SHUFFLE = "shuffle (ideal)"
"""Shuffling by whoever simulates it: what reaches the session has neither users nor nodes."""
PARTIES = 100
"""Nodes under aggregate trust where a run names no number."""

PREMISES: Mapping[str, type] = MappingProxyType(
    {Trust.AGGREGATE.value: Aggregation, Trust.SHUFFLE.value: Shuffler}
)
"""What is to be said of a trust that is not the protocol's own."""

RESOLVED: Mapping[type, type] = MappingProxyType({Aggregation: Aggregation, Shuffler: Shuffling})
"""What the field then holds of it."""

COUNTED = "parties"
"""Field of a premise that is not a key: it is counted."""


def with_trust(cls: type[Protocol], given: Mapping[str, Any], nodes: int | None) -> dict[str, Any]:
    """Turn the keys that say whom the users trust into the protocol's field.

    ``given``: the protocol's table, without its name. A trust that is the protocol's own, "central"
    or "local", leaves the field out; see :func:`check_trust`; ``nodes``: of the run; None where it
    names no number. Raises ValueError if the protocol has no form for that trust, with its reason,
    or a key belongs to another.
    """
    rest = dict(given)
    word = rest.pop(FIELD, None)
    if word is not None and not isinstance(word, str | int | float | list):
        return {**rest, FIELD: word}  # from Python: the field itself
    if word is not None:
        check_choice("protocol.trust", word, [t.value for t in Trust])
    premise = PREMISES.get(str(word))
    known = [f.name for f in fields(premise) if f.name != COUNTED] if premise else []
    for other, kind in PREMISES.items():
        own = {f.name for f in fields(kind)} - set(parameters(cls)) - set(known)
        for key in rest.keys() & own:
            raise ValueError(f'protocol.{key} goes with trust = "{other}", which is not set')
    if premise is None:
        return rest
    if FIELD not in parameters(cls) or RESOLVED[premise] not in get_args(hints(cls)[FIELD]):
        why = unshuffled(cls) if premise is Shuffler else reason(cls)
        raise ValueError(f"{cls.name} does not run under {word} trust: {why}")
    keys = {k: rest.pop(k) for k in known if k in rest}
    missing = sorted(required(premise) - {COUNTED} - keys.keys())
    if missing:
        raise ValueError(f"protocol.{missing[0]} is needed under {word} trust")
    counted = {COUNTED: nodes or PARTIES} if COUNTED in hints(premise) else {}
    return {**rest, FIELD: premise(**counted, **converted(premise, keys, "protocol"))}


def reason(cls: type[Protocol]) -> str:
    """Say why a protocol has no form for another trust."""
    if cls.needs_server:
        return cls.needs_server
    if cls.example().guarantee.trust is Trust.LOCAL:
        return "its users' messages are private before they leave, so that nobody need be trusted"
    return "it releases more than sums of integers, to which nodes could add the noise"


def unshuffled(cls: type[Protocol]) -> str:
    """Say why a protocol's reports cannot pass a shuffler."""
    if cls.example().guarantee.trust is not Trust.LOCAL:
        return "a shuffler takes reports that users have randomized, and its users send none"
    why = cls.unshuffled if issubclass(cls, Shuffles) else ""
    return why or "no report of its users is read alike, whoever sends it"


def check_remote(given: Mapping[str, Any]) -> None:
    """Raise ValueError if real nodes were asked on behalf of a shuffler."""
    if isinstance(given.get(FIELD), Shuffler | Shuffling):
        raise ValueError(
            "no shuffler stands between remote nodes and this server, which sees what each node "
            "sends: shuffle trust is simulated only"
        )


def check_trust(protocol: Protocol, word: Any) -> None:
    """Raise ValueError unless a protocol, as it was built, has the trust that was written."""
    has = protocol.guarantee.trust.value
    if isinstance(word, str) and word != has:
        why = reason(type(protocol))
        raise ValueError(f"{protocol.name} does not run under {word} trust, but {has}: {why}")


def shuffle_in_words(guarantee: Guarantee) -> str:
    """Say what a shuffler is worth, and what is left where it is not to be believed."""
    return f"({guarantee.epsilon:g}, {guarantee.delta:g})-DP if {guarantee.premise}"


def parties(protocol: Protocol) -> int | None:
    """Return the number of nodes that a protocol must be asked of; None: any number."""
    premise = getattr(protocol, FIELD, None)
    return premise.parties if isinstance(premise, Aggregation) else None
