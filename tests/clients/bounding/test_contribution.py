"""Clip and sum: kernels against a short obvious NumPy version, bit identity, exact norms."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from clients.bounding.contribution import clip_rows, clipped_counts, grid_limit
from fedhist.model.query import CHUNK
from fedhist.users.keys import Keys
from fedhist.users.shards import Items


def population(n, d, seed=0, high=40, dtype=np.uint32, most=8):
    """Users with 0 to ``most`` distinct items of d each."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, min(d, most) + 1, n)
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    item = np.concatenate([rng.choice(d, s, replace=False) for s in sizes] or [np.zeros(0)]).astype(
        np.uint32
    )
    count = rng.integers(1, high, len(item), dtype=np.uint64).astype(dtype)
    return Items(Keys.range(d), indptr, item, count)


def dense(items, lookup, d):
    """(n, d) in-domain counts as exact Python integers."""
    rows = np.zeros((len(items.indptr) - 1, d), dtype=object)
    for u, (a, b) in enumerate(zip(items.indptr, items.indptr[1:], strict=False)):
        for j, c in zip(items.item[a:b], items.count[a:b], strict=True):
            at = int(j) if lookup is None else int(lookup[j])
            if at >= 0:
                rows[u, at] += int(c)
    return rows


def oracle(rows, clip, norm):
    """The textbook: every row times C / max(C, norm)."""
    x = rows.astype(np.float64)
    size = np.linalg.norm(x, norm, axis=1)
    weight = np.divide(clip, size, out=np.ones_like(size), where=size > clip)
    return x * weight[:, None]


def scatter(rows, n, d):
    indptr, item, value = rows
    out = np.zeros((n, d), dtype=value.dtype)
    np.add.at(out, (np.repeat(np.arange(n), np.diff(indptr)), item), value)
    return out


LOOKUPS = {
    "whole": None,
    "half": np.where(np.arange(12) % 2, np.arange(12)[::-1] // 2, -1).astype(np.int32),
    "none": np.full(12, -1, dtype=np.int32),
}


@pytest.mark.parametrize("lookup", LOOKUPS.values(), ids=LOOKUPS)
@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("clip", [0.0, 7.25])
def test_rows_and_sum_agree_with_the_textbook(lookup, norm, dtype, clip):
    items = population(300, 12, dtype=dtype)
    want = oracle(dense(items, lookup, 12), clip, norm)
    got = scatter(clip_rows(items, lookup, clip, norm), 300, 12)
    np.testing.assert_allclose(got, want, rtol=4e-16, atol=0)
    total = clipped_counts(items, lookup, 12, clip, norm, 0.0, CHUNK)
    np.testing.assert_allclose(total, want.sum(axis=0), rtol=1e-13, atol=0)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("bits", [32, 61])
def test_huge_counts_neither_overflow_nor_lose_the_norm(norm, bits):
    items = population(200, 12, seed=bits, high=1 << bits, dtype=np.uint64)
    items.count[::3] = (1 << bits) - 1
    rows = dense(items, None, 12)
    got = scatter(clip_rows(items, None, 1000.0, norm), 200, 12)
    np.testing.assert_allclose(got, oracle(rows, 1000.0, norm), rtol=1e-14, atol=0)
    big = rows.sum(axis=1) > 1000
    np.testing.assert_allclose(np.linalg.norm(got[big], norm, axis=1), 1000.0, rtol=1e-14)


one_user = st.lists(st.integers(1, 1 << 40) | st.integers(1, 30), min_size=0, max_size=12)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    counts=one_user,
    clip=st.floats(1e-3, 1e9),
    steps=st.integers(1, 5000) | st.floats(1.0, 2.0**30),
    norm=st.sampled_from([1, 2]),
)
@example(counts=[1, 1, 1], clip=0.3, steps=3, norm=1)  # 0.3 / 0.1 < 3 in doubles
@example(counts=[49], clip=10.0, steps=1024, norm=2)
@example(counts=[3, 4], clip=5.0, steps=1024, norm=2)
@example(counts=[7] * 10, clip=1.0, steps=10, norm=1)
@example(counts=[1] * 12, clip=12.0, steps=12, norm=1)
def test_grid_norm_never_exceeds_the_clip_in_exact_arithmetic(counts, clip, steps, norm):
    grid = clip / steps
    count = np.array(counts, dtype=np.uint64)
    items = Items(
        Keys.range(12), np.array([0, len(counts)]), np.arange(len(counts), dtype=np.uint32), count
    )
    _, _, value = clip_rows(items, None, clip, norm, grid)
    assert value.dtype == np.int64
    h = [Fraction(int(v)) * Fraction(grid) for v in value]
    assert sum(x**norm for x in h) <= Fraction(clip) ** norm
    # and it is the floor of the clipped vector: below it, by less than one step
    want = oracle(count[None, :].astype(object), clip, norm)[0]
    for got, x in zip(h, want, strict=True):
        rounding = x * 2.0**-48  # of the oracle's doubles
        assert -rounding <= x - float(got) <= grid + rounding


def test_grid_limit_is_exact():
    assert grid_limit(0.3, 0.1, 1) == 2  # the double 0.3 is below three times the double 0.1
    assert grid_limit(1024.0, 1.0, 2) == 1024**2
    assert grid_limit(0.0, 0.1, 1) == 0
    with pytest.raises(ValueError, match=r"below 2\^31, got 2147483648.0 / 1"):
        grid_limit(2.0**31, 1.0, 1)
