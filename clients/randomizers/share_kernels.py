"""A node's share of noise in the simulated grade: compiled, with no generator to set up.

A simulation draws a share for every node of a round, so that a draw should cost nanoseconds. The
words are those of :func:`fedhist.base.hashing.counter_words`, from a key that names seed, question
and node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numba import njit, uint64
from numpy.typing import NDArray

from fedhist.base.arrays import Floats, Integers
from fedhist.base.hashing import GOLDEN, mix

REACH = 9.3
"""Of the table, in stds: beyond it lies less than 2^-66."""

CELLS = 1 << 8
"""Cells per std, at least, where a cell has several integers: 1 proposal in 200 is refused."""

GUIDE_BITS = 12
WIDEST = float(1 << 18)
"""Largest std with a table; it is made from every integer that it covers."""


def laplace_share(key: int, entries: int, scale: float, honest: int) -> Integers:
    """Draw differences of negative binomials of shape 1 / honest, at the cost of the jumps.

    A negative binomial is a Poisson number of logarithmic jumps: -ln(1 - p) / honest of them on
    average, so that almost all shares are 0. The jumps of all entries are one Poisson process.

    Parameters
    ----------
    key : int
        In [0, 2^64).
    entries : int
    scale : float
        Of the sum of ``honest`` shares.
    honest : int

    Returns
    -------
    (entries,) int64
    """
    out = np.zeros(entries, dtype=np.int64)
    log_stop = math.log(-math.expm1(-1 / scale))
    if log_stop < 0:  # else no draw differs from 0
        _jumps(np.uint64(key), log_stop, honest / -log_stop, out)
    return out


def gaussian_share(key: int, entries: int, std: float) -> Integers:
    """Draw integers with P(k) ~ exp(-k^2 / (2 std^2)), by inversion of a table: (entries,) int64.

    Parameters
    ----------
    key : int
        In [0, 2^64).
    entries : int
    std : float
        At most :data:`WIDEST`.
    """
    table = gaussian_table(std)
    out = np.empty(entries, dtype=np.int64)
    _inverted(np.uint64(key), table.upper, table.guide, table.shift, 0.5 / (std * std), out)
    return out


@dataclass(frozen=True, eq=False)
class GaussianTable:
    """Law of |Z| over cells of 2^shift integers.

    Attributes
    ----------
    upper : (c,) float64
        P(|Z| lies in this cell or before); the last is 1.
    guide : (2^12,) int64
        First cell that a uniform number with these leading bits can fall into.
    shift : int
    """

    upper: Floats
    guide: Integers
    shift: int


@lru_cache(maxsize=8)
def gaussian_table(std: float) -> GaussianTable:
    """Tabulate the law of |Z| for a std of at most :data:`WIDEST`."""
    shift = max(0, math.floor(math.log2(std / CELLS)))
    n_cells = math.ceil(REACH * std) // (1 << shift) + 1
    mass = np.exp(-0.5 * (np.arange(n_cells << shift) / std) ** 2)
    mass[1:] *= 2
    cells = mass.reshape(n_cells, -1).sum(axis=1)
    upper = np.cumsum(cells)
    upper /= upper[-1]
    starts = np.arange(1 << GUIDE_BITS) / (1 << GUIDE_BITS)
    return GaussianTable(upper, np.searchsorted(upper, starts, side="right"), shift)


@njit(inline="always", cache=True)  # type: ignore[untyped-decorator]
def _unit(word: Any) -> Any:
    """Map a word into (0, 1], 53 bits."""
    return (np.float64(word >> uint64(11)) + 1.0) * 2.0**-53


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _jumps(key: np.uint64, log_stop: float, gap: float, out: Integers) -> None:
    """Walk over X and Y of every entry, a jump each ``gap`` of them on average."""
    counter, at, end = key, 0.0, 2.0 * out.shape[0]
    while True:
        counter += uint64(GOLDEN)
        at -= gap * math.log(_unit(mix(counter)))
        if at >= end:
            return
        counter += uint64(GOLDEN)
        stop = math.exp(log_stop * _unit(mix(counter)))
        counter += uint64(GOLDEN)
        size = np.int64(1)
        if stop < 1.0:
            size += np.int64(math.floor(math.log(_unit(mix(counter))) / math.log1p(-stop)))
        slot = np.int64(at)
        out[slot >> 1] += -size if slot & 1 else size


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _inverted(
    key: np.uint64,
    upper: Floats,
    guide: NDArray[np.int64],
    shift: int,
    curve: float,
    out: Integers,
) -> None:
    """Find each draw's cell, then an integer of it: uniform, kept as often as its mass says."""
    counter = key
    for i in range(out.shape[0]):
        counter += uint64(GOLDEN)
        word = mix(counter)
        u = np.float64(word >> uint64(11)) * 2.0**-53
        cell = guide[word >> uint64(52)]
        while u >= upper[cell]:
            cell += 1
        k = cell
        if shift:
            first = cell << shift
            low = np.float64(first)
            while True:
                counter += uint64(GOLDEN)
                inner = mix(counter)
                k = first + np.int64(inner & uint64((1 << shift) - 1))
                x = np.float64(k)
                chance = math.exp((low * low - x * x) * curve)
                if k == 0:  # half as likely as the integers beside it, which stand for two signs
                    chance = 0.5
                counter += uint64(GOLDEN)
                if _unit(mix(counter)) <= chance:
                    break
        out[i] = -k if word & uint64(1) else k
