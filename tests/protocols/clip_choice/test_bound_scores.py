"""Scores of a contribution bound: obvious versions, exact ranges, and what they stand for."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from clients.bounding.size_curves import SHARE, size_curves
from fedhist.privacy.guarantee import Adjacency
from fedhist.protocols.clip_choice.unbounded import (
    SCORES,
    bound_scores,
    item_cost,
    kept_counts,
    printed_range,
    release_levels,
    score_range,
)
from fedhist.users.batch import Users

ZERO, REPLACE, ADD = Adjacency.ZERO_OUT_USER, Adjacency.REPLACE_USER, Adjacency.ADD_REMOVE_USER


def obvious(score, rows, grid, t, b):
    """V or W as it is written, user by user and item by item."""
    out = []
    for k, c in enumerate(grid):
        lost, kept = 0.0, {}
        for row in rows:
            m = sum(row.values())
            lost += max(min(m, grid[-1]) - c, 0)
            for key, count in row.items():
                kept[key] = kept.get(key, 0.0) + count * min(1.0, c / m)
        if score == "union":
            out.append(2 * lost + sum(min(h, t[k]) for h in kept.values()))
        else:
            out.append(lost + sum(min(h, max(b[k], 2 * t[k] - h)) for h in kept.values()))
    return np.array(out)


def of(rows):
    return Users.from_records({f"u{i}": row for i, row in enumerate(rows)})


def collected(score, users, grid, levels):
    """The server's way: from sums over the users."""
    _, shares, n, sizes = size_curves(users.counts, grid)
    return bound_scores(score, grid, n, sizes, shares, 1 / SHARE, levels)


def random_rows(seed, n=30):
    rng = np.random.default_rng(seed)
    names = ["a", "b", "お茶", "d", ""]
    return [
        {str(k): int(2 ** rng.uniform(0, 8)) for k in rng.permutation(names)[: rng.integers(0, 6)]}
        for _ in range(n)
    ]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("grid", [(1,), (1, 2, 5, 30, 200), (10, 20, 30), (700, 3000)])
@pytest.mark.parametrize("seed", range(3))
def test_two_ways_to_a_score(score, grid, seed):
    rows = random_rows(seed)
    rng = np.random.default_rng(seed)
    t, b = rng.uniform(1, 900, len(grid)), rng.uniform(0, 9, len(grid))
    want = obvious(score, rows, grid, t, b)
    # shares are rounded down: below 2^-30 C per user and item
    found = collected(score, of(rows), grid, (t, b))
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=150 * grid[-1] / 2**30)


@pytest.mark.parametrize("score", SCORES)
def test_blocks_of_items_do_not_matter(score, monkeypatch):
    rows = random_rows(5)
    grid = (1, 4, 9, 100)
    levels = release_levels(grid, 1.0, 1e-3, ZERO)
    whole = collected(score, of(rows), grid, levels)
    monkeypatch.setattr("fedhist.protocols.clip_choice.unbounded.CELLS", 8)
    np.testing.assert_allclose(collected(score, of(rows), grid, levels), whole, rtol=1e-14)


def test_kept_counts_of_huge_sums():
    shares = np.array([[0, 2**62], [2**62, 0], [1, 1]])
    want = [[2.0**30 * 3, 2.0**30 * 50], [2.0**30 * 3] * 2, [6 / 2**32, 53 / 2**32]]
    np.testing.assert_allclose(kept_counts((3, 50), shares, 1 / SHARE), want, rtol=1e-15)


def test_scores_of_nobody():
    users = Users.from_records({"a": {}, "b": {}})
    for score in SCORES:
        assert collected(score, users, (1, 5), (np.ones(2), np.ones(2))).tolist() == [0, 0]
    empty = np.zeros(0, dtype=np.int64)  # what an empty merge looks like
    zeros = np.zeros(2, dtype=np.int64)
    assert bound_scores("ramp", (1, 5), zeros, zeros, empty, 1.0, (zeros, zeros)).tolist() == [0, 0]


def test_expected_counts_are_those_of_random_clipping():
    """E min(1, C / m) N_j: by drawing; four standard errors, false alarm 6e-5 per entry."""
    row = {"a": 3, "b": 9, "c": 1}
    tokens = np.repeat([0, 1, 2], [3, 9, 1])
    rng = np.random.default_rng(0)
    keys, shares, *_ = size_curves(of([row]).counts, (5,))
    assert list(keys) == ["a", "b", "c"]
    kept = kept_counts((5,), shares, 1 / SHARE)[:, 0]
    draws = np.array([np.bincount(rng.permutation(tokens)[:5], minlength=3) for _ in range(4000)])
    error = 4 * draws.std(axis=0) / math.sqrt(4000)
    assert (np.abs(draws.mean(axis=0) - kept) < error).all()


# -- ranges --------------------------------------------------------------------------------------

BASE = [{"one": 4}] * 5 + [{"two": 2}] * 6
"""With t = (12, 20) at C = (2, 4): "one" passes t between the two, "two" falls below it."""
LEVELS = np.array([12.0, 20.0]), np.zeros(2)


def spread(change):
    return float(change.max() - change.min())


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("adjacency", Adjacency)
def test_ranges_are_attained(score, adjacency):
    grid = (2, 4)
    here = {"one": 4}
    there = {"two": 2} if adjacency is REPLACE else {}
    change = obvious(score, [*BASE, here], grid, *LEVELS)
    change -= obvious(score, [*BASE, there], grid, *LEVELS)
    assert spread(change) == score_range(score, grid, adjacency)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("adjacency", [ZERO, REPLACE])
def test_a_smaller_range_would_not_do(score, adjacency):
    """Two-sided: the mechanism on the worst case needs its whole epsilon."""
    grid, epsilon = (2, 4), 0.5
    rate = epsilon / score_range(score, grid, adjacency)
    there = {"two": 2} if adjacency is REPLACE else {}
    laws = []
    for row in ({"one": 4}, there):
        # many tokens lost make C = 2 rare, where the ratio of probabilities is largest
        cost = obvious(score, [*BASE, row], grid, *LEVELS) + np.array([200.0, 0.0])
        w = np.exp(-rate * (cost - cost.min()))
        laws.append(w / w.sum())
    worst = np.abs(np.log(laws[0] / laws[1])).max()
    assert 0.99 * epsilon < worst <= epsilon * (1 + 1e-12)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("seed", range(6))
def test_no_user_changes_more_than_the_range(score, seed):
    """Whatever the levels are: random ones, on every pair of small records."""
    rng = np.random.default_rng(seed)
    grid = [(1, 2, 4), (2, 4), (1, 3), (1, 2, 3, 4, 5), (3,), (2, 5, 6)][seed]
    records = [
        {k: c for k, c in zip("xyz", counts, strict=True) if c}
        for counts in itertools.product((0, 1, 2, 5), (0, 3), (0, 1, 9))
    ]
    for _ in range(12):
        base = [records[i] for i in rng.integers(len(records), size=rng.integers(0, 9))]
        t = rng.uniform(0, 25, len(grid))
        b = t * rng.uniform(0, 1.5, len(grid))  # even a noise scale above the threshold
        of_base = obvious(score, base, grid, t, b)
        changes = [obvious(score, [*base, r], grid, t, b) - of_base for r in records]
        one = max(spread(a) for a in changes)
        two = max(spread(a - b) for a, b in itertools.combinations(changes, 2))
        assert one <= score_range(score, grid, ZERO) + 1e-9
        assert two <= score_range(score, grid, REPLACE) + 1e-9
        if score == "union":  # the paper's sensitivity holds too, on each value
            assert max(np.abs(a).max() for a in changes) <= 2.5 * grid[-1]


def test_range_figures():
    assert score_range("union", (1, 750, 1500), ZERO) == 2999
    assert score_range("union", (1, 750, 1500), ADD) == 2999
    assert score_range("union", (1, 750, 1500), REPLACE) == 3000
    assert score_range("ramp", (1, 750, 1500), ZERO) == 3000
    assert score_range("ramp", (1, 750, 1500), REPLACE) == 4500
    assert printed_range(1500) == 7500  # 2.5 times as much


# -- levels --------------------------------------------------------------------------------------


def test_levels_of_the_release():
    t, b = release_levels((1, 10, 100), 1.0, 1e-6, ZERO)
    assert t[1] == 156  # as in the release
    assert b.tolist() == [1, 10, 100]
    t2, b2 = release_levels((1, 10, 100), 1.0, 1e-6, REPLACE)
    assert t2[1] == 310
    assert b2.tolist() == [2, 20, 200]
    printed, scale = release_levels((10,), 1.0, 1e-6, REPLACE, printed=True)
    assert printed[0] == pytest.approx(164.2499, abs=1e-3)  # at this adjacency, too
    assert scale.tolist() == [10]
    for level in release_levels((1, 10), math.inf, 0.0, ZERO):
        assert level.tolist() == [0, 0]


@pytest.mark.parametrize("delta", [1e-6, 1e-9])
def test_the_ramp_is_the_error_of_an_item(delta):
    """Against the exact expected error of one released item, away from the ramp within 1 %.

    In between, the printed score keeps on charging t for a released item: about t / b times what
    it costs. Exact: h if not released, |Z| if released.
    """
    bound, epsilon = 10, 1.0
    (t,), (b,) = release_levels((bound,), epsilon, delta, ZERO)
    z = np.arange(-3000, 3001)
    p = math.tanh(0.5 / b) * np.exp(-np.abs(z) / b)

    def error(h):
        return float(np.where(h + z >= t, np.abs(z), h) @ p)

    for h in np.arange(1, 4 * t, 7):
        ramp = float(item_cost("ramp", np.array(h), t, b))
        union = float(item_cost("union", np.array(h), t, b))
        if h < t - 8 * b or h > 2 * t:
            assert ramp == pytest.approx(error(h), rel=0.01)
        assert error(h) <= 1.06 * ramp + b
        if h > 2 * t:
            assert union > 10 * error(h)


@pytest.mark.parametrize("score", SCORES)
def test_the_rounding_of_a_score_is_far_below_its_sensitivity(score):
    """Against fractions, at the largest counts that 4 million users can send."""
    rng, grid, n = np.random.default_rng(5), (1, 3, 10, 1500), 1 << 22
    shares = rng.integers(0, n * SHARE // 400, (400, 4))
    users = rng.multinomial(n, [0.25] * 4)
    sizes = users * grid[-1]
    t, b = release_levels(grid, 0.37, 1e-6, ZERO)
    found = bound_scores(score, grid, users, sizes, shares, 1 / SHARE, (t, b))
    weight, error = (2 if score == "union" else 1), []
    for k, c in enumerate(grid):
        lost = sum(int(sizes[i]) - int(users[i]) * c for i in range(k, 4))
        total = Fraction(weight * lost)
        for row in shares.tolist():
            h = sum(Fraction(x, SHARE) * min(c, g) for x, g in zip(row, grid, strict=True))
            most = (
                Fraction(t[k]) if score == "union" else max(Fraction(b[k]), 2 * Fraction(t[k]) - h)
            )
            total += min(h, most)
        error.append(abs(float(Fraction(found[k]) - total)))
    assert max(error) <= (len(grid) + 1 + 40) * 2.0**-52 * n * grid[-1]
    assert (75 + 72 + 40) * n <= 2**30  # what docs/privacy.md says of 4 million users
    assert max(error) < 2.0**-22 * score_range(score, grid, ZERO) / 2
