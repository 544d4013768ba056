"""Rows of a table before they are grouped: which are good, and what is wrong with the others.

Everything here is lazy but :func:`collected`, by which a table is computed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import polars as pl

from fedhist.base.errors import PopulationError, nearest
from fedhist.users.names import INEXACT, named

TOTAL_LIMIT = float(1 << 53)  # below it a float64 sum of non-negative integers is exact
COMMA = re.compile(r"(^|[\s;|])-?\d+,\d+($|[\s;|,])")

# What can be wrong with a row; 0 is a good row. The words are the keys of `dropped`.
FAULTS = (
    "good",
    "too many fields",
    "missing user",
    "missing item",
    "missing count",
    "missing value",
    "bad user",
    "bad item",
    "bad count",
    "bad value",
)
MISSING = range(2, 6)
"""Faults of rows that hold nothing where they should: such rows are left out, never refused."""


def checked_events(
    rows: pl.LazyFrame,
    *,
    user: str,
    item: str,
    count: str | None = None,
    overflow: str | None = None,
    decimal: str = ".",
) -> pl.LazyFrame:
    """Find the events and their faults.

    Parameters are those of :func:`fedhist.users.frames.items_of_rows`.

    Returns columns user and item (text), amount (float64), fault (an index into :data:`FAULTS`),
    and what an error shows.
    """
    schema = _require(rows, [user, item, count, overflow])
    what, nothing = named(item, schema[item])
    amount, absent = pl.lit(1.0), pl.lit(False)
    if count is not None:
        amount, absent = _number(count, schema[count], "counts", decimal)
    good_count = (amount >= 0) & (amount < TOTAL_LIMIT) & (amount == amount.floor())
    faults = {
        3: what.is_null() & ~nothing,
        4: absent,
        7: nothing,
        8: ~good_count.fill_null(False),
    }
    shown = [c for c in (user, item, count) if c is not None]
    return _checked(rows, schema, user, overflow, shown, faults, item=what, amount=amount)


def checked_samples(
    rows: pl.LazyFrame,
    *,
    user: str,
    value: list[str],
    overflow: str | None = None,
    decimal: str = ".",
) -> tuple[pl.LazyFrame, list[str]]:
    """Find the samples and their faults; parameters as in :func:`samples_of_rows`."""
    schema = _require(rows, [user, *value, overflow])
    numbers = [_number(v, schema[v], "values", decimal) for v in value]
    columns = {f"value{k}": x for k, (x, _) in enumerate(numbers)}
    faults = {
        5: pl.any_horizontal(absent for _, absent in numbers),
        9: pl.any_horizontal(x.is_null() for x in columns.values()),
    }
    columns["item"] = pl.lit(None)
    table = _checked(rows, schema, user, overflow, [user, *value], faults, **columns)
    return table, [name for name in columns if name != "item"]


def _checked(
    rows: pl.LazyFrame,
    schema: Mapping[str, pl.DataType],
    user: str,
    overflow: str | None,
    shown: list[str],
    faults: Mapping[int, pl.Expr],
    **columns: pl.Expr,
) -> pl.LazyFrame:
    """Take the columns of a table, with the user of each row and what is wrong with it."""
    who, nobody = named(user, schema[user])
    extra = pl.lit(False) if overflow is None else pl.col(overflow).is_not_null()
    fault = _fault({1: extra, 2: who.is_null() & ~nobody, 6: nobody, **faults})
    return rows.select(user=who, fault=fault, shown=_shown(shown, schema), **columns)


def _require(rows: pl.LazyFrame, names: list[str | None]) -> Mapping[str, pl.DataType]:
    schema = rows.collect_schema()
    for name in names:
        if name is not None and name not in schema:
            raise PopulationError(f"no column {name!r}" + nearest(name, schema))
    return schema


def _number(name: str, dtype: pl.DataType, what: str, decimal: str) -> tuple[pl.Expr, pl.Expr]:
    """Read numbers, or text that spells them, as float64, and say where nothing is to be read."""
    x = pl.col(name)
    if dtype == pl.String:
        text = x.str.strip_chars()
        if decimal != ".":
            text = text.str.replace_all(".", " ", literal=True).str.replace(
                decimal, ".", literal=True
            )
        number = text.cast(pl.Float64, strict=False)
        absent = x.is_null() | (text == "").fill_null(False) | number.is_nan().fill_null(False)
    elif dtype.is_numeric() or dtype == pl.Null:
        number = x.cast(pl.Float64)
        absent = number.is_null() | number.is_nan().fill_null(False)
    else:
        raise PopulationError(f"{what} must be numbers, but column {name!r} is of type {dtype}")
    return number.fill_nan(None), absent


def _shown(columns: list[str], schema: Mapping[str, pl.DataType]) -> pl.Expr:
    """Write the fields of a row; times by their number, since not all of them have a text form."""
    text = [
        (pl.col(c).to_physical() if schema[c].is_temporal() else pl.col(c)).cast(
            pl.String, strict=False
        )
        for c in dict.fromkeys(columns)
    ]
    return pl.concat_str([t.fill_null("") for t in text], separator=", ")


def _fault(conditions: Mapping[int, pl.Expr]) -> pl.Expr:
    """Code the first fault of each row, 0 for none."""
    code = pl.lit(0, dtype=pl.UInt8)
    for number, condition in sorted(conditions.items(), reverse=True):
        code = pl.when(condition).then(pl.lit(number, dtype=pl.UInt8)).otherwise(code)
    return code.alias("fault")


def judged(table: pl.LazyFrame, tally: pl.DataFrame, skip_bad_rows: bool) -> dict[str, int]:
    """Count the rows to leave out by fault, or refuse the first that is not as it should be.

    Rows that lack something are always left out. The table is in the order of the rows, and the
    tally has columns fault and rows: how many have it.
    """
    rows = tally.filter(pl.col("fault") > 0).group_by("fault").agg(pl.col("rows").sum())
    dropped = {code: int(k) for code, k in sorted(rows.select("fault", "rows").rows())}
    bad = {code: k for code, k in dropped.items() if code not in MISSING}
    if skip_bad_rows or not bad:
        return {FAULTS[code]: k for code, k in dropped.items()}
    first = collected(
        table.with_row_index("row")
        .filter(pl.col("fault").is_in(list(bad)))
        .select("row", "fault", "shown")
        .head(1)
    ).row(0, named=True)
    fault = FAULTS[first["fault"]]
    need = {
        "too many fields": "there are more fields than columns",
        "bad user": INEXACT,
        "bad item": INEXACT,
        "bad count": "counts must be non-negative integers below 2^53",
        "bad value": "values must be numbers",
    }[fault]
    if fault in ("bad count", "bad value") and COMMA.search(first["shown"]):
        need += '; where a comma is the decimal point, set decimal = ","'
    n_bad = sum(bad.values())
    more = f" ({n_bad:,} bad rows in all)" if n_bad > 1 else ""
    raise PopulationError(
        f"row {first['row'] + 1}: {fault} in {first['shown']!r}: {need}{more}; "
        "skip_bad_rows = true leaves such rows out and counts them"
    )


def collected(rows: pl.LazyFrame) -> pl.DataFrame:
    """Compute a lazy frame, streaming; PopulationError where its source cannot be read."""
    try:
        return rows.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise PopulationError(f"the rows cannot be read: {reason}") from error
