"""What Python hands over, as the tables of a study file: plain values, protocols, users."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from fedhist.base.errors import nearest
from fedhist.model.protocol import Protocol
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.populations import PopulationSpec
from simulations.populations.memory import Held, hold

COLUMNS = ("user", "item", "count", "value")
TABLES = ("population", "protocol", "adversary", "run")
SHARED = ("data", *COLUMNS, "top", "domain", "plugins", *TABLES)
"""What every study takes beside its own keys; the module `study` says what each is."""


def plain(name: str, value: Any) -> Any:
    """Return a value as a TOML file would hold it.

    ``name``: of the argument, for errors. Raises TypeError for what no file can hold.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Protocol) or (isinstance(value, type) and issubclass(value, Protocol)):
        return protocol_table(value)
    if isinstance(value, Mapping):
        return {str(k): plain(f"{name}[{k!r}]", v) for k, v in value.items()}
    if isinstance(value, list | tuple | range | Keys | set | frozenset):
        return [plain(f"{name}[{i}]", v) for i, v in enumerate(value)]
    what = "numbers, text, lists, dicts or a protocol"
    raise TypeError(f"{name} must be made of {what}, got {type(value).__name__}: {short(value)}")


def protocol_table(protocol: Protocol | type[Protocol]) -> dict[str, Any]:
    """Write a protocol as the table [protocol] that makes it; of a class, its name alone."""
    table: dict[str, Any] = {"name": protocol.name}
    if isinstance(protocol, type):
        return table
    for f in fields(protocol):  # type: ignore[arg-type]  # every protocol is a dataclass
        value = getattr(protocol, f.name)
        if f.init and value is not None and (f.default is MISSING or value != f.default):
            known = is_dataclass(value) and not isinstance(value, type)
            told = {g.name: getattr(value, g.name) for g in fields(value)} if known else value
            table[f.name] = plain(f"{protocol.name}.{f.name}", told)
    return table


def population_of(given: Mapping[str, Any]) -> tuple[dict[str, Any] | None, Held | None]:
    """Make the table [population] of what was handed over as data.

    ``given``: "data", and beside it "user", "item", "count", "value", "top", "domain", where given;
    ``table``: None without data; ``held``: what must be kept for as long as the table is used.
    Raises TypeError, ValueError for what is no data, and columns that do not go with it;
    PopulationError for frames that hold no users.
    """
    data = given.get("data")
    columns = {k: given[k] for k in COLUMNS if given.get(k) is not None}
    more = {k: given[k] for k in ("top", "domain") if given.get(k) is not None}
    if data is None:
        for name in (*columns, *more):
            raise TypeError(f"{name} describes data, which is not given: {name}={given[name]!r}")
        return None, None
    if isinstance(data, str | os.PathLike):
        kind = "samples" if "value" in columns else "events"
        path = {"kind": kind, "path": os.fspath(data)}
        return path | plain("data", {**columns, **_domain_file(more)}), None
    if columns and isinstance(data, Mapping | PopulationSpec | Users):
        name = next(iter(columns))
        raise TypeError(f"{name} names a column of a frame or a file, not of {short(data)}")
    if isinstance(data, Mapping | PopulationSpec):
        return _spec_table(data) | plain("data", _domain_file(more)), None
    none = dict[str, int]()
    users, dropped = (data, none) if isinstance(data, Users) else _users_of_frame(data, columns)
    domain = more.pop("domain", None)
    keys = None if domain is None or isinstance(domain, str | os.PathLike) else _keys(domain)
    held = hold(users, keys, dropped)
    files = {} if keys is not None or domain is None else {"domain": os.fspath(domain)}
    return held.table | plain("data", more | files), held


def _keys(domain: Any) -> Keys:
    if not isinstance(domain, Iterable):
        raise TypeError(f"domain must be a list of items or a file, got {short(domain)}")
    keys = domain if isinstance(domain, Keys) else Keys.of(map(str, domain))
    if not len(keys):
        raise ValueError(f"domain must hold an item at least, got {short(domain)}")
    return keys


def files_of(name: str, value: Any) -> list[Any]:
    """Return files that were given as one path, as several, or not at all.

    Raises TypeError for what is no path.
    """
    if value is None or isinstance(value, str | os.PathLike):
        return [] if value is None else [value]
    if isinstance(value, Iterable):
        given = list(value)
        if all(isinstance(one, str | os.PathLike) for one in given):
            return given
    raise TypeError(f"{name} must be a path or several, got {short(value)}")


def _domain_file(more: Mapping[str, Any]) -> Mapping[str, Any]:
    """Refuse a list of items where the population is read from a file."""
    domain = more.get("domain")
    if domain is not None and not isinstance(domain, str | os.PathLike):
        raise TypeError(f"domain must be a file beside such data, got {short(domain)}")
    return more


def _spec_table(data: Mapping[str, Any] | PopulationSpec) -> dict[str, Any]:
    if isinstance(data, PopulationSpec):
        table = {f.name: getattr(data, f.name) for f in fields(data)}
        return {"kind": data.kind} | {k: plain(k, v) for k, v in table.items() if v is not None}
    if "kind" not in data:
        raise ValueError(f"data as a dict is a table [population] and needs a kind, got {data!r}")
    return dict(plain("data", data))


def _users_of_frame(data: Any, columns: Mapping[str, Any]) -> tuple[Users, dict[str, int]]:
    """Read a frame, or what gives one; count rows left out."""
    for name, column in columns.items():
        ok = isinstance(column, str) or (name == "value" and not isinstance(column, int | float))
        if not ok:
            raise TypeError(f"{name} must be the name of a column, got {column!r}")
    if "user" not in columns:
        raise TypeError(f"user must name a column of the data, user=...: {short(data)}")
    return Users.read_frame(data, **columns)


def short(value: Any) -> str:
    """Write what was given in one line, cut where it is long."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else text[:79] + "…"


def checked(
    function: str, given: Mapping[str, Any], known: Iterable[str], more: Iterable[str] = ()
) -> None:
    """Refuse a keyword that a function does not know (TypeError); the nearest is named."""
    names = [*known, *more]
    for key, value in given.items():
        if key not in names:
            raise TypeError(
                f"{function}() has no argument {key!r} (={short(value)}){nearest(key, names)}"
            )
