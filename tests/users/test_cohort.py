"""Cohorts and folds: public, disjoint, of the right size, independent over salts, without a gap."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.stats import chisquare

from fedhist.users import cohort as module
from fedhist.users.cohort import Cohort, fold_of, salt_of_folds
from fedhist.users.keys import keyed_hash

IDS = np.arange(100_000, dtype=np.uint64)


def test_shares() -> None:
    """Binomial(100,000, share): |z| < 5, false alarm 6e-7 each."""
    for lo, hi in ((0.0, 0.5), (0.25, 0.3), (0.9, 1.0), (0.0, 1.0)):
        n, share = Cohort(1, lo, hi).contains(IDS).sum(), hi - lo
        assert Cohort(1, lo, hi).share == pytest.approx(share)
        assert abs(n - len(IDS) * share) <= 5 * np.sqrt(len(IDS) * share * (1 - share))


def test_disjoint() -> None:
    a, b, c = Cohort(1, 0.0, 0.5), Cohort(1, 0.5, 1.0), Cohort(2, 0.5, 1.0)
    assert a.disjoint(b)
    assert b.disjoint(a)
    assert not a.disjoint(c)
    assert not a.disjoint(a)
    assert not Cohort(1, 0.0, 0.6).disjoint(b)
    assert not (a.contains(IDS) & b.contains(IDS)).any()


@pytest.mark.parametrize("salts", [(0, 1), (1, 2), (1, 2**62), (5, 2**63 - 1)])
def test_salts_are_independent(salts: tuple[int, int]) -> None:
    """chi^2 of the 8 x 8 table of two salts' eighths, p > 1e-6."""
    table = np.zeros((8, 8))
    eighths = [
        np.argmax([Cohort(s, k / 8, (k + 1) / 8).contains(IDS) for k in range(8)], axis=0)
        for s in salts
    ]
    np.add.at(table, tuple(eighths), 1)
    assert stats.chi2_contingency(table).pvalue > 1e-6


def test_no_gap_at_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes at, below and above each bound belong to exactly one neighbour."""
    for x in (2.0**-64, 1 / 3, 0.5, np.nextafter(0.5, 1), np.nextafter(1.0, 0)):
        bound = int(np.ldexp(x, 64))
        hashes = np.array([0, bound - 1, bound, min(bound + 1, 2**64 - 1), 2**64 - 1], np.uint64)
        monkeypatch.setattr(module, "keyed_hash", lambda ids, salt, h=hashes: h)
        below, above = Cohort(1, 0.0, x).contains(IDS[:5]), Cohort(1, x, 1.0).contains(IDS[:5])
        assert (below ^ above).all()
        assert below.tolist() == [bool(h < bound) for h in hashes.tolist()]


FEW = np.arange(40_000, dtype=np.uint64)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 1000, 1 << 20])
def test_the_top_bits_of_a_keyed_hash(k: int) -> None:
    slow = [(int(h) >> 32) * k >> 32 for h in keyed_hash(FEW[:500], 9)]
    assert fold_of(FEW[:500], 9, k).tolist() == slow
    assert max(slow) < k


def fold_sizes(ids: np.ndarray, salt: int, k: int) -> np.ndarray:
    return np.bincount(fold_of(ids, salt, k), minlength=k)


def test_folds_do_not_correlate_with_phases() -> None:
    """Voters and reporters fall into every fold alike; false alarm 1e-6."""
    salt = 5
    voters = Cohort(salt, 0.0, 0.5).contains(FEW)
    sizes = fold_sizes(FEW, salt_of_folds(salt), 16)
    voting = fold_sizes(FEW[voters], salt_of_folds(salt), 16)
    assert chisquare(voting, sizes * voters.mean()).pvalue > 1e-6
    # the very salt of the cohort would put all voters into half of the folds
    assert np.count_nonzero(fold_sizes(FEW[voters], salt, 16)) == 8


@pytest.mark.parametrize("k", [0, -1, 1 << 25])
def test_how_many(k: int) -> None:
    with pytest.raises(ValueError, match=f"got {k}"):
        fold_of(FEW, 1, k)
