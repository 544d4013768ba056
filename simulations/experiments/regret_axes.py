"""Where the cells of a map of regrets stand: which are measured, and the axes that show them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Axis = tuple[str, Callable[[Any], tuple[float, str]]]
"""Its label, and where a cell stands on it: a number to sort by, and a name."""


def pairs_of_axes(
    samples: Axis, users: Sequence[str], *, sized: bool
) -> tuple[tuple[Axis, Axis], ...]:
    """Draw kinds of users against samples, and numbers of users, and sizes, against epsilon.

    Parameters
    ----------
    samples
        The axis of the samples of each user.
    users
        Kinds of users, in order.
    sized
        Whether there are several sizes.
    """
    return (
        (samples, ("users", lambda c: (users.index(c.users), c.users))),
        (
            ("epsilon", lambda c: (c.epsilon, f"{c.epsilon:g}")),
            (
                "users n" + ", size" * sized,
                lambda c: (c.n * 2**20 + c.size, f"{c.n:,}" + f", {c.size}" * sized),
            ),
        ),
    )


def lattice(shape: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """List the cells of a grid: all, or a fraction in which every value stands equally often.

    The fraction is a lattice: the k-th cell is found on each axis by k times an irrational number
    of its own.

    >>> lattice((2, 2), 10)
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    >>> len(lattice((3, 5, 7), 20))
    20
    """
    if math.prod(shape) <= most:
        return list(np.ndindex(*shape))
    root = 2.0  # of x^(d + 1) = x + 1: the generalised golden ratio
    for _ in range(64):
        root = (1 + root) ** (1 / (len(shape) + 1))
    steps = np.array([root ** -(j + 1) for j in range(len(shape))])
    found: dict[tuple[int, ...], None] = {}
    for k in itertools.count():
        at = ((0.5 + k * steps) % 1 * shape).astype(np.int64)
        found[tuple(at.tolist())] = None
        if len(found) == most:
            break
    return list(found)
