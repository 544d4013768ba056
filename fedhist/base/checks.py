"""What configurations are asked to be: checks that name the field and the offending value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

MOST_SCALE = 2.0**400


def check_choice(name: str, value: Any, known: Iterable[str]) -> None:
    """Raise ValueError unless the value is one of the words.

    >>> check_choice("mode", "printed", ("default", "paper"))
    Traceback (most recent call last):
    ValueError: mode must be "default" or "paper", got 'printed'
    """
    words = tuple(known)
    if value not in words:
        wanted = ", ".join(f'"{word}"' for word in words[:-1])
        raise ValueError(f'{name} must be {wanted} or "{words[-1]}", got {value!r}')


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


def check_scale(name: str, x: float, most: float = MOST_SCALE) -> None:
    """Raise ValueError unless squares of a length, and of its parts, are normal doubles.

    Beyond, a clip would not clip and a distance would read as 0.
    """
    if not 1 / most <= x <= most:
        power = round(math.log2(most))
        raise ValueError(f"{name} must be positive and lie in [2^-{power}, 2^{power}], got {x}")


def check_count(name: str, n: float) -> None:
    """Raise ValueError unless there is one at least."""
    if n < 1:
        raise ValueError(f"{name} must be positive, got {n}")


def check_size(name: str, x: float, *, zero: bool = False) -> None:
    """Raise ValueError unless the number is positive, or 0 if that will do, and finite."""
    if not (0 < x < math.inf or (zero and x == 0)):
        wanted = "non-negative" if zero else "positive"
        raise ValueError(f"{name} must be {wanted} and finite, got {x}")


def check_within(name: str, x: float, low: float, high: float, ends: str = "[]") -> None:
    """Raise ValueError unless the number lies in an interval; NaN does not.

    >>> check_within("salt", -1, 0, 1 << 63, "[)")
    Traceback (most recent call last):
    ValueError: salt must lie in [0, 2^63), got -1
    """
    above = low <= x if ends[0] == "[" else low < x
    if not (above and (x <= high if ends[1] == "]" else x < high)):
        interval = f"{ends[0]}{_short(low)}, {_short(high)}{ends[1]}"
        raise ValueError(f"{name} must lie in {interval}, got {x}")


def check_range(low: float, high: float) -> None:
    """Raise ValueError unless [low, high] is a finite interval."""
    if not (low < high and math.isfinite(high - low)):
        raise ValueError(f"need finite low < high, got [{low}, {high}]")


def _short(end: float) -> str:
    """Write a large power of two as such."""
    power = int(end).bit_length() - 1 if math.isfinite(end) else 0
    return f"2^{power}" if power >= 30 and end == 1 << power else str(end)
