"""The server's half of a sum under masks: four rounds of messages over a Grid, and what is kept.

Masked sum, the nodes in it and the session are journalled before any node is asked to unmask, and
the nodes' replies before the total is looked at: nodes unmask for that set and no other, so that a
server that is killed goes on from there. Killed earlier, it begins anew, with other masks over the
same numbers.

The server seats the nodes: with its first message each is told its place in the sum, and a reply
counts for the place of the Flower id that it comes from and for no other.
"""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from secrets import SystemRandom

import numpy as np
from flwr.app import Message, RecordDict

from fedhist.base.arrays import Array
from fedhist.base.errors import MissingReplies, WireError, one_line
from fedhist.flower.masked_wire import (
    Told,
    decode_told,
    encode_asks,
    for_everybody,
    summary_of,
    terms_of,
)
from fedhist.flower.wire import answer_bytes, decode_answer, kind_of
from fedhist.model.aggregated import Aggregated
from fedhist.model.codec import query_digest
from fedhist.secagg import Message as SecaggMessage
from fedhist.secagg import Refused, RoundFailed, ServerAttempt
from fedhist.secagg.messages import seal, unseal
from fedhist.secagg.shamir import SHARE
from server.intake import Collected, last_line
from server.session.journal import Journal

Send = Callable[[Mapping[int, RecordDict]], Iterable[Message]]
"""Sends a record to each of the given nodes, by Flower's id, and returns the replies."""


class MaskedSum:
    """One query's sum under masks, of at least two parties.

    At least ``min_replies`` nodes must be in the sum, if they are more than the quorum, each with
    ``max_users`` at most; ``dropped`` takes up why replies were not used.
    """

    def __init__(
        self,
        query: Aggregated,
        round_index: int,
        journal: Journal,
        send: Send,
        dropped: Counter[str] | None = None,
        min_replies: int | None = None,
        max_users: int | None = None,
    ) -> None:
        self.query, self.round_index, self.journal = query, round_index, journal
        self.digest = query_digest(query, round_index)
        self.terms = terms_of(query, self.digest)
        self.dropped = Counter[str]() if dropped is None else dropped
        self.min_replies = min_replies or 0
        self._send, self._bytes, self._last = send, 0, time.perf_counter()
        self._left_out = 0  # replies of this round, for a reason that is counted
        self._flower: dict[int, int] = {}  # by place
        most = query.share.max_users if query.sends_n else 0
        self._most_users = most if max_users is None else min(most, max_users)

    def collect(self, nodes: Iterable[int]) -> Collected:
        """Add up what the given nodes, by Flower's ids, send under masks."""
        asked = list(nodes)
        line = self.journal.find("masked", self.round_index)
        try:
            for seats in self.journal.lines("seated", self.round_index):  # the last one counts
                self._flower = {int(place): flower for place, flower in seats["places"].items()}
            if line is None:
                self._seat(asked)
                attempt = self._begin()
            else:
                attempt = ServerAttempt.resume(b64decode(line["state"]), self.terms)
            words = self._unmask(attempt, asked)
        except RoundFailed as failure:
            raise self._missing(failure) from failure
        present = attempt.present
        total = self.query.lift(summary_of(self.query, words, attempt.users), len(present))
        return Collected(total, len(present), self._bytes, dict(+self.dropped), self._last)

    # -- rounds 1 to 3 -------------------------------------------------------------------------

    def _seat(self, nodes: list[int]) -> None:
        """Give every node a place, by the rank of its Flower id, and write it down.

        In a sparse graph the free places are shuffled before: coming back under another id gains
        nothing.
        """
        here = set(nodes)
        held = {place: flower for place, flower in self._flower.items() if flower in here}
        free = [place for place in range(self.terms.parties) if place not in held]
        if self.terms.plan.window >= 0:
            SystemRandom().shuffle(free)
        new = sorted(here - set(held.values()))
        seated = held | dict(zip(free, new, strict=False))
        if seated != self._flower:
            self._flower = seated
            places = {str(place): seated[place] for place in sorted(seated)}
            self.journal.append({"kind": "seated", "index": self.round_index, "places": places})

    def _begin(self) -> ServerAttempt:
        attempt = ServerAttempt(self.terms)
        first = {place: ask for place, ask in attempt.start().items() if place in self._flower}
        asks = attempt.take_keys(self._told("keys", self._addressed("keys", first)))
        self._note("keys", attempt.refused)
        asks = attempt.take_shares(self._told("shares", self._addressed("shares", asks)))
        self._note("shares", attempt.refused)
        told = self._told("masked", self._addressed("masked", asks))
        attempt.take_masked(told, self._most_users)
        self._note("masked", attempt.refused)
        present = attempt.present
        if len(present) < self.min_replies:
            raise RoundFailed("masked", len(present), self.min_replies)
        self.journal.append(
            {
                "kind": "masked",
                "index": self.round_index,
                "session": attempt.session.hex(),
                "nodes": present,
                "state": b64encode(attempt.state()).decode(),
            }
        )
        return attempt

    def _records(self, name: str, messages: Mapping[int, SecaggMessage]) -> dict[int, RecordDict]:
        return encode_asks(name, self.digest, messages, self.query, self.round_index)

    def _addressed(self, name: str, messages: Mapping[int, SecaggMessage]) -> dict[int, RecordDict]:
        """Pack messages by place for Flower's ids."""
        return {self._flower[i]: record for i, record in self._records(name, messages).items()}

    # -- round 4 -------------------------------------------------------------------------------

    def _unmask(self, attempt: ServerAttempt, nodes: list[int]) -> Array:
        """Ask the nodes in the sum to unmask, unless their replies are in the journal."""
        replies = self._kept_replies(attempt)
        if replies:
            state = attempt.state()
            try:
                return attempt.take_unmask(replies.items())
            except RoundFailed:  # too few of them, or one is wrong: all are asked again
                attempt = ServerAttempt.resume(state, self.terms)
        message = for_everybody(next(iter(attempt.ask_unmask().values())))
        (record,) = self._records("unmask", {0: message}).values()
        # who is back under another Flower id speaks for a place of which the id has gone
        present, here = set(attempt.present), set(nodes)
        seats = {flower: place for place, flower in self._flower.items()}
        asked = [i for i in nodes if seats.get(i, -1) in present or i not in seats]
        self._flower = {place: i for place, i in self._flower.items() if i in here}
        told = {
            i: answer
            for i, answer in self._told("unmask", dict.fromkeys(asked, record))
            if i in present
        }
        whole = {i: a for i, a in told.items() if _is_whole(a, attempt.session, i)}
        shares = {i: a["shares"].tobytes() for i, a in whole.items()}
        self.journal.append(
            {
                "kind": "unmasked",
                "index": self.round_index,
                "replies": {str(i): b64encode(raw).decode() for i, raw in shares.items()},
            }
        )
        state = attempt.state()
        try:
            words = attempt.take_unmask((replies | told).items())
        except RoundFailed as failure:
            attempt = ServerAttempt.resume(state, self.terms)  # what was kept may be what is wrong
            try:
                words = attempt.take_unmask(told.items())
            except RoundFailed:
                raise failure from None
        self._note("unmask", attempt.refused)
        return words

    def _kept_replies(self, attempt: ServerAttempt) -> dict[int, SecaggMessage]:
        """Return the replies that the journal has, as they came."""
        messages: dict[int, SecaggMessage] = {}
        for line in self.journal.lines("unmasked", self.round_index):
            for i, text in line["replies"].items():
                shares = np.frombuffer(b64decode(text), np.uint8).reshape(-1, SHARE)
                messages[int(i)] = seal("unmask.answer", attempt.session, int(i), shares=shares)
        return messages

    # -- replies -------------------------------------------------------------------------------

    def _told(
        self, name: str, records: Mapping[int, RecordDict]
    ) -> Iterator[tuple[int, SecaggMessage]]:
        """Send a round's messages and yield what came back, by place: of each node the first."""
        place_of = {flower: place for place, flower in self._flower.items()}
        taken: set[int] = set()
        for reply in self._send(records):
            source = reply.metadata.src_node_id
            self._last = time.perf_counter()
            try:
                told = self._decoded(name, reply)
                index = told.message["node"]
                seat = place_of.get(source)
                strange = seat is None and name == "unmask" and index not in self._flower
                if index in taken or not (seat == index or strange):
                    raise WireError(f"node {index} answered twice, or another in its place")
            except WireError as error:
                self.dropped[f"secagg.{name}: {error}"] += 1
                self._left_out += 1
                continue
            taken.add(index)
            self._flower.setdefault(index, source)
            place_of[source] = index
            self._bytes += answer_bytes(reply.content)
            yield index, told.message

    def _decoded(self, name: str, reply: Message) -> Told:
        if reply.has_error():
            raise WireError(f"the client failed: {last_line(reply.error.reason)}")
        if not kind_of(reply.content).startswith("secagg."):
            body = decode_answer(reply.content).body
            said = one_line(body) if isinstance(body, str) else "it answers another question"
            raise WireError(f"the client refused: {said}")
        told = decode_told(reply.content)
        if (told.round_name, told.digest) != (name, self.digest):
            raise WireError(f"an answer of the round {told.round_name!r} to {told.digest}")
        return told

    def _note(self, name: str, reasons: Mapping[int, str]) -> None:
        """Count why answers of a round were not used, those apart that were counted already."""
        counts = Counter(reasons.values())
        silent = counts.pop("no answer", 0) - self._left_out
        self._left_out = 0
        for reason, n in [*counts.items(), ("no reply", max(silent, 0))]:
            self.dropped[f"secagg.{name}: {reason}"] += n

    def _missing(self, failure: RoundFailed) -> MissingReplies:
        self._note(failure.round_name, failure.missing)
        why = (
            f"secagg.{failure.round_name} needs {failure.needed} nodes, for which "
            f"{self.query.share.aggregation} was promised; nothing was unmasked"
        )
        reasons = +self.dropped + Counter({why: 1})
        return MissingReplies(self.terms.parties, failure.got, reasons, failure.needed)


def _is_whole(message: SecaggMessage, session: bytes, place: int) -> bool:
    """Say whether a reply is as it was sent: sealed anew, damage would not show."""
    try:
        unseal("unmask.answer", message, session, place)
    except Refused:
        return False
    return True
