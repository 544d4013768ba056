"""The node's half of a sum under masks: what it keeps between rounds, and what it does once only.

Value and noise are drawn once per query, when the guard lets the vector leave, and kept by its
store; a retry sends the same under new masks. A node unmasks at most once per query, for ever: two
sums over sets that differ by one node would show that node's numbers with its own share of noise.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from logging import ERROR
from pathlib import Path
from typing import Any, TypeVar

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from flwr.app import RecordDict
from flwr.common import log

from clients.guard import Policy, Refusal
from clients.store import Store
from fedhist.base.errors import PopulationError, WireError
from fedhist.flower.masked_wire import Asked, aggregated, encode_told, terms_of, vector_of
from fedhist.flower.wire import Question
from fedhist.model.query import Summary
from fedhist.secagg import NodeAttempt, SecaggError, Terms
from fedhist.secagg.messages import unseal

_In = TypeVar("_In")
_Out = TypeVar("_Out")


@dataclass(frozen=True)
class MaskedHalf:
    """Answers the rounds of sums under masks for one node.

    Its place among the parties is the server's to say, with the first message of an attempt: who
    could choose it would sit down beside others. In a sparse graph it is kept for good once a
    vector has left, so that all attempts at a query have the same holders.

    It hides its numbers among ``min_parties`` nodes at least, signs its public keys with
    ``owner_key``, 32 bytes, if it has one, and counts the nodes of ``peers`` alone, if any are
    named.
    """

    min_parties: int
    owner_key: bytes | None = None
    peers: frozenset[bytes] | None = None

    @classmethod
    def of(cls, policy: Policy, owner: Mapping[str, Any]) -> MaskedHalf:
        """Set up what an owner configured."""
        least = 2 if policy.simulated else policy.min_parties
        return cls(least, *owner_keys(owner))

    def answer(
        self,
        asked: Asked,
        store: Store,
        admit: Callable[[Question], None],
        draw: Callable[[Question], Summary],
    ) -> RecordDict:
        """Answer one message of one round.

        ``admit`` raises Refusal unless the guard would let the query's answer leave. ``draw``
        charges the guard and returns what the node sends for the query: always the same. Refusal
        for whatever this node does not do; nothing has left then.
        """
        try:
            if asked.round_name == "keys":
                return self._begin(asked, store, partial(_discreet, admit))
            return self._go_on(asked, store, partial(_discreet, draw))
        except (SecaggError, WireError, ValueError) as error:
            raise Refusal(f"secagg.{asked.round_name}: {error}") from None

    def _begin(self, asked: Asked, store: Store, admit: Callable[[Question], None]) -> RecordDict:
        question = _question(asked)
        terms = terms_of(aggregated(question.query), asked.digest)
        admit(question)
        if asked.digest in store.unmasked():
            raise Refusal(
                "this node has unmasked its answer to this query, and does so once: only the run "
                "that asked then can go on from its journal"
            )
        place = asked.message["node"]
        stored = store.attempt(asked.digest)
        if stored is not None and terms.plan.window >= 0:
            before = self._resumed(stored)
            if before.next_round == "unmask" and before.node != place:
                raise Refusal(
                    f"this node was number {before.node} when it sent its vector for this query, "
                    f"and does not become number {place}"
                )
        attempt = NodeAttempt(terms, place, **self._settings)
        told = attempt.keys(asked.message)
        store.keep_attempt(asked.digest, _body(attempt), unmasked=False)
        return encode_told("keys", asked.digest, told)

    def _go_on(self, asked: Asked, store: Store, draw: Callable[[Question], Summary]) -> RecordDict:
        name, digest = asked.round_name, asked.digest
        stored = store.attempt(digest)
        if stored is None:
            raise Refusal(f"secagg.{name}: no attempt for this query is under way on this node")
        attempt = self._resumed(stored)
        if attempt.next_round is not None and digest in store.unmasked():
            raise Refusal(
                f"secagg.{name}: this node has unmasked its answer to this query, and what it "
                "keeps of that attempt has been put back from before"
            )
        message = asked.of(attempt.node)
        if name == "masked":
            question = _question(asked)
            # before anything is drawn and charged
            if attempt.next_round == name:
                unseal(f"{name}.ask", message, attempt.session, attempt.node)
                summary = draw(question)
                words = _discreet(partial(vector_of, aggregated(question.query)), summary)
                told = attempt.masked(message, words, summary.n_users)
            else:
                raise Refusal(f"secagg.{name}: this node's next round is {attempt.next_round!r}")
        elif name == "shares":
            told = attempt.shares(message)
        else:
            told = attempt.unmask(message)
        store.keep_attempt(digest, _body(attempt), unmasked=name == "unmask")
        return encode_told(name, digest, told)

    @property
    def _settings(self) -> dict[str, Any]:
        return {
            "min_parties": self.min_parties,
            "owner_key": self.owner_key,
            "peers": self.peers,
        }

    def _resumed(self, body: bytes) -> NodeAttempt:
        fields = json.loads(body)
        terms = fields["terms"]
        return NodeAttempt.resume(
            b64decode(fields["state"]),
            Terms(**(terms | {"digest": bytes.fromhex(terms["digest"])})),
            **self._settings,
        )


def _discreet(work: Callable[[_In], _Out], given: _In) -> _Out:
    """Do what walks the users' data: what goes wrong there is for the node's own log alone."""
    try:
        return work(given)
    except (SecaggError, WireError, ValueError) as error:
        log(ERROR, "a sum under masks could not be answered: %s", error)
        raise Refusal("this node could not answer; its own log says why") from None


def _question(asked: Asked) -> Question:
    if asked.question is None:
        raise WireError(f"the round {asked.round_name!r} needs the query")
    return asked.question


def _body(attempt: NodeAttempt) -> bytes:
    """Write down an attempt with its terms: rounds without the query need them."""
    terms = asdict(attempt.terms) | {"digest": attempt.terms.digest.hex()}
    return json.dumps({"terms": terms, "state": b64encode(attempt.state()).decode()}).encode()


def owner_keys(owner: Mapping[str, Any]) -> tuple[bytes | None, frozenset[bytes] | None]:
    """Read an owner's own key and its peers' from the files that its configuration names.

    Both are PEM, as ``openssl genpkey -algorithm ed25519`` and ``openssl pkey -pubout`` write them;
    the file of the peers holds one public key behind the other.

    Raises PopulationError if a file cannot be read, or holds no such key.
    """
    own, peers = None, None
    if "secagg-key" in owner:
        private = _read("secagg-key", owner, lambda raw: load_pem_private_key(raw, None))
        if not isinstance(private, Ed25519PrivateKey):
            raise PopulationError("'secagg-key' of this node must name a private Ed25519 key")
        own = private.private_bytes_raw()
    if "secagg-peers" in owner:
        end = b"-----END PUBLIC KEY-----"
        keys = _read(
            "secagg-peers",
            owner,
            lambda raw: [load_pem_public_key(k + end) for k in raw.split(end)[:-1]],
        )
        if not keys or not all(isinstance(k, Ed25519PublicKey) for k in keys):
            raise PopulationError("'secagg-peers' of this node must name a file of Ed25519 keys")
        peers = frozenset(k.public_bytes_raw() for k in keys)
    return own, peers


def _read(key: str, owner: Mapping[str, Any], parse: Callable[[bytes], Any]) -> Any:
    try:
        return parse(Path(str(owner[key])).expanduser().read_bytes())
    except (OSError, ValueError, TypeError) as error:
        log(ERROR, "%s cannot be read: %s", key, error)
        raise PopulationError(
            f"{key!r} of this node cannot be read; its own log says why"
        ) from None
