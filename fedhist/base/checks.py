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


def check_size(name: str, x: float) -> None:
    """Raise ValueError unless the number is positive and finite; NaN is neither."""
    if not 0 < x < math.inf:
        raise ValueError(f"{name} must be positive and finite, got {x}")


def check_within(name: str, x: float, low: float, high: float) -> None:
    """Raise ValueError unless the number lies in [low, high]; NaN does not."""
    if not low <= x <= high:
        raise ValueError(f"{name} must lie in [{low}, {high}], got {x}")
