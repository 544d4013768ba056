"""Folds: a public partition that depends on ids alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare

from fedhist.users.cohort import Cohort
from fedhist.users.folds import fold_of, salt_of_folds
from fedhist.users.keys import keyed_hash

IDS = np.arange(40_000, dtype=np.uint64)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 1000, 1 << 20])
def test_the_top_bits_of_a_keyed_hash(k: int) -> None:
    slow = [(int(h) >> 32) * k >> 32 for h in keyed_hash(IDS[:500], 9)]
    assert fold_of(IDS[:500], 9, k).tolist() == slow
    assert max(slow) < k


def fold_sizes(ids: np.ndarray, salt: int, k: int) -> np.ndarray:
    return np.bincount(fold_of(ids, salt, k), minlength=k)


def test_folds_do_not_correlate_with_phases() -> None:
    """Voters and reporters fall into every fold alike; false alarm 1e-6."""
    salt = 5
    voters = Cohort(salt, 0.0, 0.5).contains(IDS)
    sizes = fold_sizes(IDS, salt_of_folds(salt), 16)
    voting = fold_sizes(IDS[voters], salt_of_folds(salt), 16)
    assert chisquare(voting, sizes * voters.mean()).pvalue > 1e-6
    # the very salt of the cohort would put all voters into half of the folds
    assert np.count_nonzero(fold_sizes(IDS[voters], salt, 16)) == 8


@pytest.mark.parametrize("k", [0, -1, 1 << 25])
def test_how_many(k: int) -> None:
    with pytest.raises(ValueError, match=f"got {k}"):
        fold_of(IDS, 1, k)
