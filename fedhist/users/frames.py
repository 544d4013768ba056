"""From a table of rows to users: the polars half of ``Users.from_frame``.

Rows are grouped by user in polars' streaming engine, so a lazy frame over a file is never held
in memory as a whole: what remains is one row per distinct (user, item) pair. Users and items
are dictionary-encoded before grouping and numbered afterwards, users by id and items by bytes, so
the result does not depend on the order of the rows or on the number of threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fedhist.base.arrays import Words, offsets
from fedhist.base.errors import PopulationError, nearest
from fedhist.users.columns import Items, Samples
from fedhist.users.keys import Keys, user_ids_of_bytes

TOTAL_LIMIT = float(1 << 53)  # below it a float64 sum of non-negative integers is exact

# What can be wrong with a row; 0 is a good row. The words are the keys of `dropped`.
FAULTS = ("good", "too many fields", "missing user", "missing item", "bad count", "bad value")


def columns_of_frame(
    frame: Any,
    *,
    user: str,
    item: str | None,
    count: str | None,
    value: list[str],
) -> tuple[Words, Items | Samples]:
    """Group a frame's rows by user; see ``Users.from_frame``.

    Raises
    ------
    ValueError
        Unless exactly one of ``item`` and ``value`` is given, and ``count`` only with ``item``.
    PopulationError
        For missing columns, missing users or items, bad counts or values (with the row, counted
        from 1), and frames without rows.
    """
    if (item is None) == (not value):
        raise ValueError(f"give item or value, exactly one: got item={item!r}, value={value!r}")
    if item is None and count is not None:
        raise ValueError(f"count={count!r} goes with item, not with value")
    text = [user] if item is None else [user, item]
    rows = _lazy(frame, text, [*value, *([] if count is None else [count])])
    if item is None:
        return samples_of_rows(rows, user=user, value=value)[:2]
    return items_of_rows(rows, user=user, item=item, count=count)[:2]


def items_of_rows(
    rows: pl.LazyFrame,
    *,
    user: str,
    item: str,
    count: str | None = None,
    overflow: str | None = None,
    skip_bad_rows: bool = False,
) -> tuple[Words, Items, dict[str, int]]:
    """Group events by user and item, and add their counts up.

    Parameters
    ----------
    rows : polars.LazyFrame
    user, item : str
        Columns of any type that has a text form.
    count : str, optional
        Column of non-negative integers (numbers or text); each row counts once without it.
    overflow : str, optional
        Column that is null in every good row (what a text table holds beyond its last column).
    skip_bad_rows : bool, default False
        Leave bad rows out and count them, instead of refusing the table.

    Returns
    -------
    ids : (n,) uint64
        Increasing. Users whose counts are all zero are kept, with an empty record.
    items : Items
        The vocabulary holds the items with a positive total, in byte order.
    dropped : dict of str to int
        Bad rows by fault. NOT PRIVATE.

    Raises
    ------
    PopulationError
        For a bad row (unless skipped), a table without rows, and totals of 2^53 or more.
    """
    table = checked_events(rows, user=user, item=item, count=count, overflow=overflow)
    pairs = collected(
        table.with_columns(pl.col("user", "item").cast(pl.Categorical(pl.Categories.random())))
        .group_by("user", "item", "fault")
        .agg(pl.len().alias("rows"), pl.col("amount").sum())
    )
    dropped = judged(table, pairs, skip_bad_rows)
    pairs = pairs.filter(pl.col("fault") == 0)
    if not len(pairs):
        raise PopulationError("no rows: there is not a single user")
    total = pairs["amount"].to_numpy()
    if float(total.max()) >= TOTAL_LIMIT:
        raise PopulationError(f"one user's total of one item must be below 2^53, got {total.max()}")
    ids, u = _number_users(pairs["user"])
    keep = total > 0
    vocabulary, j = _number_items(pairs["item"].filter(pl.Series(keep)))
    key = (u[keep].astype(np.uint64) << np.uint64(32)) | j.astype(np.uint64)
    order = np.argsort(key)
    dtype = np.uint32 if float(total.max()) < 1 << 32 else np.uint64
    items = Items(
        vocabulary,
        _indptr(u[keep], len(ids)),
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
    skip_bad_rows: bool = False,
) -> tuple[Words, Samples, dict[str, int]]:
    """Group real samples by user, each user's samples in the order of the rows.

    Parameters
    ----------
    rows, user, overflow, skip_bad_rows
        As in :func:`items_of_rows`.
    value : list of str
        One column per dimension, of numbers or text; null and NaN both become NaN.

    Returns
    -------
    ids : (n,) uint64
        Increasing.
    samples : Samples
    dropped : dict of str to int
        Bad rows by fault. NOT PRIVATE.

    Raises
    ------
    PopulationError
        For a bad row (unless skipped) and a table without rows.
    """
    table, names = checked_samples(rows, user=user, value=value, overflow=overflow)
    frame = collected(
        table.select("user", "fault", *names).with_columns(
            pl.col("user").cast(pl.Categorical(pl.Categories.random()))
        )
    )
    tally = frame.group_by("fault").agg(pl.len().alias("rows"))
    dropped = judged(table, tally, skip_bad_rows)
    frame = frame.filter(pl.col("fault") == 0)
    if not len(frame):
        raise PopulationError("no rows: there is not a single user")
    ids, u = _number_users(frame["user"])
    order = np.argsort(u, kind="stable")
    x = np.stack([frame[v].fill_null(float("nan")).to_numpy() for v in names], axis=1)
    return ids, Samples(_indptr(u, len(ids)), np.ascontiguousarray(x[order])), dropped


def checked_events(
    rows: pl.LazyFrame,
    *,
    user: str,
    item: str,
    count: str | None = None,
    overflow: str | None = None,
) -> pl.LazyFrame:
    """Find the events and their faults; parameters as in :func:`items_of_rows`.

    Returns
    -------
    polars.LazyFrame
        Columns user and item (text), amount (float64), fault (an index into :data:`FAULTS`), and
        what an error shows.
    """
    schema = _require(rows, [user, item, count, overflow])
    amount = pl.lit(1.0) if count is None else _number(count, schema[count], "counts")
    table = rows.select(
        user=_text(user, schema[user]),
        item=_text(item, schema[item]),
        amount=amount,
        shown=pl.lit("") if count is None else pl.col(count).cast(pl.String, strict=False),
        overflow=pl.lit(False) if overflow is None else pl.col(overflow).is_not_null(),
    )
    integral = pl.col("amount") == pl.col("amount").floor()
    good_count = (pl.col("amount") >= 0) & (pl.col("amount") < TOTAL_LIMIT) & integral
    faults = {1: pl.col("overflow"), 2: pl.col("user").is_null(), 3: pl.col("item").is_null()} | (
        {4: ~good_count.fill_null(False)} if count is not None else {}
    )
    return table.with_columns(_fault(faults))


def checked_samples(
    rows: pl.LazyFrame, *, user: str, value: list[str], overflow: str | None = None
) -> tuple[pl.LazyFrame, list[str]]:
    """Find the samples and their faults; parameters as in :func:`samples_of_rows`.

    Returns
    -------
    rows : polars.LazyFrame
        Columns user (text), value0, value1, ... (float64), fault (an index into :data:`FAULTS`),
        and what an error shows.
    names : list of str
        Of the columns of values.
    """
    schema = _require(rows, [user, *value, overflow])
    names = [f"value{k}" for k in range(len(value))]
    shown = [pl.col(v).cast(pl.String, strict=False).str.strip_chars() for v in value]
    values = [_number(v, schema[v], "values").alias(x) for v, x in zip(value, names, strict=True)]
    unread = [x.is_null() & s.is_not_null() for x, s in zip(values, shown, strict=True)]
    table = rows.select(
        pl.lit(None).alias("item"),
        *values,
        user=_text(user, schema[user]),
        unread=pl.any_horizontal(unread),
        shown=pl.concat_str(shown, separator=", ", ignore_nulls=True),
        overflow=pl.lit(False) if overflow is None else pl.col(overflow).is_not_null(),
    ).with_columns(
        _fault({1: pl.col("overflow"), 2: pl.col("user").is_null(), 5: pl.col("unread")})
    )
    return table, names


def _lazy(frame: Any, text: list[str], numbers: list[str]) -> pl.LazyFrame:
    """Take the wanted columns of a polars or pandas frame."""
    if isinstance(frame, pl.LazyFrame):
        return frame
    if isinstance(frame, pl.DataFrame):
        return frame.lazy()
    if type(frame).__module__.split(".")[0] != "pandas" or not hasattr(frame, "columns"):
        raise PopulationError(f"need a polars or pandas frame, got {type(frame).__name__}")
    labels: dict[str, list[Any]] = {}
    for label in frame.columns:
        labels.setdefault(str(label), []).append(label)
    columns = {}
    for name in dict.fromkeys([*text, *numbers]):
        if len(labels.get(name, ())) != 1:
            what = "several columns" if name in labels else "no column"
            raise PopulationError(f"{what} {name!r}" + nearest(name, labels.keys() - {name}))
        series = frame[labels[name][0]]
        if name in text and str(series.dtype) == "object":
            series = series.map(str, na_action="ignore")  # Arrow refuses mixed Python types
        try:
            columns[name] = pl.from_pandas(series)
        except (pl.exceptions.PolarsError, ValueError, TypeError) as error:
            raise PopulationError(f"column {name!r} cannot be read: {error}") from error
    return pl.DataFrame(columns).lazy()


def _require(rows: pl.LazyFrame, names: list[str | None]) -> Mapping[str, pl.DataType]:
    schema = rows.collect_schema()
    for name in names:
        if name is not None and name not in schema:
            raise PopulationError(f"no column {name!r}" + nearest(name, schema))
    return schema


def _text(name: str, dtype: pl.DataType) -> pl.Expr:
    column = pl.col(name).fill_nan(None) if dtype.is_float() else pl.col(name)
    return column.cast(pl.String)


def _number(name: str, dtype: pl.DataType, what: str) -> pl.Expr:
    """Read numbers, or text that spells them, as float64; null where there is no number."""
    if dtype == pl.String:
        return pl.col(name).str.strip_chars().cast(pl.Float64, strict=False)
    if not (dtype.is_numeric() or dtype == pl.Null):
        raise PopulationError(f"{what} must be numbers, but column {name!r} is of type {dtype}")
    return pl.col(name).cast(pl.Float64)


def _fault(conditions: Mapping[int, pl.Expr]) -> pl.Expr:
    """Code the first fault of each row, 0 for none."""
    code = pl.lit(0, dtype=pl.UInt8)
    for number, condition in sorted(conditions.items(), reverse=True):
        code = pl.when(condition).then(pl.lit(number, dtype=pl.UInt8)).otherwise(code)
    return code.alias("fault")


def judged(table: pl.LazyFrame, tally: pl.DataFrame, skip_bad_rows: bool) -> dict[str, int]:
    """Count the bad rows by fault, or refuse the first of them.

    Parameters
    ----------
    table : polars.LazyFrame
        Of :func:`checked_events` or :func:`checked_samples`, in the order of the rows.
    tally : polars.DataFrame
        Columns fault and rows: how many have it.
    skip_bad_rows : bool
    """
    bad = tally.filter(pl.col("fault") > 0).group_by("fault").agg(pl.col("rows").sum())
    if not len(bad):
        return {}
    if skip_bad_rows:
        return {FAULTS[code]: int(k) for code, k in sorted(bad.select("fault", "rows").rows())}
    first = collected(
        table.with_row_index("row")
        .filter(pl.col("fault") > 0)
        .select("row", "fault", "user", "item", "shown")
        .head(1)
    ).row(0, named=True)
    fault, shown = FAULTS[first["fault"]], first["shown"]
    detail = {
        "too many fields": f" (user {first['user']!r})",
        "missing user": f" (item {first['item']!r})" if first["item"] is not None else "",
        "missing item": f" (user {first['user']!r})",
        "bad count": f" {shown!r}: counts must be non-negative integers below 2^53",
        "bad value": f" {shown!r}: values must be numbers",
    }[fault]
    n_bad = int(bad["rows"].sum())
    more = f" ({n_bad} bad rows in all)" if n_bad > 1 else ""
    way_out = "; skip_bad_rows = true drops and counts such rows"
    raise PopulationError(f"row {first['row'] + 1}: {fault}{detail}{more}{way_out}")


def collected(rows: pl.LazyFrame) -> pl.DataFrame:
    """Compute a lazy frame, streaming; PopulationError where its source cannot be read."""
    try:
        return rows.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise PopulationError(f"the rows cannot be read: {reason}") from error


def _number_users(column: pl.Series) -> tuple[Words, NDArray[np.int64]]:
    """Return the sorted ids of an encoded column's users, and each row's place among them."""
    distinct = column.unique()
    ids = user_ids_of_bytes(*utf8(distinct.cast(pl.String)))
    order = np.argsort(ids)
    return ids[order], _renumber(column, distinct, order)


def _number_items(column: pl.Series) -> tuple[Keys, NDArray[np.int64]]:
    """Return the vocabulary of an encoded column in byte order, and each row's place in it."""
    distinct = column.unique()
    names = distinct.cast(pl.String)
    order = names.arg_sort()
    return Keys(*utf8(names.gather(order))), _renumber(column, distinct, order.to_numpy())


def _renumber(column: pl.Series, distinct: pl.Series, order: NDArray[Any]) -> NDArray[np.int64]:
    codes = distinct.to_physical().to_numpy()
    place = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.int64)
    place[codes[order]] = np.arange(len(codes))
    return np.asarray(place[column.to_physical().to_numpy()])


def _indptr(u: NDArray[np.int64], n_users: int) -> NDArray[np.int64]:
    indptr = offsets(np.bincount(u, minlength=n_users))
    return indptr


def utf8(strings: pl.Series) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Read byte offsets and bytes off an Arrow large_string array, copying at most the offsets."""
    array = strings.rechunk().to_arrow(compat_level=pl.CompatLevel.oldest())
    _, offsets, data = array.buffers()
    if offsets is None or len(array) == 0:
        return np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.uint8)
    ptr = np.frombuffer(offsets, dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    raw = np.empty(0, dtype=np.uint8) if data is None else np.frombuffer(data, dtype=np.uint8)
    return ptr - ptr[0], raw[ptr[0] : ptr[-1]]
