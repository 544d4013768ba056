"""Values of a configuration: known keys, required ones, and types as the fields want them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, get_args, get_type_hints

from fedhist.base.errors import nearest
from fedhist.users.keys import Keys


def check_keys(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse a key that is not known; the error (ValueError) names the nearest one."""
    names = list(known)
    for key in given:
        if key not in names:
            raise ValueError(f"unknown {what} {key!r}{nearest(key, names)}")


def required(cls: type) -> set[str]:
    """Names of the fields that have no default."""
    none = (MISSING, MISSING)
    return {f.name for f in fields(cls) if f.init and (f.default, f.default_factory) == none}


def cast(cls: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Turn TOML integers into floats and lists into tuples where the fields want them."""
    hints = get_type_hints(cls)
    out = {}
    for key, value in given.items():
        hint = str(hints.get(key, ""))
        if type(value) is int and "float" in hint and "int" not in hint:
            value = float(value)
        elif isinstance(value, list | tuple) and hints.get(key) is Keys:
            value = Keys.of(map(str, value))
        elif isinstance(value, list):
            value = tuple(value)
        elif value == "inf" and "float" in hint:
            value = math.inf
        check_type(key, value, hints.get(key))
        out[key] = value
    return out


PLAIN = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def check_type(key: str, value: Any, hint: Any) -> None:
    """Refuse text where a number is wanted, and the like; other types check themselves."""
    allowed = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    wanted = [t for t in allowed if t is not type(None)]
    if all(t in PLAIN for t in wanted) and type(value) not in allowed:
        raise ValueError(f"{key} must be {' or '.join(PLAIN[t] for t in wanted)}, got {value!r}")
