"""Whom the users trust, in a configuration: ``protocol.trust`` and what goes with it.

The keys are written beside the protocol's own and become its field ``trust``: ``trust =
"aggregate"`` with ``tau_d``, ``tau_c`` and ``max_users``. The number of parties is the run's number
of nodes.
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
from fedhist.privacy.guarantee import Trust
from simulations.config.reading import converted, hints

FIELD = "trust"
PARTIES = 100
"""Nodes under aggregate trust where a run names no number."""

PREMISES: Mapping[str, type] = MappingProxyType({Trust.AGGREGATE.value: Aggregation})
"""What the field holds under a trust that is not the protocol's own."""

COUNTED = "parties"
"""Field of a premise that is not a key: it is counted."""


def with_trust(cls: type[Protocol], given: Mapping[str, Any], nodes: int | None) -> dict[str, Any]:
    """Turn the keys that say whom the users trust into the protocol's field.

    Parameters
    ----------
    cls : type of Protocol
    given : mapping
        The protocol's table, without its name. A trust that is the protocol's own, "central" or
        "local", leaves the field out; see :func:`check_trust`.
    nodes : int or None
        Of the run; None where it names no number.

    Raises
    ------
    ValueError
        If the protocol has no form for that trust, with its reason, or a key belongs to another.
    """
    rest = dict(given)
    word = rest.pop(FIELD, None)
    if word is not None and not isinstance(word, str):
        return {**rest, FIELD: word}  # from Python: the field itself
    if word is not None:
        check_choice("protocol.trust", word, [t.value for t in Trust])
    premise = PREMISES.get(word or "")
    known = [f.name for f in fields(premise) if f.name != COUNTED] if premise else []
    for other, kind in PREMISES.items():
        own = {f.name for f in fields(kind)} - set(parameters(cls)) - set(known)
        for key in rest.keys() & own:
            raise ValueError(f'protocol.{key} goes with trust = "{other}", which is not set')
    if premise is None:
        return rest
    if FIELD not in parameters(cls) or premise not in get_args(hints(cls)[FIELD]):
        raise ValueError(f"{cls.name} does not run under {word} trust: {reason(cls)}")
    keys = {k: rest.pop(k) for k in known if k in rest}
    counted = {COUNTED: nodes or PARTIES} if COUNTED in hints(premise) else {}
    return {**rest, FIELD: premise(**counted, **converted(premise, keys, "protocol"))}


def reason(cls: type[Protocol]) -> str:
    """Say why a protocol has no form for another trust."""
    if cls.needs_server:
        return cls.needs_server
    if cls.example().guarantee.trust is Trust.LOCAL:
        return "its users' messages are private before they leave, so that nobody need be trusted"
    return "it releases more than sums of integers, to which nodes could add the noise"


def check_trust(protocol: Protocol, word: Any) -> None:
    """Raise ValueError unless a protocol, as it was built, has the trust that was written."""
    has = protocol.guarantee.trust.value
    if isinstance(word, str) and word != has:
        why = reason(type(protocol))
        raise ValueError(f"{protocol.name} does not run under {word} trust, but {has}: {why}")


def parties(protocol: Protocol) -> int | None:
    """Return the number of nodes that a protocol must be asked of; None: any number."""
    premise = getattr(protocol, FIELD, None)
    return premise.parties if isinstance(premise, Aggregation) else None
