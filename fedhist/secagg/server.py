"""The server's side of an attempt: it relays, adds up, and takes off the masks of those present."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from msgspec import field

from fedhist.base.arrays import Array
from fedhist.secagg import keys as k
from fedhist.secagg.attempt import Attempt, AttemptState, Distinct, Roster, read_state
from fedhist.secagg.errors import OutOfOrder, Refused, RoundFailed
from fedhist.secagg.messages import BOX, KEYS, Message, seal, unseal
from fedhist.secagg.shamir import SHARE, combine, weights
from fedhist.secagg.terms import Graph, Terms

Answers = Iterable[tuple[int, Mapping[str, Any]]]
"""(node, its answer): an iterator is read one answer at a time, so vectors need not all be held."""


class _State(AttemptState):
    """What a server keeps between rounds; the masked sum is safe to keep, shares unmask it."""

    keys: dict[int, bytes] = field(default_factory=dict)
    signed: dict[int, bytes] = field(default_factory=dict)
    sharers: list[int] = field(default_factory=list)
    present: list[int] = field(default_factory=list)
    users: dict[int, int] = field(default_factory=dict)
    masked_sum: bytes = b""
    answers: dict[int, bytes] = field(default_factory=dict)


class ServerAttempt(Attempt[_State]):
    """A server in one attempt; another ``nonce`` than 16 fresh bytes is for test vectors only.

    :meth:`start` gives the first messages; each ``take_*`` takes the answers that came and returns
    the messages of the next round, to those who are still in, or the sum. An unusable answer counts
    as missing, with its reason in :attr:`refused`; too few usable ones are a :class:`RoundFailed`.

    Keep :meth:`state` on disk **before** the messages of round 4 leave: nodes unmask this set and
    no other, so a server that forgot it cannot ask again. Privacy: see :class:`NodeAttempt`.
    """

    def __init__(self, terms: Terms, nonce: bytes | None = None) -> None:
        nonce = secrets.token_bytes(k.SECRET) if nonce is None else nonce
        if len(nonce) != k.SECRET:
            raise ValueError(f"nonce must be {k.SECRET} bytes, got {len(nonce)}")
        super().__init__(terms, _State(nonce=nonce, terms=terms.fingerprint))
        self.session = k.session_id(nonce, terms.digest)
        self.refused: dict[int, str] = {}
        self._graph = Graph(terms)

    @classmethod
    def resume(cls, state: bytes, terms: Terms) -> ServerAttempt:
        """Return the attempt of a :meth:`state`."""
        restored = read_state(state, _State, terms)
        attempt = cls(terms, restored.nonce)
        attempt._state = restored
        return attempt

    @property
    def present(self) -> list[int]:
        """U, the nodes in the sum, ascending; empty before round 3 is over."""
        return list(self._state.present)

    @property
    def users(self) -> int:
        """Users of the nodes in the sum, as they say."""
        return sum(self._state.users.values())

    def _turn(self, name: str) -> None:
        if self.next_round != name:
            raise OutOfOrder(f"answers of {name!r} came, the next round is {self.next_round!r}")
        self.refused = {}

    def _ask(self, name: str, node: int, **fields: Array) -> Message:
        return seal(f"{name}.ask", self.session, node, **fields)

    def _usable(
        self, name: str, asked: Iterable[int], answers: Answers
    ) -> Iterable[tuple[int, dict[str, Array]]]:
        """Yield what is well-formed, of a node that was asked, and the first of it."""
        waiting = set(asked)
        for node, answer in answers:
            if node not in waiting:
                raise Refused(f"{name}.answer of node {node}, which was not asked or has answered")
            waiting.discard(node)
            try:
                yield node, unseal(f"{name}.answer", answer, self.session, node)
            except Refused as e:
                self.refused[node] = str(e)
        for node in waiting:
            self.refused[node] = "no answer"

    def _close(self, name: str, usable: Iterable[int]) -> list[int]:
        nodes = sorted(usable)
        try:
            self._graph.check_present(nodes, f"round {name!r}")
        except Refused as e:
            least = self.terms.least
            raise RoundFailed(name, len(nodes), least, self.refused, str(e)) from None
        self._state.done += 1
        return nodes

    # --- the rounds -------------------------------------------------------------------------

    def start(self) -> dict[int, Message]:
        """Return the messages of round 1, by node."""
        nonce = np.frombuffer(self._state.nonce, np.uint8)
        return {i: self._ask("keys", i, nonce=nonce) for i in range(self.terms.parties)}

    def take_keys(self, answers: Answers) -> dict[int, Message]:
        """Take round 1, return the messages of round 2: the roster, to all in it."""
        self._turn("keys")
        state, distinct = self._state, Distinct()
        for node, fields in self._usable("keys", range(self.terms.parties), answers):
            keys, signed = fields["keys"].tobytes(), fields["signed"].tobytes()
            try:
                if len(signed) not in (0, KEYS):
                    raise Refused(f"a signature and its key have {KEYS} bytes, got {len(signed)}")
                distinct.add(node, keys)
            except Refused as e:
                self.refused[node] = str(e)
                continue
            state.keys[node], state.signed[node] = keys, signed
        nodes = self._close("keys", state.keys)
        width = KEYS if any(state.signed.values()) else 0
        signed = b"".join(state.signed[i] or bytes(width) for i in nodes)
        roster = {
            "members": np.array(nodes, "<u4"),
            "keys": _table(b"".join(state.keys[i] for i in nodes), len(nodes)),
            "signed": _table(signed, len(nodes)),
        }
        return {i: self._ask("shares", i, **roster) for i in nodes}

    def take_shares(self, answers: Answers) -> dict[int, Message]:
        """Take round 2, return the messages of round 3: to each the shares that others sent it."""
        self._turn("shares")
        boxes: dict[int, dict[int, Array]] = {}
        members = set(self._state.keys)
        for node, fields in self._usable("shares", members, answers):
            to = [i for i in self._graph.neighbours(node) if i in members]
            if len(fields["boxes"]) != len(to):
                self.refused[node] = f"{len(fields['boxes'])} shares for {len(to)} neighbours"
                continue
            boxes[node] = dict(zip(to, fields["boxes"], strict=True))
        nodes = self._close("shares", boxes)
        self._state.sharers = nodes
        present = np.array(nodes, "<u4")
        asks = {}
        for i in nodes:
            rows = [boxes[j][i] for j in self._graph.neighbours(i) if j in boxes]
            table = np.array(rows, np.uint8).reshape(-1, BOX)
            asks[i] = self._ask("masked", i, present=present, boxes=table)
        return asks

    def take_masked(self, answers: Answers, most_users: int | None = None) -> dict[int, Message]:
        """Take round 3, return the messages of round 4: who is in the sum."""
        self._turn("masked")
        terms, state = self.terms, self._state
        total = np.zeros(terms.length, k.WORDS[terms.bits])
        present = []
        for node, fields in self._usable("masked", state.sharers, answers):
            values = fields["values"]
            if values.shape != total.shape or values.dtype != total.dtype:
                self.refused[node] = f"values are {values.shape} of {values.dtype}"
                continue
            users = int(fields["users"][0])
            if most_users is not None and users > most_users:
                self.refused[node] = f"a reply for {users} users, of {most_users} at most"
                continue
            total += values
            state.users[node] = users
            present.append(node)
        state.present = self._close("masked", present)
        state.masked_sum = total.tobytes()
        return self.ask_unmask()

    def ask_unmask(self) -> dict[int, Message]:
        """Return the messages of round 4 (again): nodes that answered give the same answer."""
        if self.next_round != "unmask":
            raise OutOfOrder(f"'unmask' is asked, the next round is {self.next_round!r}")
        present = np.array(self._state.present, "<u4")
        return {i: self._ask("unmask", i, present=present) for i in self._state.present}

    def take_unmask(self, answers: Answers) -> Array:
        """Take round 4, return the sum modulo 2^bits of the values of those present.

        May be called again after a failure, with what came since; a node that was asked twice
        answers the same twice.
        """
        self._turn("unmask")
        state, terms = self._state, self.terms
        sharers = set(state.sharers)
        holders = {j: [i for i in self._graph.holders(j) if i in sharers] for j in sharers}
        waiting = [i for i in state.present if i not in state.answers]
        fresh = ((i, answer) for i, answer in answers if i not in state.answers)
        for node, fields in self._usable("unmask", waiting, fresh):
            if len(fields["shares"]) != len(holders[node]):
                self.refused[node] = f"{len(fields['shares'])} shares of {len(holders[node])}"
                continue
            state.answers[node] = fields["shares"].tobytes()
        removals = self._restore(holders)
        total: Array = np.frombuffer(state.masked_sum, k.WORDS[terms.bits]).copy()
        k.add_masks(total, removals, terms.bits)
        total.flags.writeable = False
        state.done += 1
        return total

    def _restore(self, holders: Mapping[int, list[int]]) -> list[tuple[bytes, int]]:
        """Return the keys of all masks in the masked sum, each with the sign that takes it off.

        A node whose share is wrong is left out, by name, if enough others gave theirs: the sum
        would be lost otherwise, since those who unmasked do not come back in another attempt.
        """
        state, least = self._state, self.terms.plan.threshold
        row = {i: {j: at for at, j in enumerate(holders[i])} for i in state.answers}
        roster, here = Roster(state.keys), set(state.present)
        at: dict[tuple[int, ...], list[int]] = {}
        removals: list[tuple[bytes, int]] = []
        for j in sorted(holders):
            told = [i for i in holders[j] if i in state.answers and i not in self.refused]
            why = f"too few shares of node {j}"
            for left_out in (None, *told[:least]):
                some = tuple([i for i in told if i != left_out][:least])
                if len(some) < least:
                    raise self._lost(len(told), why)
                if some not in at:
                    at[some] = weights([i + 1 for i in some])
                parts = [state.answers[i][SHARE * row[i][j] :][:SHARE] for i in some]
                secret = combine([int.from_bytes(part, "little") for part in parts], at[some])
                try:
                    removals += self._removals(j, secret, roster, here)
                except Refused as e:
                    why = f"node {j}: {e}"
                    continue
                if left_out is not None:
                    self.refused[left_out] = f"its share of node {j} is wrong"
                break
            else:
                raise self._lost(len(told), why)
        return removals

    def _lost(self, told: int, why: str) -> RoundFailed:
        return RoundFailed("unmask", told, self.terms.plan.threshold, self.refused, why)

    def _removals(
        self, j: int, secret: int, roster: Roster, here: set[int]
    ) -> list[tuple[bytes, int]]:
        if secret >= 1 << 8 * k.SECRET:
            raise Refused("its shares restore no secret")
        value = secret.to_bytes(k.SECRET, "little")
        if j in here:
            if k.commitment(value, self.session, j) != roster.commitment(j):
                raise Refused("its shares restore another b than it committed to")
            return [(k.self_mask_key(value, self.session, j), -1)]
        private = k.mask_private_key(value, self.session, j)
        if k.public_key(private) != roster.mask(j):
            raise Refused("its shares restore another mask key than it sent")
        mine = X25519PrivateKey.from_private_bytes(private)
        return [
            (k.pair_key(mine, roster.mask(i), self.session, j, i, b"pair"), -1 if j > i else 1)
            for i in self._graph.neighbours(j)
            if i in here
        ]


def _table(data: bytes, rows: int) -> Array:
    return np.frombuffer(data, np.uint8).reshape(rows, len(data) // max(rows, 1))
