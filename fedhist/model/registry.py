"""The registry: the allow-list of queries and protocols that may be named in a message or a file.

No module is imported because a message names it. Protocols come from :mod:`fedhist.protocols`, from
installed packages that declare the entry point group ``fedhist.protocols``, and from files that
the person who starts the process names (``--plugin my_protocol.py``). A protocol of ours is
imported when its name is looked up; a name that is not known by then brings all of them.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

from fedhist.base.errors import nearest
from fedhist.base.hashing import digest64
from fedhist.model.display import Display
from fedhist.model.part import Part
from fedhist.model.protocol import Protocol
from fedhist.model.query import Query
from fedhist.model.renamed import instead

Q = TypeVar("Q", bound=type[Query])
F = TypeVar("F", bound=type[Part])
P = TypeVar("P", bound=type[Protocol])

_queries: dict[str, type[Query]] = {}
_parts: dict[str, type[Part]] = {}
_protocols: dict[str, type[Protocol]] = {}


def register_query(cls: Q) -> Q:
    """Register a Query class under its ``wire_name`` (class decorator)."""
    _register(_queries, cls.wire_name, cls)
    return cls


def register_part(cls: F) -> F:
    """Register a class of fields of queries under its ``wire_name`` (class decorator)."""
    _register(_parts, cls.wire_name, cls)
    return cls


def register_protocol(cls: P) -> P:
    """Register a Protocol class under its ``name`` (class decorator)."""
    _register(_protocols, cls.name, cls)
    return cls


def _register(table: dict[str, type], name: str, cls: type) -> None:
    if not is_dataclass(cls):
        raise TypeError(f"{cls.__name__} must be a frozen dataclass: its fields are what is public")
    known = table.get(name)
    if known is not None and _source(known) != _source(cls):
        raise ValueError(f"the name {name!r} is taken by {known.__module__}.{known.__qualname__}")
    table[name] = cls


def _source(cls: type) -> tuple[str, str]:
    """Name the file of a class, which may be imported under two names, and the class in it."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return str(Path(file).resolve()) if file else cls.__module__, cls.__qualname__


def query_class(wire_name: str) -> type[Query]:
    """Look up a query by its wire name; ValueError for names that are not registered."""
    return _find(_queries, wire_name, "query")


def part_class(wire_name: str) -> type[Part]:
    """Look up a part of queries by its wire name; ValueError if it is not registered."""
    return _find(_parts, wire_name, "part of a query")


def protocol_class(name: str) -> type[Protocol]:
    """Look up a protocol by name; ValueError, with the nearest known name, if there is none."""
    _import_one(name)
    if name not in _protocols:
        load_builtin()
    return _find(_protocols, name, "protocol")


def _find(table: Mapping[str, type], name: str, what: str) -> type:
    if name not in table:
        remedy = instead(name) or nearest(name, sorted(table))
        raise ValueError(f"unknown {what} {name!r}{remedy}")
    return table[name]


def protocols() -> Mapping[str, type[Protocol]]:
    """All registered protocols by name."""
    return MappingProxyType(_protocols)


def own_protocols() -> Mapping[str, type[Protocol]]:
    """Return the protocols of this package by name: none of plugins and other packages."""
    load_builtin()
    return MappingProxyType({n: c for n, c in sorted(_protocols.items()) if is_ours(c)})


def is_ours(cls: type[Protocol]) -> bool:
    """Whether a protocol comes with fedhist: it lies in the package ``server``."""
    return cls.__module__.startswith("server.")


def display_of(target: str) -> Display:
    """Return how estimates of a target are shown: as the first protocol says that declares it."""
    load_builtin()
    declared = (c.display for c in _protocols.values() if c.target == target and c.display)
    return next(declared, Display())


def queries() -> Mapping[str, type[Query]]:
    """All registered queries by wire name."""
    return MappingProxyType(_queries)


def parameters(cls: type[Protocol]) -> list[str]:
    """Return the configuration keys of a protocol: its dataclass fields."""
    return [f.name for f in fields(cls) if f.init]  # type: ignore[arg-type]


def _import_one(name: str) -> None:
    """Register the protocol of this package that has a name: "mean-l2" is the class MeanL2."""
    ours = importlib.import_module("fedhist.protocols")
    class_name = "".join(word.capitalize() for word in str(name).split("-"))
    if name not in _protocols and class_name in ours.__all__:
        getattr(ours, class_name)


@cache
def load_builtin() -> None:
    """Register the protocols of this package and of installed packages that declare some, once."""
    ours = importlib.import_module("fedhist.protocols")
    for name in ours.__all__:
        getattr(ours, name)
    load_like(())


def own_modules() -> tuple[str, ...]:
    """Return our modules that have registered what messages may ask for so far."""
    known = {c.__module__ for c in (*_queries.values(), *_parts.values())}
    return tuple(sorted(m for m in known if m.startswith(("fedhist.", "clients."))))


def load_like(modules: tuple[str, ...]) -> None:
    """Register what another process has, by its own modules, and what installed packages declare.

    That takes a fraction of :func:`load_builtin` where one protocol is run.
    """
    for module in modules:
        importlib.import_module(module)
    for point in entry_points(group="fedhist.protocols"):
        point.load()


def load_plugin(path: str | Path) -> None:
    """Register the protocols of one Python file named by the person who runs it."""
    file = Path(path).resolve()
    if not file.is_file():
        raise ValueError(f"no such plugin file: {file}")
    name = f"fedhist_plugin_{file.stem}_{digest64(str(file)):016x}"
    for module in list(sys.modules.values()):  # loaded, or imported under a name of its own
        place = getattr(module, "__file__", None)
        if isinstance(place, str) and place.endswith(file.name) and Path(place).resolve() == file:
            return
    load_builtin()  # a name that is ours is taken
    before = len(_protocols) + len(_queries)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ValueError(f"not a Python file: {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as e:
        del sys.modules[name]
        if isinstance(e, SyntaxError):
            raise ValueError(f"{e.filename}, line {e.lineno}: {e.msg}") from e
        raise
    if len(_protocols) + len(_queries) == before:
        raise ValueError(f"the plugin {file} registers no protocol and no query")
