"""Drawing part of a record: against slow obvious versions, with every user's own stream only.

Statistical tests have fixed seeds; a correct program fails each with probability below 1e-6.
"""

from collections import Counter
from itertools import combinations
from math import comb

import numpy as np
import pytest

import fedhist as fh
from clients.records.draws import draw_one
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams
from tests.running import one_each, p_value

N = 30_000
RECORD = {"chai": 2, "oat": 1, "rye": 3, "tea": 1}
RARE = 1e-6


def everybody(record: dict[str, int] | list[float]) -> fh.Users:
    """N users who all hold the same record."""
    return fh.Users.from_records({f"u{i}": record for i in range(N)})


def streams(users: fh.Users, seed: int = 1) -> fh.SeededStreams:
    return fh.SeededStreams(users.ids, seed, "draws")


def assert_law(counts: Counter[object], law: dict[object, float]) -> None:
    assert counts.keys() <= law.keys()
    assert p_value([counts[k] for k in law], [p * N for p in law.values()]) > RARE


def records(users: fh.Users) -> list[tuple[object, ...]]:
    """What each user holds: its tokens' items, or its samples, in order."""
    out: list[tuple[object, ...]] = []
    for u in range(len(users)):
        one = users.slice(u, u + 1)
        if one.samples is not None:
            out.append(tuple(one.samples.values.ravel().tolist()))
        else:
            pairs = zip(one.counts.item.tolist(), one.counts.count.tolist(), strict=True)
            out.append(tuple(one.vocabulary[i] for i, c in pairs for _ in range(c)))
    return out


def mixed() -> fh.Users:
    """Users of all sizes, the empty record among them."""
    rng = np.random.default_rng(3)
    names = [f"item-{j}" for j in range(90)]
    return fh.Users.from_records(
        {
            f"u{i}": {str(k): int(rng.integers(1, 4)) for k in rng.choice(names, s, replace=False)}
            for i, s in enumerate([0, 1, 2, 5, 40, 80, 0, 3])
        }
    )


def test_one_item_is_drawn_by_its_count() -> None:
    users, domain = everybody(RECORD), fh.Keys.of(["tea", "rye", "gin", "oat"])
    result = Counter(fh.draw_item(users, domain, streams(users)).tolist())
    assert_law(result, {0: 1 / 5, 1: 3 / 5, 3: 1 / 5})  # chai is outside


@pytest.mark.parametrize("k", [1, 5])
def test_every_subset_of_tokens_is_as_likely(k: int) -> None:
    tokens = [item for item, count in RECORD.items() for _ in range(count)]
    every = Counter(tuple(sorted(c)) for c in combinations(tokens, k))
    law = {subset: times / comb(len(tokens), k) for subset, times in every.items()}
    users = everybody(RECORD)
    subset = Counter(
        tuple(sorted(map(str, r))) for r in records(fh.draw_subset(users, k, streams(users)))
    )
    assert_law(subset, law)


def test_means_in_a_range_are_those_of_clipped_samples() -> None:
    """One user at a time, in Python's own numbers."""
    rows = [[0.5, 9.0], [], [-3.0, 1.0, 0.25], [np.nan, 0.0], [np.inf, -np.inf], [0.1] * 7]
    users = one_each(*rows)
    result = fh.user_means(users, -1.0, 2.0)[:, 0].tolist()
    for row, mean in zip(rows, result, strict=True):
        if not row or any(np.isnan(row)):
            assert np.isnan(mean)
        else:
            slow = sum(min(max(x, -1.0), 2.0) for x in row) / len(row)
            assert mean == pytest.approx(slow, rel=1e-12)
    assert fh.user_means(users, 0.1, 0.1)[5, 0] == 0.1  # in the range, whatever rounding does


@pytest.mark.parametrize("distinct", [False, True])
def test_who_has_no_more_than_k_keeps_all_of_it(distinct: bool) -> None:
    users = mixed()
    subset = fh.draw_subset(users, 5, streams(users), distinct=distinct)
    for a, b in zip(records(users), records(subset), strict=True):
        size = len(set(b)) if distinct else len(b)
        assert size == min(5, len(set(a)) if distinct else len(a))
        assert not Counter(b) - Counter(a)
        assert size == 5 or a == b
    with pytest.raises(ValueError, match="0"):
        fh.draw_subset(users, 0, streams(users))


def test_every_subset_of_items_or_samples_is_as_likely_and_kept_whole() -> None:
    users = everybody(RECORD)
    subset = Counter(records(fh.draw_subset(users, 2, streams(users), distinct=True)))
    pairs = combinations(sorted(RECORD), 2)
    assert_law(subset, {tuple([a] * RECORD[a] + [b] * RECORD[b]): 1 / 6 for a, b in pairs})
    users = everybody([4.0, 1.0, 3.0, 0.5, 2.0])
    subset = Counter(records(fh.draw_subset(users, 3, streams(users))))
    assert_law(subset, dict.fromkeys(combinations([4.0, 1.0, 3.0, 0.5, 2.0], 3), 1 / 10))


INDPTR = np.array([0, 2, 2, 5])


def test_draw_one_is_uniform() -> None:
    """Each of 5 samples of 50,000 like users within 5 sigma (false alarm 3e-6)."""
    n = 50_000
    values = np.tile(np.arange(5.0), n)
    users = Users.from_samples(np.arange(n), np.arange(n + 1) * 5, values)
    words = SeededStreams(users.ids, 0, "x").words(1)[:, 0]
    one = draw_one(users, words)
    assert (one.n_items() == 1).all()
    assert (one.ids == users.ids).all()
    counts = np.bincount(one.reals.values[:, 0].astype(int))
    assert np.abs(counts - n / 5).max() < 5 * np.sqrt(n * 0.16)


def test_draw_one_takes_the_user_s_own_samples() -> None:
    users = Users.from_samples([1, 2, 3], INDPTR, [[1.0], [2.0], [3.0], [4.0], [5.0]])
    least = draw_one(users, np.zeros(3, np.uint64))
    most = draw_one(users, np.full(3, 2**64 - 1, np.uint64))
    assert least.reals.values[:, 0].tolist() == [1.0, 3.0]
    assert most.reals.values[:, 0].tolist() == [2.0, 5.0]
    assert least.n_items().tolist() == [1, 0, 1]
