"""The compiled loop that sets a user's bits, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from clients.bounding.contribution import flip_at
from fedhist.channels.bits import n_words


@pytest.mark.parametrize("n_bits", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("most", [1, 3])
def test_flips_the_first_valid_positions_once(n_bits: int, most: int) -> None:
    rng = np.random.default_rng(n_bits)
    wanted = rng.integers(-3, n_bits + 3, (500, 5))
    noise = rng.integers(0, 1 << 63, (500, n_words(n_bits)), dtype=np.uint64)
    valid = (wanted >= 0) & (wanted < n_bits)
    valid &= np.cumsum(valid, axis=1) <= most
    rows, columns = np.nonzero(valid)
    truth = np.zeros_like(noise)
    places = wanted[rows, columns]
    mask = np.uint64(1) << (places & 63).astype(np.uint64)
    np.bitwise_or.at(truth, (rows, places >> 6), mask)
    bits = noise.copy()
    flip_at(wanted, n_bits, most, bits)
    np.testing.assert_array_equal(bits, noise ^ truth)
