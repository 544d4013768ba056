"""The one name of a value: users and items as text, by value and not by the type that holds it.

A whole double is the integer, a decimal has no trailing zeros, a time has the same digits in every
unit, a time with a zone is written in UTC with a Z. Nothing is a name: null, NaN and empty text.
Doubles from 2^53 on stand for several integers each, so they name nobody; as do shorter floats from
2^24 or 2^11 on, infinities, dates outside the years 1 to 9999, and times of day with a zone.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedhist.base.checks import shown
from fedhist.base.errors import PopulationError

INEXACT = (
    "beyond 2^53 (2^24 and 2^11 in shorter floats; the years 1 to 9999) values are not told apart: "
    "write them as text"
)
TAKEN = "users and items are text, numbers, booleans, dates or times"
ABSENT = frozenset(["NAType", "NaTType", "MaskedConstant"])
"""Classes of pandas and NumPy whose one object stands for no value."""
FIRST_DAY, LAST_DAY = -719_162, 2_932_896
"""1 January of the year 1 and 31 December 9999, in days since 1970."""
FLOATS = {"Float16": 2.0**11, "Float32": 2.0**24, "Float64": 2.0**53}
"""Below which a type of floats holds every integer."""
A_DAY = {"ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def named(column: str, dtype: pl.DataType) -> tuple[pl.Expr, pl.Expr]:
    """Return the names of a column's values, null where there is none, and which cannot be told."""
    x = pl.col(column)
    exact = pl.lit(False)
    if dtype.is_float():
        return _of_floats(x, FLOATS[str(dtype)])
    if dtype.is_decimal():
        text = x.cast(pl.String)
        short = text.str.strip_chars_end("0").str.strip_chars_end(".")
        return pl.when(text.str.contains(".", literal=True)).then(short).otherwise(text), exact
    if isinstance(dtype, pl.Datetime):
        utc = x if dtype.time_zone is None else x.dt.convert_time_zone("UTC")
        zone = "" if dtype.time_zone is None else "Z"
        day = x.to_physical() // A_DAY[dtype.time_unit]
        fits = day.is_between(FIRST_DAY, LAST_DAY)
        return pl.when(fits).then(utc).dt.strftime(f"%Y-%m-%dT%H:%M:%S%.f{zone}"), ~fits.fill_null(
            True
        )
    if dtype == pl.Date:
        fits = x.to_physical().is_between(FIRST_DAY, LAST_DAY)
        return pl.when(fits).then(x).dt.strftime("%Y-%m-%d"), ~fits.fill_null(True)
    if dtype == pl.Time:
        return x.dt.strftime("%H:%M:%S%.f"), exact
    if dtype.is_integer() or dtype in (pl.Boolean, pl.Null):
        return x.cast(pl.String), exact
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        text = x.cast(pl.String)
        return pl.when(text != "").then(text), exact
    hint = "; write bytes and UUIDs as text" if dtype == pl.Binary else ""
    raise PopulationError(f"column {column!r} is of type {dtype}: {TAKEN}{hint}")


def _of_floats(x: pl.Expr, limit: float) -> tuple[pl.Expr, pl.Expr]:
    """Name floats of a type that holds every integer below the limit."""
    x = x.cast(pl.Float64).fill_nan(None)
    inside = x.abs() < limit
    whole = pl.when(inside & (x == x.floor())).then(x).cast(pl.Int64, strict=False)
    return pl.when(inside).then(
        pl.coalesce(whole.cast(pl.String), x.cast(pl.String))
    ), ~inside.fill_null(True)


def kind(dtype: pl.DataType) -> str:
    """Say what sort of names a type gives, "" for none: files of one table must agree on it."""
    if dtype == pl.Null:
        return ""
    if dtype.is_float() and dtype != pl.Float64:
        return str(dtype)  # .1 is another number there than in doubles
    if dtype.is_float() or dtype.is_decimal():
        return "number"
    if isinstance(dtype, pl.Datetime):
        return "time" if dtype.time_zone is None else "time with a zone"
    if dtype in (pl.Date, pl.Time, pl.Boolean):
        return str(dtype).lower()
    return "whole number" if dtype.is_integer() else "text"


def agree(one: str, other: str) -> bool:
    """Say whether names of two kinds are the same where the values are."""
    together = {one, other} - {""}
    others = together - {"whole number"}  # each of these has the integers
    return len(together) <= 1 or (
        len(others) == 1 and others <= {"number", "Float16", "Float32", "text"}
    )


def names_of_objects(column: str, values: Sequence[Any]) -> pl.Series:
    """Name Python objects, value by value, as :func:`named` names columns of one type."""
    names: list[str | None] = [None] * len(values)
    rows_of: dict[tuple[type, bool], list[int]] = {}
    for row, v in enumerate(values):
        if not _absent(v):
            rows_of.setdefault((type(v), getattr(v, "tzinfo", None) is not None), []).append(row)
    for (cls, zoned), rows in rows_of.items():
        try:
            some = _column(cls, [values[row] for row in rows], zoned)
            text, unclear = named("x", some.dtype)
            told = some.to_frame("x").select(text=text, unclear=unclear)
        except (PopulationError, pl.exceptions.PolarsError, TypeError, ValueError):
            raise _nameless(column, rows[0], values[rows[0]], TAKEN) from None
        if told["unclear"].any():
            row = rows[told["unclear"].fill_null(False).arg_max() or 0]
            raise _nameless(column, row, values[row], INEXACT)
        for row, name in zip(rows, told["text"], strict=True):
            names[row] = name
    return pl.Series(column, names, dtype=pl.String)


def numbers_of_objects(column: str, values: Sequence[Any]) -> pl.Series:
    """Write Python objects of a column of numbers as text, which is read as a text table's is."""
    text: list[str | None] = []
    for row, v in enumerate(values):
        if _absent(v):
            text.append(None)
        elif isinstance(v, bool | np.bool_) or not isinstance(v, str | Real | Decimal):
            raise _nameless(column, row, v, "counts and values are numbers")
        else:
            text.append(repr(float(v)) if isinstance(v, float | Fraction) else str(v))
    return pl.Series(column, text, dtype=pl.String)


def _column(cls: type, some: list[Any], zoned: bool) -> pl.Series:
    """Make a column of objects of one class."""
    if issubclass(cls, datetime.datetime):
        if zoned:
            some = [v.astimezone(datetime.UTC) for v in some]
        if hasattr(cls, "to_datetime64"):  # of pandas: with nanoseconds
            times = pl.Series(np.array([v.to_datetime64() for v in some], dtype="datetime64[ns]"))
            return times.dt.replace_time_zone("UTC") if zoned else times
        return pl.Series(some)
    if issubclass(cls, np.generic):
        return pl.Series(with_unit(np.array(some)))
    if cls in (int, uuid.UUID):  # integers of any size
        return pl.Series(list(map(str, some)))
    if cls is Decimal:
        return pl.Series([None if v.is_nan() else _digits(v) for v in some])
    if cls in (str, bool, float, datetime.date) or (cls is datetime.time and not zoned):
        return pl.Series(some)
    raise TypeError(cls)


def with_unit(x: NDArray[Any]) -> NDArray[Any]:
    """Give times of a unit that polars has not, hours say, one that it has."""
    if x.dtype.kind == "M" and np.datetime_data(x.dtype)[0] not in ("D", "ms", "us", "ns"):
        return x.astype("datetime64[us]")
    return x


def _digits(v: Decimal) -> str:
    """Write a decimal without trailing zeros, and zero without a sign."""
    if not v.is_finite():
        raise ValueError(v)
    text = f"{v:f}"
    text = text.rstrip("0").removesuffix(".") if "." in text else text
    return "0" if text == "-0" else text


def _absent(value: Any) -> bool:
    return value is None or type(value).__name__ in ABSENT


def _nameless(column: str, row: int, value: Any, need: str) -> PopulationError:
    return PopulationError(f"row {row + 1}: column {column!r} has {shown(value)}: {need}")
