"""The one door for numbers in arrays and records: taken as they are, or refused with the value."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from fedhist.base.errors import PopulationError

PAST_EXACT = 2.0**53
"""Doubles below it that are whole are one integer each."""


def whole(what: str, values: ArrayLike, stop: int, dtype: DTypeLike = np.int64) -> NDArray[Any]:
    """Read integers of [0, stop), as ``dtype``; whole doubles are integers.

    Raises PopulationError for masked or missing values, fractions, negative numbers, those from
    ``stop`` on, doubles from 2^53 on, and what is no real number.
    """
    x = _plain(what, values)
    if x.ndim != 1:
        raise PopulationError(f"{what} must be one row of numbers, got the shape {x.shape}")
    if x.dtype.kind == "f":
        bad = ~((np.abs(x) < PAST_EXACT) & (x == np.floor(x)))
        if bad.any():
            raise PopulationError(f"{what} must be integers, got {x[bad][0]}")
    if x.size and (x < 0).any():
        raise PopulationError(f"{what} must be non-negative, got {x[x < 0][0]}")
    if x.size and int(x.max()) >= stop:
        raise PopulationError(f"{what} must be below {stop:,}, got {x.max()}")
    return x.astype(dtype, copy=False)


def real(what: str, values: ArrayLike) -> NDArray[np.float64]:
    """Read real numbers as doubles; an infinity becomes NaN, which makes a record unusable."""
    x = _plain(what, values)
    if x.dtype.kind == "f" and np.isnan(x).any():
        raise PopulationError(f"{what} must be numbers, got nan: leave out what is missing")
    return without_infinities(x.astype(np.float64, copy=False))


def without_infinities(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Put NaN for infinities: no range and no ball has a place for them, the same everywhere.

    Inside a protocol the user's record is the null record then, and no truth counts it.
    """
    infinite = np.isinf(x)
    return np.where(infinite, np.nan, x) if infinite.any() else x


def _plain(what: str, values: ArrayLike) -> NDArray[Any]:
    """Return an array of integers or floats; objects are read value by value."""
    if np.ma.isMaskedArray(values) and np.ma.getmaskarray(values).any():
        raise PopulationError(
            f"{what} must be numbers, got a masked one: leave out what is missing"
        )
    try:
        x = np.asarray(values)
        if not isinstance(values, np.ndarray) and (x.dtype.kind not in "iuf" or _has_bool(values)):
            x = np.array(values, dtype=object)  # [2, "3"] is no array of text
    except ValueError as error:  # of several lengths
        raise PopulationError(f"{what} must be one array: {error}") from None
    if x.dtype.kind == "O":
        other = [v for v in x.flat if not isinstance(v, Real) or isinstance(v, bool | np.bool_)]
        if other:
            raise PopulationError(f"{what} must be real numbers, got {other[0]!r}")
        x = np.array(x.tolist()) if x.size else x.astype(np.float64)
    if x.dtype.kind not in "iuf":
        if x.size:
            raise PopulationError(f"{what} must be real numbers below 2^64, got {x.flat[0]!r}")
        x = x.astype(np.float64)
    return x


def _has_bool(values: Any) -> bool:
    """Say whether a sequence holds True or False, which NumPy takes for 1 and 0."""
    return isinstance(values, list | tuple) and bool({bool, np.bool_} & set(map(type, values)))
