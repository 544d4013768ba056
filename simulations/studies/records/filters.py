"""The filters of ``fedhist results``: "epsilon = 1 and n_users >= 1000"."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from typing import Any

import polars as pl

from fedhist.base.errors import nearest
from fedhist.base.text import is_number

OPERATORS = {
    "=": operator.eq,
    "==": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_SIGN = "==|!=|<=|>=|=|<|>"
_TEST = re.compile(rf"\s*([\w.\- ]*[\w.\-])\s*({_SIGN})\s*(.*?)\s*")
_AND = re.compile(rf"\s+and\s+(?=[\w.\-]+(?: [\w.\-]+)?\s*(?:{_SIGN}))", re.IGNORECASE)
"""What joins two tests; the word may also stand within a value."""


def select(frame: pl.DataFrame, tests: Iterable[str]) -> pl.DataFrame:
    """Keep the rows that pass all tests.

    Parameters
    ----------
    frame : polars.DataFrame
        From :func:`simulations.studies.records.store.frame_of`.
    tests : iterable of str
        "epsilon = 1", "n_users >= 1000", "population.kind != zipf"; several are joined by "and".
        A column may be named without its table where no other has the same name.

    Raises
    ------
    ValueError
        For what is not a test, unknown columns, and text where a column holds numbers.

    Notes
    -----
    A column of numbers and words ("protocol.clip" where one is "best") is compared with a number
    as numbers: a word is neither equal to it nor larger nor smaller. "!=" keeps what "=" does not,
    also the rows that have no value.
    """
    for test in tests:
        for part in _AND.split(test.strip()):
            frame = frame.filter(_expression(frame, part))
    return frame


def _expression(frame: pl.DataFrame, test: str) -> pl.Expr:
    found = _TEST.fullmatch(test)
    if found is None or not found[3]:
        raise ValueError(f'a test reads "column = value", got {test!r}')
    name, sign, text = found.groups()
    column = pl.col(_column(frame, name))
    kind = frame.schema[_column(frame, name)]
    value: Any = text.strip("\"'")
    if kind.is_numeric():
        try:
            value = float(value)
        except ValueError:
            raise ValueError(f"{name} holds numbers, got {text!r}") from None
    elif kind == pl.Boolean:
        if value not in ("true", "false"):
            raise ValueError(f"{name} is true or false, got {text!r}")
        value = value == "true"
    elif is_number(text):
        # as text, "320" comes before "80" and "80.0" is not "80"
        column, value = column.cast(pl.Float64, strict=False), float(text)
    if sign == "!=":
        return ~(column == pl.lit(value)).fill_null(False)
    result: pl.Expr = OPERATORS[sign](column, pl.lit(value))
    return result


def _column(frame: pl.DataFrame, name: str) -> str:
    if name in frame.columns:
        return name
    ends = [c for c in frame.columns if c.partition(".")[2] == name]
    if len(ends) == 1:
        return ends[0]
    if ends:
        raise ValueError(f"{name!r} may be {' or '.join(ends)}")
    raise ValueError(f"no column {name!r}{nearest(name, frame.columns)} (--keys lists them)")
