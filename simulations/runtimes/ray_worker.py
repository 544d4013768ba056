"""A Ray actor that hosts many Flower nodes and answers messages in batches.

The actor keeps nothing that matters: its nodes' data are the driver's, and what the guard has to
remember travels with each batch, so a killed worker loses nothing.
"""

from __future__ import annotations

import gc
import os
import sys
from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, replace

from flwr.app import Message, RecordDict

from clients.node import Node
from clients.store import Kept, kept, restore
from fedhist.flower.host import Config, NodeSetup
from fedhist.model.registry import load_builtin, load_plugin
from fedhist.users.batch import Users
from simulations.runtimes.simulated_grid import reply_of


@dataclass(frozen=True)
class Part:
    """Consecutive nodes with their users.

    Attributes
    ----------
    first_node : int
        Index of the first node.
    edges : list of int
        User numbers at which the nodes begin and end, within ``users``.
    users : Users
    """

    first_node: int
    edges: list[int]
    users: Users


class Block:
    """The nodes of a worker.

    Parameters
    ----------
    seed : int or None
    owner : mapping
        The owner's policy, the same for every simulated node.
    """

    def __init__(self, seed: int | None, owner: Config) -> None:
        self._seed, self._owner = seed, owner
        self._parts: list[Part] = []
        self._nodes: dict[int, Node] = {}

    def take(self, part: Part) -> None:
        """Take in nodes, copied out of the memory that carried them."""
        users = part.users.copy()
        if self._parts and users.items is not None:
            shared = self._parts[0].users.vocabulary
            if users.vocabulary == shared:
                users = Users(users.ids, items=replace(users.items, vocabulary=shared))
        insort(self._parts, replace(part, users=users), key=lambda p: p.first_node)

    def node(self, index: int) -> Node:
        """Return the node of the given index."""
        if index not in self._nodes:
            part = self._parts[bisect_right(self._parts, index, key=lambda p: p.first_node) - 1]
            i = index - part.first_node
            users = part.users.slice(part.edges[i], part.edges[i + 1])
            self._nodes[index] = Node(NodeSetup(users, index, self._seed, self._owner))
        return self._nodes[index]


class Worker:
    """Answers for a block of nodes, as Flower's ClientApp does for one.

    Parameters
    ----------
    seed, owner
        As in :class:`Block`.
    plugins : sequence of str
        Files whose protocols may be asked for.
    """

    def __init__(self, seed: int | None, owner: Config, plugins: Sequence[str]) -> None:
        load_builtin()
        for plugin in plugins:
            load_plugin(plugin)
        self._block = Block(seed, owner)
        gc.collect()
        gc.freeze()  # what is imported stays: no need to walk it again while messages are answered

    def take(self, part: Part) -> None:
        """Take in nodes of this worker."""
        self._block.take(part)

    def pid(self) -> int:
        """Return the process id (to wait until the worker is up, and to kill it in tests)."""
        return os.getpid()

    def answer(self, batch: Sequence[tuple[int, Message, Kept]]) -> list[tuple[Message, Kept]]:
        """Answer messages; each comes with its node's index and what is kept of that node."""
        return [self._answer(*item) for item in batch]

    def _answer(self, index: int, message: Message, before: Kept) -> tuple[Message, Kept]:
        state = RecordDict()
        restore(state, before)
        reply = reply_of(self._block.node(index), state, message)
        after = kept(state)
        return reply, after._replace(lines=tuple(sys.intern(x) for x in after.lines))
