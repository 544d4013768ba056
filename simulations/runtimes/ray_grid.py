"""Flower's Grid on Ray: stateless tasks that answer messages of consecutive nodes.

Strategy and Message are Flower's own, unchanged, and nodes answer as they do behind the ClientApp;
only the transport is ours. Ray starts a task again whose worker or machine died. What the guard has
to remember is held here, so a spent budget stays spent and a repeated query gets the same answer;
an answer that a guard gave before it knew of another one is thrown away, and asked for again.
"""

from __future__ import annotations

import gc
import os
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby, islice, pairwise
from operator import itemgetter, length_hint
from typing import Any, NamedTuple

import numpy as np
import ray
from flwr.app import Error, Message, RecordDict

from clients.guard import SIMULATED_OWNER
from clients.store import NodeMemory
from fedhist.base.arrays import offsets
from fedhist.base.errors import FedhistError, MissingReplies
from fedhist.base.lazy import call
from fedhist.flower.host import Config
from fedhist.flower.wire import answer_bytes
from fedhist.model.query import Summary, Tree
from fedhist.model.registry import own_modules
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Items, Shard, check_nodes, edge
from simulations.runtimes.flower_internals import act_as_server
from simulations.runtimes.ray_start import (
    RETRIES,
    TASK,
    check_machines,
    start_ray,
    stop_ray,
    window,
)
from simulations.runtimes.ray_worker import Answers, Asked, Beside, Part, Setup, Task, answer
from simulations.runtimes.simulated_grid import Progress, SimulatedGrid

BATCH = 128
"""Most messages of a task."""

FIRST_BATCH = 16
"""Messages of a task while nobody knows how large replies are."""

TASK_USERS = 1 << 21
"""Most users of a task with several nodes: a second or so."""

REPLY_BYTES = 32 << 20
"""Replies of a task that has several, about."""

PART_BYTES = 32 << 20
"""Users in memory travel in parts of about this size."""

NO_ANSWER = 5
"""Flower's error code for a node that cannot be reached."""

MOST_NAMED = 5
"""Missing nodes that an error names."""

NOTHING = NodeMemory()
NO_KEYS = Keys.of([])


class Batch(NamedTuple):
    """Messages of a task, their nodes, what each remembered, and whether users are measured."""

    messages: Sequence[Message]
    nodes: Sequence[int]
    kept: Sequence[NodeMemory]
    measure: bool


UnderWay = dict[Any, Batch]
"""Every task that has not returned yet."""


class RayGrid(SimulatedGrid):
    """A Flower Grid over simulated nodes on Ray.

    Parameters
    ----------
    users : Shard
        If in memory, they travel to the workers; else they are made or read there.
    n_nodes : int
        Flower nodes; users are split evenly, down to one user per node.
    seed : int or None
        The simulation's seed: users' coins are a function of it; None takes system entropy.
    workers : int, optional
        Most tasks at a time; default: the CPUs that Ray has.
    address : str, optional
        Join this running Ray cluster instead of starting one in this machine.
    owner : mapping, optional
        Guard policy of every simulated node (keys as in a node's configuration).
    plugins : sequence of str
        Plugin files that the workers load.
    progress : callable, optional
    beside : callable, optional
        Measures a block of users; every node's users are, while they answer for the first time.

    Raises
    ------
    FedhistError
        If a cluster cannot be joined, has no CPU left, or has a machine unlike this one.
    """

    def __init__(
        self,
        users: Shard,
        n_nodes: int,
        seed: int | None,
        *,
        workers: int | None = None,
        address: str | None = None,
        owner: Config | None = None,
        plugins: Sequence[str] = (),
        progress: Progress | None = None,
        beside: Beside | None = None,
    ) -> None:
        super().__init__(n_nodes, progress)
        check_nodes(len(users), n_nodes)
        self._n_users, self._workers = len(users), workers
        self._kept: dict[int, NodeMemory] = {}
        self._same: dict[NodeMemory, NodeMemory] = {}
        self._measured = None if beside is None else bytearray(n_nodes)
        self._beside, self._pids = Tree(), set[int]()
        self._reply_bytes, self._started = 0, 0
        self._content: tuple[RecordDict | None, Any] = None, None
        self._started_ray = start_ray(workers, address)
        try:
            files = tuple(os.path.abspath(p) for p in plugins)
            if address:
                check_machines(files)
            named = isinstance(users, Users) and users.items is not None
            setup = Setup(
                seed,
                dict(owner or SIMULATED_OWNER),
                own_modules(),
                files,
                len(users),
                n_nodes,
                users.none.vocabulary if named else None,
                None if beside is None else ray.put(beside),
            )
            self._said, self._setup = setup, ray.put(setup)
            self._firsts, self._parts = _put(users, n_nodes)
            self._limit = window(workers)
        except BaseException:
            self.close()
            raise
        self._call = ray.remote(call).options(**TASK, max_retries=RETRIES)
        act_as_server(run_id=1)

    def beside_total(self) -> Summary | None:
        """Add up what was measured of all users; None until all have answered. NOT PRIVATE."""
        whole = self._measured is not None and all(self._measured)
        return self._beside.total() if whole else None

    def close(self) -> None:
        """Give up what is under way, and stop Ray if this grid started it."""
        self._setup, self._parts, self._content = None, [], (None, None)
        if self._started_ray:
            self._started_ray = False
            stop_ray()

    def __enter__(self) -> RayGrid:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- Flower's Grid -------------------------------------------------------------------------

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages; the replies can be iterated over once, as they come.

        Messages are taken from the iterable a few tasks ahead of the replies. If none comes for
        ``timeout`` seconds, the replies that are missing are errors that say so.
        """
        return self._replies(map(self.numbered, messages), length_hint(messages, 0), timeout)

    def _replies(
        self, messages: Iterator[Message], expected: int, timeout: float | None
    ) -> Iterator[Message]:
        under_way: UnderWay = {}
        came, collecting, last = 0, gc.isenabled(), time.monotonic()
        self._started = 0
        self._limit = window(self._workers)
        gc.disable()  # thousands of small messages, no cycles: walking them all helps nobody
        try:
            while self._start(under_way, messages):
                left = np.inf if timeout is None else max(0.0, last + timeout - time.monotonic())
                replies = self._finished(under_way, timeout=min(1.0, left))
                if not replies and timeout is not None and left <= 1.0:
                    replies = self._missing(under_way, messages, timeout)
                elif not replies:
                    self._limit = window(self._workers)  # machines may have come or gone
                    continue
                self._start(under_way, messages)  # workers go on while these are read
                came += len(replies)
                if self.progress is not None:
                    self.progress(came, max(came, expected or self.n_nodes))
                yield from replies
                last = time.monotonic()
        finally:
            self._give_up(under_way)
            if collecting:
                gc.enable()

    # -- tasks ---------------------------------------------------------------------------------

    def _start(self, under_way: UnderWay, messages: Iterator[Message]) -> bool:
        """Start tasks until enough are under way; says whether any is."""
        while len(under_way) < self._limit:
            batch = list(islice(messages, self._batch()))
            if not batch:
                break
            self._started += len(batch)
            self._send(under_way, batch)
        return bool(under_way)

    def _send(self, under_way: UnderWay, messages: list[Message]) -> None:
        """Start a task for every run of messages that have a part and a measure in common."""
        for (part, measure), group in groupby(map(self._placed, messages), itemgetter(0, 1)):
            _, _, nodes, batch = zip(*group, strict=True)
            memories = [self._kept.get(index, NOTHING) for index in nodes]
            sent = Batch(batch, nodes, memories, measure)
            under_way[self._sent(part, sent)] = sent

    def _batch(self) -> int:
        """Return how many messages a task gets: few of many users, or with large replies.

        They are a power of two, after a multiple of it: what is measured of nodes that are asked in
        their order is then one part of the tree, and not one for each of its levels.
        """
        by_users = TASK_USERS * self.n_nodes // self._n_users
        by_bytes = REPLY_BYTES // self._reply_bytes if self._reply_bytes else FIRST_BATCH
        for_all = -(-self.n_nodes // (2 * self._limit))
        size = 1 << max(1, min(BATCH, by_users, by_bytes, for_all)).bit_length() - 1
        return min(size, self._started & -self._started or size)

    def _placed(self, message: Message) -> tuple[int, bool, int, Message]:
        """Return the part that holds a node, whether its users are measured now: once; the node."""
        index, measure = self.index_of(message), False
        if self._measured is not None and not self._measured[index]:
            self._measured[index] = measure = True
        return bisect_right(self._firsts, index) - 1, measure, index, message

    def _sent(self, part: int, batch: Batch) -> Any:
        """Start a task; what all its messages say travels once a round, and not with each."""
        first, content = batch.messages[0].content, None
        if all(m.content is first for m in batch.messages):
            if self._content[0] is not first:
                self._content = first, ray.put(first)
            content = self._content[1]
        asked = []
        for message, index, kept in zip(*batch[:3], strict=True):
            own = None if content is not None else message.content
            asked.append(Asked(index, own, kept))
        if (modules := own_modules()) != self._said.modules:  # some were imported meanwhile
            self._said = replace(self._said, modules=modules)
            self._setup = ray.put(self._said)
        task = Task(self._setup, self._parts[part], content, asked, batch.measure)
        return self._call.remote(answer, task)

    def _finished(self, under_way: UnderWay, timeout: float) -> list[Message]:
        """Take in a task that has returned, if one does in time: its replies."""
        done, _ = ray.wait(list(under_way), timeout=timeout) if under_way else ((), ())
        if not done:
            return []
        answers, batch = self._returned(done[0], under_way), under_way.pop(done[0])
        self._pids.add(answers.pid)
        self._beside.join(answers.beside)
        replies, again = [], []
        for message, index, before, (body, kept) in zip(*batch[:3], answers.replies, strict=True):
            if self._kept.get(index, NOTHING) != before:  # its guard has not seen what is answered
                again.append(message)
                continue
            if kept is not None:  # most nodes remember the same
                self._kept[index] = self._same.setdefault(kept, kept)
            replies.append(Message(body, reply_to=message))
        self._send(under_way, again)
        if isinstance(body, RecordDict):
            self._reply_bytes = max(1, answer_bytes(body))
        return replies

    def _returned(self, ref: Any, under_way: UnderWay) -> Answers:
        try:
            answers: Answers = ray.get(ref)
        except ray.exceptions.TaskCancelledError:
            raise KeyboardInterrupt from None  # a terminal's Ctrl-C reaches workers too
        except ray.exceptions.RayTaskError as e:
            raise (e.cause if isinstance(e.cause, FedhistError | ValueError) else e) from None
        except ray.exceptions.RayError as e:
            lost = len(under_way[ref].messages)
            why = f"workers died {RETRIES} times at these: is there enough memory? ({e})"
            raise MissingReplies(self.n_nodes, self.n_nodes - lost, {why: lost}) from e
        return answers

    def _missing(
        self, under_way: UnderWay, messages: Iterator[Message], timeout: float
    ) -> list[Message]:
        """Give up the tasks under way and what waits; say in each reply what is missing."""
        left = [*chain.from_iterable(b.messages for b in under_way.values()), *messages]
        self._give_up(under_way)
        nodes = [str(self.index_of(m)) for m in left]
        more = f" and {len(nodes) - MOST_NAMED} more" if len(nodes) > MOST_NAMED else ""
        cpus, free = (
            int(resources.get("CPU", 0))
            for resources in (ray.cluster_resources(), ray.available_resources())
        )
        reason = (
            f"nothing came for {timeout:g} s from nodes {', '.join(nodes[:MOST_NAMED])}{more}; "
            f"Ray has {cpus} CPUs, {free} of them free"
        )
        return [Message(Error(NO_ANSWER, reason), reply_to=m) for m in left]

    def _give_up(self, under_way: UnderWay) -> None:
        for ref, batch in under_way.items():
            ray.cancel(ref)
            if self._measured is not None and batch.measure:
                for index in batch.nodes:
                    self._measured[index] = False
        under_way.clear()


def _put(users: Shard, n_nodes: int) -> tuple[list[int], list[Any]]:
    """Put users into Ray's store, those in memory in parts; return every part's first node too."""
    if not isinstance(users, Users):
        return [0], [ray.put(Part(0, users))]
    edges = np.array([edge(i, len(users), n_nodes) for i in range(n_nodes + 1)])
    sizes = offsets(users.n_items())[edges]
    each = users.nbytes / max(1, int(sizes[-1]))
    numbers = (sizes * each + edges * 8.0) // PART_BYTES
    cuts = [0, *(1 + np.flatnonzero(np.diff(numbers[:-1]))).tolist(), n_nodes]
    parts = []
    for a, b in pairwise(cuts):
        start = int(edges[a])
        some = users.slice(start, int(edges[b]))
        if some.items is not None:
            v = some.items
            some = Users(some.ids, items=Items(NO_KEYS, v.indptr, v.item, v.count))
        parts.append(ray.put(Part(start, some)))
    return cuts[:-1], parts
