"""What configurations are asked to be: checks that name the field and the offending value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum
from numbers import Real
from typing import Any, Never

from fedhist.base.errors import closest


class Words(Enum):
    """Words that a field of the class's name may hold: the error for another is a field's."""

    @classmethod
    def _missing_(cls, value: object) -> Never:
        check_choice(cls.__name__.lower(), value, [word.value for word in cls])
        raise ValueError(value)  # unreached: a word is a member


def check_choice(name: str, value: Any, known: Iterable[str]) -> None:
    """Raise ValueError unless the value is one of the words.

    >>> check_choice("mode", "printed", ("default", "paper"))
    Traceback (most recent call last):
    ValueError: mode must be one of default, paper, got 'printed'
    """
    words = tuple(known)
    if value not in words:
        close = closest(value, words)
        raise ValueError(f"{name} must be one of {', '.join(words)}, got {value!r}{close}")


def check_integer(name: str, value: Any, most: int | None = None, *, least: int = 1) -> None:
    """Raise ValueError unless the value is an integer (a bool is none) in [least, most].

    >>> check_integer("n_users", 2.0, 10)
    Traceback (most recent call last):
    ValueError: n_users must be an integer in [1, 10], got 2.0
    """
    whole = isinstance(value, int) and not isinstance(value, bool)
    if whole and value >= least and (most is None or value <= most):
        return
    kinds = {0: "a non-negative integer", 1: "a positive integer"}
    wanted = kinds.get(least, f"an integer of at least {least}")
    if most is not None:
        wanted = f"an integer in [{least}, {most}]"
    raise ValueError(f"{name} must be {wanted}, got {value!r}")


def is_real(value: object) -> bool:
    """Say whether a value is a number: a bool is none, nor is NaN."""
    return isinstance(value, Real) and not isinstance(value, bool) and value == value


def shown(value: object) -> str:
    """Write what was given: numbers as numbers, NumPy's too, text in quotation marks."""
    return str(value) if isinstance(value, Real) else repr(value)


def check_scale(name: str, x: float, most: float = 2.0**400) -> None:
    """Raise ValueError unless squares of a length, and of its parts, are normal doubles.

    Beyond, a clip would not clip and a distance would read as 0.
    """
    if not (is_real(x) and 1 / most <= x <= most):
        power = round(math.log2(most))
        raise ValueError(
            f"{name} must be positive and lie in [2^-{power}, 2^{power}], got {shown(x)}"
        )


def check_count(name: str, n: float) -> None:
    """Raise ValueError unless there is one at least."""
    if not (is_real(n) and n >= 1):
        raise ValueError(f"{name} must be positive, got {shown(n)}")


def check_size(name: str, x: float, *, zero: bool = False) -> None:
    """Raise ValueError unless the number is positive, or 0 if that will do, and finite."""
    if not (is_real(x) and (0 < x < math.inf or (zero and x == 0))):
        wanted = "non-negative" if zero else "positive"
        raise ValueError(f"{name} must be {wanted} and finite, got {shown(x)}")


def check_within(name: str, x: float, low: float, high: float, ends: str = "[]") -> None:
    """Raise ValueError unless the number lies in an interval; NaN does not.

    >>> check_within("salt", -1, 0, 1 << 63, "[)")
    Traceback (most recent call last):
    ValueError: salt must lie in [0, 2^63), got -1
    """
    above = is_real(x) and (low <= x if ends[0] == "[" else low < x)
    if not (above and (x <= high if ends[1] == "]" else x < high)):
        interval = f"{ends[0]}{_short(low)}, {_short(high)}{ends[1]}"
        raise ValueError(f"{name} must lie in {interval}, got {shown(x)}")


def check_range(low: float, high: float) -> None:
    """Raise ValueError unless [low, high] is a finite interval."""
    if not (low < high and math.isfinite(high - low)):
        raise ValueError(f"need finite low < high, got [{low}, {high}]")


def check_ends(low: float, high: float) -> None:
    """Raise ValueError unless [low, high] is an interval whose length has a square in doubles."""
    check_range(low, high)
    check_scale("high - low", high - low)


def _short(end: float) -> str:
    """Write a large power of two as such."""
    power = int(end).bit_length() - 1 if math.isfinite(end) else 0
    return f"2^{power}" if power >= 30 and end == 1 << power else str(end)
