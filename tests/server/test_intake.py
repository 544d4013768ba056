"""Replies made by hand: every one is counted, none is skipped in silence."""

import re
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict

import fedhist as fh
from clients.few_users.queries import UserMeans
from clients.histograms.queries import ClippedCounts
from clients.localize.queries import BinVotes
from fedhist.flower.wire import HEAD, encode_answer, encode_question
from fedhist.model.codec import query_digest
from server.intake import Collected, Ids, Intake

pytestmark = pytest.mark.usefixtures("flower_task")

QUERY = ClippedCounts(fh.Keys.of(["a", "b"]), 2.0, 1)
DIGEST = query_digest(QUERY, 0)
VOTES = BinVotes(fh.Coordinates(1, 0.0, 1.0), 3, 1.0, cohort=fh.Cohort(1, 0.0, 0.5))
MEANS = UserMeans(2, 1.0)
EVERYBODY = np.arange(100, dtype=np.uint64)
INSIDE = EVERYBODY[fh.Cohort(1, 0.0, 0.5).contains(EVERYBODY)]
OUTSIDE = np.setdiff1d(EVERYBODY, INSIDE)


def sent(node: int) -> Message:
    return Message(encode_question(QUERY, 0), 1000 + node, "query")


def reply(record: RecordDict, node: int = 0) -> Message:
    return Message(record, reply_to=sent(node))


def summary(node: int, counts: Any = (1.0, 2.0), digest: str = DIGEST) -> Message:
    body = fh.Summary(3, {"counts": np.array(counts)})
    return reply(encode_answer(body, node, digest), node)


def failed(reason: str | None) -> Message:
    return Message(Error(2, reason), reply_to=sent(9))


def test_sums_in_the_order_of_the_nodes() -> None:
    """Also for real numbers, whose sum depends on the order: nodes' indices fix it."""
    values = [(2.0**53, 0.0), (1.0, 0.0), (1.0, 0.0), (1.0, 0.0)]
    big = ClippedCounts(fh.Keys.of(["a", "b"]), 1e17, 1)
    digest = query_digest(big, 0)
    result = []
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]):
        replies = [summary(i, values[i], digest=digest) for i in order]
        got = Intake(big, digest).collect(replies, 4)
        assert (got.replies, got.dropped, got.summary.n_users) == (4, {}, 12)
        assert got.bytes_received > 4 * 16
        result.append(got.summary.sums["counts"].tobytes())
    assert len(set(result)) == 1


def bad_replies() -> dict[str, Message]:
    nan = summary(1, (np.nan, 0.0))
    other_version = reply(encode_answer(fh.Summary(1, {"counts": np.zeros(2)}), 1, DIGEST), 1)
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
    }


def test_bad_replies_are_counted_with_their_reason() -> None:
    """With min_replies the run goes on, over those that answered."""
    for reason, bad in bad_replies().items():
        replies = [summary(0), bad]
        with pytest.raises(fh.MissingReplies, match="1 of 2") as caught:
            Intake(QUERY, DIGEST).collect(replies, 2)
        (why,) = caught.value.reasons
        assert reason in why
        assert (caught.value.expected, caught.value.got) == (2, 1)
        got = Intake(QUERY, DIGEST).collect(replies, 2, min_replies=1)
        assert (got.replies, got.summary.n_users) == (1, 3)
        assert got.summary.sums["counts"].tolist() == [1.0, 2.0]
        assert sum(got.dropped.values()) == 1


def test_a_second_sum_of_a_node_is_left_out() -> None:
    got = Intake(QUERY, DIGEST).collect([summary(0), summary(0), summary(1)], 2)
    assert (got.replies, got.summary.n_users) == (2, 6)
    assert got.dropped == {"node 0 answered twice": 1}


def test_missing_and_late_replies() -> None:
    with pytest.raises(fh.MissingReplies, match="3 of 4 replies are missing") as caught:
        Intake(QUERY, DIGEST).collect([summary(0)], 4)
    assert caught.value.reasons == {"no reply": 3}
    late = summary(3, digest=query_digest(QUERY, 7))
    got = Intake(QUERY, DIGEST).collect([summary(0), late, summary(2)], 4, min_replies=2)
    assert (got.replies, got.summary.n_users) == (2, 6)
    assert got.dropped["no reply"] == 1
    with pytest.raises(fh.MissingReplies):
        Intake(QUERY, DIGEST).collect([summary(0), late, summary(2)], 4, min_replies=3)


def test_nobody_is_too_few() -> None:
    for least in (None, 0, 1):
        with pytest.raises(fh.MissingReplies, match="2 of 2"):
            Intake(QUERY, DIGEST).collect([], 2, least)
    with pytest.raises(fh.MissingReplies):
        Intake(QUERY, DIGEST).collect([failed("x")] * 2, 2, 1)


def votes(node: int, ids: np.ndarray, words: Any = None) -> Message:
    bits = np.zeros((len(ids), 1), np.uint64) if words is None else words
    report = fh.Report(ids, {"votes": bits})
    return reply(encode_answer(report, node, query_digest(VOTES, 0)), node)


def taken_in(
    replies: list[Message], on_bad_reply: str = "drop", least: int | None = None
) -> Collected:
    intake = Intake(VOTES, query_digest(VOTES, 0), on_bad_reply)
    return intake.collect(replies, len(replies), least)


def test_reports_are_checked_one_by_one_and_folded_here() -> None:
    ones = np.array([[1], [5], [7]], dtype=np.uint64)
    got = taken_in([votes(0, INSIDE[:3], ones), votes(1, INSIDE[3:5])])
    assert got.summary.n_users == 5
    assert got.summary.sums["votes"].tolist() == [[3, 1, 2]]
    tail = np.array([[8]], dtype=np.uint64)
    with pytest.raises(fh.MissingReplies, match="bits set"):
        taken_in([votes(0, INSIDE[:3]), votes(1, INSIDE[3:4], tail)])


def test_a_user_outside_the_cohort_is_refused() -> None:
    with pytest.raises(fh.MissingReplies, match=f"1 x user {OUTSIDE[0]} answered, but is not in"):
        taken_in([votes(0, INSIDE[:3]), votes(1, OUTSIDE[:1])])


def test_a_user_on_two_nodes_counts_once() -> None:
    """And is counted among what was left out: whoever names another's users ends no run."""
    got = taken_in([votes(0, INSIDE[:3], ONES), votes(1, INSIDE[2:5], 2 * ONES)])
    assert (got.replies, got.summary.n_users) == (2, 5)
    assert got.summary.sums["votes"].tolist() == [[3, 2, 0]]
    assert got.dropped == {"the user has answered on another node, users": 1}


def test_what_becomes_of_a_bad_report() -> None:
    """One of three users of a node lies: it is left out, or costs its node."""
    honest, lie = np.ones((3, 1), np.uint64), np.array([[1], [8], [1]], np.uint64)
    replies = [votes(0, INSIDE[:3], lie), votes(1, INSIDE[3:6], honest)]
    why = "'votes' has bits set from # on, users"
    got = taken_in(replies)
    assert (got.replies, got.summary.n_users) == (2, 5)
    assert got.summary.sums["votes"].tolist() == [[5, 0, 0]]
    assert got.dropped == {why: 1}
    with pytest.raises(fh.MissingReplies, match="1 of 2 replies are missing"):
        taken_in(replies, "stop")
    got = taken_in(replies, "stop", least=1)
    assert (got.replies, got.summary.n_users) == (1, 3)
    # a node of liars has not answered
    replies[0] = votes(0, INSIDE[:3], lie[[1, 1, 1]])
    with pytest.raises(fh.MissingReplies, match=f"3 x {re.escape(why)}"):
        taken_in(replies)


def test_the_first_good_report_of_a_user_counts() -> None:
    """Of those that come through its node, to this question."""
    one, bad = np.ones((1, 1), np.uint64), np.full((1, 1), 8, np.uint64)
    a, b, c = INSIDE[:1], INSIDE[1:2], INSIDE[2:3]
    late = reply(encode_answer(fh.Report(c, {"votes": one}), 0, query_digest(VOTES, 1)))
    sent = [votes(0, a), votes(0, a, one), votes(0, b, bad), votes(0, b, one), late]
    got = taken_in([*sent, votes(0, c, bad)], least=1)
    assert (got.replies, got.summary.n_users) == (1, 2)
    assert got.summary.sums["votes"].tolist() == [[1, 0, 0]]
    assert got.dropped["the user has answered already, users"] == 1
    assert got.dropped["an answer to another query, users"] == 1
    assert sum(n for why, n in got.dropped.items() if "bits set" in why) == 2
    assert got.dropped["no reply"] == 5


@pytest.mark.parametrize("summary_first", [True, False])
def test_a_sum_and_reports_of_one_node_count_once(summary_first: bool) -> None:
    report = fh.Report(INSIDE[:3], {"votes": np.ones((3, 1), np.uint64)})
    bodies = (VOTES.fold(report), report)
    both = [reply(encode_answer(body, 0, query_digest(VOTES, 0))) for body in bodies]
    got = taken_in(both if summary_first else both[::-1], least=1)
    assert (got.replies, got.summary.n_users) == (1, 3)
    assert got.summary.sums["votes"].tolist() == [[3, 0, 0]]
    assert got.dropped == {"node 0 answered twice": 1, "no reply": 1}


ONES, LIE = np.ones((3, 1), np.uint64), np.full((3, 1), 8, np.uint64)


def claimed(body: fh.Summary | fh.Report, node: int, sender: int) -> Message:
    return reply(encode_answer(body, node, query_digest(VOTES, 0)), sender)


def test_a_malformed_report_of_nobody_costs_its_node_only() -> None:
    none = INSIDE[:0]
    for empty in (
        fh.Report(none, {"nope": np.zeros((0, 1), np.uint64)}),
        fh.Report(none, {"votes": np.zeros((0, 2), np.uint64)}),
        fh.Report(none, {"votes": np.zeros((0, 1))}),
    ):
        for on_bad_reply in ("drop", "stop"):
            replies = [votes(0, INSIDE[:3], ONES), claimed(empty, 1, 1)]
            got = taken_in(replies, on_bad_reply, least=1)
            assert (got.replies, got.summary.n_users) == (1, 3)
            assert sum(got.dropped.values()) == 1
            with pytest.raises(fh.MissingReplies):
                taken_in(replies, on_bad_reply)
    well_formed = votes(1, none, np.zeros((0, 1), np.uint64))
    assert taken_in([votes(0, INSIDE[:3], ONES), well_formed]).replies == 2


def test_nobody_counts_twice_after_a_bad_report() -> None:
    """A bad report, a sum and a good report of one node: the sum is one answer too many."""
    good = fh.Report(INSIDE[:3], {"votes": ONES})
    replies = [
        votes(0, INSIDE[:3], LIE),
        claimed(VOTES.fold(good), 0, 0),
        votes(0, INSIDE[:3], ONES),
    ]
    got = taken_in(replies, least=1)
    assert (got.replies, got.summary.n_users) == (1, 3)
    assert got.dropped["node 0 answered twice"] == 1


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("on_bad_reply", ["drop", "stop"])
def test_whoever_claims_an_index_takes_nothing_from_its_node(on_bad_reply: str, order: int) -> None:
    """Whether it comes first or last, and whatever it sends: the honest reply counts."""
    honest = votes(0, INSIDE[:3], ONES)
    lies = claimed(fh.Report(INSIDE[3:6], {"votes": LIE}), 0, 9)
    got = taken_in([honest, lies][::order], on_bad_reply, least=1)
    assert (got.replies, got.summary.n_users) == (1, 3)
    fits = claimed(VOTES.fold(fh.Report(INSIDE[3:5], {"votes": 2 * ONES[:2]})), 0, 9)
    got = taken_in([honest, fits][::order], on_bad_reply, least=1)
    assert (got.replies, got.summary.n_users) == (2, 5)
    assert got.summary.sums["votes"].tolist() == [[3, 2, 0]]
    assert got.dropped == {}


def row_summary(ids: Any, node: int) -> Message:
    rows = fh.Summary(
        len(ids), rows={"mean": np.full((len(ids), 2), 0.5)}, ids=np.array(ids, np.uint64)
    )
    return reply(encode_answer(rows, node, query_digest(MEANS, 0)), node)


@pytest.mark.parametrize(
    ("ids", "why"),
    [([7, 7, 8], "each once"), ([9, 8, 7], "order of their ids"), ([5, 7], "on another node")],
)
def test_rows_of_one_node_never_end_the_round(ids: list[int], why: str) -> None:
    replies = [row_summary([3, 5], 0), row_summary(ids, 1), row_summary([10], 2)]
    got = Intake(MEANS, query_digest(MEANS, 0)).collect(replies, 3, min_replies=2)
    assert got.summary.ids is not None
    assert got.summary.ids.tolist() == [3, 5, 10]
    assert [why in reason for reason in got.dropped] == [True]


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32])
def test_sums_of_another_width_cost_their_node_only(dtype: Any) -> None:
    sums = VOTES.fold(fh.Report(INSIDE[:3], {"votes": ONES})).sums
    for name in sums:
        narrow = {**sums, name: sums[name].astype(dtype)}
        replies = [votes(0, INSIDE[3:6], ONES), claimed(fh.Summary(3, narrow), 1, 1)]
        for order in (1, -1):
            got = taken_in(replies[::order], least=1)
            assert (got.replies, got.summary.n_users) == (1, 3)
            assert got.dropped == {f"{name!r} has dtype {np.dtype(dtype)}, expected 64 bits": 1}


def test_sums_that_would_wrap_are_refused_before_they_are_added() -> None:
    n = 1 << 39
    sums = {"votes": np.full((1, 3), n), "users": np.array([n])}
    body = fh.Summary(n, sums)
    intake = Intake(VOTES, query_digest(VOTES, 0))
    intake._sums["('sums', 'votes')"] = (1 << 63) - 1 - n  # as many millions of nodes would
    assert intake.use(0, intake.digest, body)
    full = Intake(VOTES, intake.digest)
    full._sums["('sums', 'votes')"] = (1 << 63) - n
    for place, into in enumerate((full, intake)):
        with pytest.raises(fh.WireError, match="does not fit into 64 bits"):
            into.use(place, intake.digest, body)


def test_a_reply_stands_for_no_more_users_than_a_node_has() -> None:
    """A node that declares a million users where it has a hundred."""

    def declared(n: int, node: int) -> Message:
        sums = {"votes": np.zeros((1, 3), np.int64), "users": np.array([n])}
        return claimed(fh.Summary(n, sums), node, node)

    intake = Intake(VOTES, query_digest(VOTES, 0), max_users=100)
    got = intake.collect([declared(100, 0), declared(10**6, 1)], 2, min_replies=1)
    assert (got.replies, got.summary.n_users) == (1, 100)
    assert got.dropped == {"a reply for 1000000 users; a node has 100 at most": 1}


def test_ids_that_have_answered() -> None:
    """Against a set, in runs of all sizes."""
    recorded, known, rng = Ids(), set[int](), np.random.default_rng(4)
    for size in rng.integers(0, 40, 200).tolist():
        ids = rng.choice(5000, size, replace=False).astype(np.uint64)
        assert recorded.has(ids).tolist() == [i in known for i in ids.tolist()]
        new = ids[~recorded.has(ids)]
        recorded.add(new)
        known |= set(new.tolist())
