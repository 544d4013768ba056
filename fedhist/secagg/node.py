"""One node's side of an attempt: four rounds, each once, each after checks of what is asked.

A node believes its own terms, its own index and its own secrets; everything else comes through the
server. See ``fedhist/secagg/README.md`` for what these checks are worth against a server that lies.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec import field

from fedhist.base.arrays import Array
from fedhist.base.checks import check_within
from fedhist.secagg import keys as k
from fedhist.secagg.attempt import ROUNDS, Attempt, AttemptState, Roster, read_state
from fedhist.secagg.errors import OutOfOrder, Refused
from fedhist.secagg.messages import BOX, KEYS, Message, indices, seal, unseal
from fedhist.secagg.shamir import SHARE, Entropy, draw, split
from fedhist.secagg.terms import Graph, Terms


class _State(AttemptState):
    """What a node keeps between rounds; all of it secret until it has unmasked."""

    node: int
    r: bytes = b""
    b: bytes = b""
    enc: bytes = b""
    own_share: bytes = b""
    members: list[int] = field(default_factory=list)
    keys: bytes = b""
    present: list[int] = field(default_factory=list)
    held: dict[int, bytes] = field(default_factory=dict)
    unmasked: list[int] = field(default_factory=list)
    answer: bytes = b""


class NodeAttempt(Attempt[_State]):
    """A node in one attempt: number ``node`` among the parties of its own terms.

    Every method takes the server's message of a round and returns the node's answer. A round that
    is refused changes nothing. **Write** :meth:`state` **to disk before an answer leaves**: a node
    that restarts without it has dropped out, one with an older one would answer a round twice.

    The roster must have ``min_parties`` nodes, and with ``peers`` each must bear the signature of
    one of these owners, another one for each. ``owner_key``, 32 bytes of Ed25519, signs the node's
    own round-1 keys. Other ``entropy`` than the system's is for fixed test vectors only.

    Privacy: against a server that follows the protocol and at most ``terms.collude`` colluding
    nodes, the answers of all rounds tell the sum over the nodes finally present and nothing else
    (spec B4; Bonawitz et al. 2017). The sum itself is private by the noise in the values, which is
    not this class's: the caller adds it, once per query, and keeps it for retries (B5).
    """

    def __init__(
        self,
        terms: Terms,
        node: int,
        *,
        min_parties: int = 10,
        owner_key: bytes | None = None,
        peers: Collection[bytes] | None = None,
        entropy: Entropy = secrets.token_bytes,
    ) -> None:
        check_within("node", node, 0, terms.parties, "[)")
        for name, size in [("owner_key", owner_key), *(("peers", peer) for peer in peers or ())]:
            if size is not None and len(size) != 32:
                raise ValueError(f"{name} must be 32 bytes, got {len(size)}")
        super().__init__(terms, _State(node=node, nonce=b"", terms=terms.fingerprint))
        self.node = node
        self._min_parties, self._owner_key = min_parties, owner_key
        self._peers = None if peers is None else frozenset(peers)
        self._entropy = entropy

    # --- what is kept -----------------------------------------------------------------------

    @classmethod
    def resume(cls, state: bytes, terms: Terms, **settings: Any) -> NodeAttempt:
        """Return the attempt of a :meth:`state`, under the same terms and settings."""
        restored = read_state(state, _State, terms)
        attempt = cls(terms, restored.node, **settings)
        attempt._state = restored
        return attempt

    @property
    def session(self) -> bytes:
        """The attempt's name, 16 bytes; empty before the first round."""
        return k.session_id(self._state.nonce, self.terms.digest) if self._state.nonce else b""

    def _open(self, name: str, ask: Mapping[str, Any]) -> dict[str, Array]:
        if self.next_round != name:
            raise OutOfOrder(
                f"round {name!r} was asked of node {self.node}, whose next round is "
                f"{self.next_round!r}"
            )
        return unseal(f"{name}.ask", ask, self.session, self.node)

    def _answer(self, name: str, **fields: Array) -> Message:
        self._state.done = ROUNDS.index(name) + 1
        return seal(f"{name}.answer", self.session, self.node, **fields)

    # --- the rounds -------------------------------------------------------------------------

    def keys(self, ask: Mapping[str, Any]) -> Message:
        """Round 1: draw the secrets, answer public keys and the commitment to b."""
        if self._state.done:
            raise OutOfOrder(f"round 'keys' was asked of node {self.node} a second time")
        nonce = ask.get("nonce") if isinstance(ask, Mapping) else None
        nonce = nonce.tobytes() if isinstance(nonce, np.ndarray) else b""
        unseal("keys.ask", ask, k.session_id(nonce, self.terms.digest), self.node)
        state, entropy = self._state, self._entropy
        state.nonce = nonce
        state.r, state.b, state.enc = entropy(k.SECRET), entropy(k.SECRET), entropy(k.KEY)
        mask_key = k.mask_private_key(state.r, self.session, self.node)
        state.keys = (
            k.public_key(state.enc)
            + k.public_key(mask_key)
            + k.commitment(state.b, self.session, self.node)
        )
        signed = b""
        if self._owner_key is not None:
            signed = k.sign(self._owner_key, self.session, self.terms.digest, self.node, state.keys)
        return self._answer("keys", keys=_bytes(state.keys), signed=_bytes(signed))

    def shares(self, ask: Mapping[str, Any]) -> Message:
        """Round 2: check the roster, answer shares of r and b, encrypted for each holder."""
        fields = self._open("shares", ask)
        roster = Roster.read(fields, self.terms)
        state = self._state
        if state.keys != roster.keys.get(self.node):
            raise Refused(f"the roster has not the keys that node {self.node} sent")
        quorum = self.terms.parties - self.terms.drop
        if len(roster.keys) < quorum:  # before anything is worked out that takes its time
            raise Refused(f"the roster: {len(roster.keys)} nodes are fewer than {quorum}")
        if len(roster.keys) < self._min_parties:
            raise Refused(
                f"the roster has {len(roster.keys)} nodes, the owner asks for {self._min_parties}"
            )
        if self._peers is not None:
            owner = k.owner_public_key(self._owner_key) if self._owner_key else b""
            roster.check_peers(self._peers, self.session, self.terms.digest, self.node, owner)
        graph = Graph(self.terms)
        graph.check_present(roster.keys, "the roster")
        holders = [i for i in graph.holders(self.node) if i in roster.keys]
        points, degree = [i + 1 for i in holders], self.terms.plan.threshold - 1
        pieces = [
            split(int.from_bytes(secret, "little"), draw(degree, self._entropy), points)
            for secret in (state.r, state.b)
        ]
        enc = X25519PrivateKey.from_private_bytes(state.enc)
        boxes, own = [], b""
        for holder, *pair in zip(holders, *pieces, strict=True):
            text = b"".join(share.to_bytes(SHARE, "little") for share in pair)
            if holder == self.node:
                own = text
                continue
            key = k.pair_key(enc, roster.enc(holder), self.session, self.node, holder, b"enc")
            boxes.append(k.enclose(key, self.session, self.node, holder, text))
        state.own_share, state.members = own, list(roster.keys)
        state.keys = b"".join(roster.keys.values())
        return self._answer("shares", boxes=_bytes(b"".join(boxes)).reshape(-1, BOX))

    def masked(self, ask: Mapping[str, Any], values: Array, users: int = 0) -> Message:
        """Round 3: open the shares of others, answer the values under all masks."""
        fields = self._open("masked", ask)
        terms, state = self.terms, self._state
        if values.shape != (terms.length,) or values.dtype != k.WORDS[terms.bits]:
            raise ValueError(
                f"values must be ({terms.length},) of uint{terms.bits}, "
                f"got {values.shape} of {values.dtype}"
            )
        present = indices(fields["present"], terms.parties, "masked.ask")
        if not {self.node, *present} <= set(state.members) or self.node not in present:
            raise Refused("masked.ask: present has strangers, or not the node itself")
        graph = Graph(terms)
        graph.check_present(present, "masked.ask")
        roster = Roster(dict(zip(state.members, _rows(state.keys, KEYS), strict=True)))
        senders = sorted(set(graph.neighbours(self.node)) & set(present))
        boxes = _rows(fields["boxes"].tobytes(), BOX)
        if len(boxes) != len(senders):
            raise Refused(f"masked.ask: {len(boxes)} shares came from {len(senders)} neighbours")
        enc = X25519PrivateKey.from_private_bytes(state.enc)
        held = {self.node: state.own_share}
        for sender, box in zip(senders, boxes, strict=True):
            key = k.pair_key(enc, roster.enc(sender), self.session, self.node, sender, b"enc")
            held[sender] = k.disclose(key, self.session, sender, self.node, box)
            if len(held[sender]) != 2 * SHARE:
                raise Refused(f"the shares of node {sender} have another size")
        total = values.copy()
        own = k.self_mask_key(state.b, self.session, self.node)
        mask_key = k.mask_private_key(state.r, self.session, self.node)
        private = X25519PrivateKey.from_private_bytes(mask_key)
        pairs = (
            (
                k.pair_key(private, roster.mask(j), self.session, self.node, j, b"pair"),
                1 if j > self.node else -1,
            )
            for j in senders
        )
        k.add_masks(total, [(own, 1), *pairs], terms.bits)
        state.present, state.held = present, held
        state.r = state.b = state.enc = state.own_share = state.keys = b""
        return self._answer("masked", values=total, users=np.array([users], "<u8"))

    def unmask(self, ask: Mapping[str, Any]) -> Message:
        """Round 4: answer b-shares of those present, r-shares of the others, never both of one.

        The same set again gets the same answer; everything that would allow another is deleted.
        """
        if self.next_round is None:
            fields = unseal("unmask.ask", ask, self.session, self.node)
            if fields["present"].tolist() != self._state.unmasked:
                raise OutOfOrder(f"node {self.node} has unmasked another set; it does so once")
        else:
            fields = self._open("unmask", ask)
            self._unmask(fields["present"])
        shares = _bytes(self._state.answer).reshape(-1, SHARE)
        return self._answer("unmask", shares=shares)

    def _unmask(self, nodes: Array) -> None:
        present, state = indices(nodes, self.terms.parties, "unmask.ask"), self._state
        if not set(present) <= set(state.present) or self.node not in present:
            raise Refused("unmask.ask: present has nodes without shares, or not the node itself")
        Graph(self.terms).check_present(present, "unmask.ask")
        here = set(present)
        state.answer = b"".join(
            state.held[j][SHARE:] if j in here else state.held[j][:SHARE]
            for j in sorted(state.held)
        )
        state.unmasked = present
        state.held, state.present, state.members = {}, [], []


def _bytes(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)


def _rows(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]
