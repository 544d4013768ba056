"""Users whose later walks, for a prediction, are tasks of a Ray that is up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import ray

from fedhist.model.evaluation import Elsewhere, Watched
from fedhist.model.query import Summary
from fedhist.model.registry import load_plugin
from fedhist.model.trees import Tree
from fedhist.users.batch import Users
from fedhist.users.shards import BLOCK, Shard
from simulations.runtimes.ray_tasks import NoMachines, on_ray

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
        super().__init__(users)
        self._plugins, self._workers = plugins, workers

    def added_up(self, of: Callable[[Users], Summary]) -> Summary:
        """Add up what ``of`` says of each block, by tasks of several."""
        if not ray.is_initialized() or len(self) <= GROUP * BLOCK:
            return Watched(self.users, of).total
        what = ray.put((of, self.users))
        pieces = [Piece(what, self._plugins, i) for i in range(0, -(-len(self) // BLOCK), GROUP)]
        tree, left = Tree(), {piece.first for piece in pieces}
        try:
            for piece, found in on_ray(_walk, pieces, self._workers, None):
                if isinstance(found, ray.exceptions.RayError):  # its worker died twice: done here
                    continue
                if isinstance(found, BaseException):
                    raise found
                tree.join(found)
                left.remove(piece.first)
        except NoMachines:  # what is left is done here
            pass
        for first in left:
            tree.join(_part(of, self.users, first))
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
