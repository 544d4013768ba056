"""Compiled loops of :mod:`clients.records.functionals`: one walk over the users each.

NaN marks a record without usable data. Comparisons are written so that a NaN passes them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

from clients.bounding.kernels import Columns, place
from fedhist.base.arrays import Floats, Integers


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def coordinates_kernel(
    indptr: Integers,
    values: Floats,
    column: Integers,
    low: float,
    high: float,
    max_items: int,
    out: Floats,
) -> None:
    """Fill every user's mean of one column, each sample clipped to [low, high] first."""
    for u in range(indptr.shape[0] - 1):
        start, stop = indptr[u], indptr[u + 1]
        if max_items > 0:
            stop = start + min(stop - start, max_items)
        c = column[u]
        total = 0.0 if stop > start else np.nan
        for i in range(start, stop):
            x = values[i, c]
            # a NaN passes both comparisons and spreads
            total += low if x < low else (high if x > high else x)
        mean = total / max(stop - start, 1)
        # summation may leave the range by a rounding
        out[u] = low if mean < low else (high if mean > high else mean)


@njit(cache=True, nogil=True, forceinline=True)  # type: ignore[untyped-decorator]
def _sign(row: Any, column: Any) -> Any:
    """H[row, column] by the parity of the common bits; both below 2^32."""
    v = row & column
    v ^= v >> 16
    v ^= v >> 8
    v ^= v >> 4
    v ^= v >> 2
    v ^= v >> 1
    return 1.0 - 2.0 * (v & 1)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _signed_sum(t: Floats, row: int) -> Any:
    """Add up H[row, k] t_k, destroying ``t``, whose length is a power of two.

    Every step halves ``t``, as the transform does for one of its outputs: as many additions as
    entries, in loops that vectorise, in an order that is the same on every machine.
    """
    m = t.shape[0] // 2
    while m > 0:
        low, high = t[:m], t[m : 2 * m]
        if row & m:
            for k in range(m):
                low[k] -= high[k]
        else:
            for k in range(m):
                low[k] += high[k]
        m //= 2
    return t[0]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _shrink(x: Floats, i: int, radius: float) -> tuple[float, float]:
    """Find (a, b) such that a (b x_i) is row i scaled onto the ball; NaN for one not finite.

    The row is no slice: a view of it would cost more than the row.
    """
    d = x.shape[1]
    # four sums at a time, in an order that is the same on every machine
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    whole = d - d % 4
    for k in range(0, whole, 4):
        s0 += x[i, k] * x[i, k]
        s1 += x[i, k + 1] * x[i, k + 1]
        s2 += x[i, k + 2] * x[i, k + 2]
        s3 += x[i, k + 3] * x[i, k + 3]
    for k in range(whole, d):
        s0 += x[i, k] * x[i, k]
    squares = (s0 + s1) + (s2 + s3)
    if 1e-200 < squares < 1e200:
        norm = math.sqrt(squares)
        return (radius / norm if norm > radius else 1.0), 1.0
    most, total = 0.0, 0.0
    for k in range(x.shape[1]):
        total += x[i, k] * 0.0  # NaN where one entry is not finite
        most = max(most, abs(x[i, k]))
    if total != 0.0:
        return np.nan, 1.0
    if most == 0.0:
        return 1.0, 1.0
    squares = 0.0
    for k in range(x.shape[1]):
        squares += (x[i, k] / most) ** 2  # in proportion, so that nothing overflows
    norm = math.sqrt(squares)
    if radius / most < norm:
        return radius / norm, 1.0 / most
    return 1.0, 1.0


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def rotated_kernel(
    indptr: Integers,
    values: Floats,
    fold: Integers,
    signs: Floats,
    radius: float,
    clip: float,
    max_items: int,
    out: Floats,
) -> None:
    """Fill sum_k H[fold, k] signs_k mean_k; ``signs`` (d,) carries the factor of the transform."""
    d = values.shape[1]
    d2 = 1
    while d2 < d:
        d2 *= 2
    mean, scratch = np.empty(d), np.empty(d2)
    for u in range(indptr.shape[0] - 1):
        start, stop = indptr[u], indptr[u + 1]
        if max_items > 0:
            stop = start + min(stop - start, max_items)
        mean[:] = 0.0
        for i in range(start, stop):
            a, b = _shrink(values, i, radius)
            for k in range(d):
                mean[k] += a * (b * values[i, k])
        scratch[d:] = 0.0
        for k in range(d):
            scratch[k] = signs[k] * mean[k]
        z = _signed_sum(scratch, fold[u]) / max(stop - start, 1)
        z = z if stop > start else np.nan
        out[u] = -clip if z < -clip else (clip if z > clip else z)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def fourier_kernel(indptr: Integers, values: Floats, fold: Integers, out: Floats) -> None:
    """Fill every user's mean of a cosine or sine; fold f is coefficient f + 2."""
    for u in range(indptr.shape[0] - 1):
        start, stop = indptr[u], indptr[u + 1]
        j = fold[u] + 2
        frequency, is_cosine = j // 2, j % 2 == 0
        total = 0.0 if stop > start else np.nan
        for i in range(start, stop):
            x = values[i, 0]
            turns = frequency * (0.0 if x < 0.0 else (1.0 if x > 1.0 else x))
            angle = 2.0 * math.pi * (turns - math.floor(turns))  # whole turns drop out exactly
            total += math.cos(angle) if is_cosine else math.sin(angle)
        mean = total / max(stop - start, 1)
        out[u] = -1.0 if mean < -1.0 else (1.0 if mean > 1.0 else mean)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def hadamard_kernel(columns: Columns, row: Integers, out: Floats) -> None:
    """Fill every user's shares of the in-domain items, added with the signs of its row."""
    indptr, item, count, lookup = columns
    # sums run in doubles: exact below 2^53 items, and they never overflow
    for u in range(indptr.shape[0] - 1):
        total, signed = 0.0, 0.0
        for k in range(indptr[u], indptr[u + 1]):
            x = place(lookup, item[k])
            if x >= 0:
                c = float(count[k])
                total += c
                signed += _sign(row[u], x) * c
        mean = signed / total if total > 0.0 else np.nan
        out[u] = -1.0 if mean < -1.0 else (1.0 if mean > 1.0 else mean)
