"""The linear encodings: sensitivities by enumeration, the cut to m, and what is refused."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from clients.answers import streams
from clients.bounding.sampling import cut_rows, in_domain
from clients.distributions.queries import ExceedanceCounts, ItemCounts
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary
from fedhist.privacy.guarantee import Adjacency
from fedhist.users.batch import Users
from fedhist.users.keys import Keys

SYMBOLS = Keys.of(["a", "b", "c", "d", "e"])


def presence_of(domain: Keys, m: int) -> ExceedanceCounts:
    return ExceedanceCounts(domain, m, (0,))


def sensitivity(query: Query, norm: int) -> float:
    return query.integer_sensitivity(norm, Adjacency.REPLACE_USER)


def users_of(rows: list[dict[str, int]]) -> Users:
    return Users.from_records({f"user-{i}": row for i, row in enumerate(rows)})


def answer(query: Query, users: Users, seed: int = 1) -> Report:
    return query.answer(users, streams(users, seed, "q"))


def records(k: int, m: int) -> list[tuple[int, ...]]:
    """Every vector of k counts that adds up to at most m."""
    return [c for c in itertools.product(range(m + 1), repeat=k) if sum(c) <= m]


@pytest.mark.parametrize(("k", "m"), [(1, 1), (1, 3), (2, 1), (2, 3), (3, 2), (4, 1), (4, 2)])
def test_sensitivities_by_enumeration(k: int, m: int) -> None:
    """Over all pairs of records: the sums' largest l1 and l2 moves are the stated ones."""
    domain = Keys.of([SYMBOLS[i] for i in range(k)])
    rows = np.array(records(k, m))
    single = np.vstack([np.zeros((1, k), int), np.eye(k, dtype=int)])
    for query, sent in (
        (ItemCounts(domain, m), rows),
        (presence_of(domain, m), (rows > 0).astype(int)),
        (ItemCounts(domain, 1), single),
    ):
        moves = np.abs(sent[:, None] - sent[None])
        assert moves.sum(axis=2).max() == sensitivity(query, 1)
        square = int((moves**2).sum(axis=2).max())
        assert square <= sensitivity(query, 2) ** 2 * (1 + 1e-15)
        assert sensitivity(query, 2) == pytest.approx(math.sqrt(square), rel=1e-15)


def test_presence_changes_more_than_the_paper_says() -> None:
    """With m = 2 of k = 4, a replaced user changes 4 bits, not min(k, m) = 2."""
    first, other = users_of([{"a": 1, "b": 1}]), users_of([{"c": 1, "d": 1}])
    query = presence_of(Keys.of(["a", "b", "c", "d"]), 2)
    sums = [query.fold(answer(query, u)).sums["users"] for u in (first, other)]
    assert np.abs(sums[0] - sums[1]).sum() == 4


def test_the_domain_comes_before_the_cut() -> None:
    """Items outside the domain use up nothing of m, and symbols get the domain's numbers."""
    domain = Keys.of(["e", "b"])
    for row, expected in (
        ({"a": 50, "b": 2, "c": 7, "e": 1}, [1, 2]),
        ({"c": 3}, [0, 0]),
        ({"b": 3}, [0, 3]),
    ):
        users = users_of([row])
        inside = in_domain(users.counts, domain)
        assert (inside.vocabulary == domain) == (inside is not users.counts)
        report = answer(ItemCounts(domain, 3), users)
        assert ItemCounts(domain, 3).fold(report).sums["counts"].tolist() == expected


def test_the_cut_is_uniform_without_replacement() -> None:
    """Fixed seed; chi-square at 99.9 %: false alarm 0.001 for a correct draw."""
    n, m = 20_000, 2
    user = np.repeat(np.arange(n), 3)
    item = np.tile([0, 1, 2], n)
    users = Users.from_counts(np.arange(n), user, item, np.tile([1, 1, 2], n), SYMBOLS)
    words = streams(users, 3, "q").words(1)[:, 0]
    indptr, drawn, count = cut_rows(users.counts, SYMBOLS, m, words)
    assert (np.add.reduceat(count.astype(int), indptr[:-1]) == m).all()
    table = np.zeros((n, 3), dtype=int)
    table[np.repeat(np.arange(n), np.diff(indptr)), drawn] = count
    # of the 6 pairs of tokens {a, b, c, c}: ab 1, ac 2, bc 2, cc 1
    kinds = [(1, 1, 0), (1, 0, 1), (0, 1, 1), (0, 0, 2)]
    seen = np.array([(table == k).all(axis=1).sum() for k in kinds])
    expected = n * np.array([1, 2, 2, 1]) / 6
    assert seen.sum() == n
    assert ((seen - expected) ** 2 / expected).sum() < 16.27


def test_one_item_is_drawn_by_its_count() -> None:
    """Fixed seed; 4.5 standard deviations: false alarm 7e-6."""
    n = 20_000
    user, item = np.repeat(np.arange(n), 2), np.tile([0, 3], n)
    users = Users.from_counts(np.arange(n), user, item, np.tile([1, 4], n), SYMBOLS)
    one = ItemCounts(SYMBOLS, 1)
    total = one.fold(answer(one, users)).sums["counts"]
    assert total.sum() == n
    assert abs(total[3] - 0.8 * n) < 4.5 * math.sqrt(n * 0.16)


def test_users_without_items_send_nothing() -> None:
    users = users_of([{}, {"zzz": 4}, {"a": 1}])
    for query in (ItemCounts(SYMBOLS, 2), presence_of(SYMBOLS, 2), ItemCounts(SYMBOLS, 1)):
        report = answer(query, users)
        query.check(report)
        (total,) = query.fold(report).sums.values()
        assert total.ravel().tolist() == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("m", [1, 2, 5, 100])
def test_presence_agrees_with_counts(m: int) -> None:
    """The same cut, so the presence sums are the numbers of rows with a positive count."""
    rng = np.random.default_rng(4)
    table = rng.integers(0, 4, (200, 5))
    user, item = np.nonzero(table)
    users = Users.from_counts(np.arange(200), user, item, table[user, item], SYMBOLS)
    counts, query = answer(ItemCounts(SYMBOLS, m), users), presence_of(SYMBOLS, m)
    presence = answer(query, users)
    assert np.array_equal(counts.ragged["item"], presence.ragged["cell"])
    folded = query.answer_folded(users, lambda some: streams(some, 1, "q"))
    assert np.array_equal(folded.sums["users"], query.fold(presence).sums["users"])


def row(n: int, **ragged: Any) -> Report:
    """One user with all the entries, and n - 1 without."""
    length = len(next(iter(ragged.values())))
    indptr = np.array([0, *[length] * n], dtype=np.int64)
    arrays = {k: np.array(v, dtype=np.uint64) for k, v in ragged.items()}
    return Report(np.arange(n, dtype=np.uint64), ragged=arrays, indptr=indptr)


@pytest.mark.parametrize(
    ("report", "problem"),
    [
        (row(2, item=[0, 1], count=[2, 2]), "adds up to 4, more than 3"),
        (row(1, item=[0], count=[4]), "holds 4"),
        (row(1, item=[0], count=[0]), "holds 0"),
        (row(1, item=[5], count=[1]), "holds 5"),
        (row(1, item=[2, 2], count=[1, 1]), "twice"),
        (row(1, item=[2]), "expected"),
        (row(1, item=[0, 1, 2, 3], count=[2**63, 2**63, 1, 1]), "holds"),
    ],
)
def test_counts_that_no_user_sends(report: Report, problem: str) -> None:
    with pytest.raises(WireError, match=problem):
        ItemCounts(SYMBOLS, 3).check(report)


def test_presence_that_no_user_sends() -> None:
    query = presence_of(SYMBOLS, 2)
    fine = row(2, cell=[0, 4])
    query.check(fine)
    for report, problem in (
        (row(1, cell=[0, 1, 2]), "needs 3 items, more than m = 2"),
        (row(1, cell=[1, 1]), "twice"),
        (row(1, cell=[0], count=[1]), "expected"),
    ):
        with pytest.raises(WireError, match=problem):
            query.check(report)


@pytest.mark.parametrize(
    ("query", "name", "most"),
    [
        (ItemCounts(SYMBOLS, 3), "counts", 6),
        (ItemCounts(SYMBOLS, 1), "counts", 2),
    ],
)
def test_totals_that_no_two_users_send(query: Query, name: str, most: int) -> None:
    fine = np.full(5, most // 5)
    fine[0] += most - fine.sum()
    query.check_summary(Summary(2, {name: fine}))
    with pytest.raises(WireError, match="adds up to"):
        query.check_summary(Summary(2, {name: fine + np.array([0, 0, 0, 0, 1])}))


@pytest.mark.parametrize("m", [0, -1, 2.0, True, (1 << 31) + 1])
def test_m_must_be_an_integer(m: Any) -> None:
    for query in (ItemCounts, presence_of):
        with pytest.raises(ValueError, match="m must be an integer"):
            query(SYMBOLS, m)


def test_an_empty_domain_is_refused() -> None:
    for build in (lambda d: ItemCounts(d, 1), lambda d: presence_of(d, 1)):
        with pytest.raises(ValueError, match="must be non-empty"):
            build(Keys.of([]))
