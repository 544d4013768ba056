"""Public signs v_ij, one per user and coordinate, that both halves regenerate from the user id.

A user hashes its vote set to the sum of its signs there; the server multiplies what the user
reports by the same signs again, so that a score per coordinate comes out of one number per user.
The signs depend on public numbers alone: user id, salt and dimension.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 4.1.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from fedhist.base.arrays import Integers, Words
from fedhist.base.hashing import GOLDEN, mix
from fedhist.base.lazy import kernel
from fedhist.channels.bits import n_words
from fedhist.users.keys import keyed_hash


@dataclass(frozen=True)
class RademacherSigns:
    """Independent fair signs at d coordinates, 64 to a word of a stream keyed by the user id."""

    dimension: int
    salt: int

    def vote_sums(self, ids: Words, indptr: Integers, columns: Integers) -> Integers:
        """Add up each user's signs at its own columns, in CSR form: (n,) int64.

        A column that stands as ~j = -1 - j takes the sign of column j off.
        """
        out = np.empty(len(ids), dtype=np.int64)
        _word_sums(keyed_hash(ids, self.salt), indptr, columns, out)
        return out

    def fold(self, ids: Words, z: NDArray[Any]) -> NDArray[Any]:
        """Add v_ij z_i over the users: (d,), int64 for integers."""
        keys = keyed_hash(ids, self.salt)
        totals = np.zeros(n_words(self.dimension) * 64, dtype=sum_dtype(z))
        _add_signed(keys, z.astype(totals.dtype), totals)
        return totals[: self.dimension].copy()


def sum_dtype(z: NDArray[Any]) -> type[np.int64] | type[np.float64]:
    """Return the type in which reports are added up."""
    return np.int64 if z.dtype.kind in "iu" else np.float64


@kernel()
def _word_sums(keys: Words, indptr: Integers, columns: Integers, out: Integers) -> None:
    """Sum the signs of each user's own columns; only the words that hold them are made."""
    for u in range(keys.shape[0]):
        total, last, word = np.int64(0), np.int64(-1), uint64(0)
        for k in range(indptr[u], indptr[u + 1]):
            column = columns[k] if columns[k] >= 0 else ~columns[k]
            w = column >> 6
            if w != last:
                word = mix(keys[u] + uint64(w + 1) * uint64(GOLDEN))
                last = w
            sign = 1 - 2 * np.int64((word >> uint64(column & 63)) & uint64(1))
            total += sign if columns[k] >= 0 else -sign
        out[u] = total


@kernel()
def _add_signed(keys: Words, z: Any, totals: Any) -> None:
    """Add sign times report at every coordinate, user by user."""
    for u in range(keys.shape[0]):
        counter = keys[u]
        for w in range(totals.shape[0] // 64):
            counter += uint64(GOLDEN)
            word = mix(counter)
            for b in range(64):
                totals[w * 64 + b] += z[u] if (word >> uint64(b)) & uint64(1) == 0 else -z[u]
