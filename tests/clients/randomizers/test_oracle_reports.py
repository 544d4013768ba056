"""Reports of frequency oracles: their law, their independence of the batch, their accuracy."""

import numpy as np

from clients.randomizers.oracle_reports import _take_others


def test_a_word_that_would_make_a_symbol_likelier_is_passed_over() -> None:
    """Of 2^32 halves one too many gives the first of three symbols: the half 0 gives none."""
    words = np.array([[0, 2**64 - 1]], dtype=np.uint64)
    own, need, done = np.array([4]), np.array([1]), np.array([0])
    bits = np.zeros((1, 1), dtype=np.uint64)
    _take_others(words, own, 3, need, done, bits)
    assert bits.tolist() == [[1 << 2]]
