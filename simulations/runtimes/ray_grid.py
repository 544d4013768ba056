"""Flower's Grid on Ray: actors that each host many nodes and take messages in batches.

Strategy and Message are Flower's own, unchanged, and nodes answer as they do behind the ClientApp;
only the transport is ours. A killed worker is replaced and its unanswered messages are sent again;
the guard's memory is held here, so a spent budget stays spent and a repeated query gets the same
answer.
"""

from __future__ import annotations

import gc
import os
import time
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from weakref import WeakSet

import numpy as np
import ray
from flwr.app import Message

from clients.guard import SIMULATED_OWNER
from clients.store import Kept
from fedhist.base.errors import FedhistError, MissingReplies
from fedhist.flower.host import Config
from fedhist.users.batch import Users
from simulations.runtimes.flower_internals import FIRST_NODE_ID, act_as_server
from simulations.runtimes.ray_start import granted, start_ray
from simulations.runtimes.ray_worker import Part, Worker
from simulations.runtimes.simulated_grid import Progress, SimulatedGrid

BATCH = 256
"""Most messages per call of a worker."""

PART_BYTES = 32 << 20
"""Users travel to their worker in parts of about this size."""

MOST_RESTARTS = 100
"""Replaced workers after which a run gives up: something kills them for a reason."""

PLACED_SECONDS = 60.0
"""How long a worker may wait for a CPU; if Ray has none for it, the others take its nodes."""

MOST_WAITS = 20
"""Such times that a worker may take to start on a CPU that it was given: machines can be slow."""

WORKER_OPTIONS = {
    "num_cpus": 1,
    "max_restarts": 0,  # this grid replaces dead workers itself
    "runtime_env": {
        "env_vars": {v: "1" for v in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    },
}


_OPEN: WeakSet[RayGrid] = WeakSet()
"""The grids of this process."""


@dataclass
class _Block:
    """One worker's nodes, and the worker that hosts them now."""

    first: int
    parts: list[Part]
    actor: Any = None


@dataclass(frozen=True)
class _Batch:
    """Messages under way to one block."""

    block: int
    messages: tuple[Message, ...]


class RayGrid(SimulatedGrid):
    """A Flower Grid over simulated nodes on Ray.

    Parameters
    ----------
    users : Users
    n_nodes : int
        Flower nodes; users are split evenly, down to one user per node.
    seed : int or None
        The simulation's seed: users' coins are a function of it; None takes system entropy.
    workers : int, optional
        Actors; default: the CPUs that Ray has.
    address : str, optional
        Join this running Ray cluster instead of starting one in this machine.
    owner : mapping, optional
        Guard policy of every simulated node (keys as in a node's configuration).
    plugins : sequence of str
        Plugin files that the workers load.
    progress : callable, optional
    """

    def __init__(
        self,
        users: Users,
        n_nodes: int,
        seed: int | None,
        *,
        workers: int | None = None,
        address: str | None = None,
        owner: Config | None = None,
        plugins: Sequence[str] = (),
        progress: Progress | None = None,
    ) -> None:
        super().__init__(n_nodes, progress)
        self._seed, self._owner = seed, dict(owner or SIMULATED_OWNER)
        self._plugins = [os.path.abspath(p) for p in plugins]
        self._kept: dict[int, Kept] = {}
        self._under_way: dict[Any, _Batch] = {}
        self._replies: dict[str, Message] = {}
        self._restarts = 0
        nodes = users.split(n_nodes)
        self._started_ray = start_ray(workers, address)
        _OPEN.add(self)
        try:
            n_workers = workers or int(ray.cluster_resources().get("CPU", 1))
            self._blocks = _blocks(users, nodes, max(1, min(n_workers, n_nodes)))
            new = [self._new_actor() for _ in self._blocks]  # all processes start at once
            for block, actor in zip(self._blocks, new, strict=True):
                self._settle(block, actor)
        except BaseException:
            self.close()
            raise
        act_as_server(run_id=1)

    # -- workers -------------------------------------------------------------------------------

    def _new_actor(self) -> Any:
        actor = ray.remote(Worker).options(**WORKER_OPTIONS)
        return actor.remote(self._seed, self._owner, self._plugins)

    def _settle(self, block: _Block, actor: Any) -> None:
        """Hand a worker a block's users part by part: no process maps a second copy of all.

        If Ray has no CPU for it, one of the other workers takes them; if it dies, another new one.

        Raises
        ------
        FedhistError
            If Ray has no CPU for any worker.
        """
        while True:
            try:
                if not _placed(actor):
                    ray.kill(actor)
                    actor = self._spare(block)
                for part in block.parts:
                    ray.get(actor.take.remote(part))
                block.actor = actor
                return
            except ray.exceptions.RayActorError:
                self._count_restart()
                actor = self._new_actor()

    def _spare(self, block: _Block) -> Any:
        """Choose a live worker of another block, one with the fewest blocks."""
        others = [b.actor for b in self._blocks if b is not block and b.actor is not None]
        for actor in sorted(others, key=others.count):
            if _alive(actor):
                return actor
        raise FedhistError(
            f"Ray started no worker within {PLACED_SECONDS:g} s, and none is left: are its CPUs "
            "taken?"
        )

    @property
    def n_workers(self) -> int:
        """Workers that have answered and were not seen to die."""
        return len({id(b.actor) for b in getattr(self, "_blocks", ()) if b.actor is not None})

    def worker_pids(self) -> list[int]:
        """Return the process ids of the live workers."""
        return list(ray.get([b.actor.pid.remote() for b in self._blocks]))

    def guard_lines(self, index: int) -> tuple[str, ...]:
        """Return what the guard of a node remembers."""
        return self._kept.get(index, Kept()).lines

    def close(self) -> None:
        """Stop the workers, and Ray if this grid started it."""
        for block in getattr(self, "_blocks", []):
            if block.actor is not None:
                ray.kill(block.actor)
                block.actor = None
        self._under_way.clear()
        if self._started_ray:
            ray.shutdown()

    def __enter__(self) -> RayGrid:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- Flower's Grid -------------------------------------------------------------------------

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Send messages to their nodes in batches; return their ids."""
        ids = []
        by_block: dict[int, list[Message]] = {}
        firsts = [b.first for b in self._blocks]
        for message in messages:
            block = bisect_right(firsts, self.index_of(message)) - 1
            ids.append(self.numbered(message))
            by_block.setdefault(block, []).append(message)
        # interleave the blocks, so that no worker waits for another one's batches
        queues = {
            b: [tuple(found[i : i + BATCH]) for i in range(0, len(found), BATCH)]
            for b, found in by_block.items()
        }
        for turn in range(max(map(len, queues.values()), default=0)):
            for b, batches in queues.items():
                if turn < len(batches):
                    self._send(_Batch(b, batches[turn]))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies that have come to the given messages; each is returned once."""
        self._receive(timeout=0.0)
        found = ((i, self._replies.pop(i, None)) for i in message_ids)
        return [m for _, m in found if m is not None]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages; the replies can be iterated over once, for at most ``timeout`` seconds."""
        ids = list(self.push_messages(messages))
        end = None if timeout is None else time.monotonic() + timeout
        return self._replies_as_they_come(ids, end)

    def _replies_as_they_come(self, ids: list[str], end: float | None) -> Iterator[Message]:
        """Yield replies in the order of arrival: the caller reads some while workers make others.

        Replies that come after the time are dropped; their guard entries are not.
        """
        expected, collecting = set(ids), gc.isenabled()
        gc.disable()  # thousands of small messages, no cycles: walking them all helps nobody
        try:
            while expected and self._under_way:
                left = 1.0 if end is None else min(1.0, max(0.0, end - time.monotonic()))
                if not self._receive(timeout=left):
                    if left == 0.0:
                        break
                    continue
                come = [i for i in self._replies if i in expected]
                expected.difference_update(come)
                if self.progress is not None:
                    self.progress(len(ids) - len(expected), len(ids))
                for i in come:
                    yield self._replies.pop(i)
        finally:
            self._replies.clear()
            if collecting:
                gc.enable()

    def _send(self, batch: _Batch) -> None:
        block = self._blocks[batch.block]
        indices = (m.metadata.dst_node_id - FIRST_NODE_ID for m in batch.messages)
        items = [
            (i, m, self._kept.get(i, Kept())) for i, m in zip(indices, batch.messages, strict=True)
        ]
        try:
            ref = block.actor.answer.remote(items)
        except ray.exceptions.RayActorError:
            self._replace(block, block.actor)
            ref = block.actor.answer.remote(items)
        self._under_way[ref] = batch

    def _receive(self, timeout: float) -> bool:
        """Take in what has come; send again what a dead worker had. Says whether any came."""
        if not self._under_way:
            return False
        refs = list(self._under_way)
        done, _ = ray.wait(refs, num_returns=len(refs), timeout=0)
        if not done:
            done, _ = ray.wait(refs, num_returns=1, timeout=timeout)
        for ref in done:
            batch = self._under_way.pop(ref)
            try:
                answers = ray.get(ref)
            except ray.exceptions.RayActorError:
                block = self._blocks[batch.block]
                self._replace(block, block.actor)
                self._send(batch)
                continue
            for sent, (reply, kept) in zip(batch.messages, answers, strict=True):
                self._kept[sent.metadata.dst_node_id - FIRST_NODE_ID] = kept
                self._replies[sent.metadata.message_id] = reply
        return bool(done)

    def _replace(self, block: _Block, dead: Any) -> None:
        """Start a new worker for a block unless that has been done already."""
        if block.actor is dead and not _alive(dead):
            self._count_restart()
            block.actor = None  # nobody's spare
            self._settle(block, self._new_actor())

    def _count_restart(self) -> None:
        self._restarts += 1
        if self._restarts > MOST_RESTARTS:
            raise MissingReplies(
                self.n_nodes,
                len(self._replies),
                {f"workers died {self._restarts} times: is there enough memory?": 1},
            )


def _placed(actor: Any) -> bool:
    """Wait until a worker answers; False if it waits for a CPU for too long.

    Of two reasons why one is silent only that is given up on: on a Ray of our own more CPUs are
    held than workers have answered exactly while some of them still start.
    """
    answer = actor.pid.remote()
    for _ in range(MOST_WAITS):
        done, _ = ray.wait([answer], timeout=PLACED_SECONDS)
        if done:
            return bool(ray.get(answer) > 0)
        if (granted() or 0) <= sum(grid.n_workers for grid in _OPEN):
            return False
    return False


def _alive(actor: Any) -> bool:
    try:
        ray.get(actor.pid.remote(), timeout=PLACED_SECONDS)
    except ray.exceptions.GetTimeoutError:
        return False
    except ray.exceptions.RayActorError:
        return False
    return True


def _blocks(users: Users, nodes: Sequence[Users], n_workers: int) -> list[_Block]:
    """Cut the nodes into one contiguous block per worker, each in parts of some megabytes."""
    starts = np.concatenate(([0], np.cumsum([len(n) for n in nodes])))
    cuts = np.arange(n_workers + 1) * len(nodes) // n_workers
    blocks = []
    for a, b in pairwise(cuts.tolist()):
        size = np.cumsum([0, *(n.nbytes for n in nodes[a:b])]) // PART_BYTES
        firsts = [a, *(a + 1 + np.flatnonzero(np.diff(size[:-1]))).tolist(), b]
        parts = [
            Part(
                first,
                (starts[first : stop + 1] - starts[first]).tolist(),
                users.slice(int(starts[first]), int(starts[stop])),
            )
            for first, stop in pairwise(firsts)
        ]
        blocks.append(_Block(a, parts))
    return blocks
