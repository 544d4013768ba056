"""Users who are made or read once for many rounds, as far as a budget of bytes goes."""

from __future__ import annotations

from collections.abc import Iterator

from fedhist.users.batch import Users
from fedhist.users.shards import BLOCK, Shard, Wrapped

ROOM = 512 << 20
"""Bytes of users, about, that a process keeps from the second round that asks them on."""

PROBED = 64
"""Users who tell how many will fit."""


class FirstInMemory(Wrapped):
    """Users of whom the first are in memory; the others are made or read anew in every walk.

    Parameters
    ----------
    users : Shard
        All of them.
    first : Users
    """

    def __init__(self, users: Shard, first: Users) -> None:
        super().__init__(users)
        self.first = first

    def slice(self, start: int, stop: int) -> FirstInMemory:
        """Return some of the users."""
        k = len(self.first)
        first = self.first.slice(min(start, k), min(stop, k))
        return FirstInMemory(self.users.slice(start, stop), first)

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        """Walk the users; a block may be half kept and half made."""
        k, n = len(self.first), len(self)
        if k == n:
            yield from self.first.blocks(size)
            return
        a = k // size * size
        b = min(a + size, n) if k > a else a
        yield from self.first.slice(0, a).blocks(size)
        if k > a:
            yield self.first.slice(a, k).followed_by(self.users.slice(k, b).blocks(size))
        yield from self.users.slice(b, n).blocks(size)


def keep_first(users: Shard, room: int = ROOM) -> tuple[Shard, int]:
    """Keep as many of the first users as take about so many bytes.

    Returns
    -------
    users : Shard
        As they are, if they are in memory or kept already, or if nobody fits.
    taken : int
        Bytes; all of the room once those probed do not fit, so that nobody is probed again.
    """
    if isinstance(users, Users | FirstInMemory) or not (len(users) and room > 0):
        return users, 0
    some = users.slice(0, min(PROBED, len(users))).in_memory()
    fit = room * len(some) // size_of(some)
    if fit < len(some):
        return users, room
    if len(some) == len(users):
        return FirstInMemory(users, some), size_of(some)
    parts, left = list[Users](), room
    for block in users.slice(0, min(fit, len(users))).blocks():
        size = size_of(block)  # those who come later may be larger than those probed
        parts.append(block if size <= left else block.slice(0, len(block) * left // size))
        left -= size
        if left <= 0:
            break
    first = users.none.followed_by(parts)
    return FirstInMemory(users, first), size_of(first)


def size_of(users: Users) -> int:
    """Count the bytes of users, vocabulary apart."""
    return users.nbytes + users.ids.nbytes
