"""Users whose later walks, for a prediction, are tasks of a Ray that is up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import ray

from fedhist.base.arrays import Words
from fedhist.model.measures import Elsewhere, Watched
from fedhist.model.query import Summary
from fedhist.model.registry import load_plugin
from fedhist.model.trees import Tree
from fedhist.users.batch import Users
from fedhist.users.shards import BLOCK, Shard
from simulations.runtimes.ray_tasks import on_ray

GROUP = 8
"""Blocks of a task: half a million users."""


class Piece(NamedTuple):
    """Blocks from number ``first`` on; ``what`` refers to what to walk, and by what."""

    what: Any
    plugins: tuple[str, ...]
    first: int


class WalkedOnRay(Elsewhere):
    """Users who are made or read where they are walked: by Ray's workers, while Ray is up.

    Parameters
    ----------
    users : Shard
    plugins : tuple of str
        Plugin files that the workers load first.
    workers : int, optional
        Most tasks at a time.
    """

    def __init__(
        self, users: Shard, plugins: tuple[str, ...] = (), workers: int | None = None
    ) -> None:
        self._users, self._plugins, self._workers = users, plugins, workers

    def __len__(self) -> int:
        return len(self._users)

    def slice(self, start: int, stop: int) -> Shard:
        """Return some of the users, who are walked where they are asked for."""
        return self._users.slice(start, stop)

    def blocks(self, size: int = BLOCK) -> Iterator[Users]:
        """Walk the users in this process."""
        return self._users.blocks(size)

    @property
    def none(self) -> Users:
        """No users of the same kind."""
        return self._users.none

    @property
    def digest(self) -> int:
        """That of the users."""
        return self._users.digest

    def public_ids(self) -> Words:
        """Return the users' ids."""
        return self._users.public_ids()

    def in_memory(self, what: str = "this") -> Users:
        """Return all users at once."""
        return self._users.in_memory(what)

    def added_up(self, of: Callable[[Users], Summary]) -> Summary:
        """Add up what ``of`` says of each block, by tasks of several."""
        if not ray.is_initialized() or len(self) <= GROUP * BLOCK:
            return Watched(self._users, of).total
        what = ray.put((of, self._users))
        pieces = [Piece(what, self._plugins, i) for i in range(0, -(-len(self) // BLOCK), GROUP)]
        tree = Tree()
        for piece, found in on_ray(_walk, pieces, self._workers, None):
            if isinstance(found, ray.exceptions.RayError):  # its worker died twice: done here
                found = _part(of, self._users, piece.first)
            if isinstance(found, BaseException):
                raise found
            tree.join(found)
        return tree.total()


def _walk(piece: Piece) -> Tree:
    for plugin in piece.plugins:
        load_plugin(plugin)
    of, users = ray.get(piece.what)
    return _part(of, users, piece.first)


def _part(of: Callable[[Users], Summary], users: Shard, first: int) -> Tree:
    tree, stop = Tree(), min((first + GROUP) * BLOCK, len(users))
    for number, block in enumerate(users.slice(first * BLOCK, stop).blocks(), first):
        tree.add(number, of(block))
    return tree
