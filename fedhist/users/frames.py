"""From a table of rows to users: the polars half of ``Users.from_frame``.

Rows are grouped by user in polars' streaming engine, so a lazy frame over a file is never held
in memory as a whole: what remains is one row per distinct (user, item) pair. Before grouping, users
are hashed to their ids, or dictionary-encoded, as items are; afterwards they are numbered, users by
id and items by bytes, so the result does not depend on the order of the rows or on the number of
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedhist.base.arrays import Words, offsets
from fedhist.base.errors import PopulationError, nearest
from fedhist.base.hashing import digest64, hash_bytes_kernel
from fedhist.users.keys import USER_ID_KEY, Keys, user_ids_of_bytes
from fedhist.users.names import named, names_of_objects, numbers_of_objects, with_unit
from fedhist.users.rows import TOTAL_LIMIT, checked_events, checked_samples, collected, judged
from fedhist.users.shards import Items, Samples
from fedhist.users.strict import without_infinities


def columns_of_frame(
    frame: Any,
    *,
    user: str,
    item: str | None,
    count: str | None,
    value: list[str],
) -> tuple[Words, Items | Samples, dict[str, int]]:
    """Group a frame's rows by user, and count those left out; see ``Users.from_frame``.

    Raises ValueError unless exactly one of ``item`` and ``value`` is given, and ``count`` only with
    ``item``; PopulationError for missing columns, bad users, items, counts or values
    (with the row, counted from 1), and frames without rows.
    """
    if (item is None) == (not value):
        raise ValueError(f"give item or value, exactly one: got item={item!r}, value={value!r}")
    if item is None and count is not None:
        raise ValueError(f"count={count!r} goes with item, not with value")
    names = {c: names_of_objects for c in (user, item) if c is not None}
    numbers = {c: numbers_of_objects for c in (count, *value) if c is not None}
    rows = _lazy(frame, numbers | names)
    if item is None:
        return samples_of_rows(rows, user=user, value=value)
    return items_of_rows(rows, user=user, item=item, count=count)


def items_of_rows(
    rows: pl.LazyFrame,
    *,
    user: str,
    item: str,
    count: str | None = None,
    overflow: str | None = None,
    decimal: str = ".",
    skip_bad_rows: bool = False,
) -> tuple[Words, Items, dict[str, int]]:
    """Group events by user and item, and add their counts up.

    ``user`` and ``item`` are columns of a type that :func:`fedhist.users.names.named` names,
    ``count`` one of non-negative integers (numbers or text, with this decimal point; each row
    counts once without it), ``overflow`` one that is null in every good row: what a text table
    holds beyond its last column.

    Returns the ids, increasing (users whose counts are all zero, or whose rows are all left out,
    stay, with an empty record: how many users there are depends on no record), the items, whose
    vocabulary holds those with a positive total in byte order, and the rows left out by fault, NOT
    PRIVATE: those that lack something always, bad ones if these are skipped.
    PopulationError for a bad row otherwise, a table without rows, totals of 2^53 or more, and two
    users with one id.
    """
    table = checked_events(
        rows, user=user, item=item, count=count, overflow=overflow, decimal=decimal
    )
    other = pl.col("other")
    pairs = collected(
        table.select(
            "fault",
            "amount",
            pl.col("item").cast(pl.Categorical(pl.Categories.random())),
            **HASHED_USERS,
        )
        .group_by("id", "item", "fault")
        .agg(
            pl.len().alias("rows"),
            pl.col("amount").sum(),
            other.min(),
            most=other.max(),
        )
    )
    dropped = judged(table, pairs, skip_bad_rows)
    pairs = pairs.filter(pl.col("id").is_not_null()).sort("id")
    if not len(pairs):
        raise PopulationError("no rows: there is not a single user")
    good = pl.col("fault") == 0
    total = pairs.select(pl.when(good).then("amount").otherwise(0.0))["amount"].to_numpy()
    if float(total.max()) >= TOTAL_LIMIT:
        raise PopulationError(f"one user's total of one item must be below 2^53, got {total.max()}")
    ids, u = _number_ids(pairs, table)
    keep = total > 0
    vocabulary, j = _number_items(pairs["item"].filter(pl.Series(keep)))
    key = (u[keep].astype(np.uint64) << np.uint64(32)) | j.astype(np.uint64)
    order = np.argsort(key)
    dtype = np.uint32 if float(total.max()) < 1 << 32 else np.uint64
    items = Items(
        vocabulary,
        offsets(np.bincount(u[keep], minlength=len(ids))),
        j[order].astype(np.uint32),
        total[keep][order].astype(dtype),
    )
    return ids, items, dropped


def samples_of_rows(
    rows: pl.LazyFrame,
    *,
    user: str,
    value: list[str],
    overflow: str | None = None,
    decimal: str = ".",
    skip_bad_rows: bool = False,
) -> tuple[Words, Samples, dict[str, int]]:
    """Group real samples by user, each user's samples in the order of the rows.

    As :func:`items_of_rows`, with one column of numbers or text in ``value`` per dimension. A row
    without one of them, null or NaN, is left out: the user stays, with the others.
    """
    table, names = checked_samples(rows, user=user, value=value, overflow=overflow, decimal=decimal)
    frame = collected(table.select("fault", *names, **HASHED_USERS))
    tally = frame.group_by("fault").agg(pl.len().alias("rows"))
    dropped = judged(table, tally, skip_bad_rows)
    frame = frame.filter(pl.col("id").is_not_null()).sort("id", maintain_order=True)
    if not len(frame):
        raise PopulationError("no rows: there is not a single user")
    ids, u = _number_ids(frame, table)
    good = (frame["fault"] == 0).to_numpy()
    x = np.stack([frame[v].to_numpy() for v in names], axis=1)[good]
    indptr = offsets(np.bincount(u[good], minlength=len(ids)))
    return ids, Samples(indptr, np.ascontiguousarray(without_infinities(x))), dropped


def is_table(data: Any) -> bool:
    """Say whether a frame can be read off it: its columns may still be others."""
    home = type(data).__module__.split(".")[0]
    makes_frames = hasattr(data, "to_polars") or hasattr(data, "to_pandas")
    return home in ("polars", "pandas") or makes_frames or isinstance(data, Mapping)


def _lazy(frame: Any, columns: Mapping[str, Callable[[str, Any], pl.Series]]) -> pl.LazyFrame:
    """Take the wanted columns of a frame or a data set, each with what reads Python objects."""
    if isinstance(frame, pl.LazyFrame):
        return frame
    if isinstance(frame, pl.DataFrame):
        mixed = [c for c in columns if c in frame.columns and frame[c].dtype == pl.Object]
        return frame.with_columns([columns[c](c, frame[c].to_list()) for c in mixed]).lazy()
    of_pandas = type(frame).__module__.split(".")[0] == "pandas" and hasattr(frame, "columns")
    if not of_pandas and not isinstance(frame, Mapping):
        return _lazy(_framed(frame), columns)
    labels: dict[str, list[Any]] = {}
    for label in frame.columns if of_pandas else frame:
        labels.setdefault(str(label), []).append(label)
    taken: dict[str, pl.Series] = {}
    alone: dict[str, Any] = {}
    for name, objects in columns.items():
        if len(labels.get(name, ())) != 1:
            what = "several columns" if name in labels else "no column"
            raise PopulationError(f"{what} {name!r}" + nearest(name, labels.keys() - {name}))
        series = frame[labels[name][0]]
        if isinstance(series, str) or not hasattr(series, "__iter__"):
            alone[name] = series
            continue
        if _of_objects(series):
            taken[name] = objects(name, list(series))
            continue
        try:
            if type(series).__module__.split(".")[0] == "pandas":
                taken[name] = pl.Series(name, pl.from_pandas(series))
            else:
                taken[name] = pl.Series(
                    name, with_unit(series) if isinstance(series, np.ndarray) else series
                )
        except (pl.exceptions.PolarsError, ValueError, TypeError, NotImplementedError) as error:
            raise PopulationError(f"column {name!r} cannot be read: {error}") from error
    if len(lengths := {len(series) for series in taken.values()}) > 1:
        raise PopulationError(f"columns of one length are needed, got lengths {sorted(lengths)}")
    taken |= {c: columns[c](c, [v] * max(lengths, default=1)) for c, v in alone.items()}
    return pl.DataFrame(taken).lazy()


def _of_objects(column: Any) -> bool:
    """Say whether a column is to be read value by value: its values may be of several types."""
    if isinstance(column, list | tuple):
        types = set(map(type, column))
        small = types == {int} and min(column) >= -(2**63) and max(column) < 2**63
        return not (types <= {str, NoneType} or types == {float} or small)
    return str(getattr(column, "dtype", "")).lower() == "object"


def _framed(data: Any) -> Any:
    """Make a frame of a data set that has a method for it."""
    for method in ("to_polars", "to_pandas"):
        if hasattr(data, method):
            return getattr(data, method)()
    raise PopulationError(f"need a polars or pandas frame, got {type(data).__name__}")


def ids_of_rows(rows: pl.LazyFrame, *, user: str) -> Words:
    """Return the ids of all users whom a column names, increasing; PopulationError for none."""
    who, _ = named(user, rows.collect_schema()[user])
    ids = collected(rows.select(id=user_ids(who.drop_nulls())).unique().sort("id"))
    if not len(ids):
        raise PopulationError("no rows: there is not a single user")
    return ids["id"].to_numpy()


def user_ids(names: pl.Expr, key: int = USER_ID_KEY) -> pl.Expr:
    """Hash the names of users to their ids, or by another key, uint64."""

    def hashed(some: pl.Series) -> pl.Series:
        ends, data = utf8(some)
        ids = np.empty(len(some), dtype=np.uint64)
        hash_bytes_kernel(ends, data, np.uint64(key), ids)
        return pl.Series(ids)

    return names.map_batches(hashed, return_dtype=pl.UInt64, is_elementwise=True)


HASHED_USERS = {
    "id": pl.when(pl.col("user").is_not_null()).then(user_ids(pl.col("user"))),
    "other": user_ids(pl.col("user"), digest64("fedhist.other-user-hash")),
}
"""Ids, and second hashes, by which names of one id are told apart."""


def _number_ids(pairs: pl.DataFrame, table: pl.LazyFrame) -> tuple[Words, NDArray[np.int64]]:
    """Return the ids of grouped events, which are sorted by them, and each row's place among them.

    Raises PopulationError if two names have one id; they are looked up in the table.
    """
    ids, other = pairs["id"].to_numpy(), pairs["other"].to_numpy()
    first = np.append(True, ids[1:] != ids[:-1])
    most = pairs["most"].to_numpy() if "most" in pairs.columns else other
    if not (first[1:] | (other[1:] == most[:-1])).all() or (other != most).any():
        names = collected(table.select(pl.col("user").drop_nulls().unique()))["user"]
        user_ids_of_bytes(*utf8(names))
    return ids[first], np.cumsum(first) - 1


def _number_items(column: pl.Series) -> tuple[Keys, NDArray[np.int64]]:
    """Return the vocabulary of an encoded column in byte order, and each row's place in it."""
    distinct = column.unique()
    names, codes = distinct.cast(pl.String), distinct.to_physical().to_numpy()
    order = names.arg_sort()
    place = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.int64)
    place[codes[order.to_numpy()]] = np.arange(len(codes))
    return Keys(*utf8(names.gather(order))), place[column.to_physical().to_numpy()]


def utf8(strings: pl.Series) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Read byte offsets and bytes off an Arrow large_string array, copying at most the offsets."""
    array = strings.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:
        return np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    ptr = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    raw = np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return ptr - ptr[0], raw[ptr[0] : ptr[-1]]
