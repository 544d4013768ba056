"""Rows of a table before they are grouped: which are good, and what is wrong with the others.

Everything here is lazy but :func:`collected`, by which a table is computed.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from fedhist.base.errors import PopulationError, nearest

TOTAL_LIMIT = float(1 << 53)  # below it a float64 sum of non-negative integers is exact

# What can be wrong with a row; 0 is a good row. The words are the keys of `dropped`.
FAULTS = ("good", "too many fields", "missing user", "missing item", "bad count", "bad value")


def checked_events(
    rows: pl.LazyFrame,
    *,
    user: str,
    item: str,
    count: str | None = None,
    overflow: str | None = None,
) -> pl.LazyFrame:
    """Find the events and their faults.

    Parameters are those of :func:`fedhist.users.frames.items_of_rows`.

    Returns columns user and item (text), amount (float64), fault (an index into :data:`FAULTS`),
    and what an error shows.
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

    Returns columns user (text), value0, value1, ... (float64), fault (an index into
    :data:`FAULTS`) and what an error shows, and the names of the columns of values.
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

    The table is in the order of the rows, and the tally has columns fault and rows: how many have
    it.
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
