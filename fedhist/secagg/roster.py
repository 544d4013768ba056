"""The roster: round-1 keys of all who sent some, as the server shows them to everybody."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from fedhist.base.arrays import Array
from fedhist.secagg import keys as k
from fedhist.secagg.errors import Refused
from fedhist.secagg.messages import SIGNED, indices
from fedhist.secagg.terms import Terms


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
    """Keys by node, ascending.

    Parameters
    ----------
    keys : mapping of int to bytes
        96 bytes: public encryption key, public mask key, commitment to b.
    signed : mapping of int to bytes
        96 bytes each, an owner's public key and signature; zeros for a node without; may be empty.
    """

    keys: Mapping[int, bytes]
    signed: Mapping[int, bytes] | None = None

    @classmethod
    def read(cls, fields: Mapping[str, Array], terms: Terms) -> Roster:
        """Return the roster of a message's fields.

        Raises
        ------
        Refused
            If sizes differ, nodes do not ascend, or a key comes twice, is not reduced or of small
            order.
        """
        nodes = indices(fields["members"], terms.parties, "the roster")
        keys, signed = fields["keys"], fields["signed"]
        if len(keys) != len(nodes) or signed.shape not in ((len(nodes), 0), (len(nodes), SIGNED)):
            raise Refused(f"the roster has {len(nodes)} nodes, {len(keys)} keys, {signed.shape}")
        roster = cls(
            {i: row.tobytes() for i, row in zip(nodes, keys, strict=True)},
            {i: row.tobytes() for i, row in zip(nodes, signed, strict=True)},
        )
        seen = Distinct()
        for node, row in roster.keys.items():
            seen.add(node, row)
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

        Parameters
        ----------
        peers : collection of bytes
            Owners' public Ed25519 keys.
        session, digest : bytes
        besides : int
            The node that asks, which knows its own keys.
        own : bytes
            Its owner's public key, which signs for no other node; empty if it signs nothing.
        """
        seen = {own: besides}
        for node, keys in self.keys.items():
            if node == besides:
                continue
            owner = k.signer_of((self.signed or {}).get(node, b""), session, digest, node, keys)
            if owner not in peers:
                raise Refused(f"node {node} is signed for by nobody among the peers")
            if owner in seen:
                raise Refused(f"nodes {seen[owner]} and {node} are signed for by one owner")
            seen[owner] = node


__all__ = ["Roster"]
