"""Rows of users with enough samples only: who sends what, and what one user changes.

Answers are compared with a short obvious version; sensitivities with all rows of tiny cases.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from clients.distributions.queries import ExceedanceCounts
from fedhist.base.errors import WireError
from fedhist.model.query import Report, Summary
from fedhist.privacy.guarantee import Adjacency
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.printed.ragged_distribution import zero_indicators_touched
from tests.running import streams

REPLACE, ADD = Adjacency.REPLACE_USER, Adjacency.ADD_REMOVE_USER
ABC = Keys.of(["a", "b", "c"])
MIXED = Users.from_records(
    {
        "empty": {},
        "outside": {"x": 9},
        "short": {"a": 2, "b": 1, "x": 5},
        "exact": {"c": 3, "a": 1},
        "long": {"a": 5, "b": 3, "c": 1, "x": 100},
        "single": {"b": 7},
    }
)


def complete(domain: Keys, size: int, thresholds: tuple[int, ...]) -> ExceedanceCounts:
    return ExceedanceCounts(domain, size, thresholds, complete=True)


def rows(report: Report, t: tuple[int, ...]) -> list[dict[int, int]]:
    """What each user sent, as symbol to smallest count of its cell."""
    cells = [report.row(u)["cell"].tolist() for u in range(report.n_users)]
    return [{c // len(t): t[c % len(t)] + 1 for c in row} for row in cells]


def by_name(users: Users, values: list[Any]) -> dict[str, Any]:
    names = ["empty", "outside", "short", "exact", "long", "single"]
    ids = {int(Users.from_records({n: {}}).ids[0]): n for n in names}
    return {ids[int(u)]: v for u, v in zip(users.ids, values, strict=True)}


# -- the client half -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_users_with_enough_samples_send_that_many_of_their_own(seed: int) -> None:
    query = complete(ABC, 4, (0, 1, 2, 3))
    report = query.answer(MIXED, streams(MIXED, seed))
    query.check(report)
    sent = by_name(MIXED, rows(report, query.thresholds))
    assert sent["empty"] == sent["outside"] == sent["short"] == {}
    assert sent["exact"] == {0: 1, 2: 3}
    assert sent["single"] == {1: 4}
    assert sum(sent["long"].values()) == 4
    assert all(n <= {0: 5, 1: 3, 2: 1}[i] for i, n in sent["long"].items())
    kept = by_name(MIXED, report.arrays["kept"].tolist())
    assert kept == {"empty": 0, "outside": 0, "short": 0, "exact": 1, "long": 1, "single": 1}


def test_draws_are_uniform_without_replacement() -> None:
    """4 of 5 a, 3 b, 1 c, 6000 times: means of the hypergeometric law, within 4.5 std (1e-5)."""
    n = 6000
    users = Users.from_counts(
        np.arange(n), np.repeat(np.arange(n), 3), np.tile([0, 1, 2], n), np.tile([5, 3, 1], n), ABC
    )
    query = complete(ABC, 4, (0, 1, 2, 3))
    above = query.above(query.fold(query.answer(users, streams(users))))
    mean = above.sum(axis=1) / n
    expected = 4 * np.array([5, 3, 1]) / 9
    std = np.sqrt(expected * (1 - expected / 4) * (9 - 4) / (9 - 1) / n)
    assert (np.abs(mean - expected) <= 4.5 * std).all()


@pytest.mark.parametrize("thresholds", [(0,), (0, 2), (1,), (1, 2, 3), (0, 1, 2, 3)])
def test_above_is_what_it_says(thresholds: tuple[int, ...]) -> None:
    """From the exact counts that the same users send with all thresholds (the coins are alike)."""
    query, whole = complete(ABC, 4, thresholds), complete(ABC, 4, (0, 1, 2, 3))
    report = query.answer(MIXED, streams(MIXED))
    query.check(report)
    counts = rows(whole.answer(MIXED, streams(MIXED)), whole.thresholds)
    summary = query.fold(report)
    query.check_summary(summary)
    expected = [[sum(r.get(i, 0) > t for r in counts) for t in thresholds] for i in range(3)]
    assert query.above(summary).tolist() == expected


def test_items_outside_the_domain_change_nothing() -> None:
    clean = Users.from_records({"u": {"a": 3, "c": 2}, "v": {"b": 1}})
    noisy = Users.from_records({"u": {"a": 3, "c": 2, "!": 50}, "v": {"b": 1, "zz": 90}})
    query = complete(ABC, 2, (0, 1))
    a, b = query.answer(clean, streams(clean)), query.answer(noisy, streams(noisy))
    assert rows(a, (0, 1)) == rows(b, (0, 1))


def test_counts_as_large_as_they_come() -> None:
    users = Users.from_records({"u": {"a": 2**40, "b": 1}, "v": {"c": 2**31}})
    query = complete(ABC, 1 << 24, (0, 5))
    report = query.answer(users, streams(users))
    query.check(report)
    assert query.above(query.fold(report))[0].tolist() == [1, 1]


# -- what one user changes -------------------------------------------------------------------------


def all_rows(k: int, size: int) -> Iterator[np.ndarray[Any, Any]]:
    """The all-zero row, and every histogram of exactly ``size`` samples over k symbols."""
    yield np.zeros(k, dtype=np.int64)
    for row in itertools.product(range(size + 1), repeat=k):
        if sum(row) == size:
            yield np.array(row)


@pytest.mark.parametrize(("k", "size"), [(1, 1), (1, 3), (2, 1), (3, 1), (3, 2), (4, 2), (5, 2)])
def test_touched_symbols_are_bounded_and_attained(k: int, size: int) -> None:
    domain = Keys.range(k)
    thresholds = tuple(range(size))
    query = complete(domain, size, thresholds)
    above = [np.array([row > t for t in thresholds]).T.astype(int) for row in all_rows(k, size)]
    pairs = {
        REPLACE: list(itertools.product(above, above)),
        ADD: [(a, np.zeros_like(a)) for a in above],
    }
    for adjacency, both in pairs.items():
        touched = max(int((a != b).any(axis=1).sum()) for a, b in both)
        assert touched == query.touched(adjacency)
        assert max(int(np.abs(a - b).max()) for a, b in both) == 1


@pytest.mark.parametrize(("k", "size"), [(2, 1), (3, 1), (3, 2), (4, 1), (4, 2), (5, 2)])
def test_zero_indicators_change_more_symbols_than_the_paper_says(k: int, size: int) -> None:
    """Sums of 1[N_i = 0] over the users with enough samples: a row that empties takes its ones."""
    found = list(all_rows(k, size))
    zeros = [(row == 0) & (row.sum() > 0) for row in found]
    touched = max(int((a != b).sum()) for a, b in itertools.product(zeros, zeros))
    assert touched == zero_indicators_touched(k, size)
    # beyond N = 0, all symbols may change: those that are there at most t times as well
    if size > 1:
        low = [(row <= 1) & (row.sum() > 0) for row in found]
        assert max(int((a != b).sum()) for a, b in itertools.product(low, low)) == k
    assert touched >= min(k, size)


def test_forty_five_of_fifty_zero_indicators() -> None:
    """k = 50, m-hat = 5: a user with 5 symbols drops below 5; one with a single symbol is worse."""
    k, size = 50, 5
    rest = {f"r{u}": {f"i{u:02d}": 5} for u in range(9)}
    domain = Keys.of([f"i{j:02d}" for j in range(k)])
    query = complete(domain, size, (0,))

    def sums(record: dict[str, int]) -> tuple[Any, Any]:
        users = Users.from_records({**rest, "one": record})
        summary = query.fold(query.answer(users, streams(users)))
        present = query.above(summary)[:, 0]
        return summary.sums["kept"][0] - present, present

    five = {f"i{j:02d}": 1 for j in range(10, 15)}
    four = {f"i{j:02d}": 1 for j in range(10, 14)}
    (zeros, present), (zeros_after, present_after) = sums(five), sums(four)
    assert (zeros != zeros_after).sum() == 45 > min(k, size)
    assert (present != present_after).sum() == 5
    zeros, present = sums({"i20": 5})
    assert (zeros != zeros_after).sum() == 49 == zero_indicators_touched(k, size)
    assert (present != present_after).sum() == 1


# -- what the server refuses -----------------------------------------------------------------------


def report_of(row: list[tuple[int, int]], kept: int = 1, width: int = 2) -> Report:
    cells = np.array([item * width + cell for item, cell in row], dtype=np.uint32)
    arrays = {"kept": np.array([kept], np.uint8)}
    return Report(np.zeros(1, np.uint64), arrays, {"cell": cells}, np.array([0, len(row)]))


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ([(3, 0)], "cell"),
        ([(0, 0), (0, 1)], "twice"),
        ([(0, 0)], "fewer than m = 4"),
        ([], "fewer than m = 4"),
        ([(0, 1), (1, 1), (2, 1)], "needs 6 items, more than m = 4"),
    ],
)
def test_rows_that_no_honest_user_sends(row: list[tuple[int, int]], match: str) -> None:
    query = complete(ABC, 4, (0, 1))
    query.check(report_of([(0, 1), (1, 0)]))
    query.check(report_of([], kept=0))
    with pytest.raises(WireError, match=match):
        query.check(report_of(row))


def test_kept_must_agree_with_the_rows() -> None:
    query = complete(ABC, 4, (0,))
    query.check(report_of([(0, 0)], width=1))
    with pytest.raises(WireError, match="not kept"):
        query.check(report_of([(0, 0)], kept=0, width=1))
    with pytest.raises(WireError, match="kept"):
        query.check(report_of([(0, 0)], kept=2, width=1))
    with pytest.raises(WireError, match="expected"):
        ExceedanceCounts(ABC, 4, (0,)).check(report_of([(0, 0)], width=1))


def test_symbols_below_the_first_threshold_count_for_the_size() -> None:
    """With thresholds (1,) a symbol held once is not sent: 2 a's may stand for a, a, b, c."""
    complete(ABC, 4, (1, 3)).check(report_of([(0, 0)]))
    with pytest.raises(WireError, match="fewer than"):
        complete(Keys.of(["a"]), 4, (1, 3)).check(report_of([(0, 0)]))


def test_sums_that_no_honest_users_send() -> None:
    query, kept = complete(ABC, 2, (0, 1)), np.array([2])
    fine = np.array([[1, 1], [0, 0], [1, 0]])
    query.check_summary(Summary(3, {"users": fine, "kept": kept}))
    for cells, many, match in (
        ([[2, 1], [0, 0], [0, 0]], 2, "3 users hold one symbol"),
        ([[0, 2], [2, 0], [0, 0]], 2, "need 6 items, more than 2 users"),
        ([[1, 1], [0, 0], [1, 0]], 4, "kept"),
    ):
        with pytest.raises(WireError, match=match):
            query.check_summary(Summary(3, {"users": np.array(cells), "kept": np.array([many])}))


def test_the_fused_summary_is_the_folded_one() -> None:
    query = complete(ABC, 4, (0, 2))
    folded = query.fold(query.answer(MIXED, streams(MIXED)))
    fused = query.answer_folded(MIXED, streams)
    assert {n: a.tolist() for n, a in folded.sums.items()} == {
        n: a.tolist() for n, a in fused.sums.items()
    }
