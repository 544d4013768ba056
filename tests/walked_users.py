"""Users handed out by blocks only, as populations that are made or read; and who are the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import ref

import numpy as np

from fedhist.users.batch import Users
from fedhist.users.shards import BLOCK, Shard, Wrapped


class Walked(Wrapped):
    """Users in memory, who do not look it.

    Parameters
    ----------
    users : Users
    size : int
        Of their blocks, whatever is asked for.
    """

    made = 0
    """Blocks that were handed out, by whatever users."""

    held = 0
    """Most blocks of a walk that were there, or whose records were, when another was made."""

    users: Users

    def __init__(self, users: Users, size: int = BLOCK) -> None:
        super().__init__(users)
        self.size = size

    def slice(self, start: int, stop: int) -> Shard:
        return Walked(self.users.slice(start, stop), self.size)

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        before: list[tuple[ref[Any], ref[Any]]] = []
        for a in range(0, len(self), self.size):
            held = sum(any(r() is not None for r in pair) for pair in before)
            Walked.made, Walked.held = Walked.made + 1, max(Walked.held, held)
            block = self.users.slice(a, min(a + self.size, len(self))).copy()
            record = block.reals.values if block.items is None else block.items.count
            before.append((ref(block), ref(record)))
            del record
            yield block
            del block


def same_users(a: Users, b: Users) -> None:
    np.testing.assert_array_equal(a.ids, b.ids)
    mine, theirs = (u.reals if u.items is None else u.items for u in (a, b))
    assert type(mine) is type(theirs)
    for name, value in vars(mine).items():
        np.testing.assert_equal(value, getattr(theirs, name), name)
