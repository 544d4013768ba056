from __future__ import annotations

import numpy as np
import pytest

from fedhist.channels.sign_hashes import RademacherSigns


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
