"""Quality of the private streams, their laws, and that nothing depends on the batch."""

from __future__ import annotations

import os
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fedhist.base.hashing import MASK64
from fedhist.users.streams import (
    SeededStreams,
    Streams,
    SystemStreams,
    integer_threshold,
    unit_interval,
)

IDS = np.arange(1, 2001, dtype=np.uint64)


def seeded(n: int = 2000, seed: int = 1, context: str = "query") -> SeededStreams:
    return SeededStreams(IDS[:n] if n <= len(IDS) else np.arange(n, dtype=np.uint64), seed, context)


def both(n: int) -> list[Streams]:
    return [seeded(n), SystemStreams(n)]


@pytest.mark.parametrize(
    "other",
    [
        SeededStreams(IDS, 2, "query"),
        SeededStreams(IDS, 1, "query2"),
        SeededStreams(IDS, 1, "query").substream("x"),
        SeededStreams(IDS, 1, "query").substream("x").substream("x"),
    ],
)
def test_seed_context_and_purpose_separate_streams(other: SeededStreams) -> None:
    """Hamming distance 32 on average: |z| < 5, false alarm 6e-7 each."""
    distance = np.bitwise_count(seeded().words(64) ^ other.words(64))
    assert abs(distance.mean() - 32) < 5 * 4 / np.sqrt(distance.size)


@pytest.mark.parametrize("which", [0, 1])
def test_uniform_law(which: int) -> None:
    """Kolmogorov-Smirnov p > 1e-6; strictly inside (0, 1)."""
    u = both(2000)[which].uniform(50).ravel()
    assert 0 < u.min() < u.max() < 1
    assert stats.kstest(u, "uniform").pvalue > 1e-6


def test_unit_interval_ends() -> None:
    ends = unit_interval(np.array([0, MASK64], dtype=np.uint64))
    assert 0 < ends[0] < 2.0**-52
    assert 1 - 2.0**-52 < ends[1] < 1
    assert Fraction(ends[0]) == 1 - Fraction(ends[1])


@pytest.mark.parametrize("which", [0, 1])
def test_bernoulli_law(which: int) -> None:
    """Four groups of 10,000 users: each |z| < 5, false alarm 5e-6; 0 and 1 are certain."""
    p = np.repeat([0.0, 0.01, 0.3, 0.9, 1.0], 10_000)
    hit = both(50_000)[which].bernoulli(p).reshape(5, -1).sum(axis=1)
    assert (hit[0], hit[4]) == (0, 10_000)
    expected = 10_000 * np.array([0.01, 0.3, 0.9])
    z = (hit[1:4] - expected) / np.sqrt(expected * (1 - np.array([0.01, 0.3, 0.9])))
    assert np.abs(z).max() < 5


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("probability", [0.0, 2.0**-20, 0.1, 0.25, 0.5, 2 / 3, 0.999])
def test_bernoulli_bits_law(which: int, probability: float) -> None:
    """64 positions x 20,000 users: total |z| < 5 and positions' chi^2 p > 1e-7; tails are clear."""
    n, n_bits = 20_000, 70
    packed = both(n)[which].bernoulli_bits(n_bits, probability)
    assert packed.shape == (n, 2)
    bits = np.unpackbits(packed.view(np.uint8), axis=1, bitorder="little")
    assert not bits[:, n_bits:].any()
    ones = bits[:, :n_bits].sum(axis=0).astype(float)
    if probability == 0:
        assert not ones.any()
        return
    mean, variance = n * probability, n * probability * (1 - probability)
    assert abs(ones.sum() - n_bits * mean) < 5 * np.sqrt(n_bits * variance)
    if variance > 100:
        assert stats.chi2.sf(np.sum((ones - mean) ** 2) / variance, n_bits) > 1e-7


PROBABILITIES = [
    0.0,
    5e-324,
    2.0**-64,
    1.5 * 2.0**-64,
    2.0**-12 * (1 + 2.0**-52),
    1e-5,
    0.1,
    np.nextafter(0.5, 0),
    0.5,
    np.nextafter(0.5, 1),
    np.nextafter(1.0, 0),
]


@pytest.mark.parametrize("p", PROBABILITIES)
def test_thresholds_are_rounded_towards_one_half(p: float) -> None:
    """In exact rational arithmetic: never further from 1/2 than asked, and within 2^-64."""
    got, asked, half = Fraction(int(integer_threshold(p)[()]), 2**64), Fraction(p), Fraction(1, 2)
    assert abs(got - asked) < Fraction(1, 2**64)
    assert abs(got - half) <= abs(asked - half)
    assert (got - half) * (asked - half) >= 0


@pytest.mark.parametrize("bad", [-0.1, 1.0, 1.5, np.nan, np.inf])
def test_impossible_probabilities_are_refused(bad: float) -> None:
    calls = [lambda: integer_threshold(bad), lambda: seeded(2).bernoulli_bits(3, bad)]
    if bad != 1.0:
        calls += [lambda s=s: s.bernoulli(np.array([0.5, bad])) for s in both(2)]
    for call in calls:
        with pytest.raises(ValueError, match="probabilities"):
            call()


def test_seeded_draws_do_not_depend_on_the_batch() -> None:
    whole = seeded(100).substream("p")
    sizes = np.arange(100) % 7
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    rows = np.array([3, 50, 99, 0])
    part = SeededStreams(IDS[rows], 1, "query").substream("p")
    assert np.array_equal(part.words(9), whole.words(9)[rows])
    assert np.array_equal(part.words(4), whole.words(9)[rows, :4])
    assert np.array_equal(part.uniform(5), whole.uniform(5)[rows])
    assert np.array_equal(part.bernoulli_bits(70, 0.3), whole.bernoulli_bits(70, 0.3)[rows])
    p = np.linspace(0, 1, 100)
    assert np.array_equal(part.bernoulli(p[rows]), whole.bernoulli(p)[rows])
    ragged = whole.ragged_words(indptr)
    mine = part.ragged_words(np.concatenate(([0], np.cumsum(sizes[rows]))))
    assert np.array_equal(mine, np.concatenate([ragged[indptr[r] : indptr[r + 1]] for r in rows]))


def test_ragged_words_are_the_words() -> None:
    """Draw index k of a user is the same number in both forms."""
    streams = seeded(5)
    indptr = np.array([0, 3, 3, 10, 11, 11])
    ragged, words = streams.ragged_words(indptr), streams.words(7)
    for u in range(5):
        size = indptr[u + 1] - indptr[u]
        assert np.array_equal(ragged[indptr[u] : indptr[u + 1]], words[u, :size])


def test_system_streams_never_repeat() -> None:
    a, b = SystemStreams(100), SystemStreams(100)
    drawn = [
        a.words(4),
        a.words(4),
        b.words(4),
        a.substream("x").words(4),
        a.substream("x").words(4),
    ]
    words = np.concatenate([d.ravel() for d in drawn])
    assert len(np.unique(words)) == words.size


@pytest.mark.parametrize("size", [16, 32])
def test_key_and_nonce_of_system_streams_are_both_fresh(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Streams differ where the system's entropy is used for one of the two alone."""
    fresh = os.urandom
    monkeypatch.setattr("os.urandom", lambda n: fresh(n) if n == size else bytes(n))
    words = np.concatenate([SystemStreams(1).words(4).ravel() for _ in range(8)])
    assert len(np.unique(words)) == words.size
