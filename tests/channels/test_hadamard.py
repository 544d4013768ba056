"""The fast transform against SciPy's dense matrix."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import hadamard

from fedhist.channels.hadamard import fwht


@pytest.mark.parametrize("d", [1, 2, 4, 8, 16, 32, 512, 1024])
def test_equals_the_dense_product(d: int) -> None:
    rng = np.random.default_rng(d)
    x = rng.integers(-1000, 1000, (3, 2, d)).astype(np.float64)
    before = x.copy()
    assert np.array_equal(fwht(x), x @ hadamard(d))
    assert np.array_equal(x, before)
    assert np.array_equal(fwht(fwht(x)), d * x)


def test_long_rows() -> None:
    """H of 2^13 as two smaller ones: H_{ab} = H_a (x) H_b; integers, hence exact."""
    x = np.random.default_rng(5).integers(-1000, 1000, (1, 1 << 13)).astype(np.float64)
    square = hadamard(128) @ x.reshape(128, 64) @ hadamard(64)
    assert np.array_equal(fwht(x)[0], square.reshape(-1))


@pytest.mark.parametrize("bad", [[], [1, 2, 3], 5, np.zeros((2, 0)), np.zeros((4, 6))])
def test_lengths_that_are_no_power_of_two(bad: object) -> None:
    with pytest.raises(ValueError, match="power of two"):
        fwht(bad)
