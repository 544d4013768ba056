"""Replies made by hand: every one is counted, none is skipped in silence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict

from clients.records.functionals import Coordinates
from fedhist.base.errors import MissingReplies, PopulationError
from fedhist.flower.wire import HEAD, encode_answer, encode_question
from fedhist.model.query import Report, Summary
from fedhist.protocols.histograms.bounded_histogram import ClippedCounts
from fedhist.protocols.localize.queries import BinVotes
from fedhist.session.codec import query_digest
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from server.intake import Collected, collect

pytestmark = pytest.mark.usefixtures("flower_task")

QUERY = ClippedCounts(Keys.of(["a", "b"]), 2.0, 1)
DIGEST = query_digest(QUERY, 0)
VOTES = BinVotes(Coordinates(1, 0.0, 1.0), 3, 1.0, cohort=Cohort(1, 0.0, 0.5))
EVERYBODY = np.arange(100, dtype=np.uint64)
INSIDE = EVERYBODY[Cohort(1, 0.0, 0.5).contains(EVERYBODY)]
OUTSIDE = np.setdiff1d(EVERYBODY, INSIDE)


def sent(node: int) -> Message:
    return Message(encode_question(QUERY, 0), 1000 + node, "query")


def reply(record: RecordDict, node: int = 0) -> Message:
    return Message(record, reply_to=sent(node))


def summary(node: int, counts: Any = (1.0, 2.0), digest: str = DIGEST) -> Message:
    body = Summary(3, {"counts": np.array(counts)})
    return reply(encode_answer(body, node, digest), node)


def failed(reason: str | None) -> Message:
    return Message(Error(2, reason), reply_to=sent(9))


def test_sums_in_the_order_of_the_nodes() -> None:
    """Also for real numbers, whose sum depends on the order: nodes' indices fix it."""
    values = [(2.0**53, 0.0), (1.0, 0.0), (1.0, 0.0), (1.0, 0.0)]
    big = ClippedCounts(Keys.of(["a", "b"]), 1e17, 1)
    digest = query_digest(big, 0)
    found = []
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]):
        replies = [summary(i, values[i], digest=digest) for i in order]
        got = collect(big, digest, replies, 4)
        assert (got.replies, got.dropped, got.summary.n_users) == (4, {}, 12)
        assert got.bytes_received > 4 * 16
        found.append(got.summary.sums["counts"].tobytes())
    assert len(set(found)) == 1


def bad_replies() -> dict[str, Message]:
    nan = summary(1, (np.nan, 0.0))
    other_version = reply(encode_answer(Summary(1, {"counts": np.zeros(2)}), 1, DIGEST), 1)
    record = other_version.content
    record[HEAD] = ConfigRecord(dict(record[HEAD]) | {"version": 99})
    return {
        "the client failed: ValueError: bad": failed("Traceback\n  line 1\nValueError: bad\n\n"),
        "the client failed: no reason given": failed(None),
        "the client refused: a user's budget is spent": reply(
            encode_answer("a user's budget is spent", 1, DIGEST), 1
        ),
        "an answer to another query": summary(1, digest=query_digest(QUERY, 1)),
        "'counts' holds nan": nan,
        "outside": summary(1, (1e9, 0.0)),
        "shape": summary(1, (1.0, 2.0, 3.0)),
        "wire version 99": reply(record, 1),
        "not a fedhist message": reply(RecordDict(), 1),
        "node 0 answered twice": summary(0),
    }


REASONS = [
    "the client failed: ValueError: bad",
    "the client failed: no reason given",
    "the client refused: a user's budget is spent",
    "an answer to another query",
    "'counts' holds nan",
    "outside",
    "shape",
    "wire version 99",
    "not a fedhist message",
    "node 0 answered twice",
]


def test_every_bad_reply_is_tried() -> None:
    assert list(bad_replies()) == REASONS


@pytest.mark.parametrize("reason", REASONS)
def test_bad_replies_are_counted_with_their_reason(reason: str) -> None:
    replies = [summary(0), bad_replies()[reason]]
    with pytest.raises(MissingReplies, match="1 of 2 replies are missing") as caught:
        collect(QUERY, DIGEST, replies, 2)
    (why,) = caught.value.reasons
    assert reason in why
    assert (caught.value.expected, caught.value.got) == (2, 1)
    # with min_replies the run goes on, over those that answered
    got = collect(QUERY, DIGEST, replies, 2, min_replies=1)
    assert (got.replies, got.summary.n_users) == (1, 3)
    assert got.summary.sums["counts"].tolist() == [1.0, 2.0]
    assert sum(got.dropped.values()) == 1


def test_missing_and_late_replies() -> None:
    with pytest.raises(MissingReplies, match="3 of 4 replies are missing") as caught:
        collect(QUERY, DIGEST, [summary(0)], 4)
    assert caught.value.reasons == {"no reply": 3}
    late = summary(3, digest=query_digest(QUERY, 7))
    got = collect(QUERY, DIGEST, [summary(0), late, summary(2)], 4, min_replies=2)
    assert (got.replies, got.summary.n_users) == (2, 6)
    assert got.dropped["no reply"] == 1
    with pytest.raises(MissingReplies):
        collect(QUERY, DIGEST, [summary(0), late, summary(2)], 4, min_replies=3)


def test_nobody_is_too_few() -> None:
    for least in (None, 0, 1):
        with pytest.raises(MissingReplies, match="2 of 2"):
            collect(QUERY, DIGEST, [], 2, least)
    with pytest.raises(MissingReplies):
        collect(QUERY, DIGEST, [failed("x")] * 2, 2, 1)


# -- unfolded reports ------------------------------------------------------------------------------


def votes(node: int, ids: np.ndarray, words: Any = None) -> Message:
    bits = np.zeros((len(ids), 1), np.uint64) if words is None else words
    report = Report(ids, {"votes": bits})
    return reply(encode_answer(report, node, query_digest(VOTES, 0)), node)


def gather(replies: list[Message], least: int | None = None) -> Collected:
    return collect(VOTES, query_digest(VOTES, 0), replies, len(replies), least)


def test_reports_are_checked_one_by_one_and_folded_here() -> None:
    ones = np.array([[1], [5], [7]], dtype=np.uint64)
    got = gather([votes(0, INSIDE[:3], ones), votes(1, INSIDE[3:5])])
    assert got.summary.n_users == 5
    assert got.summary.sums["votes"].tolist() == [[3, 1, 2]]
    tail = np.array([[8]], dtype=np.uint64)
    with pytest.raises(MissingReplies, match="bits set"):
        gather([votes(0, INSIDE[:3]), votes(1, INSIDE[3:4], tail)])


def test_a_user_outside_the_cohort_is_refused() -> None:
    with pytest.raises(MissingReplies, match=f"user {OUTSIDE[0]} answered, but is not in"):
        gather([votes(0, INSIDE[:3]), votes(1, OUTSIDE[:1])])


def test_a_user_on_two_nodes_is_refused() -> None:
    with pytest.raises(PopulationError, match=f"user {INSIDE[2]} answered on two nodes"):
        gather([votes(0, INSIDE[:3]), votes(1, INSIDE[2:5])])
