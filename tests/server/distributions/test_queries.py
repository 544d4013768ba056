"""Counts and exceedances: who sends what, sensitivities by enumeration, and what is refused."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import hypergeom

import fedhist as fh
from clients.distributions.queries import ExceedanceCounts, ItemCounts
from server.printed.ragged_distribution import zero_indicators_touched
from tests.running import streams, table_users

REPLACE, ADD = fh.Adjacency.REPLACE_USER, fh.Adjacency.ADD_REMOVE_USER
DOMAIN = fh.Keys.of(["b", "a", "お茶"])
SYMBOLS = fh.Keys.of(["a", "b", "c", "d", "e"])


def complete(size: int, thresholds: tuple[int, ...], domain: fh.Keys = DOMAIN) -> ExceedanceCounts:
    return ExceedanceCounts(domain, size, thresholds, complete=True)


def asked(query: fh.Query, users: fh.Users, seed: int = 0) -> tuple[fh.Report, fh.Summary]:
    """The report and the fused summary, which agree, and which the server accepts."""
    report = query.answer(users, streams(users, seed))
    query.check(report)
    summary = query.answer_folded(users, lambda some: streams(some, seed))
    query.check_summary(summary)
    folded = query.fold(report)
    for name, total in summary.sums.items():
        assert np.array_equal(total, folded.sums[name])
    return report, summary


def records(k: int, m: int) -> list[tuple[int, ...]]:
    """Every vector of k counts that adds up to at most m."""
    return [c for c in itertools.product(range(m + 1), repeat=k) if sum(c) <= m]


def test_counts_users_at_or_below_each_threshold() -> None:
    table = np.random.default_rng(2).multinomial(9, [0.1, 0.3, 0.4, 0.2], 200)
    keys = fh.Keys.of(["a", "b", "chai", "お茶"])  # chai is outside the domain
    query = ExceedanceCounts(DOMAIN, 9, (0, 1, 4, 8))
    report, summary = asked(query, table_users(table, keys))
    mine = table[:, [1, 0, 3]]
    expected = [[(mine[:, i] <= t).sum() for t in (0, 1, 4, 8)] for i in range(3)]
    assert query.below(summary).tolist() == expected
    assert (query.above(summary) == 200 - np.array(expected)).all()
    assert len(report.ragged["cell"]) == (mine > 0).sum()  # counts of 0 are not sent


@pytest.mark.parametrize("whole", [False, True])
def test_users_with_more_than_m_items_draw_m_of_them(whole: bool) -> None:
    """8 of 30 items: each symbol's count is hypergeometric; others are left as they are."""
    n = 4000
    table = np.tile([[5, 10, 15]], (n, 1))
    table[0] = [8, 0, 0]
    query = ExceedanceCounts(DOMAIN, 8, tuple(range(8)), complete=whole)
    _, summary = asked(query, table_users(table, DOMAIN))
    for i, held in enumerate([5, 10, 15]):
        expected = hypergeom.sf(np.arange(8), 30, held, 8)
        # 24 frequencies of 4,000 users, each within 5 deviations: false alarm below 2e-5
        off = np.abs(query.above(summary)[i] / n - expected)
        assert off.max() < 5 * 0.5 / np.sqrt(n) + 1 / n
    huge = table_users(np.array([[1 << 40, 1 << 61, 3]]), DOMAIN)
    assert query.above(asked(query, huge)[1]).sum() == 8


def test_the_domain_comes_before_the_cut() -> None:
    """Items outside the domain use up nothing of m, and symbols get the domain's numbers."""
    domain = fh.Keys.of(["e", "b"])
    for row, expected in (
        ({"a": 50, "b": 2, "c": 7, "e": 1}, [1, 2]),
        ({"c": 3}, [0, 0]),
        ({"b": 3}, [0, 3]),
    ):
        users = fh.Users.from_records({"u": row})
        assert asked(ItemCounts(domain, 3), users)[1].sums["counts"].tolist() == expected


def test_users_with_too_few_samples_send_nothing_where_rows_are_complete() -> None:
    rows = {"a": {}, "b": {"x": 9}, "c": {"a": 2, "b": 1, "x": 5}, "d": {"お茶": 3, "a": 1}}
    users = fh.Users.from_records({**rows, "e": {"b": 7}})
    report, summary = asked(complete(4, (0, 1, 2, 3)), users)
    assert summary.sums["kept"].tolist() == [2]
    sent = [report.row(u)["cell"].tolist() for u in range(5)]
    # cells: symbol times 4, and the smallest count less 1
    assert sorted(map(sorted, sent)) == [[], [], [], [0 * 4 + 3], [1 * 4 + 0, 2 * 4 + 2]]


@pytest.mark.parametrize(("k", "m"), [(1, 3), (2, 1), (3, 2), (4, 1), (4, 2)])
def test_sensitivities_by_enumeration(k: int, m: int) -> None:
    """Over all pairs of records: the sums' largest l1 and l2 moves are the stated ones."""
    domain, rows = fh.Keys.range(k), np.array(records(k, m))
    single = np.vstack([np.zeros((1, k), int), np.eye(k, dtype=int)])
    for query, sent in (
        (ItemCounts(domain, m), rows),
        (ExceedanceCounts(domain, m, (0,)), (rows > 0).astype(int)),
        (ItemCounts(domain, 1), single),
    ):
        moves = np.abs(sent[:, None] - sent[None])
        square = int((moves**2).sum(axis=2).max())
        l1, l2 = (query.integer_sensitivity(norm, REPLACE) for norm in (1, 2))
        assert moves.sum(axis=2).max() == l1
        assert square <= l2**2 * (1 + 1e-15)
        assert l2 == pytest.approx(math.sqrt(square), rel=1e-15)


@pytest.mark.parametrize(("k", "size"), [(2, 1), (3, 2), (4, 2), (5, 2)])
def test_touched_symbols_of_complete_rows_are_bounded_and_attained(k: int, size: int) -> None:
    """Of users with enough samples; and 1[N_i = 0], whose ones a row that empties takes along."""
    full = [np.zeros(k, int), *(np.array(r) for r in records(k, size) if sum(r) == size)]
    query = complete(size, tuple(range(size)), fh.Keys.range(k))
    for adjacency, others in ((REPLACE, full), (ADD, full[:1])):
        touched = max(int((a != b).sum()) for a in full for b in others)
        assert touched == query.touched(adjacency)
    zeros = [(row == 0) & (row.sum() > 0) for row in full]
    touched = max(int((a != b).sum()) for a, b in itertools.product(zeros, zeros))
    assert touched == zero_indicators_touched(k, size) >= min(k, size)


def report_of(*rows: list[int], kept: list[int] | None = None, **more: list[int]) -> fh.Report:
    """Cells of each user; whether the users are kept, and other numbers beside the cells."""
    indptr = np.cumsum([0, *(len(row) for row in rows)])
    ragged = {"cell": np.concatenate([np.array(r, np.uint32) for r in rows])}
    ragged |= {name: np.array(v, dtype=np.uint64) for name, v in more.items()}
    arrays = {} if kept is None else {"kept": np.array(kept, np.uint8)}
    return fh.Report(np.arange(len(rows), dtype=np.uint64), arrays, ragged, indptr)


def counts_of(item: list[int], count: list[int], n: int = 1) -> fh.Report:
    """One user with all the entries, and n - 1 without."""
    ragged = {"item": np.array(item, np.uint64), "count": np.array(count, np.uint64)}
    indptr = np.array([0, *[len(item)] * n])
    return fh.Report(np.arange(n, dtype=np.uint64), ragged=ragged, indptr=indptr)


@pytest.mark.parametrize(
    ("item", "count"),
    [
        ([0, 1], [2, 2]),  # 4 items of 3
        ([0], [4]),
        ([0], [0]),
        ([5], [1]),
        ([2, 2], [1, 1]),
        ([0, 1, 2, 3], [2**63, 2**63, 1, 1]),
    ],
)
def test_counts_that_no_user_sends(item: list[int], count: list[int]) -> None:
    query = ItemCounts(SYMBOLS, 3)
    query.check(counts_of([0, 1], [2, 1], 2))
    with pytest.raises(fh.WireError):
        query.check(counts_of(item, count))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[6]], "outside"),
        ([[0, 1]], "twice"),  # symbol 0 in two cells
        ([[2], [2, 2]], "twice"),
        ([[1, 3]], "6 items"),  # more than 2 of symbol 0 and of symbol 1
        ([[0, 2, 5]], "5 items"),
    ],
)
def test_rows_that_no_user_can_send(rows: list[list[int]], words: str) -> None:
    query = ExceedanceCounts(DOMAIN, 4, (0, 2))
    query.check(report_of([0, 2], [1, 2], [], [5]))
    with pytest.raises(fh.WireError, match=words):
        query.check(report_of(*rows))


@pytest.mark.parametrize(
    ("row", "kept"),
    [
        ([0, 1], 1),  # a symbol twice
        ([0], 1),  # fewer than 4 items
        ([], 1),
        ([1, 3, 5], 1),  # 6 items
        ([1, 2], 0),  # not kept
        ([1, 2], 2),
    ],
)
def test_complete_rows_that_no_user_can_send(row: list[int], kept: int) -> None:
    query = complete(4, (0, 1))
    query.check(report_of([1, 2], kept=[1]))
    query.check(report_of([], kept=[0]))
    with pytest.raises(fh.WireError):
        query.check(report_of(row, kept=[kept]))


def test_symbols_below_the_first_threshold_count_for_the_size() -> None:
    """With thresholds (1,) a symbol held once is not sent: 2 a's may stand for a, a, b, c."""
    complete(4, (1, 3)).check(report_of([0], kept=[1]))
    with pytest.raises(fh.WireError, match="fewer"):
        complete(4, (1, 3), fh.Keys.of(["a"])).check(report_of([0], kept=[1]))


def test_reports_of_other_shapes() -> None:
    query, ids = ExceedanceCounts(DOMAIN, 4, (0, 2)), np.arange(2, dtype=np.uint64)
    with pytest.raises(fh.WireError):
        query.check(fh.Report(ids, {"cell": np.zeros(2, np.uint32)}))
    signed = fh.Report(ids, ragged={"cell": np.zeros(2, np.int64)}, indptr=np.array([0, 1, 2]))
    with pytest.raises(fh.WireError):
        query.check(signed)
    for one, wrong in (
        (query, report_of([0], kept=[1])),
        (query, report_of([0], count=[1])),
        (complete(4, (0,)), report_of([0])),
    ):
        with pytest.raises(fh.WireError):
            one.check(wrong)


@pytest.mark.parametrize(
    "cells",
    [
        [[3, 0], [0, 0], [0, 0]],
        [[1, 2], [0, 0], [0, 0]],  # 3 users hold one symbol
        [[0, 2], [0, 1], [0, 0]],  # 9 items of 2 users
        [[-1, 0], [0, 0], [0, 0]],
        [[0, 0]],
    ],
)
def test_summaries_that_no_users_can_send(cells: list[list[int]]) -> None:
    query = ExceedanceCounts(DOMAIN, 4, (0, 2))
    query.check_summary(fh.Summary(2, {"users": np.array([[2, 0], [0, 2], [0, 0]])}))
    with pytest.raises(fh.WireError):
        query.check_summary(fh.Summary(2, {"users": np.array(cells)}))


@pytest.mark.parametrize(
    ("cells", "kept"),
    [
        ([[2, 1], [0, 0], [0, 0]], 2),  # 3 users hold one symbol
        ([[0, 2], [2, 0], [0, 0]], 2),  # 6 items of 2 users
        ([[1, 1], [0, 0], [1, 0]], 4),
    ],
)
def test_summaries_of_complete_rows_that_no_users_can_send(
    cells: list[list[int]], kept: int
) -> None:
    query = complete(2, (0, 1))
    fine = {"users": np.array([[1, 1], [0, 0], [1, 0]]), "kept": np.array([2])}
    query.check_summary(fh.Summary(3, fine))
    with pytest.raises(fh.WireError):
        query.check_summary(fh.Summary(3, {"users": np.array(cells), "kept": np.array([kept])}))
