"""Draws of synthetic users: words by counter, laws as functions of a word, items by user.

Word j of user u is ``mix64(key + (u 2^32 + j + 1) GOLDEN)``, so that 2^32 users of 2^32 draws share
no word. A law that needs more than one word goes on from its word as a stream of its own. What is
computed from words is integers, + - * / and sqrt (:mod:`simulations.populations.arithmetic`): bits
are the same on every machine.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, uint64
from numba.cpython.unsafe.numbers import trailing_zeros

from fedhist.base.arrays import Array, Floats, Integers, Words
from fedhist.base.hashing import GOLDEN, mix
from simulations.populations.arithmetic import (
    CENTRAL,
    central,
    elementwise,
    exp1,
    log1,
    normal1,
    outer,
)

GUIDE = 16, 18
"""Logarithms of the cells of the least and the largest guide into a table: the first for some 1,000
items; at 10^5 the last spares a third of the time. Draws do not depend on it."""


def words(key: np.uint64, first: int, indptr: Integers, width: int = 1) -> Words:
    """Draw ``width`` words for each row of users first, first + 1, ...: (indptr[-1], width)."""
    out = np.empty((int(indptr[-1]), width), dtype=np.uint64)
    _words_kernel(key, np.uint64(first), indptr, out)
    return out


def each(n: int, size: int = 1) -> Integers:
    """Return offsets of n users with equally many rows: (n + 1,) int64."""
    return np.arange(n + 1, dtype=np.int64) * size


@njit(inline="always", cache=True)  # type: ignore[untyped-decorator]
def _start(key: Any, user: Any) -> Any:
    """Return the counter before a user's first word."""
    return uint64(key) + (uint64(user) << uint64(32)) * uint64(GOLDEN)


@njit(inline="always", cache=True)  # type: ignore[untyped-decorator]
def _unit(word: Any) -> Any:
    """Return a number strictly inside (0, 1), of 52 bits."""
    return (float(word >> uint64(12)) + 0.5) * 2.0**-52


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _words_kernel(key: Any, first: Any, indptr: Integers, out: Words) -> None:
    for u in range(len(indptr) - 1):
        counter = _start(key, first + uint64(u))
        for row in range(indptr[u], indptr[u + 1]):
            for j in range(out.shape[1]):
                counter += uint64(GOLDEN)
                out[row, j] = mix(counter)


# -- laws of one number --------------------------------------------------------------------------


def unit(word: Words) -> Floats:
    """Return the middle of one of 2^52 cells of (0, 1)."""
    return elementwise(_units, word)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _units(word: Words, out: Floats) -> None:
    for i in range(len(out)):
        out[i] = _unit(word[i])


def normal_of(drawn: Words) -> Floats:
    """Draw N(0, 1): the quantile at one of 2^52 levels, at most 8.2 in size, to 16 digits."""
    return elementwise(_normals, drawn)


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _normals(drawn: Words, out: Floats) -> None:
    for start in range(0, len(drawn), 1024):
        stop = min(start + 1024, len(drawn))
        for i in range(start, stop):  # without branches, which the compiler vectorises
            out[i] = central(_unit(drawn[i]) - 0.5)
        for i in range(start, stop):
            p = _unit(drawn[i])
            if abs(p - 0.5) > CENTRAL:
                out[i] = outer(p)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _log_gamma(word: Any, shape: Any) -> Any:
    """Draw the logarithm of a Gamma(shape) variable by Marsaglia and Tsang's exact rejection."""
    counter, boost = uint64(word), 0.0
    if shape < 1.0:  # Gamma(a) = Gamma(a + 1) U^(1/a)
        counter += uint64(GOLDEN)
        boost = log1(_unit(mix(counter))) / shape
        shape += 1.0
    d = shape - 1.0 / 3.0
    scale = 1.0 / math.sqrt(9.0 * d)
    while True:
        counter += uint64(GOLDEN)
        x = normal1(_unit(mix(counter)))
        counter += uint64(GOLDEN)
        u = _unit(mix(counter))
        v = 1.0 + scale * x
        if v > 0.0:
            v = v * v * v
            of_v = log1(v)
            if log1(u) < 0.5 * x * x + d * (1.0 - v + of_v):
                return log1(d) + of_v + boost


def gamma_of(word: Words, shape: float | Floats) -> Floats:
    """Draw Gamma(shape), of mean shape."""
    return elementwise(_gammas, word, shape)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _gammas(word: Words, shape: Floats, out: Floats) -> None:
    for i in range(len(out)):
        out[i] = exp1(_log_gamma(word[i], shape[i]))


def beta_of(word: Words, a: float | Floats, b: float | Floats) -> Floats:
    """Draw Beta(a, b), as the share of one of two gamma variables."""
    return elementwise(_betas, word, a, b)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _betas(word: Words, a: Floats, b: Floats, out: Floats) -> None:
    for i in range(len(out)):
        other = mix(word[i] ^ uint64(GOLDEN))
        out[i] = 1.0 / (1.0 + exp1(_log_gamma(other, b[i]) - _log_gamma(word[i], a[i])))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _log_factorial(k: Any) -> Any:
    """Return log k! by Stirling's series from 8 on, to some 1e-12."""
    z, below = k + 1.0, 1.0
    while z < 8.0:
        below *= z
        z += 1.0
    w = 1.0 / (z * z)
    series = (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680)))) / z
    return (z - 0.5) * log1(z) - z + 0.9189385332046728 + series - log1(below)


def poisson_of(word: Words, rate: float | Floats) -> Integers:
    """Draw Poi(rate): by inversion below 10, above by Hoermann's exact rejection (PTRS)."""
    return elementwise(_poissons, word, rate).astype(np.int64)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _poissons(word: Words, rate: Floats, out: Floats) -> None:
    for i in range(len(out)):
        out[i] = _poisson(word[i], rate[i])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _poisson(word: Any, rate: Any) -> Any:
    counter = uint64(word)
    rate = min(rate, 2.0**40)  # callers refuse what is larger than a count can be
    if rate < 10.0:
        u, p, k = _unit(mix(counter + uint64(GOLDEN))), exp1(-rate), 0.0
        while u > p and k < 1000:
            u -= p
            k += 1.0
            p *= rate / k
        return k
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    inside = 0.9277 - 3.6224 / (b - 2.0)
    of_rate = log1(rate)
    while True:
        counter += uint64(GOLDEN)
        u = _unit(mix(counter)) - 0.5
        counter += uint64(GOLDEN)
        v = _unit(mix(counter))
        s = 0.5 - abs(u)
        k = math.floor((2.0 * a / s + b) * u + rate + 0.43)
        if s >= 0.07 and v <= inside:
            return float(k)
        if k < 0 or (s < 0.013 and v > s):
            continue
        here = log1(v * inverse / (a / (s * s) + b))
        if here <= k * of_rate - rate - _log_factorial(k):
            return float(k)


# -- items ---------------------------------------------------------------------------------------


class Choice:
    """A law over d items, as tables: item j has its probability rounded to a multiple of 2^-32.

    Parameters
    ----------
    weights : (d,) float64
        Not negative, in proportion to the probabilities; of the same bits on every machine.

    Attributes
    ----------
    last : (d,) uint32
        The last of 2^32 steps that belongs to each item.
    guide : (2^16 to 2^18,) uint32
        The item of the first step of equal cells: where the search begins.
    """

    def __init__(self, weights: Floats) -> None:
        below = np.cumsum(weights)
        upto = np.floor(below * (2.0**32 / below[-1]) + 0.5)
        upto[-1] = 2.0**32
        self.weights = weights
        self.last = (np.clip(upto, 1.0, 2.0**32) - 1.0).astype(np.uint32)
        bits = min(max(len(weights).bit_length() + 3, GUIDE[0]), GUIDE[1])
        steps = np.arange(1 << bits, dtype=np.uint32) << np.uint32(32 - bits)
        self.guide = np.searchsorted(self.last, steps).astype(np.uint32)

    def of(self, words: Words) -> Array:
        """Return the items at the upper halves of words: uint32, of their shape."""
        out = np.empty(words.shape, dtype=np.uint32)
        _choice_kernel(words.reshape(-1), self.last, self.guide, out.reshape(-1))
        return out


@njit(inline="always", cache=True)  # type: ignore[untyped-decorator]
def _shift(guide: Any) -> Any:
    """Return how many bits of a step lie within a cell."""
    return uint64(32) - uint64(trailing_zeros(uint64(len(guide))))


@njit(inline="always", cache=True)  # type: ignore[untyped-decorator]
def _item(step: Any, last: Any, guide: Any, shift: Any) -> Any:
    """Return the item that one of 2^32 steps belongs to."""
    j = guide[step >> shift]
    while last[j] < step:
        j += np.uint32(1)
    return j


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _choice_kernel(drawn: Words, last: Any, guide: Any, out: Any) -> None:
    shift = _shift(guide)
    for i in range(len(drawn)):
        out[i] = _item(drawn[i] >> uint64(32), last, guide, shift)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def urn_kernel(key: Any, first: Any, indptr: Integers, concentration: float, values: Any) -> None:
    """Make users' independent draws those of own laws, Dirichlet around the common one; in place.

    Draw i stays what it is with probability a / (a + i), and otherwise repeats one of the i
    draws before it: Polya's urn, whose shares are Dirichlet(a p).
    """
    for u in range(len(indptr) - 1):
        _urn(_start(key, first + uint64(u)), concentration, values[indptr[u] : indptr[u + 1]])


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _urn(counter: Any, concentration: float, row: Any) -> None:
    for i in range(1, len(row)):
        counter += uint64(GOLDEN)
        before = _unit(mix(counter)) * (concentration + i)
        if before < i:  # compared as it is: beyond 2^63 there is no integer of it
            row[i] = row[int(before)]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def items_kernel(
    keys: Words,
    first: Any,
    sizes: Integers,
    last: Any,
    guide: Any,
    concentration: float,
    turned: Any,
    indptr: Integers,
    item: Any,
    count: Any,
) -> None:
    """Draw and count users' items, two draws a word.

    Parameters
    ----------
    keys : (2,) uint64
        Of the draws and of the urn.
    first : uint64
        Number of the first user.
    sizes : (n,) int64
        Draws of each user.
    last, guide
        See :class:`Choice`.
    concentration : float
        Of users' own Dirichlet laws; 0: they are alike.
    turned : (n,) bool
        Users for whom item j + 1 changes places with item d - j.
    indptr : (n + 1,) int64
    item, count : (sum of min(sizes, d),) uint32
        Filled up to indptr[n].
    """
    d, shift = len(last), _shift(guide)
    row = np.empty(max(1, sizes.max()) + 1, dtype=np.uint32)
    tally = np.zeros(d, dtype=np.uint32)
    marks = np.zeros((d >> 6) + 1, dtype=np.uint64)  # of items, and of words of marks
    tops = np.zeros((d >> 12) + 1, dtype=np.uint64)
    end = 0
    indptr[0] = 0
    for u in range(len(sizes)):
        size = sizes[u]
        counter = _start(keys[0], first + uint64(u))
        for i in range(uint64(0), uint64(size), uint64(2)):
            counter += uint64(GOLDEN)
            word = mix(counter)
            row[i] = _item(word >> uint64(32), last, guide, shift)
            row[i + uint64(1)] = _item(word & uint64(0xFFFFFFFF), last, guide, shift)
        if concentration > 0.0:
            _urn(_start(keys[1], first + uint64(u)), concentration, row[:size])
        if turned[u]:
            for i in range(size):
                row[i] = d - 1 - row[i]
        for i in range(uint64(0), uint64(size)):  # unsigned, which spares a test an access
            drawn = uint64(row[i])
            tally[drawn] += np.uint32(1)
            high = drawn >> uint64(6)
            marks[high] |= uint64(1) << (drawn & uint64(63))
            tops[high >> uint64(6)] |= uint64(1) << (high & uint64(63))
        for a in range(uint64(0), uint64(len(tops))):
            top = tops[a]
            tops[a] = uint64(0)
            while top:
                b = (a << uint64(6)) + uint64(trailing_zeros(top))
                top &= top - uint64(1)
                mark = marks[b]
                marks[b] = uint64(0)
                while mark:
                    j = (b << uint64(6)) + uint64(trailing_zeros(mark))
                    mark &= mark - uint64(1)
                    item[end] = j
                    count[end] = tally[j]
                    tally[j] = np.uint32(0)
                    end += 1
        indptr[u + 1] = end


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def distinct_kernel(
    key: Any, first: Any, last: Any, guide: Any, weights: Floats, indptr: Integers, item: Any
) -> None:
    """Draw users' items one after the other without replacement; at most d each.

    An item that the user has is drawn again. After d of those the rest is raced for, which has
    the same law: an item of weight w arrives after an exponential time of mean 1 / w. A user's
    items are in no order.
    """
    d, shift = len(last), _shift(guide)
    held = np.zeros(d, dtype=np.bool_)
    arrival = np.empty(d, dtype=np.float64)
    for u in range(len(indptr) - 1):
        start, stop = indptr[u], indptr[u + 1]
        counter = _start(key, first + uint64(u))
        missed, end = 0, start
        while end < stop and missed < d:
            counter += uint64(GOLDEN)
            j = _item(mix(counter) >> uint64(32), last, guide, shift)
            if held[j]:
                missed += 1
            else:
                held[j] = True
                item[end] = j
                end += 1
        if end < stop:
            for j in range(d):
                counter += uint64(GOLDEN)
                waited = -log1(_unit(mix(counter)))
                arrival[j] = waited / weights[j] if weights[j] > 0.0 else 1e308
                if held[j]:
                    arrival[j] = math.inf
            bound = np.sort(arrival)[stop - end - 1]
            for j in range(d):
                if arrival[j] <= bound and end < stop:
                    item[end] = j
                    end += 1
        for i in range(start, stop):
            held[item[i]] = False
