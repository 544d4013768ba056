"""The adjacency that plans, comparisons and sweeps take unless they are told one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from fedhist.model.registry import parameters, protocol_class
from fedhist.privacy.guarantee import Adjacency

COMMON = Adjacency.REPLACE_USER
"""Replacement of one user's whole record: what every level of trust can state."""

KEY = "adjacency"


def with_common(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table [protocol] under the common adjacency, where it names none and can have it.

    A protocol that has it by itself keeps its table, and with it the keys of its cells.

    >>> with_common({"name": "bounded-histogram"})
    {'name': 'bounded-histogram', 'adjacency': 'replace-user'}
    >>> with_common({"name": "mean"}), with_common({"name": "bounded-histogram", KEY: "x"})
    ({'name': 'mean'}, {'name': 'bounded-histogram', 'adjacency': 'x'})
    """
    cls = protocol_class(str(table["name"]))
    if KEY in table or KEY not in parameters(cls):
        return dict(table)
    usual = next(f.default for f in fields(cls) if f.name == KEY)  # type: ignore[arg-type]
    if usual == COMMON.value:
        return dict(table)
    try:
        replace(cls.example(), **{KEY: COMMON.value})  # type: ignore[type-var]
    except ValueError as e:
        if not {KEY, COMMON.value} & set(re.findall(r"[\w-]+", str(e))):
            raise  # something else is wrong: another adjacency would hide it
        return dict(table)  # it cannot be had, and its guarantee says which it has
    return {**table, KEY: COMMON.value}
