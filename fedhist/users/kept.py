"""Users who are made or read once for many rounds, as far as a budget of bytes goes."""

from __future__ import annotations

from collections.abc import Iterator

from fedhist.base.arrays import Words
from fedhist.users.batch import Users
from fedhist.users.shards import BLOCK, MOST_IN_MEMORY, Shard, Wrapped

ROOM = 256 << 20
"""Bytes of users, about, that a process keeps from the second round that asks them on."""


PROBED = 64
"""Users who tell how large all of them are."""


class InMemory(Wrapped):
    """Users in memory, under the digest of how they are made."""

    def __init__(self, users: Shard) -> None:
        super().__init__(users)
        self.whole = users.in_memory()

    def slice(self, start: int, stop: int) -> Users:
        return self.whole.slice(start, stop)

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        return self.whole.blocks(size)

    def public_ids(self) -> Words:
        return self.whole.ids


def keep(users: Shard, room: int = ROOM) -> tuple[Shard, int]:
    """Put users in memory who are not, if they take about so many bytes: them, and the bytes."""
    n = len(users)
    if isinstance(users, Users | InMemory) or not 0 < n <= MOST_IN_MEMORY:
        return users, 0
    some = users.slice(0, min(PROBED, n)).in_memory()
    if size_of(some) * n > room * len(some):
        return users, 0
    held = InMemory(users)
    return held, size_of(held.whole)


def size_of(users: Users) -> int:
    """Count the bytes of users, vocabulary apart."""
    return users.nbytes + users.ids.nbytes
