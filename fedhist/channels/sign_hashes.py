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
from numba import njit, uint64
from numpy.typing import NDArray

from fedhist.base.arrays import Integers, Words
from fedhist.base.checks import check_count
from fedhist.base.hashing import GOLDEN, mix
from fedhist.channels.bits import n_words
from fedhist.users.keys import keyed_hash
from fedhist.users.streams import LANES


@dataclass(frozen=True)
class RademacherSigns:
    """Independent fair signs at d coordinates, 64 to a word of a stream keyed by the user id.

    The salt is public, and of this purpose alone. Cost of a fold: d signs a user.
    """

    dimension: int
    salt: int

    def __post_init__(self) -> None:
        check_count("dimension", self.dimension)

    def signs(self, ids: Words, columns: Integers) -> NDArray[np.int8]:
        """Return v_ij for pairs of a user id and a coordinate: (k,) and (k,) give (k,) int8."""
        out = np.empty(len(ids), dtype=np.int64)
        pairs = np.arange(len(ids) + 1)
        _word_sums(keyed_hash(ids, self.salt), pairs, np.asarray(columns, dtype=np.int64), out)
        return out.astype(np.int8)

    def vote_sums(self, ids: Words, indptr: Integers, columns: Integers) -> Integers:
        """Add up each user's signs at its own columns, in CSR form: (n,) int64.

        A column that stands as ~j = -1 - j takes the sign of column j off.
        """
        out = np.empty(len(ids), dtype=np.int64)
        _word_sums(keyed_hash(ids, self.salt), indptr, columns, out)
        return out

    def fold(self, ids: Words, z: NDArray[Any]) -> NDArray[Any]:
        """Add v_ij z_i over the users: (d,), int64 for integers; bit-sliced for z of -1 and 1."""
        keys = keyed_hash(ids, self.salt)
        totals = np.zeros(n_words(self.dimension) * LANES, dtype=sum_dtype(z))
        if z.dtype == np.int8 and (np.abs(z) == 1).all():
            _add_units(keys, z, totals)
        else:
            _add_numbers(keys, z.astype(totals.dtype), totals)
        return totals[: self.dimension].copy()


def sum_dtype(z: NDArray[Any]) -> type[np.int64] | type[np.float64]:
    """Return the type in which reports are added up."""
    return np.int64 if z.dtype.kind in "iu" else np.float64


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_numbers(keys: Words, z: Any, totals: Any) -> None:
    """Add sign times report at every coordinate, user by user."""
    for u in range(keys.shape[0]):
        counter = keys[u]
        for w in range(totals.shape[0] // 64):
            counter += uint64(GOLDEN)
            word = mix(counter)
            for b in range(64):
                totals[w * 64 + b] += z[u] if (word >> uint64(b)) & uint64(1) == 0 else -z[u]


@njit(inline="always")  # type: ignore[untyped-decorator]
def _full_add(a: Any, b: Any, c: Any) -> Any:
    """Add three bits in each of 64 lanes: (sum, carry)."""
    half = a ^ b
    return half ^ c, (a & b) | (half & c)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_units(keys: Words, z: NDArray[np.int8], totals: Integers) -> None:
    """Add sign times report for reports -1 and 1: counting set bits, 64 coordinates at a time.

    Seven words become a three-bit count in four full adders; ``planes[p]`` holds bit p of the
    counts of up to 2^10 - 1 users and is emptied before it can overflow.
    """
    n, n_w = keys.shape[0], totals.shape[0] // 64
    planes = np.zeros((10, n_w), dtype=np.uint64)
    step = uint64(GOLDEN)
    key, flip = np.zeros(7, dtype=np.uint64), np.zeros(7, dtype=np.uint64)
    held = 0
    for first in range(0, n, 7):
        m = min(7, n - first)
        for i in range(m):
            key[i] = keys[first + i]
            flip[i] = uint64(0) if z[first + i] > 0 else uint64(0xFFFFFFFFFFFFFFFF)
        if m < 7:
            for w in range(n_w):
                for i in range(m):
                    word = mix(key[i] + uint64(w + 1) * step) ^ flip[i]
                    for b in range(64):
                        totals[w * 64 + b] -= 2 * np.int64((word >> uint64(b)) & uint64(1))
            break
        for w in range(n_w):
            at = uint64(w + 1) * step
            s1, c1 = _full_add(
                mix(key[0] + at) ^ flip[0],
                mix(key[1] + at) ^ flip[1],
                mix(key[2] + at) ^ flip[2],
            )
            s2, c2 = _full_add(
                mix(key[3] + at) ^ flip[3],
                mix(key[4] + at) ^ flip[4],
                mix(key[5] + at) ^ flip[5],
            )
            s3, c3 = _full_add(s1, s2, mix(key[6] + at) ^ flip[6])
            twos, fours = _full_add(c1, c2, c3)
            carry = planes[0, w] & s3
            planes[0, w] ^= s3
            planes[1, w], carry = _full_add(planes[1, w], twos, carry)
            planes[2, w], carry = _full_add(planes[2, w], fours, carry)
            for p in range(3, 10):
                higher = planes[p, w] & carry
                planes[p, w] ^= carry
                carry = higher
        held += 7
        if held + 7 > 1023:
            _empty_planes(planes, totals)
            held = 0
    _empty_planes(planes, totals)
    totals += n


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _empty_planes(planes: Words, totals: Integers) -> None:
    """Take twice the counts of set bits off the totals: a set bit is a -1 instead of a 1."""
    for w in range(planes.shape[1]):
        for b in range(64):
            count = uint64(0)
            for p in range(planes.shape[0]):
                count |= ((planes[p, w] >> uint64(b)) & uint64(1)) << uint64(p)
            totals[w * 64 + b] -= 2 * np.int64(count)
    planes[:] = uint64(0)
