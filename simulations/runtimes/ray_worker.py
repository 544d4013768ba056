"""What a Ray worker does: a stateless task answers messages of consecutive nodes.

A worker keeps nothing that matters. The run's setup and its users come from Ray's object store, and
what the guard has to remember travels with each task, so a killed worker costs what it was at.
"""

from __future__ import annotations

import gc
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import ray
from flwr.app import Error, RecordDict

from clients.node import Node, policy_of
from clients.store import MemoryStore, NodeMemory
from fedhist.base.errors import FedhistError
from fedhist.flower.host import Config, NodeSetup
from fedhist.model.evaluation import Watched
from fedhist.model.query import Summary, Tree
from fedhist.model.registry import load_like, load_plugin
from fedhist.users.batch import ROOM, InMemory, Users, keep, size_of
from fedhist.users.keys import Keys
from fedhist.users.shards import BLOCK, Shard, edge
from simulations.runtimes.simulated_grid import error_of

CACHED_BYTES = 256 << 20
"""Users in memory that a worker has at hand: views of Ray's store."""

CACHED_NODES = 4096
"""Nodes of such users that it has at hand; the others are made anew."""

Beside = Callable[[Users], Summary]
"""Measures a block of users; pickles."""


@dataclass(frozen=True)
class Setup:
    """What all tasks of a run share; it travels once to each worker.

    ``owner``: the owner's policy, the same for every simulated node;
    ``modules``: modules of this package whose queries may be asked for: all that the driver knows;
    ``plugins``: files whose protocols may be asked for; ``vocabulary``: what users in memory hold
    items of; ``beside``: of a :data:`Beside`, which the plugins may have to be loaded for; it
    measures users while they answer for the first time. NOT PRIVATE.
    """

    seed: int | None
    owner: Config
    modules: tuple[str, ...]
    plugins: tuple[str, ...]
    n_users: int
    n_nodes: int
    vocabulary: Keys | None
    beside: Any


class Part(NamedTuple):
    """Users of a run from number ``start`` on; if in memory, without their vocabulary.

    ``made`` says that a worker has made them for one task.
    """

    start: int
    users: Shard
    made: bool = False


class Asked(NamedTuple):
    """A message: to which node, its content unless that is the task's, what the node remembers."""

    node: int
    content: RecordDict | None
    kept: NodeMemory


class Task(NamedTuple):
    """Messages to nodes of one part.

    ``setup``, ``part``, ``content``: of the run's :class:`Setup`, of a :class:`Part`, and of what
    the messages have in common; ``measure``: whether the nodes' users are measured beside.
    """

    setup: Any
    part: Any
    content: Any
    asked: list[Asked]
    measure: bool


Answered = tuple[RecordDict | Error, NodeMemory | None]
"""A reply, and what the node remembers now: None if that is nothing new."""


class Answers(NamedTuple):
    """A task's replies in their order, what was measured beside by node, and who did it."""

    replies: list[Answered]
    beside: Tree
    pid: int


def answer(task: Task) -> Answers:
    """Answer the messages of a task."""
    host: Host = _fetched("setup", task.setup, Host)
    content = RecordDict() if task.content is None else _fetched("content", task.content)
    part, beside, replies = host.part(task.part, task.asked), Tree(), []
    for index, own, before in task.asked:
        node, watched = host.node(part, index), None
        if task.measure:
            node, watched = host.watched(node)
        replies.append(_answer(node, content if own is None else own, before))
        if watched is not None:
            beside.add(index, watched.total)
    return Answers(replies, beside, os.getpid())


def _answer(node: Node, content: RecordDict, before: NodeMemory) -> Answered:
    store = MemoryStore(before)
    reply: RecordDict | Error
    try:
        reply = node.answer(content, store)
    except Exception as e:
        reply = error_of(e)
    except SystemExit as e:  # Ray would start the worker again, and ask it again
        reply = error_of(FedhistError(f"loaded code called sys.exit({e.code!r})"))
    return reply, None if store.memory == before else store.memory


_held: dict[str, tuple[str, Any]] = {}


def _fetched(kind: str, ref: Any, make: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return an object of Ray's store, or what is made of it; the newest of a kind stays."""
    name = ref.hex()
    if kind not in _held or _held[kind][0] != name:
        _held.pop(kind, None)  # first the old one goes, with what it holds
        _held[kind] = name, make(ray.get(ref))
    return _held[kind][1]


class Host:
    """The nodes of a run, as far as a worker has them at hand."""

    def __init__(self, setup: Setup) -> None:
        load_like(setup.modules)
        for plugin in setup.plugins:
            load_plugin(plugin)
        self._setup, self._policy = setup, policy_of(setup.owner)
        self._beside: Beside | None = None
        if setup.beside is not None:
            self._beside = ray.get(setup.beside)
        self._parts: OrderedDict[str, Part] = OrderedDict()
        self._nodes: dict[int, Node] = {}
        self._asked = np.zeros(setup.n_nodes, dtype=np.bool_)
        self._room = ROOM
        gc.collect()
        gc.freeze()  # what is imported stays: no need to walk it again while messages are answered

    def part(self, ref: Any, asked: Sequence[Asked]) -> Part:
        """Return a part of the users; those of many small nodes are made at once."""
        part = self._part(ref)
        nodes = [index for index, _, _ in asked if index not in self._nodes]
        if isinstance(part.users, Users) or len(nodes) < 2:
            return part
        a, b = self._edge(min(nodes)), self._edge(max(nodes) + 1)
        if b - a > BLOCK:
            return part
        try:
            return Part(a, part.users.slice(a - part.start, b - part.start).in_memory(), made=True)
        except Exception:
            return part  # each node then says itself what is wrong with its users

    def _part(self, ref: Any) -> Part:
        name = ref.hex()
        if name not in self._parts:
            start, users, _ = ray.get(ref)
            if self._setup.vocabulary is not None:
                items = replace(users.items, vocabulary=self._setup.vocabulary)
                users = Users(users.ids, items=items)
            self._parts[name] = Part(start, users)
            while len(self._parts) > 1 and self._bytes() > CACHED_BYTES:
                self._parts.popitem(last=False)
                self._nodes.clear()
        self._parts.move_to_end(name)
        return self._parts[name]

    def _bytes(self) -> int:
        return sum(p.users.nbytes for p in self._parts.values() if isinstance(p.users, Users))

    def node(self, part: Part, index: int) -> Node:
        """Return the node of an index.

        Those of users in memory stay at hand; so do others that are asked again, with as many of
        their users as there is room for.
        """
        if index in self._nodes:
            return self._nodes[index]
        a, b = self._edge(index) - part.start, self._edge(index + 1) - part.start
        users = part.users.slice(a, b)
        stays = isinstance(users, Users) and not part.made
        if self._asked[index] and not stays:
            users, stays = self._kept(users)
        self._asked[index] = True
        node = self._node(users, index)
        if stays:
            if len(self._nodes) >= CACHED_NODES:
                self._nodes.clear()
                self._room = ROOM
            self._nodes[index] = node
        return node

    def _kept(self, users: Shard) -> tuple[Shard, bool]:
        """Keep users for the next round, as far as there is room; say whether any are."""
        if isinstance(users, Users):  # a view of those made for one task
            taken = min(size_of(users), self._room)
            stays = 0 < size_of(users) == taken
            users = users.copy() if stays else users
        else:
            users, taken = keep(users, self._room)
            stays = isinstance(users, InMemory)
        self._room -= taken
        return users, stays

    def _edge(self, index: int) -> int:
        return edge(index, self._setup.n_users, self._setup.n_nodes)

    def watched(self, node: Node) -> tuple[Node, Watched]:
        """Return a node whose users are measured while they answer."""
        if self._beside is None:
            raise ValueError("this run has nothing to measure")
        users = Watched(node.setup.users, self._beside)
        return self._node(users, node.setup.index), users

    def _node(self, users: Shard, index: int) -> Node:
        node = Node(NodeSetup(users, index, self._setup.seed, self._setup.owner))
        node.__dict__["policy"] = self._policy  # one owner's, read once
        return node
