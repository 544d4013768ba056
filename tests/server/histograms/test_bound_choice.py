"""Private choice of a contribution bound: its score, range, levels and grid."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from clients.bounding.size_curves import SHARE_PARTS, size_curves
from fedhist.privacy.guarantee import Adjacency
from fedhist.users.batch import Users
from server.histograms.bound_choice import BoundTask, kept_counts
from server.histograms.unbounded_histogram import PAPER_GRID, UnboundedHistogram

ZERO, REPLACE, ADD = Adjacency.ZERO_OUT_USER, Adjacency.REPLACE_USER, Adjacency.ADD_REMOVE_USER
INF = math.inf


def at_levels(grid, t, adjacency=ZERO):
    """A task with given thresholds of the release."""

    class Given(BoundTask):
        def levels(self):
            return np.asarray(t, dtype=np.float64)

    return Given(grid, 0.5, 1.0, 1e-3, adjacency)


def obvious(rows, grid, t):
    """V as it is written, user by user and item by item."""
    out = []
    for k, c in enumerate(grid):
        lost, kept = 0.0, {}
        for row in rows:
            m = sum(row.values())
            lost += max(min(m, grid[-1]) - c, 0)
            for key, count in row.items():
                kept[key] = kept.get(key, 0.0) + count * min(1.0, c / m)
        out.append(2 * lost + sum(min(h, t[k]) for h in kept.values()))
    return np.array(out)


def of(rows):
    return Users.from_records({f"u{i}": row for i, row in enumerate(rows)})


def collected(users, task, **more):
    """The server's way: from sums over the users."""
    _, shares, n, sizes = size_curves(users.counts, task.grid)
    return task.scores(n, sizes, shares, **more)


def random_rows(seed, n=30):
    rng = np.random.default_rng(seed)
    names = ["a", "b", "お茶", "d", "~"]
    return [
        {str(k): int(2 ** rng.uniform(0, 8)) for k in rng.permutation(names)[: rng.integers(0, 6)]}
        for _ in range(n)
    ]


@pytest.mark.parametrize("grid", [(1,), (1, 2, 5, 30, 200), (10, 20, 30), (700, 3000)])
@pytest.mark.parametrize("seed", range(3))
def test_two_ways_to_a_score(grid, seed):
    rows = random_rows(seed)
    t = np.random.default_rng(seed).uniform(1, 900, len(grid))
    # shares are rounded down: below 2^-30 C per user and item
    result = collected(of(rows), at_levels(grid, t))
    np.testing.assert_allclose(
        result, obvious(rows, grid, t), rtol=1e-12, atol=150 * grid[-1] / 2**30
    )


def test_kept_counts_of_huge_sums():
    shares = np.array([[0, 2**62], [2**62, 0], [1, 1]])
    want = [[2.0**30 * 3, 2.0**30 * 50], [2.0**30 * 3] * 2, [6 / 2**32, 53 / 2**32]]
    np.testing.assert_allclose(kept_counts((3, 50), shares), want, rtol=1e-15)


def spread(change):
    return float(change.max() - change.min())


@pytest.mark.parametrize("seed", range(6))
def test_no_user_changes_more_than_the_range(seed):
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
        of_base = obvious(base, grid, t)
        changes = [obvious([*base, r], grid, t) - of_base for r in records]
        one = max(spread(a) for a in changes)
        two = max(spread(a - b) for a, b in itertools.combinations(changes, 2))
        assert one <= at_levels(grid, t).range + 1e-9
        assert two <= at_levels(grid, t, REPLACE).range + 1e-9
        # the paper's sensitivity holds too, on each value
        assert max(np.abs(a).max() for a in changes) <= 2.5 * grid[-1]


def test_levels_of_the_release():
    task = BoundTask((1, 10, 100), 1.0, 1.0, 1e-6, ZERO)
    assert task.levels()[1] == 156  # as in the release
    assert replace(task, adjacency=REPLACE).levels()[1] == 310
    printed = replace(task, adjacency=REPLACE, printed=100).levels()
    assert printed[1] == pytest.approx(164.2499, abs=1e-3)  # at this adjacency, too
    assert replace(task, release_epsilon=INF).levels().tolist() == [0, 0, 0]


def test_the_rounding_of_a_score_is_far_below_its_sensitivity():
    """Against fractions, at the largest counts that 4 million users can send."""
    rng, grid, n = np.random.default_rng(5), (1, 3, 10, 1500), 1 << 22
    shares = rng.integers(0, n * SHARE_PARTS // 400, (400, 4))
    users = rng.multinomial(n, [0.25] * 4)
    sizes = users * grid[-1]
    task = BoundTask(grid, 1.0, 0.37, 1e-6, ZERO)
    t, result = task.levels(), task.scores(users, sizes, shares)
    error = []
    for k, c in enumerate(grid):
        total = Fraction(2 * sum(int(sizes[i]) - int(users[i]) * c for i in range(k, 4)))
        for row in shares.tolist():
            h = sum(Fraction(x, SHARE_PARTS) * min(c, g) for x, g in zip(row, grid, strict=True))
            total += min(h, Fraction(t[k]))
        error.append(abs(float(Fraction(result[k]) - total)))
    assert max(error) <= (len(grid) + 1 + 40) * 2.0**-52 * n * grid[-1]
    assert (75 + 72 + 40) * n <= 2**30  # what docs/privacy.md says of 4 million users
    assert max(error) < 2.0**-22 * task.range / 2


def test_grids():
    def grid(clip_max, threshold="exact-range"):
        return UnboundedHistogram(1.0, 1e-6, clip_max=clip_max, threshold=threshold).task.grid

    assert (grid(1), grid(2)) == ((1,), (1, 2))
    ours = grid(1500)
    assert (ours[0], ours[-1], len(ours)) == (1, 1500, 68)
    assert list(ours) == sorted(set(ours))
    assert max(b / a for a, b in itertools.pairwise(ours) if a > 20) < 1.13
    assert grid(1500, "paper") == PAPER_GRID == tuple(range(10, 1501, 10))
    assert len(grid(2**31 - 1)) < 31 * 8
