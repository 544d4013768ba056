"""Messages of sums under masks: what goes in comes out, and whatever is not ours is a WireError."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, RecordDict

import fedhist as fh
from clients.histograms.queries import ClippedCounts
from fedhist.flower import masked_wire
from fedhist.flower.wire import ARRAYS, HEAD, encode_question, pack_array
from fedhist.model.aggregated import Aggregated, Share
from fedhist.model.codec import query_digest
from fedhist.secagg import NodeAttempt, Refused, ServerAttempt
from fedhist.secagg.messages import seal

QUERY = Aggregated(
    ClippedCounts(fh.Keys.of(["rye", "tea"]), 4.0, 1, grid=0.01),
    Share("laplace", 0.5, 0.0, "zero-out-user", 10),
)
DIGEST = query_digest(QUERY, 2)
SERVER = ServerAttempt(masked_wire.terms_of(QUERY, DIGEST), bytes(16))
KEYS = SERVER.start()[7]


def ask() -> RecordDict:
    return masked_wire.encode_asks("keys", DIGEST, {7: KEYS}, QUERY, 2)[7]


def told() -> RecordDict:
    node = NodeAttempt(masked_wire.terms_of(QUERY, DIGEST), 7, min_parties=2)
    return masked_wire.encode_told("keys", DIGEST, node.keys(masked_wire.decode_ask(ask()).of(7)))


def test_round_trips() -> None:
    asked = masked_wire.decode_ask(ask())
    assert (asked.round_name, asked.digest, asked.message["node"]) == ("keys", DIGEST, 7)
    assert asked.question.round_index == 2
    assert query_digest(asked.question.query, 2) == DIGEST
    own = asked.of(7)
    assert (own["node"], own["session"]) == (7, SERVER.session)
    answer = masked_wire.decode_told(told())
    assert (answer.round_name, answer.digest) == ("keys", DIGEST)
    assert answer.message["node"] == 7


def test_terms_and_vectors_follow_from_the_query() -> None:
    terms = masked_wire.terms_of(QUERY, DIGEST)
    assert (terms.parties, terms.drop, terms.collude, terms.length) == (10, 1, 1, 2)
    assert terms.digest.hex() == DIGEST
    assert terms.bits == QUERY.share.bits
    words = np.array([3, 2**terms.bits - 1], dtype=QUERY.modular)
    (name,) = QUERY.query.bounds(1)
    again = masked_wire.summary_of(QUERY, words, 4)
    np.testing.assert_array_equal(again.sums[name], words)
    np.testing.assert_array_equal(masked_wire.vector_of(QUERY, again), words)
    with pytest.raises(fh.WireError):
        masked_wire.vector_of(QUERY, fh.Summary(4, {name: words.astype(np.int64)}))


def changed(record: RecordDict, **head: Any) -> RecordDict:
    return RecordDict({HEAD: ConfigRecord(dict(record[HEAD]) | head), ARRAYS: record[ARRAYS]})


@pytest.mark.parametrize(
    ("head", "named"),
    [
        ({"version": 1}, "1"),
        ({"kind": "secagg.sum"}, "secagg.sum"),
        ({"session": "text"}, "session"),
        ({"node": True}, "node"),
        ({"digest": "../../../etc/passwd"}, "passwd"),
        ({"digest": DIGEST[:-1]}, DIGEST[:-1]),
        ({"digest": DIGEST + "0"}, DIGEST + "0"),
        ({"digest": "0" * 32}, "0{32}"),
        ({"more": 1}, "more"),
    ],
)
def test_heads_of_others(head: dict[str, Any], named: str) -> None:
    with pytest.raises(fh.WireError, match=named):
        masked_wire.decode_ask(changed(ask(), **head))
    if head != {"digest": "0" * 32}:  # an answer names a query, and does not hold it
        with pytest.raises(fh.WireError, match=named):
            masked_wire.decode_told(changed(told(), **head))


def with_array(record: RecordDict, name: str) -> RecordDict:
    arrays = record[ARRAYS]
    more = ArrayRecord(dict(arrays.items()))
    more[name] = pack_array(np.zeros(3, np.uint8))
    return RecordDict({HEAD: record[HEAD], ARRAYS: more})


@pytest.mark.parametrize("decode", [masked_wire.decode_ask, masked_wire.decode_told])
def test_parts_of_others(decode: Callable[[RecordDict], object]) -> None:
    record = ask() if decode is masked_wire.decode_ask else told()
    for name in ("nonce", "secagg/check", "sums/counts"):
        with pytest.raises(fh.WireError, match=name):
            decode(with_array(record, name))
    with pytest.raises(fh.WireError):
        decode(with_array(record, "query/more"))


def test_rounds_without_a_query_have_none() -> None:
    roster = {name: np.zeros(0, np.uint8) for name in ("members", "keys", "signed")}
    plain = masked_wire.encode_asks(
        "shares", DIGEST, {7: seal("shares.ask", bytes(16), 7, **roster)}
    )[7]
    assert masked_wire.decode_ask(plain).question is None
    for asked in (
        changed(ask(), kind="secagg.shares"),
        changed(plain, name="clipped-counts"),
        changed(plain, fields="{}"),
    ):
        with pytest.raises(fh.WireError, match=r"secagg\.shares"):
            masked_wire.decode_ask(asked)


def test_a_message_for_everybody_is_checked_before_it_is_anybodys() -> None:
    present = np.arange(10, dtype=np.uint32)
    message = masked_wire.for_everybody(seal("unmask.ask", bytes(16), 4, present=present))
    (record,) = masked_wire.encode_asks("unmask", DIGEST, {0: message}).values()
    asked = masked_wire.decode_ask(record)
    assert (asked.message["node"], asked.of(3)["node"]) == (masked_wire.EVERYBODY, 3)
    spoilt = changed(record, check=bytes(16))
    with pytest.raises(Refused, match="damaged"):
        masked_wire.decode_ask(spoilt).of(3)
    with pytest.raises(fh.WireError, match="kind"):
        masked_wire.decode_ask(encode_question(QUERY, 2))
    assert [k.partition(".")[0] for k in masked_wire.KINDS] == ["secagg"] * 4
