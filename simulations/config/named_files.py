"""Settings as text: files of the user's or of fedhist, by name; and key=VALUE."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from fedhist.base.errors import nearest

PACKAGE = "simulations.config.builtin"


def builtin_names(folder: str = "") -> list[str]:
    """Return the names of the files that come with fedhist, of one folder."""
    files = _place(folder).iterdir()
    return sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml"))


def settings_text(source: str | Path, what: str, folder: str = "") -> tuple[str, str]:
    """Return the text and the name of a file of settings.

    ``source``: a .toml file, or a name from :func:`builtin_names`; ``what``: what it is, for
    errors: "sweep". Raises ValueError if there is none.
    """
    path = Path(source)
    if path.suffix == ".toml":
        if not path.is_file():
            raise ValueError(f"no such {what} file: {path}")
        try:
            return path.read_text(encoding="utf-8"), path.stem
        except UnicodeDecodeError as e:
            raise ValueError(f"{path} is not UTF-8 text: {e}") from None
    name, known = str(source), builtin_names(folder)
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}{nearest(name, known)}")
    return _place(folder).joinpath(f"{name}.toml").read_text(encoding="utf-8"), name


def _place(folder: str) -> Traversable:
    place = resources.files(PACKAGE)
    return place.joinpath(folder) if folder else place


def key_value(text: str, form: str) -> tuple[str, Any]:
    """Read "key=VALUE"; the value is TOML, or text if it is not.

    ``form``: what was expected, for errors: "table.key=value". Raises ValueError without a key or
    an equals sign; for a list or table that is no TOML.

    >>> key_value("repeats=5", "key=value"), key_value("rule = em-slope", "key=value")
    (('repeats', 5), ('rule', 'em-slope'))
    """
    key, equals, value = (part.strip() for part in text.partition("="))
    key = key.replace('"', "")  # of TOML, where a part of the key has dots or letters of its own
    if not (equals and key):
        raise ValueError(f"--set reads {form}, got {text!r}")
    try:
        return key, tomllib.loads(f"x = {value}")["x"]
    except tomllib.TOMLDecodeError as error:
        if value[:1] in ("[", "{"):
            raise ValueError(
                f'{key}: {value} is no TOML, which writes 0.25 and "a": {error}'
            ) from None
        return key, value


def toml_value(value: Any) -> str:
    """Write a value as TOML.

    >>> toml_value(True), toml_value([0.5, {"a-b": 2}]), toml_value("green tea")
    ('true', '[0.5, { "a-b" = 2 }]', '"green tea"')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, Mapping):
        own = (f"{json.dumps(k)} = {toml_value(v)}" for k, v in value.items() if v is not None)
        return "{ " + ", ".join(own) + " }"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def to_toml(tables: Mapping[str, Any]) -> str:
    """Write the tables of a file of settings.

    >>> print(to_toml({"run": {"seed": 1}, "adversary": [{"kind": "dropout"}]}))
    [run]
    seed = 1
    <BLANKLINE>
    [[adversary]]
    kind = "dropout"
    <BLANKLINE>
    """
    parts = []
    for name, table in tables.items():
        rows = table if isinstance(table, list) else [table]
        head = f"[[{name}]]" if isinstance(table, list) else f"[{name}]"
        for row in rows:
            keys = [
                f"{k if k.isascii() and k.isidentifier() else json.dumps(k)} = {toml_value(v)}"
                for k, v in row.items()
                if v is not None
            ]
            parts.append("\n".join([head, *keys]) + "\n")
    return "\n".join(parts)
