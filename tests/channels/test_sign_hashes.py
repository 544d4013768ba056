from __future__ import annotations

import numpy as np
import pytest

from fedhist.channels.hadamard import hadamard_entry
from fedhist.channels.sign_hashes import HadamardSigns, RademacherSigns, SignHash, sign_hash


def some_ids(n: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, n, dtype=np.uint64)


def matrix(signs: SignHash, ids: np.ndarray) -> np.ndarray:
    """All signs of all users, one pair at a time: (n, d)."""
    d = signs.dimension
    pairs = signs.signs(np.repeat(ids, d), np.tile(np.arange(d), len(ids)))
    return pairs.reshape(len(ids), d).astype(np.int64)


def reports(n: int, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(2)
    if dtype == "int8":
        return rng.choice(np.array([-1, 1], dtype=np.int8), n)
    return rng.integers(-900, 900, n).astype(dtype)


HASHES = [
    *(RademacherSigns(d, 3) for d in (1, 64, 65, 150)),
    *(HadamardSigns(d, 3) for d in (1, 2, 37, 64)),
    HadamardSigns(40, 3, n_permutations=1),
]


@pytest.mark.parametrize("signs", HASHES, ids=str)
@pytest.mark.parametrize("n", [0, 1, 6, 7, 8, 300])
@pytest.mark.parametrize("dtype", ["int8", "int16", "float64"])
def test_scores_are_the_sums_of_signs_times_reports(signs: SignHash, n: int, dtype: str) -> None:
    ids, z = some_ids(n), reports(n, dtype)
    sums = signs.fold(ids, z)
    assert sums.shape == signs.shape
    assert sums.dtype == (np.float64 if dtype == "float64" else np.int64)
    assert np.array_equal(signs.scores(sums), (matrix(signs, ids) * z[:, None]).sum(axis=0))


def test_bit_sliced_counters_are_emptied_before_they_overflow() -> None:
    """Beyond 1,022 users the planes are full: where all signs are equal, not only on average."""
    signs = RademacherSigns(70, 9)
    same = matrix(signs, some_ids(1))[0]
    for n in (1015, 1022, 1023, 1030, 2045, 5000):
        ids, ones = np.repeat(some_ids(1), n), np.ones(n, dtype=np.int8)
        assert np.array_equal(signs.fold(ids, ones), n * same)
        assert np.array_equal(signs.fold(ids, -ones), -n * same)


@pytest.mark.parametrize("signs", HASHES, ids=str)
def test_vote_sums_and_pairs_agree(signs: SignHash) -> None:
    rng = np.random.default_rng(4)
    ids = some_ids(50)
    held = rng.random((50, signs.dimension)) < 0.3
    indptr = np.concatenate(([0], np.cumsum(held.sum(axis=1))))
    expected = (matrix(signs, ids) * held).sum(axis=1)
    assert np.array_equal(signs.vote_sums(ids, indptr, np.nonzero(held)[1]), expected)


def test_packed_words_hold_the_signs() -> None:
    signs, ids = RademacherSigns(100, 5), some_ids(20)
    bits = np.unpackbits(signs.words(ids).view(np.uint8), axis=1, bitorder="little")[:, :100]
    assert np.array_equal(1 - 2 * bits.astype(np.int64), matrix(signs, ids))


def test_hadamard_signs_are_entries_of_permuted_rows() -> None:
    signs, ids = HadamardSigns(50, 6), some_ids(400)
    group, row = signs.rows(ids)
    assert signs.shape == (16, 64)
    assert (np.sort(signs.permutations, axis=1) == np.arange(64)).all()
    assert set(group) == set(range(16))
    assert row.min() >= 0
    assert row.max() < 64
    expected = hadamard_entry(row[:, None], signs.permutations[group, :50])
    assert np.array_equal(matrix(signs, ids), expected)


@pytest.mark.parametrize("kind", ["rademacher", "hadamard"])
def test_signs_of_consecutive_ids_are_fair_and_uncorrelated(kind: str) -> None:
    """Means and pairwise products of 60 columns over 20,000 users: none beyond 5.5 deviations.

    1,830 normal statistics: false alarm 7e-5.
    """
    n = 20_000
    v = matrix(sign_hash(kind, 60, 8), np.arange(n, dtype=np.uint64)).astype(np.float64)
    products = v.T @ v
    off = products[np.triu_indices(60, 1)]
    # column 0 of a Hadamard matrix is constant: one coordinate of a permutation may have it
    fair = np.abs(v.sum(axis=0)) / np.sqrt(n)
    assert np.abs(off).max() < 5.5 * np.sqrt(n)
    if kind == "rademacher":
        assert fair.max() < 5.5


def test_another_salt_gives_other_signs() -> None:
    ids = some_ids(2000)
    for kind in ("rademacher", "hadamard"):
        a, b = (matrix(sign_hash(kind, 4, salt), ids) for salt in (1, 2))
        assert abs((a * b).mean()) < 0.1


def test_one_permutation_has_a_spurious_winner_and_sixteen_do_not() -> None:
    """Everybody votes for the same five columns. A majority of five has the same correlation 3/8
    with each of its columns and with the product of all of them, which under one permutation is
    a column itself. With sixteen permutations the product is another column in each.
    """
    n, d = 200_000, 256
    ids = np.arange(n, dtype=np.uint64)
    support = np.array([3, 50, 101, 180, 222])
    indptr, columns = np.arange(n + 1) * 5, np.tile(support, n)
    for n_permutations, ranked_first in ((1, False), (16, True)):
        signs = HadamardSigns(d, 11, n_permutations)
        z = np.sign(signs.vote_sums(ids, indptr, columns)).astype(np.int8)
        scores = signs.scores(signs.fold(ids, z)) / n
        assert np.abs(scores[support] - 3 / 8).max() < 0.05
        others = np.delete(scores, support)
        assert (others.max() < scores[support].min() - 0.1) == ranked_first
        if n_permutations == 1:
            column = np.bitwise_xor.reduce(signs.permutations[0, support])
            spurious = int(np.flatnonzero(signs.permutations[0] == column)[0])
            assert abs(scores[spurious] - 3 / 8) < 0.02


def test_bad_settings() -> None:
    with pytest.raises(ValueError, match="dimension must be positive, got 0"):
        RademacherSigns(0, 1)
    with pytest.raises(ValueError, match="n_permutations must be positive, got 0"):
        HadamardSigns(4, 1, 0)
    with pytest.raises(ValueError, match="got 'md5'"):
        sign_hash("md5", 4, 1)
