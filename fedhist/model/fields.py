"""Annotations of a dataclass's fields: what they ask of values, and in which words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from numbers import Integral
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from fedhist.base.checks import is_real
from fedhist.base.errors import closest, nearest
from fedhist.model.renamed import instead
from fedhist.users.keys import Keys

HUGE = 1 << 1000
"""Integers are below: doubles hold no larger ones."""

UNIONS = (Union, UnionType)
PLAIN = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    Path: "a path",
    Keys: "a list of items",
}


class Must(NamedTuple):
    """What a value is asked beyond its type, and in which words it is asked."""

    words: str
    holds: Callable[[Any], bool]
    known: tuple[str, ...] = ()


def one_of(*words: str) -> Must:
    """Ask for one of some words."""
    return Must(f"one of {', '.join(words)}", words.__contains__, words)


@cache
def hints(cls: type) -> dict[str, Any]:
    """Return what the fields of a dataclass are annotated with, by name."""
    types = get_type_hints(cls, include_extras=True)
    return {f.name: types[f.name] for f in fields(cls) if f.init}


def expected(hint: Any) -> str:
    """Say what an annotation expects.

    >>> expected(Annotated[int, Must("positive", bool)] | None), expected(Literal["a", "b"])
    ('positive', 'one of a, b')
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return next((m.words for m in args[1:] if isinstance(m, Must)), expected(args[0]))
    if origin in UNIONS:
        return " or ".join(expected(a) for a in args if a is not NoneType)
    if origin is Literal or is_enum(hint):
        return one_of(*choices(hint)).words
    if origin is tuple:
        each = [expected(a) for a in args if a is not Ellipsis]
        return f"a list, each {each[0]}" if Ellipsis in args else f"a list of {', '.join(each)}"
    if origin or hasattr(hint, "many"):
        return "a table"
    return PLAIN.get(hint) or str(hint.__name__)


def choices(hint: Any) -> tuple[str, ...]:
    """Return the words of a choice; none where an annotation is no choice."""
    words = get_args(hint) if get_origin(hint) is Literal else hint if is_enum(hint) else ()
    return tuple(str(w.value if isinstance(w, Enum) else w) for w in words)


def is_enum(hint: Any) -> bool:
    """Say whether an annotation is an enumeration."""
    return isinstance(hint, type) and issubclass(hint, Enum)


def check_fields(cls: type, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise ValueError, with name and value, for an argument that is not what its field asks.

    A domain is its own class's to check, as are the arguments of an ``__init__`` of a class's own,
    and annotations that only type checkers can read. TypeError, with the nearest, for a name of no
    field.

    >>> from fedhist.protocols import Mean
    >>> check_fields(Mean, ("1",), {})
    Traceback (most recent call last):
    ValueError: epsilon must be a number, got '1'
    """
    made = getattr(cls.__init__, "__code__", None)  # type: ignore[misc]
    if made is None or made.co_filename != "<string>":  # not by dataclass
        return
    asked: Mapping[str, Any] = {}
    with suppress(Exception):
        asked = hints(cls)
    every: Mapping[str, Any] = cls.__dataclass_fields__  # type: ignore[attr-defined]
    taken = {n: f for n, f in every.items() if f.init}  # what is for __init__ alone, too
    first = (name for name, f in taken.items() if not f.kw_only)
    called = getattr(cls, "name", cls.__name__)
    for name, value in [*zip(first, args, strict=False), *kwargs.items()]:
        if name not in taken:
            what = f"{cls.__name__}() got an unexpected keyword argument {name!r}"
            gone = instead(f"{called}.{name}") or instead(name)
            raise TypeError(what + (gone or nearest(name, taken)))
        if name in asked and not fits(value, asked[name]):
            error = refused(name, value, expected(asked[name]), choices(asked[name]))
            gone = instead(f"{called}.{name}={value}") if isinstance(value, str) else ""
            raise ValueError(f"{error}{gone}") if gone else error


def refused(name: str, value: Any, wanted: str, known: tuple[str, ...] = ()) -> ValueError:
    """Make the error of a value that is not what its field asks; ``known`` are words it lists."""
    huge = isinstance(value, int) and abs(value) >= HUGE
    given = "one beyond 2^1000" if huge else repr(value)
    remedy = instead(f"{name.rpartition('.')[2]} = {value}") or closest(value, known)
    return ValueError(f"{name} must be {wanted}, got {given}{remedy}")


def fits(value: Any, hint: Any, *, exact: bool = False) -> bool:
    """Say whether a value is what an annotation asks; NaN is no number, nor what no double holds.

    What is no number, text, choice, list or dataclass is not looked into. With ``exact``, as for
    messages: no whole number is a float, no list a tuple, and every value is of its class.

    >>> fits(1, float | None), fits(True, int), fits(float("nan"), float), fits(10**400, int)
    (True, False, False, False)
    >>> fits((1, "a"), tuple[int, str]), fits([1, "a"], tuple[int, ...]), fits(2, Literal[1, 2])
    (True, False, True)
    >>> fits(1, float, exact=True), fits([1], tuple[int, ...], exact=True)
    (False, False)
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return fits(value, args[0], exact=exact)
    if origin in UNIONS:
        return any(fits(value, a, exact=exact) for a in args)
    if origin is Literal:
        return any(type(value) is type(a) and value == a for a in args)
    if origin is tuple:
        if not isinstance(value, tuple if exact else list | tuple):
            return False
        each = args[:1] * len(value) if args[-1] is Ellipsis else args
        pairs = zip(value, each, strict=False)
        return len(value) == len(each) and all(fits(v, a, exact=exact) for v, a in pairs)
    if exact and hint is not Any:
        kind = origin or hint
        return type(value) is kind if kind in (bool, int, float, str) else isinstance(value, kind)
    if hint is float or hint is int:
        held = hint is float or isinstance(value, Integral)
        return is_real(value) and held and not (isinstance(value, int) and abs(value) >= HUGE)
    if hint is NoneType:
        return value is None
    plain = hint in (bool, str, Path) or is_enum(hint)
    if plain or (isinstance(hint, type) and is_dataclass(hint)):
        return isinstance(value, hint)
    return True
