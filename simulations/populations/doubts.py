"""What a file may mean otherwise than it was read: refused where it surely does, else said.

A first line that is data and was taken for names, a header in the middle of a file, and counts such
as "1.000" would change an estimate without a trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from simulations.populations.facts import similar_names, spelt
from simulations.populations.tables import (
    Column,
    TableFormat,
    first_row,
    is_parquet,
    scan_table,
    separator_of,
    told_of,
)

THOUSANDS = r"^\d{1,3}\.\d{3}$"
"""A count that may be in thousands, with a point between, or a number with three decimals."""
Recurs = Callable[[str, str], bool]
"""Says whether a field is a "user", or an "item", of the rows below the first line."""
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def header_doubts(
    path: Path, columns: Mapping[str, Column], form: TableFormat, recurs: Recurs
) -> tuple[str, ...]:
    """Ask whether the first line of a text table is a header, and whether it is the only one.

    Parameters
    ----------
    path : Path
    columns : mapping of str to Column
        By what they hold: "user" first, then "item" and "count", or values under other names.
    form : TableFormat
    recurs : callable

    Returns
    -------
    tuple of str
        What may be wrong, what it means, what to do.

    Raises
    ------
    PopulationError
        If the line is surely data.
    """
    if is_parquet(path) or not form.header:
        return ()
    first = first_row(path, separator_of(path, form), form)
    by_number = all(isinstance(c, int) for c in columns.values())
    fields = {k: first[c] if isinstance(c, int) else c for k, c in columns.items()}
    line = ", ".join(repr(f) for f in fields.values())
    way_out = "set population.header = false if it is data, or give the columns by their names"
    for what, field in fields.items():
        if by_number and what not in ("user", "item") and _NUMBER.fullmatch(field.strip()):
            raise PopulationError(
                f"{path}: the first line is taken for names of columns, but its {what} is the "
                f"number {field!r}: set population.header = false (its row would be lost)"
            )
    again = [k for k in ("user", "item") if fields.get(k) and recurs(k, fields[k])]
    if len(again) == 2:
        raise PopulationError(
            f"{path}: the first line ({line}) is taken for names of columns, but its user is a "
            "user of other rows and its item an item: set population.header = false if it is "
            "data, or remove it where it stands again if it is a header"
        )
    if again:
        return (
            f"the first line ({line}) was taken for names of columns, but its {again[0]} stands "
            f"in other rows as well: if it is data, its event is in no number; {way_out}",
        )
    if by_number:
        return (
            f"the columns are given by number, and the first line ({line}) was taken for their "
            f"names: {way_out}",
        )
    return ()


def among(users: Users) -> Recurs:
    """Return what looks for a field among users in memory."""

    def recurs(what: str, field: str) -> bool:
        if what == "item":
            return users.items is not None and users.vocabulary.position(field) >= 0
        return bool((users.ids == user_ids(Keys.of([field]))[0]).any())

    return recurs


def count_doubts(path: Path, columns: Mapping[str, Column], form: TableFormat) -> tuple[str, ...]:
    """Ask whether counts such as "1.000" are thousands.

    Returns
    -------
    tuple of str
        What may be wrong, where all counts are written so.

    Raises
    ------
    PopulationError
        If other counts have no point: then it stands between thousands, and they would be read as
        ones.
    """
    if "count" not in columns:
        return ()
    import polars as pl

    table = scan_table(path, [*columns.values()], form)
    name = dict(zip(columns, table.names, strict=True))["count"]
    if table.rows.collect_schema()[name] != pl.String:
        return ()
    text = pl.col(name).str.strip_chars()
    dotted, whole = text.str.contains(THOUSANDS), text.str.contains(r"^\d+$")
    with told_of(path):
        found = (
            table.rows.select(
                dotted=dotted.sum(), whole=whole.sum(), example=text.filter(dotted).first()
            )
            .collect(engine="streaming")
            .row(0, named=True)
        )
    if not found["dotted"]:
        return ()
    example = found["example"]
    read = f"{float(example):g}"
    if found["whole"]:
        raise PopulationError(
            f"{path}: {found['dotted']:,} counts are written like {example!r} and "
            f"{found['whole']:,} without a point: a point between thousands would be read as a "
            f"decimal one ({example!r} as {read}); write all counts without it"
        )
    return (
        f"all counts have three decimals: {example!r} was read as {read}; if the point stands "
        "between thousands, every count is a thousand times too small: write counts without it",
    )


def user_doubts(path: Path, user: Column, form: TableFormat) -> tuple[str, ...]:
    """Ask whether one person has two names: users are told apart by every byte of theirs.

    Reads the column of users once more; memory grows with the distinct names.
    """
    import polars as pl

    table = scan_table(path, [user], form)
    name = pl.col(table.names[0]).cast(pl.String)
    with told_of(path):
        names = table.rows.select(name).unique().collect(engine="streaming").to_series()
    found = similar_names(Keys.of(names.drop_nulls().sort().to_list()))
    if not found.groups:
        return ()
    a, b = map(spelt, found.examples[0][:2])
    what = "group of users differs" if found.groups == 1 else "groups of users differ"
    return (
        f"{found.groups:,} {what} in case, blanks or Unicode form of their names only, such as "
        f"{a} and {b}: if they are one person, what is promised to a user is promised to each "
        "name alone, and the person gets as many times less; write names alike",
    )
