from __future__ import annotations

import numpy as np
import pytest

from fedhist.bits import count_bits, n_words, tail_is_clear


@pytest.mark.parametrize("n_bits", [1, 63, 64, 65, 200])
@pytest.mark.parametrize("n", [0, 1, 17])
def test_count_bits_is_unpack_and_sum(n: int, n_bits: int) -> None:
    rng = np.random.default_rng(n_bits)
    bits = rng.integers(0, 2**64 - 1, (n, n_words(n_bits)), dtype=np.uint64, endpoint=True)
    slow = np.unpackbits(bits.view(np.uint8), axis=1, count=n_bits, bitorder="little")
    fast = count_bits(bits, n_bits)
    assert fast.dtype == np.int64
    assert np.array_equal(fast, slow.sum(axis=0, dtype=np.int64))
    assert np.array_equal(count_bits(bits[::-1], n_bits), fast)


def test_count_bits_refuses_other_widths() -> None:
    with pytest.raises(ValueError, match="3 words"):
        count_bits(np.zeros((2, 2), dtype=np.uint64), 129)


def test_tail() -> None:
    bits = np.array([[8, 0], [0, 32]], dtype=np.uint64)  # bit 3; bit 69
    assert tail_is_clear(bits, 70)
    assert not tail_is_clear(bits, 69)
    assert tail_is_clear(bits, 128)
