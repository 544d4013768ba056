"""What both sides of an attempt have in common: four rounds in order, a state, and the roster.

The roster has the round-1 keys of all who sent some, as the server shows them to everybody.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from fedhist.base.arrays import Array
from fedhist.secagg import keys as k
from fedhist.secagg.errors import Refused, SecaggError
from fedhist.secagg.messages import KEYS, indices
from fedhist.secagg.terms import Terms

ROUNDS = ("keys", "shares", "masked", "unmask")


class AttemptState(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What a side keeps between rounds."""

    nonce: bytes
    terms: bytes
    done: int = 0


K = TypeVar("K", bound=AttemptState)


class Attempt(Generic[K]):
    """One side of an attempt."""

    def __init__(self, terms: Terms, state: K) -> None:
        self.terms = terms
        self._state = state

    @property
    def next_round(self) -> str | None:
        """The round that is not over yet; None after the last."""
        return ROUNDS[self._state.done] if self._state.done < len(ROUNDS) else None

    def state(self) -> bytes:
        """Return what is to be kept on disk, readable by its owner only.

        A node's is SECRET until it has unmasked.
        """
        return msgspec.msgpack.encode(self._state)


def read_state(state: bytes, kind: type[K], terms: Terms) -> K:
    """Read an :meth:`Attempt.state`; SecaggError if it is damaged or of other terms."""
    try:
        restored = msgspec.msgpack.decode(state, type=kind)
    except msgspec.MsgspecError as e:
        raise SecaggError(f"the state of an attempt cannot be read: {e}") from None
    if restored.terms != terms.fingerprint:
        raise SecaggError("the state of an attempt is of other terms")
    return restored


class Distinct:
    """Round-1 keys seen so far: nobody's key or commitment comes twice, in any spelling."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def add(self, node: int, keys: bytes) -> None:
        """Add a node's 96 bytes, or raise Refused."""
        parts = {keys[at : at + k.KEY] for at in range(0, len(keys), k.KEY)}
        for point in (keys[: k.KEY], keys[k.KEY : 2 * k.KEY]):
            k.check_point(node, point)
        if len(parts) < len(keys) // k.KEY or parts & self._seen:
            raise Refused(f"a key or the commitment of node {node} comes twice")
        self._seen |= parts


@dataclass(frozen=True)
class Roster:
    """Keys by node, ascending: public encryption key, public mask key, commitment to b, 96 bytes.

    ``signed`` has an owner's public key and signature, 96 bytes each, zeros for a node without; it
    may be empty.
    """

    keys: Mapping[int, bytes]
    signed: Mapping[int, bytes] | None = None

    @classmethod
    def read(cls, fields: Mapping[str, Array], terms: Terms) -> Roster:
        """Return the roster of a message's fields."""
        nodes = indices(fields["members"], terms.parties, "the roster")
        keys, signed = fields["keys"], fields["signed"]
        if len(keys) != len(nodes) or signed.shape not in ((len(nodes), 0), (len(nodes), KEYS)):
            raise Refused(f"the roster has {len(nodes)} nodes, {len(keys)} keys, {signed.shape}")
        roster = cls(
            {i: row.tobytes() for i, row in zip(nodes, keys, strict=True)},
            {i: row.tobytes() for i, row in zip(nodes, signed, strict=True)},
        )
        distinct = Distinct()
        for node, row in roster.keys.items():
            distinct.add(node, row)
        return roster

    def enc(self, node: int) -> bytes:
        """Return a node's public encryption key."""
        return self.keys[node][: k.KEY]

    def mask(self, node: int) -> bytes:
        """Return a node's public mask key."""
        return self.keys[node][k.KEY : 2 * k.KEY]

    def commitment(self, node: int) -> bytes:
        """Return the hash that a node's b must have."""
        return self.keys[node][2 * k.KEY :]

    def check_peers(
        self, peers: Collection[bytes], session: bytes, digest: bytes, besides: int, own: bytes
    ) -> None:
        """Raise Refused unless every other node bears the signature of a peer, each its own.

        ``besides`` is the node that asks, which knows its own keys, and ``own`` its owner's public
        key, which signs for no other node; it is empty if that signs nothing.
        """
        holders = {own: besides}
        for node, keys in self.keys.items():
            if node == besides:
                continue
            owner = k.signer_of((self.signed or {}).get(node, b""), session, digest, node, keys)
            if owner not in peers:
                raise Refused(f"node {node} is signed for by nobody among the peers")
            if owner in holders:
                raise Refused(f"nodes {holders[owner]} and {node} are signed for by one owner")
            holders[owner] = node
