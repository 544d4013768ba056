"""The query of hypothesis selection: counts, sensitivities by enumeration, what is not accepted."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import hypergeom

from clients.distributions.queries import ExceedanceCounts
from fedhist.base.errors import WireError
from fedhist.model.query import Report, Summary
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.streams import SeededStreams, Streams
from tests.running import table_users

DOMAIN = Keys.of(["b", "a", "お茶"])


def rng(seed: int = 1) -> Callable[[Users], Streams]:
    return lambda batch: SeededStreams(batch.ids, seed, "x")


def both(query: ExceedanceCounts, users: Users, seed: int = 1) -> tuple[Report, Summary]:
    """The report, and the fused summary; they must agree, and the server must accept both."""
    report = query.answer(users, rng(seed)(users))
    summary = query.answer_folded(users, rng(seed))
    query.check(report)
    query.check_summary(summary)
    assert np.array_equal(query.fold(report).sums["users"], summary.sums["users"])
    return report, summary


def test_counts_users_at_or_below_each_threshold() -> None:
    table = np.random.default_rng(2).multinomial(9, [0.1, 0.3, 0.4, 0.2], 200)
    keys = Keys.of(["a", "b", "chai", "お茶"])  # chai is outside the domain
    query = ExceedanceCounts(DOMAIN, 9, (0, 1, 4, 8))
    report, summary = both(query, table_users(table, keys))
    mine = table[:, [1, 0, 3]]
    expected = [[(mine[:, i] <= t).sum() for t in (0, 1, 4, 8)] for i in range(3)]
    assert query.below(summary).tolist() == expected
    assert (query.above(summary) == 200 - np.array(expected)).all()
    assert report.ragged["cell"].dtype == np.uint32
    assert len(report.ragged["cell"]) == (mine > 0).sum()  # counts of 0 are not sent


def test_counts_up_to_the_first_threshold_are_not_sent() -> None:
    query = ExceedanceCounts(DOMAIN, 5, (2, 4))
    table = np.array([[2, 3, 0], [0, 0, 5], [1, 1, 1]])
    report, summary = both(query, table_users(table, DOMAIN))
    assert sorted(len(report.row(i)["cell"]) for i in range(3)) == [0, 1, 1]
    assert query.below(summary).tolist() == [[3, 3], [2, 3], [2, 2]]


def test_results_outlive_the_summary() -> None:
    query = ExceedanceCounts(DOMAIN, 5, (0,))
    summary = both(query, table_users(np.array([[1, 0, 2]]), DOMAIN))[1]
    above = query.above(summary)
    summary.sums["users"].fill(0)
    assert above.tolist() == [[1], [0], [1]]


def test_users_with_more_than_m_items_draw_m_of_them() -> None:
    """8 of 30 items: each symbol's count is hypergeometric; others are left as they are."""
    n = 4000
    table = np.tile([[5, 10, 15]], (n, 1))
    table[0] = [8, 0, 0]
    query = ExceedanceCounts(DOMAIN, 8, tuple(range(8)))
    _, summary = both(query, table_users(table, DOMAIN))
    for i, held in enumerate([5, 10, 15]):
        expected = hypergeom.cdf(np.arange(8), 30, held, 8)
        found = query.below(summary)[i] / n
        # 24 frequencies of 4,000 users, each within 5 deviations: false alarm below 2e-5
        assert np.abs(found - expected).max() < 5 * 0.5 / np.sqrt(n) + 1 / n
    huge = np.array([[1 << 40, 1 << 61, 3]])
    assert query.above(both(query, table_users(huge, DOMAIN))[1]).sum() == 8


def test_items_outside_the_domain_change_nothing() -> None:
    keys = Keys.of(["a", "b", "chai", "お茶"])
    table = np.array([[3, 2, 0, 1], [9, 9, 0, 9]])
    with_chai = table + np.array([0, 0, 1000, 0])
    query = ExceedanceCounts(DOMAIN, 6, (0, 2))
    alike = [both(query, table_users(t, keys))[1].sums["users"] for t in (table, with_chai)]
    assert np.array_equal(*alike)


@pytest.mark.parametrize(("k", "m"), [(2, 1), (3, 1), (3, 2), (4, 2), (3, 3)])
def test_one_user_moves_at_most_min_k_2m_symbols_by_one(k: int, m: int) -> None:
    """Over all pairs of records: the bound holds, and is attained."""
    domain = Keys.range(k)
    query = ExceedanceCounts(domain, m, tuple(range(m)))
    records = [r for r in itertools.product(range(m + 1), repeat=k) if sum(r) <= m]
    found = [
        query.below(both(query, table_users(np.array([r]), domain))[1])
        if any(r)
        else np.ones((k, m))
        for r in records
    ]
    most_symbols, most_cells, largest = 0, 0.0, 0.0
    for a, b in itertools.product(found, repeat=2):
        moved = np.abs(a - b)
        largest = max(largest, moved.max())
        most_symbols = max(most_symbols, int((moved > 0).any(axis=1).sum()))
        cells = np.diff(a - b, axis=1, append=0)
        most_cells = max(most_cells, float((cells**2).sum()))
    assert largest == 1
    assert most_symbols == min(k, 2 * m)
    assert most_cells <= 2 * min(k, m)


def report_of(cells: list[list[int]]) -> Report:
    flat = np.array([c for row in cells for c in row], dtype=np.uint32)
    indptr = np.cumsum([0, *(len(row) for row in cells)])
    ids = np.arange(len(cells), dtype=np.uint64)
    return Report(ids, ragged={"cell": flat}, indptr=indptr)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([[6]], "outside"),
        ([[0, 1]], "names a symbol twice"),  # symbol 0 in two cells
        ([[2], [2, 2]], "names a symbol twice"),
        ([[1, 3]], "needs 6 items, more than m = 4"),  # more than 2 of symbol 0 and of symbol 1
        ([[0, 2, 5]], "needs 5 items, more than m = 4"),
    ],
)
def test_rows_that_no_user_can_send(cells: list[list[int]], words: str) -> None:
    query = ExceedanceCounts(DOMAIN, 4, (0, 2))
    query.check(report_of([[0, 2], [1, 2], [], [5]]))
    with pytest.raises(WireError, match=words):
        query.check(report_of(cells))


def test_reports_of_other_shapes() -> None:
    query = ExceedanceCounts(DOMAIN, 4, (0, 2))
    ids = np.arange(2, dtype=np.uint64)
    with pytest.raises(WireError, match="rows of cell are expected"):
        query.check(Report(ids, {"cell": np.zeros(2, np.uint32)}))
    signed = Report(ids, ragged={"cell": np.zeros(2, np.int64)}, indptr=np.array([0, 1, 2]))
    with pytest.raises(WireError, match="dtype"):
        query.check(signed)


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        ([[3, 0], [0, 0], [0, 0]], "outside"),
        ([[1, 2], [0, 0], [0, 0]], "3 users hold one symbol, more than 2"),
        ([[0, 2], [0, 1], [0, 0]], "the cells need 9 items, more than 2 users of 4"),
        ([[-1, 0], [0, 0], [0, 0]], "outside"),
        ([[0, 0]], "shape"),
    ],
)
def test_summaries_that_no_users_can_send(cells: list[list[int]], words: str) -> None:
    query = ExceedanceCounts(DOMAIN, 4, (0, 2))
    query.check_summary(Summary(2, {"users": np.array([[2, 0], [0, 2], [0, 0]])}))
    with pytest.raises(WireError, match=words):
        query.check_summary(Summary(2, {"users": np.array(cells)}))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"domain": Keys.of(())}, "must be non-empty"),
        ({"m": 0}, "m must be"),
        ({"m": True}, "m must be"),
        ({"m": (1 << 31) + 1}, "m must be"),
        ({"thresholds": ()}, "must increase within"),
        ({"thresholds": (0, 4)}, "must increase within"),
        ({"thresholds": (1, 1)}, "must increase within"),
        ({"thresholds": (-1, 1)}, "must increase within"),
    ],
)
def test_bad_fields(change: dict[str, object], words: str) -> None:
    fields = {"domain": DOMAIN, "m": 4, "thresholds": (0, 2)} | change
    with pytest.raises(ValueError, match=words):
        ExceedanceCounts(**fields)  # type: ignore[arg-type]


def test_too_many_cells() -> None:
    with pytest.raises(ValueError, match="too many"):
        ExceedanceCounts(domain=Keys.range(1 << 20), m=100, thresholds=tuple(range(100)))
