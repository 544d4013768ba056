"""Votes added up as they are drawn, against the reports that each user would send."""

from __future__ import annotations

import numpy as np
import pytest

from clients.randomizers.scalars import add_votes, unary_votes
from fedhist.channels.bits import BitTally, UnaryChannel, n_words
from fedhist.users.streams import SeededStreams, Streams


def slow_sums(votes: np.ndarray, n_bits: int, fold: np.ndarray, n_folds: int) -> np.ndarray:
    bits = np.unpackbits(votes.view(np.uint8), axis=1, count=n_bits, bitorder="little")
    total = np.zeros((n_folds, n_bits), dtype=np.int64)
    np.add.at(total, fold, bits.astype(np.int64))
    return total


def vote_sums(
    wanted: np.ndarray,
    n_bits: int,
    channel: UnaryChannel,
    fold: np.ndarray,
    n_folds: int,
    rng: Streams,
) -> np.ndarray:
    tally = BitTally(n_bits, n_folds)
    add_votes(tally, wanted, channel, fold, rng)
    return tally.totals()


def streams(n: int) -> SeededStreams:
    return SeededStreams(np.arange(n, dtype=np.uint64) * np.uint64(7919), 3, "votes")


@pytest.mark.parametrize("n", [0, 1, 300, 4097])
@pytest.mark.parametrize(("n_bits", "ones"), [(1, 1), (64, 1), (65, 3), (200, 3)])
@pytest.mark.parametrize("n_folds", [1, 7])
def test_the_sums_are_those_of_the_reports(n: int, n_bits: int, ones: int, n_folds: int) -> None:
    rng = np.random.default_rng(n_bits)
    channel = UnaryChannel(1.0, ones=ones)
    wanted = rng.integers(-2, n_bits + 2, (n, ones) if ones > 1 else n)
    fold = rng.integers(0, n_folds, n)
    votes = unary_votes(wanted, n_bits, channel, streams(n))
    assert votes.shape == (n, n_words(n_bits))
    fused = vote_sums(wanted, n_bits, channel, fold, n_folds, streams(n))
    assert fused.dtype == np.int64
    np.testing.assert_array_equal(fused, slow_sums(votes, n_bits, fold, n_folds))
