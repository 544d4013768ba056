"""The fast Walsh-Hadamard transform, in Sylvester (natural) order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray


def next_power_of_two(n: int) -> int:
    """Smallest power of two that is at least n (1 for n <= 1)."""
    return 1 << max(0, n - 1).bit_length()


def fwht(x: ArrayLike) -> NDArray[np.float64]:
    """Multiply each row by the unnormalised Hadamard matrix H[j, k] = (-1)^popcount(j & k).

    Parameters
    ----------
    x : (..., d) real, d a power of two

    Returns
    -------
    (..., d) float64; ``fwht(fwht(x)) == d * x``

    Raises
    ------
    ValueError
        If d is not a power of two.

    Examples
    --------
    >>> fwht([1.0, 2.0, 3.0, 4.0])
    array([10., -2., -4.,  0.])
    """
    out = np.array(x, dtype=np.float64, order="C")
    d = out.shape[-1] if out.ndim else 0
    if d == 0 or d & (d - 1):
        raise ValueError(f"the transform needs a power of two, got length {d}")
    _fwht_kernel(out.reshape(-1, d))
    return out


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _fwht_kernel(rows: Any) -> None:
    """Transform every row in place: radix 4, then one radix-2 pass where log2(d) is odd."""
    d = rows.shape[1]
    for r in range(rows.shape[0]):
        x = rows[r]
        h = 1
        while 4 * h <= d:
            for i in range(0, d, 4 * h):
                for j in range(i, i + h):
                    a, b = x[j], x[j + h]
                    c, e = x[j + 2 * h], x[j + 3 * h]
                    s, t = a + b, a - b
                    u, v = c + e, c - e
                    x[j], x[j + h] = s + u, t + v
                    x[j + 2 * h], x[j + 3 * h] = s - u, t - v
            h *= 4
        if h < d:
            for j in range(h):
                a, b = x[j], x[j + h]
                x[j], x[j + h] = a + b, a - b


def hadamard_entry(row: ArrayLike, column: ArrayLike) -> NDArray[np.int64]:
    """Return H[row, column] in {-1, +1}, without a matrix; broadcasts."""
    r, c = np.asarray(row, dtype=np.uint64), np.asarray(column, dtype=np.uint64)
    return np.asarray(1 - 2 * (np.bitwise_count(r & c) & 1).astype(np.int64))
