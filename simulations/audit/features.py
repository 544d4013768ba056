"""What is looked at in an answer: every feature turns answers into small integers, to be counted.

Entries of arrays, packed bits, a message's length, the low bits of floats, and a linear score that
is learned. An event is a set of a feature's integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Floats
from fedhist.model.query import Report

Answer = Sequence[Report]
"""What one batch of users sent, a report for each round they were asked in."""
Codes = NDArray[np.int64]

MOST_SHOWN = 4
MOST_LEVELS = 1 << 10
_TAILS = (1e-4, 3e-4, 1e-3, 2e-3)
_QUANTILES = np.concatenate([_TAILS, np.linspace(0, 1, 257)[1:-1], 1 - np.array(_TAILS)])
_CLIP = 1e150


@dataclass(frozen=True)
class Entry:
    """One number of an answer: a column of an array, or the sum of a user's ragged entries.

    ``column`` is None where a user sends one number and no row of them; ``shift``: the bit of an
    unsigned integer that is taken in place of the whole.
    """

    round_index: int
    name: str
    column: int | None
    ragged: bool = False
    shift: int | None = None

    def __str__(self) -> str:
        part = "the sum of " if self.ragged else ""
        part = part if self.shift is None else f"bit {self.shift} of "
        place = "" if self.column is None else f"[{self.column}]"
        return f"{part}{self.name}{place} of message {self.round_index + 1}"

    def of(self, answer: Answer) -> NDArray[Any]:
        """Take it from an answer: (n,)."""
        report = answer[self.round_index]
        if self.ragged:
            return segment_sums(report.ragged[self.name], bounds_of(report))
        a = report.arrays[self.name]
        word = a.reshape(len(a), -1)[:, self.column or 0]
        if self.shift is None:
            return word
        return np.asarray((word >> word.dtype.type(self.shift)) & word.dtype.type(1), np.int64)


@dataclass(frozen=True, eq=False)
class Score:
    """A linear combination of numbers and bits, learned from two samples of answers."""

    parts: tuple[Entry, ...]
    weights: Floats
    limits: Floats

    def __str__(self) -> str:
        """Give the terms and weights where they are few."""
        terms = [
            f"{w:+.6g} * {part}" for part, w in zip(self.parts, self.weights, strict=True) if w
        ]
        few = f", {' '.join(terms)}," if len(terms) <= MOST_SHOWN else f" of {len(terms)} terms"
        return f"a learned linear score{few}"

    def of(self, answer: Answer) -> Floats:
        """Evaluate it: (n,)."""
        out = np.zeros(answer[0].n_users)
        for part, w, (low, high) in zip(self.parts, self.weights, self.limits, strict=True):
            out += w * np.clip(np.nan_to_num(part.of(answer).astype(np.float64)), low, high)
        return out


@dataclass(frozen=True, eq=False)
class Binned:
    """A number by levels (few distinct values) or by intervals between cuts; NaN on its own."""

    value: Entry | Score
    cuts: Floats
    levels: bool

    @property
    def size(self) -> int:
        """The cells, one for a value that was not seen before and one for NaN."""
        return len(self.cuts) + 2

    def code(self, answer: Answer) -> Codes:
        x = self.value.of(answer).astype(np.float64)
        code = np.searchsorted(self.cuts, x, side="left" if self.levels else "right")
        if self.levels:
            there = self.cuts[np.minimum(code, len(self.cuts) - 1)]
            code = np.where(there == x, code, len(self.cuts))
        return np.where(np.isnan(x), len(self.cuts) + 1, code).astype(np.int64)

    def words(self, chosen: NDArray[np.bool_]) -> str:
        k = len(self.cuts)
        if self.levels:
            shown = [f"{self.cuts[i]:.6g}" for i in np.flatnonzero(chosen[:k])]
            shown += ["another value"] * bool(chosen[k])
        else:
            inside = np.concatenate(([False], chosen[: k + 1], [False])).astype(np.int8)
            starts, stops = np.flatnonzero(np.diff(inside) > 0), np.flatnonzero(np.diff(inside) < 0)
            ends = np.concatenate(([-np.inf], self.cuts, [np.inf]))
            shown = [f"[{ends[a]:.6g}, {ends[b]:.6g})" for a, b in zip(starts, stops, strict=True)]
        shown += ["NaN"] * bool(chosen[k + 1])
        return f"{self.value} in {_some(shown)}"


@dataclass(frozen=True)
class Length:
    """How many ragged entries a message holds, the last value for that many or more."""

    round_index: int
    size: int = MOST_LEVELS

    def code(self, answer: Answer) -> Codes:
        lengths = np.diff(bounds_of(answer[self.round_index]))
        return np.minimum(lengths, self.size - 1)

    def words(self, chosen: NDArray[np.bool_]) -> str:
        shown = [str(i) for i in np.flatnonzero(chosen)]
        return f"the length of message {self.round_index + 1} in {_some(shown)}"


@dataclass(frozen=True)
class LowBit:
    """The exponent of the lowest set bit of a float: rounding after a sum leaves a coarse grid."""

    value: Entry
    size: int = 402

    def code(self, answer: Answer) -> Codes:
        """Find the bit; zero and what is not finite on their own."""
        x = self.value.of(answer).astype(np.float64)
        usable = np.isfinite(x) & (x != 0)
        mantissa, exponent = np.frexp(np.where(usable, x, 1.0))
        digits = np.abs(np.ldexp(mantissa, 53)).astype(np.int64)
        lowest = np.log2((digits & -digits).astype(np.float64)).astype(np.int64) + exponent - 53
        return np.where(usable, np.clip(lowest + 200, 0, 400), 401).astype(np.int64)

    def words(self, chosen: NDArray[np.bool_]) -> str:
        shown = [str(i - 200) if i < 401 else "none" for i in np.flatnonzero(chosen)]
        return f"the lowest set bit of {self.value} is 2^e with e in {_some(shown)}"


Feature = Binned | Length | LowBit
"""A function of an answer with few values, ``size``; ``words`` describe a set of them."""


def binned(value: Entry | Score, pool: Floats) -> Binned:
    """Choose levels, or cuts at quantiles, from a sample of the value."""
    x = np.unique(pool[~np.isnan(pool)])
    # values that hardly repeat are not levels, however few were drawn
    if len(x) <= min(MOST_LEVELS, max(len(pool) // 4, 64)):
        return Binned(value, x if len(x) else np.zeros(1), True)
    clipped = np.clip(pool[~np.isnan(pool)], -_CLIP, _CLIP)
    return Binned(value, np.unique(np.quantile(clipped, _QUANTILES)), False)


def bounds_of(report: Report) -> NDArray[np.int64]:
    """Return where each user's ragged entries start and end: (n + 1,)."""
    if report.indptr is None:
        raise ValueError("the report has no ragged entries")
    return report.indptr


def segment_sums(values: NDArray[Any], indptr: NDArray[np.int64]) -> NDArray[Any]:
    """Add up each user's ragged entries."""
    padded = np.append(values, values.dtype.type(0))
    edges = np.stack((indptr[:-1], indptr[1:]), axis=1).reshape(-1)
    sums = np.add.reduceat(padded, edges)[::2]
    return np.asarray(np.where(np.diff(indptr) > 0, sums, values.dtype.type(0)))


def _some(shown: list[str]) -> str:
    more = f", ... ({len(shown)} values)" if len(shown) > 8 else ""
    return "{" + ", ".join(shown[:8]) + more + "}"
