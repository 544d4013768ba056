"""Draws of synthetic users: words by counter, and laws as functions of a word.

Word j of user u is ``mix64(key + (u 2^32 + j + 1) GOLDEN)``, so that 2^32 users of 2^32 draws share
no word. A law that needs more than one word goes on from its word as a stream of its own. What is
computed from words is integers, + - * / and sqrt (:mod:`simulations.populations.arithmetic`): bits
are the same on every machine.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import int64, njit, uint64

from fedhist.base.arrays import Floats, Integers, Words
from fedhist.base.hashing import GOLDEN, MASK64, mix, unit1
from simulations.populations.arithmetic import (
    CENTRAL,
    FAR,
    central,
    elementwise,
    exp1,
    log1,
    normal1,
    tail,
    tail_depth,
)

SIDE_BY_SIDE = 1024
"""Users, or numbers, that go through one step of a computation before the next."""


def words(key: np.uint64, first: int, indptr: Integers, width: int = 1, *, after: int = 0) -> Words:
    """Draw ``width`` words for each row of users first, first + 1, ...: (indptr[-1], width).

    A user's first ``after`` words are left out.
    """
    out = np.empty((int(indptr[-1]), width), dtype=np.uint64)
    begin = np.uint64((int(key) + after * GOLDEN) & MASK64)
    _words_kernel(begin, np.uint64(first), indptr, width, out.reshape(-1))
    return out


def each(n: int, size: int = 1) -> Integers:
    """Return offsets of n users with equally many rows: (n + 1,) int64."""
    return np.arange(n + 1, dtype=np.int64) * size


@njit(inline="always", cache=True)  # type: ignore[untyped-decorator]
def start_of(key: Any, user: Any) -> Any:
    """Return the counter before a user's first word."""
    return uint64(key) + (uint64(user) << uint64(32)) * uint64(GOLDEN)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _words_kernel(key: Any, first: Any, indptr: Integers, width: int, out: Words) -> None:
    n, single = uint64(len(indptr) - 1), True
    for u in range(n):
        single &= indptr[u + uint64(1)] * width == int64(u) + 1
    if single:  # a loop over users, which is vectorised as that over a user's words is
        for u in range(n):
            out[u] = mix(start_of(key, first + u) + uint64(GOLDEN))
        return
    for u in range(n):
        begin, stop = uint64(indptr[u] * width), uint64(indptr[u + uint64(1)] * width)
        counter = start_of(key, first + u)
        for i in range(stop - begin):
            out[begin + i] = mix(counter + (i + uint64(1)) * uint64(GOLDEN))


# -- laws of one number --------------------------------------------------------------------------


def unit(word: Words) -> Floats:
    """Return the middle of one of 2^52 cells of (0, 1)."""
    return elementwise(_units, word)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _units(word: Words, out: Floats) -> None:
    for i in range(len(out)):
        out[i] = unit1(word[i])


def normal_of(drawn: Words) -> Floats:
    """Draw N(0, 1): the quantile at one of 2^52 levels, at most 8.2 in size, to 16 digits."""
    return elementwise(_normals, drawn)


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _normals(drawn: Words, out: Floats) -> None:
    lane = np.empty(SIDE_BY_SIDE, dtype=np.int64)
    depth = np.empty(SIDE_BY_SIDE, dtype=np.float64)
    for start in range(0, len(drawn), SIDE_BY_SIDE):
        stop = min(start + SIDE_BY_SIDE, len(drawn))
        _some_normals(drawn[start:stop], lane, depth, out[start:stop])


@njit(cache=True, nogil=True, error_model="numpy")  # type: ignore[untyped-decorator]
def _some_normals(drawn: Words, lane: Integers, depth: Floats, out: Floats) -> None:
    # loops without branches, which are vectorised: for all, then for the 15 % in the tails
    for i in range(len(drawn)):
        out[i] = central(unit1(drawn[i]) - 0.5)
    n = uint64(0)
    for i in range(len(drawn)):
        lane[n] = i
        n += uint64(abs(unit1(drawn[i]) - 0.5) > CENTRAL)
    for k in range(n):
        depth[k] = unit1(drawn[lane[k]])
    for k in range(n):
        depth[k] = tail_depth(depth[k])
    far = False
    for k in range(n):
        far |= depth[k] > FAR
        depth[k] = tail(depth[k])
    for k in range(n):
        i = uint64(lane[k])
        out[i] = depth[k] if drawn[i] >> uint64(63) else -depth[k]
    if far:
        for i in range(len(drawn)):
            out[i] = normal1(unit1(drawn[i]))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _log_gamma(word: Any, shape: Any) -> Any:
    """Draw the logarithm of a Gamma(shape) variable by Marsaglia and Tsang's exact rejection."""
    counter, boost = uint64(word), 0.0
    if shape < 1.0:  # Gamma(a) = Gamma(a + 1) U^(1/a)
        counter += uint64(GOLDEN)
        boost = log1(unit1(mix(counter))) / shape
        shape += 1.0
    d = shape - 1.0 / 3.0
    scale = 1.0 / math.sqrt(9.0 * d)
    while True:
        counter += uint64(GOLDEN)
        x = normal1(unit1(mix(counter)))
        counter += uint64(GOLDEN)
        u = unit1(mix(counter))
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
        u, p, k = unit1(mix(counter + uint64(GOLDEN))), exp1(-rate), 0.0
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
        u = unit1(mix(counter)) - 0.5
        counter += uint64(GOLDEN)
        v = unit1(mix(counter))
        s = 0.5 - abs(u)
        k = math.floor((2.0 * a / s + b) * u + rate + 0.43)
        if s >= 0.07 and v <= inside:
            return float(k)
        if k < 0 or (s < 0.013 and v > s):
            continue
        here = log1(v * inverse / (a / (s * s) + b))
        if here <= k * of_rate - rate - _log_factorial(k):
            return float(k)
