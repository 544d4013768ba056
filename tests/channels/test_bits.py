"""Bits and signs: packed, counted by folds, and public signs of users."""

from __future__ import annotations

import numpy as np
import pytest

from fedhist.base.errors import WireError
from fedhist.channels.bits import BitTally, check_bits, count_bits, count_bits_by, n_words
from fedhist.channels.sign_hashes import RademacherSigns
from fedhist.model.query import Report


def test_tail() -> None:
    bits = np.array([[8, 0], [0, 32]], dtype=np.uint64)  # bit 3; bit 69
    report = Report(np.arange(2, dtype=np.uint64), {"bits": bits})
    check_bits(report, "bits", 70)
    check_bits(report, "bits", 128)
    with pytest.raises(WireError, match="bits set from 69 on"):
        check_bits(report, "bits", 69)


@pytest.mark.parametrize("n_bits", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("n_folds", [1, 2, 40])
@pytest.mark.parametrize("n", [0, 3, 1000])
def test_counts_by_fold_are_counts_of_each_fold(n: int, n_folds: int, n_bits: int) -> None:
    rng = np.random.default_rng(n_bits)
    bits = rng.integers(0, 2**64 - 1, (n, n_words(n_bits)), dtype=np.uint64, endpoint=True)
    fold = rng.integers(0, n_folds, n)
    slow = np.unpackbits(bits.view(np.uint8), axis=1, count=n_bits, bitorder="little")
    fast = count_bits_by(bits, n_bits, fold, n_folds)
    assert fast.dtype == np.int64
    assert fast.shape == (n_folds, n_bits)
    for f in range(n_folds):
        assert np.array_equal(fast[f], slow[fold == f].sum(axis=0, dtype=np.int64))
    assert np.array_equal(count_bits(bits, n_bits), slow.sum(axis=0, dtype=np.int64))


@pytest.mark.parametrize("n", [254, 255, 256, 510, 511])
def test_byte_counters_do_not_overflow(n: int) -> None:
    """All bits set: the bytes are full after 255 rows of a fold, between rows of another."""
    tally = BitTally(70, 2)
    bits = np.full((n + 10, 2), np.uint64(2**64 - 1))
    fold = np.zeros(n + 10, dtype=np.int64)
    fold[::7][:10] = 1
    tally.add(bits, fold)
    assert tally.totals().tolist() == [[n] * 70, [10] * 70]
    tally.add(bits[:1], fold[1:2])
    again = tally.totals()
    assert again.tolist() == [[n + 1] * 70, [10] * 70]
    tally.add(bits[:2])  # no folds: fold 0
    assert tally.totals().tolist() == [[n + 3] * 70, [10] * 70]
    again[:] = 0  # what is handed out is a copy
    assert tally.totals()[0, 0] == n + 3


def some_ids(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, n, dtype=np.uint64)


def matrix(signs: RademacherSigns, ids: np.ndarray) -> np.ndarray:
    rows = np.arange(len(ids) + 1)
    columns = [np.full(len(ids), j) for j in range(signs.dimension)]
    return np.stack([signs.vote_sums(ids, rows, c) for c in columns], axis=1)


def reports(n: int, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(2)
    if dtype == "int8":
        return rng.choice(np.array([-1, 1], dtype=np.int8), n)
    return rng.integers(-900, 900, n).astype(dtype)


HASHES = [RademacherSigns(d, 3) for d in (1, 64, 65, 150)]


@pytest.mark.parametrize("signs", HASHES, ids=str)
@pytest.mark.parametrize("n", [0, 1, 6, 7, 8, 300])
@pytest.mark.parametrize("dtype", ["int8", "int16", "float64"])
def test_a_fold_adds_signs_times_reports(signs: RademacherSigns, n: int, dtype: str) -> None:
    ids, z = some_ids(n), reports(n, dtype)
    sums = signs.fold(ids, z)
    assert sums.shape == (signs.dimension,)
    assert sums.dtype == (np.float64 if dtype == "float64" else np.int64)
    assert np.array_equal(sums, (matrix(signs, ids) * z[:, None]).sum(axis=0))


@pytest.mark.parametrize("signs", HASHES, ids=str)
def test_vote_sums_and_pairs_agree(signs: RademacherSigns) -> None:
    rng = np.random.default_rng(4)
    ids = some_ids(50)
    held = rng.random((50, signs.dimension)) < 0.3
    indptr = np.concatenate(([0], np.cumsum(held.sum(axis=1))))
    expected = (matrix(signs, ids) * held).sum(axis=1)
    assert np.array_equal(signs.vote_sums(ids, indptr, np.nonzero(held)[1]), expected)


def test_signs_of_consecutive_ids_are_fair_and_uncorrelated() -> None:
    """Means and pairwise products of 60 columns over 20,000 users: none beyond 5.5 deviations.

    1,830 normal statistics: false alarm 7e-5.
    """
    n = 20_000
    v = matrix(RademacherSigns(60, 8), np.arange(n, dtype=np.uint64)).astype(np.float64)
    products = v.T @ v
    off = products[np.triu_indices(60, 1)]
    fair = np.abs(v.sum(axis=0)) / np.sqrt(n)
    assert np.abs(off).max() < 5.5 * np.sqrt(n)
    assert fair.max() < 5.5
