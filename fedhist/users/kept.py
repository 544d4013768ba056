"""Users who are made or read once for many rounds, as far as a budget of bytes goes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from fedhist.users.batch import Users
from fedhist.users.shards import BLOCK, Shard, Wrapped

ROOM = 512 << 20
"""Bytes of users, about, that a process keeps from the second round that asks them on."""


PROBED = 64
"""Users who tell how many will fit."""


class FirstInMemory(Wrapped):
    """Users of whom the first are in memory; the others are made or read anew in every walk.

    The first are in parts, as they came: put together they would be there twice for a moment.
    """

    def __init__(self, users: Shard, parts: Sequence[Users]) -> None:
        super().__init__(users)
        self.parts = parts
        self._ends = list(accumulate(map(len, parts), initial=0))

    def slice(self, start: int, stop: int) -> FirstInMemory:
        return FirstInMemory(self.users.slice(start, stop), list(self._among(start, stop)))

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        start, kept = 0, self._ends[-1]
        while start < kept:
            stop = min(start + size, len(self))
            blocks = list(self._among(start, stop))
            if stop > kept:
                blocks += self.users.slice(kept, stop).blocks(size)
            yield blocks[0] if len(blocks) == 1 else self.none.followed_by(blocks)
            start = stop
        yield from self.users.slice(start, len(self)).blocks(size)

    def _among(self, start: int, stop: int) -> Iterator[Users]:
        """Walk those from ``start`` to ``stop`` that are in memory."""
        first = bisect_right(self._ends, start) - 1
        for part, end in zip(self.parts[first:], self._ends[first:], strict=False):
            if end >= stop:
                return
            a, b = max(start - end, 0), min(stop - end, len(part))
            yield part if b - a == len(part) else part.slice(a, b)


def keep_first(users: Shard, room: int = ROOM) -> tuple[Shard, int]:
    """Keep as many of the first users as take about so many bytes.

    Returns the users, as they are if they are in memory or kept already or if nobody fits, and the
    bytes taken: all of the room once those probed do not fit, so that nobody is probed again.
    """
    if isinstance(users, Users | FirstInMemory) or not (len(users) and room > 0):
        return users, 0
    some = users.slice(0, min(PROBED, len(users))).in_memory()
    fit = room * len(some) // size_of(some)
    if fit < len(some):
        return users, room
    if len(some) == len(users):
        return FirstInMemory(users, [some]), size_of(some)
    parts, left = list[Users](), room
    for block in users.slice(0, min(fit, len(users))).blocks():
        size = size_of(block)  # those who come later may be larger than those probed
        parts.append(block if size <= left else block.slice(0, len(block) * left // size))
        left -= size
        if left <= 0:
            break
    return FirstInMemory(users, parts), sum(map(size_of, parts))


def size_of(users: Users) -> int:
    """Count the bytes of users, vocabulary apart."""
    return users.nbytes + users.ids.nbytes
