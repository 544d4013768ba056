"""Packed bits: counting them per position, and checking their tails.

Bit b of a row is ``row[b // 64] >> (b % 64) & 1``; the bits from ``n_bits`` on are zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

from fedhist.mixing import Words

LANES = 64


def n_words(n_bits: int) -> int:
    """Return how many 64-bit words hold n_bits bits."""
    return -(-n_bits // LANES)


def count_bits(bits: Words, n_bits: int) -> NDArray[np.int64]:
    """Count, at every position, the rows whose bit is set.

    Parameters
    ----------
    bits : (n, n_words(n_bits)) uint64
    n_bits : int

    Returns
    -------
    (n_bits,) int64

    Raises
    ------
    ValueError
        If the rows do not have the words that n_bits bits need.

    Notes
    -----
    Cost 3 to 4 ns per word against 21 to 33 for ``np.unpackbits`` and a sum (which is the oracle
    of its test).

    Examples
    --------
    >>> count_bits(np.array([[5], [4]], dtype=np.uint64), 3)
    array([1, 0, 2])
    """
    if bits.ndim != 2 or bits.shape[1] != n_words(n_bits):
        raise ValueError(f"{n_bits} bits need {n_words(n_bits)} words a row, got {bits.shape}")
    counts = np.zeros(bits.shape[1] * LANES, dtype=np.int64)
    _count_kernel(np.ascontiguousarray(bits, dtype=np.uint64), counts)
    return counts[:n_bits]


def tail_is_clear(bits: Words, n_bits: int) -> bool:
    """Say whether every bit from n_bits on is zero."""
    if n_bits % LANES == 0:
        return True
    return not (bits[:, -1] >> np.uint64(n_bits % LANES)).any()


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _count_kernel(bits: Words, counts: NDArray[Any]) -> None:
    for u in range(bits.shape[0]):
        for w in range(bits.shape[1]):
            word = bits[u, w]
            for b in range(64):
                counts[w * 64 + b] += np.int64((word >> uint64(b)) & uint64(1))
