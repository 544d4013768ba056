"""Which columns of a file are users, items, counts or samples, by their names and first rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedhist.base.errors import nearest
from fedhist.base.text import is_number
from fedhist.users.rows import collected
from simulations.populations.base import existing
from simulations.populations.tables import (
    SEPARATORS,
    Column,
    TableFormat,
    first_row,
    is_parquet,
    scan_table,
    separator_of,
    told_of,
)

if TYPE_CHECKING:
    import polars as pl

ROWS = 10_000
"""Rows that are looked at."""
MOSTLY = 0.95

WORDS: Mapping[str, tuple[str, ...]] = {
    "user": (
        *("user", "users", "uid", "userid", "username", "member", "customer", "client", "patient"),
        *("visitor", "person", "subject", "player", "account", "device", "author", "owner", "node"),
    ),
    "item": (
        *("item", "items", "itemid", "product", "artist", "movie", "film", "track", "song", "book"),
        *("venue", "place", "location", "poi", "url", "page", "word", "token", "term", "query"),
        *("category", "genre", "tag", "brand", "sku", "article", "business", "event", "bin"),
    ),
    "value": (
        *("value", "rating", "score", "amount", "price", "duration", "length", "minutes", "x", "y"),
        *("seconds", "stars", "weight", "height", "temperature", "steps", "sample", "measure"),
    ),
    "count": (
        *("count", "counts", "plays", "n", "quantity", "qty", "times", "freq", "frequency"),
        *("clicks", "visits", "playcount", "number"),
    ),
    "": (
        *("time", "date", "timestamp", "ts", "datetime", "day", "hour", "year", "month", "created"),
        *("lat", "latitude", "lon", "lng", "longitude", "index"),
    ),
}
"""Words in the names of columns; of the last, columns that are none of the others."""


@dataclass(frozen=True)
class Seen:
    """What the first rows of a column hold.

    Attributes
    ----------
    column : str or int
        Name, or position where the file has no header.
    rows, distinct : int
        Of fields that are not empty.
    numeric, whole : bool
        Whether nearly all are numbers, or whole ones.
    """

    column: Column
    rows: int
    distinct: int
    numeric: bool
    whole: bool

    @property
    def words(self) -> list[str]:
        """The words of the name: "userId" has two."""
        return re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", str(self.column)).lower())


@dataclass(frozen=True)
class Guess:
    """What columns are taken for, each None where there is none.

    Attributes
    ----------
    user, item, value, count : str, int or None
    form : TableFormat
        How the table is written, where that had to be guessed as well.
    why : mapping of str to str
        What "user" and the others were told by.
    others : tuple of Seen
        The other columns.
    """

    user: Column | None
    item: Column | None
    value: Column | None
    count: Column | None
    form: TableFormat
    why: Mapping[str, str]
    others: tuple[Seen, ...]


def guess(
    path: Path,
    *,
    user: Column | None = None,
    item: Column | None = None,
    value: Column | None = None,
    count: Column | None = None,
) -> Guess:
    """Say what the columns of a file are; those that are given stay.

    Raises
    ------
    ValueError
        If a column that is needed cannot be told: the error lists the columns.
    PopulationError
        If the file cannot be read.
    """
    form = form_of(existing(path))
    seen = look(path, form)
    given = {"user": user, "item": item, "value": value, "count": count}
    known = [s.column for s in seen]
    for what, column in given.items():
        if column is not None and column not in known:
            close = nearest(str(column), map(str, known))
            raise ValueError(f"--{what}: {path} has no column {column!r}{close}")
    found = {k: v for k, v in given.items() if v is not None}
    why = dict.fromkeys(found, "given")
    left = [s for s in seen if s.column not in found.values()]

    def take(what: str, fitting: Iterable[Seen], told: str) -> None:
        best = next(iter(fitting), None)
        if what not in found and best is not None:
            found[what] = best.column
            why[what] = told.format(best)
            left.remove(best)

    by_name = "by its name"
    take("user", (s for s in left if _named(s, "user")), by_name)
    if value is None:
        take("item", (s for s in left if _named(s, "item")), by_name)
    if item is None and "item" not in found:
        take("value", (s for s in left if _named(s, "value") and s.numeric), by_name)
    free = [s for s in left if not any(_named(s, w) for w in WORDS)]
    repeated = [s for s in free if 1 < s.distinct < s.rows and (s.whole or not s.numeric)]
    different = "by its values: {0.distinct:,} different in {0.rows:,} rows"
    take("user", sorted(repeated, key=lambda s: -s.distinct), different)
    repeated = [s for s in repeated if s in left]
    if value is None and "value" not in found:
        take("item", (s for s in repeated if not s.numeric), different)
    if "item" not in found and "value" not in found:
        take("value", (s for s in free if s in left and s.numeric and not s.whole), "fractions")
        if "value" not in found:
            take("item", (s for s in repeated if s in left), different)
    if "item" in found:
        take("count", (s for s in left if _named(s, "count") and s.whole), by_name)
    if "user" not in found or not {"item", "value"} & found.keys():
        missing = "user" if "user" not in found else "item"
        options = "--user COLUMN" if missing == "user" else "--item COLUMN or --value COLUMN"
        told = ", ".join(map(repr, known))
        raise ValueError(f"{path}: which column is what cannot be told: give {options}, of {told}")
    return Guess(**{k: found.get(k) for k in given}, form=form, why=why, others=tuple(left))


def _named(seen: Seen, what: str) -> bool:
    return bool({*WORDS[what]} & {*seen.words, "".join(seen.words)})


def form_of(path: Path) -> TableFormat:
    """Guess a table's separator, where its name or first row does not say it, and its header."""
    form = TableFormat()
    if is_parquet(path):
        return form
    suffixes = [s.lower() for s in path.suffixes if s.lower() not in {".gz", ".zst"}]
    usual = SEPARATORS.get(suffixes[-1]) if suffixes else None
    tried = [s for s in (usual, ",", "\t", ";", "|") if s is not None]
    rows = {s: first_row(path, s, form) for s in tried}
    best = max(tried, key=lambda s: len(rows[s]))
    header = not any(map(is_number, rows[best]))
    return replace(form, separator=None if best == usual else best, header=header)


def look(path: Path, form: TableFormat) -> list[Seen]:
    """Look at the first rows of every column."""
    import polars as pl

    if is_parquet(path):
        names: list[Column] = list(pl.scan_parquet(path, glob=False).collect_schema())
    else:
        row = first_row(path, separator_of(path, form), form)
        names = [*row] if form.header else [*range(len(row))]
    table = scan_table(path, list(range(len(names))), form)
    rows = table.rows.head(ROWS).select(pl.col(c).cast(pl.String) for c in table.names)
    with told_of(path):
        head = collected(rows)
    return [_seen(n, head[c].drop_nulls()) for n, c in zip(names, table.names, strict=True)]


def _seen(column: Column, fields: pl.Series) -> Seen:
    import polars as pl

    numbers = fields.cast(pl.Float64, strict=False).drop_nulls().drop_nans()
    enough = len(fields) > 0 and len(numbers) >= MOSTLY * len(fields)
    whole = enough and bool((numbers == numbers.floor()).all())
    return Seen(column, len(fields), fields.n_unique(), enough, whole)
