"""Shares by item and threshold: exact fractions, what one user can add, any packing."""

from fractions import Fraction

import numpy as np
import pytest

from clients.bounding.size_curves import SHARE_PARTS, size_curves
from fedhist.users.batch import Users

GRIDS = [(1,), (10,), (1, 2, 3, 4, 7), (5, 8, 40), (1, 100, 10_000), (3, 2**31 - 1)]
NAMES = ["お茶", "tea", "~", "a\0b", "🙂"]


def population(seed, n=40, names=NAMES, top=9):
    rng = np.random.default_rng(seed)
    rows = {}
    for u in range(n):
        held = rng.permutation(names)[: rng.integers(0, len(names) + 1)]
        rows[f"u{u}"] = {str(k): int(2 ** rng.uniform(0, top)) for k in held}
    return Users.from_records(rows), rows


def curve(shares, grid):
    """Expected counts in steps, exactly: rows of Python integers, items by thresholds."""
    return [
        [sum(int(s) * min(c, b) for s, b in zip(r, grid, strict=True)) for c in grid]
        for r in shares
    ]


def exact(rows, grid):
    """Expected counts of every item, as fractions."""
    kept = {}
    for row in rows.values():
        m = sum(row.values())
        for key, count in row.items():
            kept.setdefault(key, [Fraction(0)] * len(grid))
            kept[key] = [
                h + Fraction(c * count, max(c, m)) for h, c in zip(kept[key], grid, strict=True)
            ]
    return kept


@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("seed", range(2))
def test_curves_are_the_expected_counts(grid, seed):
    users, rows = population(seed)
    keys, shares, n, sizes = size_curves(users.counts, grid)
    want = exact(rows, grid)
    assert list(keys) == sorted(want, key=str.encode)
    for key, result in zip(keys, curve(shares, grid), strict=True):
        for c, h, truth in zip(grid, result, want[key], strict=True):
            short = truth - Fraction(h, SHARE_PARTS)
            assert 0 <= short < Fraction(c * len(rows), 2**30)
    m = np.array([sum(row.values()) for row in rows.values()])
    tops = [*grid[1:], 2**62]
    for k, (low, high) in enumerate(zip(grid, tops, strict=True)):
        inside = (m > low) & (m <= high)
        assert n[k] == inside.sum()
        assert sizes[k] == np.minimum(m[inside], grid[-1]).sum()


@pytest.mark.parametrize("seed", range(12))
def test_one_user_never_adds_more_than_its_bounded_share(seed):
    """The sensitivity, in integers: rounding cannot carry a user past min(m, C)."""
    rng = np.random.default_rng(seed)
    grid = tuple(np.unique((2 ** rng.uniform(0, 30, 12)).astype(int)).tolist())
    top = (3, 20, 53, 61)[seed % 4]
    names = [str(j) for j in range(int(rng.integers(1, 60)))]
    row = {k: max(1, int(2 ** rng.uniform(0, top))) for k in names}
    users = Users.from_records({"u": row})
    keys, shares, _, _ = size_curves(users.counts, grid)
    m = sum(row.values())
    result = curve(shares, grid)
    assert (shares >= 0).all()
    for k, c in enumerate(grid):
        total = 0
        for key, h in zip(keys, result, strict=True):
            truth = Fraction(c * row[key], max(c, m))
            assert 0 <= Fraction(h[k], SHARE_PARTS) <= truth
            total += h[k]
        assert total <= min(m, c) * SHARE_PARTS
        # and next to nothing is lost
        assert min(m, c) - Fraction(total, SHARE_PARTS) < Fraction(c * len(names), 2**30)
