"""Adding up as replies come: any order gives the same bits, and little is kept on the way."""

import itertools
import tracemalloc
from collections.abc import Sequence

import numpy as np
import pytest

from clients.few_users.queries import UserMeans
from clients.histograms.queries import ClippedCounts
from clients.localize.queries import BinVotes
from clients.records.functionals import Coordinates
from fedhist.base.errors import WireError
from fedhist.model.codec import query_digest
from fedhist.model.query import Report, Summary
from fedhist.users.keys import Keys
from server.intake import Collected, Intake

FIRST = 1000
QUERY = ClippedCounts(Keys.of(["a", "b"]), 1e17, 1)
DIGEST = query_digest(QUERY, 0)
VOTES = BinVotes(Coordinates(1, 0.0, 1.0), 3, 1.0)
RNG = np.random.default_rng(3)
REALS = np.abs(RNG.standard_cauchy((40, 2))) * 10.0 ** RNG.integers(-8, 8, (40, 2))

Sent = tuple[int, int, Summary | Report]
"""Who sends, the index that it claims, and what."""


def counts(i: int) -> Summary:
    return Summary(3, {"counts": REALS[i].copy()})


def taken(sent: Sequence[Sent], first: int = FIRST, kind: type[Intake] = Intake) -> Collected:
    intake = kind(QUERY, DIGEST)
    intake.first = first
    for source, claimed, body in sent:
        try:
            intake.use(claimed, DIGEST, body, source)
        except WireError as e:
            intake.dropped[str(e)] += 1
    return intake.total()


def tree_sum(values: list[np.ndarray | None]) -> np.ndarray | None:
    """Add up leaves, a power of two of them, by halves: a slow obvious tree."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    left, right = tree_sum(values[:half]), tree_sum(values[half:])
    return right if left is None else left if right is None else left + right


@pytest.mark.parametrize("first", [FIRST, 0, 7])
def test_the_sum_is_that_of_the_tree_over_indices(first: int) -> None:
    """Whether nodes are known by their ids and added at once, or wait: with gaps, in any order."""
    there = [i for i in range(37) if i % 5 != 2]
    want = tree_sum([REALS[i] if i in there else None for i in range(64)])
    for order in (there, there[::-1], RNG.permutation(there).tolist()):
        got = taken([(FIRST + i, i, counts(i)) for i in order], first)
        assert (got.replies, got.summary.n_users) == (len(there), 3 * len(there))
        assert want is not None
        assert got.summary.sums["counts"].tobytes() == want.tobytes()


@pytest.mark.parametrize("first", [FIRST, 0])
def test_what_is_refused_leaves_no_trace(first: int) -> None:
    """Not even the index that it claims: its sender's next answer has its own place."""
    honest = [(FIRST + i, i, counts(i)) for i in range(8)]
    bad = [(FIRST + i, 30 - i, Summary(3, {"counts": np.array([np.nan, 1.0])})) for i in range(8)]
    want, got = taken(honest, first), taken([*bad, *honest], first)
    assert got.summary.sums["counts"].tobytes() == want.summary.sums["counts"].tobytes()


@pytest.mark.parametrize("first", [FIRST, 0])
def test_who_claims_an_index_changes_nothing_by_when_it_comes(first: int) -> None:
    """Two strangers claim index 1, one of them an id below all, and one claims a free index."""
    honest = [(FIRST + i, i, counts(i)) for i in range(3)]
    claims = [(FIRST + 900, 1, counts(5)), (3, 1, counts(6)), (FIRST + 901, 3, counts(7))]
    result = [taken(order, first) for order in itertools.permutations([*honest, *claims])]
    assert {(got.replies, got.summary.n_users) for got in result} == {(6, 18)}
    assert len({got.summary.sums["counts"].tobytes() for got in result}) == 1


def test_a_second_answer_counts_for_nothing_wherever_its_first_one_is() -> None:
    """In the tree already, waiting, or refused."""
    for first in (FIRST, 0):
        again = taken([(FIRST + 1, 1, counts(1)), (FIRST + 1, 1, counts(1))], first)
        assert (again.replies, again.dropped) == (1, {"node 1 answered twice": 1})
        assert again.summary.sums["counts"].tobytes() == REALS[1].tobytes()
    elsewhere = taken([(FIRST + 1, 1, counts(1)), (FIRST + 1, 2, counts(2))])
    assert (elsewhere.replies, elsewhere.dropped) == (1, {"node 1 answered twice": 1})


def test_several_reports_of_one_node_add_up_in_the_order_of_their_users() -> None:
    query = BinVotes(Coordinates(1, 0.0, 1.0), 3, 1.0)
    digest = query_digest(query, 0)
    good = [
        Report(np.array([i], np.uint64), {"votes": np.array([[w]], np.uint64)})
        for i, w in ((5, 1), (3, 2), (9, 4))
    ]

    result = set()
    for order in itertools.permutations(good):
        intake = Intake(query, digest)
        for body in order:
            try:
                intake.use(0, digest, body, FIRST)
            except WireError:
                raise AssertionError from None
        got = intake.total()
        result.add((got.replies, got.summary.n_users, str(got.summary.sums)))
    assert len(result) == 1
    assert next(iter(result))[:2] == (1, 3)


def test_a_sum_after_a_report_that_stopped_its_node_is_not_added() -> None:
    lie = Report(np.arange(3, dtype=np.uint64), {"votes": np.full((3, 1), 8, np.uint64)})
    digest = query_digest(VOTES, 0)
    honest = VOTES.fold(Report(lie.ids, {"votes": np.ones((3, 1), np.uint64)}))
    intake = Intake(VOTES, digest, "stop")
    intake.first = FIRST
    with pytest.raises(WireError, match="bits set"):
        intake.use(0, digest, lie, FIRST)
    with pytest.raises(WireError, match="answered twice"):
        intake.use(0, digest, honest, FIRST)
    intake.use(1, digest, honest, FIRST + 1)
    assert intake.total().replies == 1


def test_rows_come_out_by_id_in_any_order() -> None:
    query = UserMeans(2, 1.0)
    digest = query_digest(query, 0)
    ids = np.sort(RNG.choice(10**6, 60, replace=False)).astype(np.uint64)
    values = RNG.random((60, 2)) / 2
    for order in (range(6), RNG.permutation(6).tolist()):
        intake = Intake(query, digest)
        for i in order:
            mine = slice(i, 60, 6)
            intake.use(i, digest, Summary(10, rows={"mean": values[mine]}, ids=ids[mine]))
        with pytest.raises(WireError, match="names its users"):
            intake.use(6, digest, Summary(10, rows={"mean": values[:10]}, ids=ids[:10]))
        total = intake.total().summary
        assert total.ids is not None
        assert total.ids.tolist() == ids.tolist()
        assert np.array_equal(total.rows["mean"], values)


def test_what_is_kept_does_not_grow_with_the_nodes() -> None:
    """Summaries of 8 kB: a few a level of the tree, whatever the number of nodes."""
    query = ClippedCounts(Keys.range(1024), 1024.0, 1)
    digest, peaks = query_digest(query, 0), []
    for n in (256, 2048):
        intake = Intake(query, digest)
        tracemalloc.start()
        for i in RNG.permutation(np.arange(n).reshape(-1, 64)).ravel().tolist():  # groups of 64
            intake.use(i, digest, Summary(1, {"counts": np.ones(1024)}))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert intake.total().summary.sums["counts"][0] == n
    assert peaks[1] < 2048 * 8192 / 20
