"""What several protocols promise, and may spend, together."""

from __future__ import annotations

from collections.abc import Sequence

from fedhist.model.protocol import Protocol
from fedhist.privacy.adjacency import convert
from fedhist.privacy.guarantee import Adjacency, Guarantee, Release


def common(protocols: Sequence[Protocol]) -> Adjacency:
    """Return the adjacency that all releases together are stated under.

    Replacement if one is about that; adding and removing if all are, or are null-safe; else zeroing
    out. Raises ValueError if one promises nothing to a user.
    """
    for p in protocols:
        if p.guarantee.unit != "user":
            raise ValueError(f"{p.name}: spending is counted per user, this is {p.guarantee}")
    stated = [p.guarantee.adjacency for p in protocols]
    if Adjacency.REPLACE_USER in stated:
        return Adjacency.REPLACE_USER
    hidden = all(
        p.null_safe or a is Adjacency.ADD_REMOVE_USER
        for p, a in zip(protocols, stated, strict=True)
    )
    return Adjacency.ADD_REMOVE_USER if hidden else Adjacency.ZERO_OUT_USER


def together(protocols: Sequence[Protocol], epsilon: float, delta: float) -> Guarantee:
    """State what all releases promise: the least trust that is needed for one of them."""
    each = [p.guarantee for p in protocols]
    trust = min((g.trust for g in each), key=lambda t: t.rank)
    premise = "; ".join(dict.fromkeys(g.premise for g in each if g.premise))
    return Guarantee(epsilon, delta, trust, common(protocols), premise=premise)


def planned_cost(protocol: Protocol, adjacency: Adjacency) -> Release:
    """State what a protocol may spend under an adjacency; ValueError if it says nothing there."""
    g = protocol.guarantee
    return convert(g.cost, g.adjacency, adjacency, null_safe=protocol.null_safe)
