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

    x is (..., d), d a power of two; so is the result, float64, and ``fwht(fwht(x)) == d * x``.

    Examples
    --------
    >>> fwht([1.0, 2.0, 3.0, 4.0])
    array([10., -2., -4.,  0.])
    """
    rows = np.asarray(x, dtype=np.float64, order="C")
    d = rows.shape[-1] if rows.ndim else 0
    if d == 0 or d & (d - 1):
        raise ValueError(f"the transform needs a power of two, got length {d}")
    out = np.empty(rows.shape)
    _fwht_kernel(rows.ravel(), out.ravel(), d)
    return out


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _by_four(x: Any, y: Any) -> None:
    """Transform the two leading bits of the index, and turn them into the two trailing ones."""
    q = x.shape[0] // 4
    for i in range(q):
        a, b, c, e = x[i], x[i + q], x[i + 2 * q], x[i + 3 * q]
        s, t = a + c, a - c
        u, v = b + e, b - e
        y[4 * i], y[4 * i + 1], y[4 * i + 2], y[4 * i + 3] = s + u, s - u, t + v, t - v


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _by_two(x: Any, y: Any) -> None:
    """Do the same with one leading bit."""
    q = x.shape[0] // 2
    for i in range(q):
        a, b = x[i], x[i + q]
        y[2 * i], y[2 * i + 1] = a + b, a - b


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _fwht_kernel(rows: Any, out: Any, d: int) -> None:
    """Fill ``out`` with the transforms of ``rows``: both hold rows of length d, end to end.

    Passes of constant geometry (Pease 1968): every one is the same long loop, which the compiler
    vectorises, where the first passes in place would walk in steps of 1 and 4. After log2(d)
    bits every index is where it was.
    """
    n_bits = 0
    while 1 << n_bits < d:
        n_bits += 1
    n_passes = (n_bits + 1) // 2
    scratch = np.empty(d)
    for first in range(0, rows.shape[0], d):
        x, end = rows[first : first + d], out[first : first + d]
        for k in range(n_passes):
            y = scratch if (n_passes - k) % 2 == 0 else end  # the last pass fills the output
            if k == 0 and n_bits % 2:
                _by_two(x, y)
            else:
                _by_four(x, y)
            x = y
        if d == 1:
            end[:] = x
