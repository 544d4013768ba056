"""Reports of frequency oracles: their law, their independence of the batch, their accuracy."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from clients.randomizers.oracle_reports import _take_others, report_symbols
from fedhist.channels.layers import WORD_VALUES
from fedhist.channels.oracles import SymbolOracle, oracle_channel
from tests.running import coins, p_value


@pytest.mark.parametrize("kind", ["krr", "hadamard", "projective"])
@pytest.mark.parametrize("symbol", [-1, 0, 3])
def test_symbols_have_the_enumerated_law(kind: str, symbol: int) -> None:
    """Chi-squared of 60,000 reports; 9 cases at 1e-5 each."""
    n, channel = 60_000, oracle_channel(kind, 1.2, 5)
    assert isinstance(channel, SymbolOracle)
    c = channel.layers.chosen
    own = np.full(c, symbol % 6)
    weights = channel.layers.weights(channel.members(own, np.arange(c))[None])[0]
    reports = report_symbols(np.full(n, symbol), channel, coins(n, symbol + 5))
    assert reports.dtype == np.uint32
    result = np.bincount(reports, minlength=channel.size)
    expected = n * np.array([int(w) / WORD_VALUES for w in weights])
    assert result[expected <= 1e-6].sum() == 0
    assert p_value(result, expected) > 1e-5


@pytest.mark.parametrize("k", [4, 6])
@pytest.mark.parametrize("symbol", [-1, 0, 3])
def test_subsets_have_the_enumerated_law(k: int, symbol: int) -> None:
    """Chi-squared over all subsets of w; 6 cases at 1e-5 each."""
    n, channel = 60_000, oracle_channel("subset", 0.4, k)
    w, own = channel.chosen, symbol % (k + 1)  # type: ignore[attr-defined]
    assert w >= 2
    bits = report_symbols(np.full(n, symbol), channel, coins(n, k))[:, 0]
    assert (np.bitwise_count(bits) == w).all()
    held = list(combinations(range(k + 1), w))
    result = np.array([np.count_nonzero(bits == sum(1 << j for j in s)) for s in held])
    p = channel.p
    each = {True: p / math.comb(k, w - 1), False: (1 - p) / math.comb(k, w)}
    expected = n * np.array([each[own in s] for s in held])
    assert expected.sum() == pytest.approx(n)
    assert p_value(result, expected) > 1e-5


def test_a_word_that_would_make_a_symbol_likelier_is_passed_over() -> None:
    """Of 2^32 halves one too many gives the first of three symbols: the half 0 gives none."""
    words = np.array([[0, 2**64 - 1]], dtype=np.uint64)
    own, need, done = np.array([4]), np.array([1]), np.array([0])
    bits = np.zeros((1, 1), dtype=np.uint64)
    _take_others(words, own, 3, need, done, bits)
    assert bits.tolist() == [[1 << 2]]
