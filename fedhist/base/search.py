"""The smallest integer from which on a statement holds."""

from __future__ import annotations

from collections.abc import Callable

MOST_USERS = 1 << 50
"""More than anybody has: no search for a number of users goes further."""


def fewest_users(enough: Callable[[int], bool], least: int = 1) -> int:
    """Return the smallest number of users, ``least`` or more, that is enough; 2^50 if none is."""
    return first_true(enough, MOST_USERS, least) or MOST_USERS


def first_true(holds: Callable[[int], bool], most: int, least: int = 1) -> int | None:
    """Return the smallest n in [least, most] that a statement holds for; None if there is none.

    The statement stays true once it is. It is asked for O(log) numbers: of least, of numbers at
    distances that double, and between the last two of these. Nothing beyond ``most`` is asked.

    >>> first_true(lambda n: n * n >= 1000, 1 << 40)
    32
    """
    if least > most:
        return None
    no, yes, step = least - 1, least, 1
    while not holds(yes):
        if yes == most:
            return None
        no, yes, step = yes, min(yes + step, most), 2 * step
    while yes - no > 1:
        middle = (no + yes) // 2
        no, yes = (no, middle) if holds(middle) else (middle, yes)
    return yes
