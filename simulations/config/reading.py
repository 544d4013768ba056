"""Settings: files by name, key=VALUE, and tables that become dataclasses.

Every key is known, and every value what its field asks.

A field's annotation says all of it. msgspec converts a value strictly (a bool is no integer, an
integer is a real number, a word is one of the choices), and :class:`Must` says what is asked
beyond the type. Errors are ValueErrors of one line: the key, what was expected, what was given.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, fields
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from reprlib import repr as repr_short
from types import NoneType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

import msgspec

from fedhist.base.arrays import plain
from fedhist.base.errors import nearest
from fedhist.model.fields import PLAIN, UNIONS, choices, fits, is_enum, refused
from fedhist.model.fields import Must as Must
from fedhist.model.fields import expected as expected
from fedhist.model.fields import hints as hints
from fedhist.model.fields import one_of as one_of
from fedhist.model.renamed import instead
from fedhist.users.keys import Keys

T = TypeVar("T", bound="Settings")
P = TypeVar("P")


Whole = Annotated[int, Must("a positive integer", lambda n: n > 0)]
Natural = Annotated[int, Must("a non-negative integer", lambda n: n >= 0)]
Finite = Annotated[float, Must("a finite number", math.isfinite)]
Positive = Annotated[Finite, Must("positive", lambda x: x > 0)]
Delta = Annotated[float, Must("a number in [0, 1)", lambda d: 0 <= d < 1)]
NonNegative = Annotated[Finite, Must("non-negative", lambda x: x >= 0)]

Table = Mapping[str, Any]
Listed = Must("a list of tables", lambda _: True)
Tables = Annotated[tuple[Annotated[Table, Listed], ...], Listed]

COMMON = ("run", "protocol", "population", "adversary")
STUDIES = ("compare", "sweep", "decide", "repeat")
"""Tables of which each is one command's own."""


@contextmanager
def reading(source: object) -> Iterator[None]:
    """Put the name of what is read before the message of a ValueError."""
    try:
        yield
    except ValueError as e:
        told = str(e)
        known = told.startswith(str(source))
        raise ValueError(told if known else f"{source}: {told}") from None


def tables_of(text: str) -> dict[str, Any]:
    """Read TOML; ValueError where it is none."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise ValueError(f"the text is not TOML: {e}") from None
    except RecursionError:
        raise ValueError("the text is not TOML that can be read: brackets nest too deep") from None


@dataclass(frozen=True)
class Settings:
    """A table of settings: its fields are the keys, and are converted as they are annotated.

    ``table``: name of the table, for errors; empty for a whole file; ``many``: whether a file may
    have several of it, as [[adversary]].
    """

    table: ClassVar[str] = ""
    many: ClassVar[bool] = False

    def __post_init__(self) -> None:
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        for name, value in converted(type(self), given, self.table).items():
            object.__setattr__(self, name, value)
        further = getattr(super(), "__post_init__", None)  # of a class that is no table
        if further is not None:
            further()


def converted(cls: type, given: Mapping[str, Any], table: str) -> dict[str, Any]:
    """Convert values as the fields of a dataclass are annotated; ``table`` is for errors."""
    known = hints(cls)
    return {k: convert(f"{table}.{k}" if table else k, v, known[k]) for k, v in given.items()}


def built(cls: Callable[..., P], given: Mapping[str, Any], table: str) -> P:
    """Build an object of a table's values; what it says itself of a field names the table, too."""
    try:
        return cls(**converted(cast(type, cls), given, table))
    except (TypeError, ValueError) as e:
        own, called = str(e).partition(" ")[0] in given, getattr(cls, "name", "")
        text = f"{table}.{e}" if own else str(e)
        gone = [instead(f"{called}.{k}={v}") for k, v in given.items() if f"{k} must be" in text]
        raise ValueError(text + "".join(gone) * ("it is gone" not in text)) from None


def read(cls: type[T], given: object) -> T:
    """Read a table as a dataclass.

    >>> @dataclass(frozen=True)
    ... class Sizes(Settings):
    ...     table: ClassVar[str] = "sizes"
    ...     n_users: Whole
    >>> read(Sizes, {"n_user": 3})
    Traceback (most recent call last):
    ValueError: unknown key of [sizes] 'n_user'; did you mean 'n_users'?
    """
    what = f"[[{cls.table}]]" if cls.many else f"[{cls.table}]"
    table = as_table(given, what)
    known = [f.name for f in fields(cls)]
    check_keys(table, known, f"key of {what}" if cls.table else "table")
    missing = [key for key in known if key in required(cls) - table.keys()]
    if missing and cls.table:
        raise ValueError(f"{what} needs the key {missing[0]!r}, got {repr_short(dict(table))}")
    if missing:
        raise ValueError(f"a table [{missing[0]}] is needed")
    return cls(**table)


def as_table(given: object, what: str) -> Table:
    """Refuse what is no table."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{what} must be a table, got {given!r}")
    return given


def check_keys(given: Iterable[str], known: Iterable[str], what: str) -> None:
    """Refuse a key that is not known; the error (ValueError) names the nearest one."""
    names = list(known)
    for key in given:
        if key not in names:
            gone = instead(f"{what.rpartition(' ')[2]}.{key}")  # of "parameter of NAME"
            raise ValueError(f"unknown {what} {key!r}{gone or nearest(key, names)}")


def part_of(tables: Mapping[str, Any], study: str = "") -> tuple[dict[str, Any], Any]:
    """Split a file's tables: the common ones, and a study's own.

    ``study``: one of :data:`STUDIES`; empty for a command that reads the common tables only;
    ``own``: None where the file has no such table. Raises ValueError for a table that is nobody's,
    with the nearest, and for an own part that is no table.

    >>> part_of({"run": {}, "decide": {"error": 1}, "sweep": {"seeds": 2}}, "decide")
    ({'run': {}}, {'error': 1})
    """
    if "release" in tables:
        raise ValueError("[[release]] is for fedhist run: here there is one [protocol]")
    check_keys(tables, (*COMMON, *STUDIES, "release"), "table")
    own = tables.get(study)
    return (
        {k: v for k, v in tables.items() if k in COMMON},
        None if own is None else as_table(own, f"[{study}]"),
    )


def required(cls: type) -> set[str]:
    """Names of the fields that have no default."""
    none = (MISSING, MISSING)
    return {f.name for f in fields(cls) if f.init and (f.default, f.default_factory) == none}


def convert(name: str, value: Any, hint: Any) -> Any:
    """Convert a value as a field is annotated; ``name`` is its key, for errors.

    >>> convert("epsilon", 1, float), convert("sizes", [1, 4], Whole | tuple[Whole, Whole])
    (1.0, (1, 4))
    """
    base, asked = hint, list[Must]()
    if get_origin(hint) is Annotated:
        base, asked = hint.__origin__, [m for m in hint.__metadata__ if isinstance(m, Must)]
    if value is None and NoneType in get_args(base):
        return None
    value = plain(value)
    try:
        typed = _typed(name, value, base, expected(hint))
    except ValueError:
        if asked and get_origin(base) in UNIONS:  # said for all of its members
            raise refused(name, value, asked[0].words, asked[0].known) from None
        raise
    for must in asked:
        if not must.holds(typed):
            raise refused(name, value, must.words, must.known)
    return typed


def _typed(name: str, value: Any, hint: Any, wanted: str) -> Any:
    """Convert a value to a type; the types of a plugin's own check themselves."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in UNIONS:
        return _member(name, value, args)
    if isinstance(hint, type) and issubclass(hint, Settings):
        return value if isinstance(value, hint) else read(hint, value)
    if origin is tuple:
        if isinstance(value, list | tuple) and (args[-1] is ... or len(value) == len(args)):
            each = args[:1] * len(value) if args[-1] is ... else args
            return tuple(convert(name, v, a) for v, a in zip(value, each, strict=True))
        raise refused(name, value, wanted)
    if not (origin in (Literal, Mapping) or hint in PLAIN or is_enum(hint)):
        return tuple(value) if isinstance(value, list) else value
    if hint is float and isinstance(value, str) and value == "inf":  # as JSON spells it
        return math.inf
    try:
        if hint in (int, float) and not fits(value, hint):
            raise msgspec.ValidationError
        return msgspec.convert(value, hint, dec_hook=_custom)
    except msgspec.ValidationError:
        raise refused(name, value, wanted, choices(hint)) from None


def _member(name: str, value: Any, members: tuple[Any, ...]) -> Any:
    """Convert a value to the first type of a union that takes it; a list to one of lists."""
    listed = isinstance(value, list | tuple)
    others = [m for m in members if m is not NoneType]
    if isinstance(value, str) and str in others:  # "inf" is then a word like any other
        return value
    fitting = [m for m in others if listed == _is_list(m)] or others
    for member in fitting[:-1]:
        with suppress(ValueError):
            return convert(name, value, member)
    try:
        return convert(name, value, fitting[-1])
    except ValueError:
        if len(fitting) == 1:
            raise
    wanted = " or ".join(map(expected, fitting))
    raise refused(name, value, wanted)


def _is_list(hint: Any) -> bool:
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return bare is Keys or get_origin(bare) is tuple


def _custom(kind: type, value: Any) -> Any:
    """Make what msgspec does not know of itself."""
    if kind is Path and isinstance(value, str):
        return Path(value)
    return Keys.of(map(str, value)) if kind is Keys and isinstance(value, list | tuple) else value


# -- settings as text ------------------------------------------------------------------------------

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
