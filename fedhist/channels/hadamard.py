"""The fast Walsh-Hadamard transform, in Sylvester (natural) order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.lazy import kernel


def fwht(x: ArrayLike) -> NDArray[np.float64]:
    """Multiply each row by the unnormalised Hadamard matrix H[j, k] = (-1)^popcount(j & k).

    x is (..., d), d a power of two; so is the result, float64, and ``fwht(fwht(x)) == d * x``.

    >>> fwht([1.0, 2.0, 3.0, 4.0])
    array([10., -2., -4.,  0.])
    """
    rows = np.asarray(x, dtype=np.float64, order="C")
    d = rows.shape[-1] if rows.ndim else 0
    if d == 0 or d & (d - 1):
        raise ValueError(f"the transform needs a power of two, got length {d}")
    out = rows.copy()
    _transform(out.reshape(-1, d))
    return out


@kernel()
def _transform(rows: Any) -> None:
    """Transform rows in place, one bit of the index after the other."""
    d, half = rows.shape[1], 1
    while half < d:
        for x in rows:
            for first in range(0, d, 2 * half):
                for i in range(first, first + half):
                    a, b = x[i], x[i + half]
                    x[i], x[i + half] = a + b, a - b
        half *= 2
