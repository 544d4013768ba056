"""One file for several commands: tables that all of them read, and a part for each study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulations.config.reading import as_table, check_keys

COMMON = ("run", "protocol", "population", "adversary")
STUDIES = ("compare", "sweep", "decide")
"""Tables of which each is one command's own."""


def part_of(tables: Mapping[str, Any], study: str = "") -> tuple[dict[str, Any], Any]:
    """Split a file's tables: the common ones, and a study's own.

    Parameters
    ----------
    tables : mapping
    study : str
        One of :data:`STUDIES`; empty for a command that reads the common tables only.

    Returns
    -------
    common : dict
    own : mapping or None
        None where the file has no such table.

    Raises
    ------
    ValueError
        For a table that is nobody's, with the nearest, and for an own part that is no table.

    Examples
    --------
    >>> part_of({"run": {}, "decide": {"error": 1}, "sweep": {"seeds": 2}}, "decide")
    ({'run': {}}, {'error': 1})
    """
    check_keys(tables, (*COMMON, *STUDIES), "table")
    own = tables.get(study)
    return (
        {k: v for k, v in tables.items() if k in COMMON},
        None if own is None else as_table(own, f"[{study}]"),
    )
