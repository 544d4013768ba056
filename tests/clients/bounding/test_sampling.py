"""Random clipping: its exact law on tiny users, and what holds for any user and any words."""

import itertools
import math

import numpy as np
import pytest
from numba import njit, uint64
from scipy.stats import hypergeom

import fedhist as fh
from clients.bounding import sampling
from clients.bounding.sampling import MANY, random_clip
from fedhist.users.shards import Items
from tests.running import p_value

FALSE_ALARM = 1e-6
"""Chance that one chi-square test below fails for a correct program and a fresh seed."""


def words(n, seed=1):
    return fh.SeededStreams(np.arange(n, dtype=np.uint64), seed, "test").words(1)[:, 0]


def same_users(row, n):
    """n users with the same counts, items 0, 1, ..."""
    s = len(row)
    count = np.tile(np.array(row, dtype=np.uint64), n)
    item = np.tile(np.arange(s, dtype=np.uint32), n)
    return Items(fh.Keys.range(s), np.arange(n + 1) * s, item, count)


def dense(rows, n, d):
    indptr, item, count = rows
    out = np.zeros((n, d), dtype=np.int64)
    out[np.repeat(np.arange(n), np.diff(indptr)), item] = count
    return out


def samples(row, clip, n, seed=1):
    return dense(random_clip(same_users(row, n), clip, words(n, seed)), n, len(row))


def law(row, clip):
    """Multivariate hypergeometric probabilities, by counting subsets of tokens."""
    size, all_subsets = min(sum(row), clip), math.comb(sum(row), min(sum(row), clip))
    return {
        kept: math.prod(map(math.comb, row, kept)) / all_subsets
        for kept in itertools.product(*(range(c + 1) for c in row))
        if sum(kept) == size
    }


@pytest.mark.parametrize(
    ("row", "clip"),
    [((1, 1, 1, 1), 3), ((1,) * 7, 4), ((3, 1, 2), 2), ((3, 1, 2), 4), ((6, 1, 3), 1)],
)
def test_every_sample_has_its_probability(row, clip):
    """Both the set of entries (all counts 1) and the set of ranks; drawn and left out."""
    n = 40_000
    result = samples(row, clip, n)
    expected = law(row, clip)
    assert sum(expected.values()) == pytest.approx(1.0)
    tuples, times = np.unique(result, axis=0, return_counts=True)
    recorded = {tuple(map(int, t)): k for t, k in zip(tuples, times, strict=True)}
    assert recorded.keys() <= expected.keys()
    observed = [recorded.get(t, 0) for t in expected]
    assert p_value(observed, [n * p for p in expected.values()]) > FALSE_ALARM


@pytest.mark.parametrize(("row", "clip"), [((200, 150), 130), ((30, 400, 1, 260), 170)])
def test_counts_drawn_item_by_item_are_hypergeometric(row, clip):
    assert min(clip, sum(row) - clip) > MANY * (len(row) + 4)  # this is the third way to draw
    n, m = 40_000, sum(row)
    result = samples(row, clip, n)
    assert (result.sum(axis=1) == clip).all()
    for j, held in enumerate(row):
        x = np.arange(held + 1)
        observed = np.bincount(result[:, j], minlength=held + 1)
        assert p_value(observed, n * hypergeom.pmf(x, m, held, clip)) > FALSE_ALARM
    # pairs: given the first count, the second is hypergeometric among the other tokens
    first = np.bincount(result[:, 0]).argmax()
    given = result[result[:, 0] == first, 1]
    rest = hypergeom.pmf(np.arange(row[1] + 1), m - row[0], row[1], clip - first)
    assert p_value(np.bincount(given, minlength=row[1] + 1), len(given) * rest) > FALSE_ALARM


@njit
def many_below(n, counter, out):
    for i in range(out.shape[0]):
        out[i], counter = sampling._below(n, counter)


@pytest.mark.parametrize(
    ("n", "cells"), [(3 << 30, 3), (3, 3), (1 << 32, 4), (3 << 40, 3), ((1 << 62) + 5, 5), (10, 10)]
)
def test_bounded_integers_have_no_bias(n, cells):
    """3 * 2^30 without rejection: the residues modulo 3 would come at 50%, 25%, 25%."""
    out = np.zeros(60_000, dtype=np.uint64)
    many_below(uint64(n), uint64(12345), out)
    assert int(out.max()) < n
    residues = np.bincount((out % np.uint64(cells)).astype(np.int64), minlength=cells)
    assert p_value(residues, np.full(cells, len(out) / cells)) > FALSE_ALARM
    parts = np.bincount((out // np.uint64(-(-n // cells))).astype(np.int64), minlength=cells)
    assert p_value(parts, np.full(cells, len(out) / cells)) > FALSE_ALARM


def mixed(n=300, d=60, seed=0):
    """Empty users, users of ones, users of large counts."""
    rng = np.random.default_rng(seed)
    rows = []
    for u in range(n):
        s = int(rng.integers(0, d))
        most = (1, 3, 400, 1 << 40)[u % 4]
        item = np.sort(rng.choice(d, s, replace=False))
        rows.append((np.full(s, u), item, rng.integers(1, most + 1, s)))
    u, j, c = (np.concatenate(x) for x in zip(*rows, strict=True))
    return fh.Users.from_counts(np.arange(n, dtype=np.uint64), u, j, c, padded(d))


def padded(d):
    """Names whose byte order is that of their numbers."""
    return fh.Keys.of(f"{j:03}" for j in range(d))


@pytest.mark.parametrize("clip", [1, 7, 30, 1000, 1 << 24])
@pytest.mark.parametrize("keep_zeros", [False, True])
def test_a_sample_is_a_part_of_exactly_that_size(clip, keep_zeros):
    users = mixed()
    items, n, d = users.counts, len(users), 60
    indptr, item, count = random_clip(items, clip, words(n), keep_zeros=keep_zeros)
    got = dense((indptr, item, count), n, d)
    whole = dense((items.indptr, items.item, items.count), n, d)
    assert (got >= 0).all()
    assert (got <= whole).all()
    np.testing.assert_array_equal(got.sum(axis=1), np.minimum(whole.sum(axis=1), clip))
    for a, b in itertools.pairwise(indptr):
        assert (np.diff(item[a:b].astype(np.int64)) > 0).all()  # the order of the record
    if keep_zeros:
        np.testing.assert_array_equal(indptr, items.indptr)
        np.testing.assert_array_equal(item, items.item)
    else:
        assert (count > 0).all()
    # what one user keeps depends on nobody else
    part = random_clip(users.slice(150, 300).counts, clip, words(n)[150:])
    np.testing.assert_array_equal(dense(part, 150, d), got[150:])


def test_huge_counts():
    """2^40 tokens of an item, and more than 2^64 in all: exact sizes, the right shares."""
    for row, clip, n in (
        ((1 << 40, 3 << 40), 60, 4000),
        (((1 << 61), (1 << 61) + 12345, *([(1 << 62) - 1] * 8)), 64, 2000),
        (((1 << 45), (1 << 45), 1 << 40), 1 << 31, 20),  # two billion tokens, item by item
    ):
        result = samples(row, clip, n)
        assert (result.sum(axis=1) == clip).all()
        share = np.array(row) / sum(row)
        z = (result.mean(axis=0) - clip * share) / np.sqrt(clip * share * (1 - share) / n)
        assert np.abs(z).max() < 6  # of normal laws: 2e-9
