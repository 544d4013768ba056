"""Secure aggregation: a node's part and the server's, in memory, with one in ten dropping out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedhist.base.arrays import Array
from fedhist.secagg import Message, NodeAttempt, ServerAttempt, Terms
from simulations.benchmarks.measuring import Result, Row, scaled

BITS = 64


class Attempt:
    """One attempt, played through once; what each side took, and what a node sent and received."""

    def __init__(self, parties: int, length: int) -> None:
        drop, collude = parties // 10, parties // (10 if parties <= 100 else 20)
        self.terms = Terms(b"a benchmark", parties, drop, collude, BITS, length)
        self.gone = {10 * i + 5 for i in range(drop)}
        self.node = dict.fromkeys(range(parties), 0.0)
        self.masked = dict.fromkeys(range(parties), 0.0)
        self.bytes = dict.fromkeys(range(parties), 0.0)
        self.server = 0.0
        self._play(ServerAttempt(self.terms), np.arange(length, dtype=np.uint64))

    def _play(self, server: ServerAttempt, values: Array) -> None:
        nodes = [NodeAttempt(self.terms, i, min_parties=2) for i in self.node]
        asks: Any = server.start()
        for name in ("keys", "shares", "masked", "unmask"):
            before = sum(self.node.values())
            started = time.process_time()
            asks = getattr(server, f"take_{name}")(self._answers(nodes, name, asks, values))
            taken = time.process_time() - started
            self.server += taken - (sum(self.node.values()) - before)
        if not np.array_equal(asks, values * np.uint64(len(server.present))):
            raise RuntimeError("the sum is not that of the nodes present")

    def _answers(
        self, nodes: list[NodeAttempt], name: str, asks: dict[int, Message], values: Array
    ) -> Iterator[tuple[int, Message]]:
        """Answer for every node, one at a time; what is not kept is gone, as on a network."""
        for i, ask in asks.items():
            if name == "masked" and i in self.gone:
                continue
            started = time.process_time()
            answer = getattr(nodes[i], name)(ask, *((values,) if name == "masked" else ()))
            taken = time.process_time() - started
            self.node[i] += taken
            self.masked[i] += taken if name == "masked" else 0.0
            self.bytes[i] += size(ask) + size(answer)
            yield i, answer

    def of_nodes(self, what: dict[int, float]) -> list[float]:
        """Return a figure of every node that did not drop out."""
        return [x for i, x in what.items() if i not in self.gone]


def size(message: Message) -> int:
    """Return a message's bytes, without names of fields."""
    arrays = sum(x.nbytes for x in message.values() if isinstance(x, np.ndarray))
    return arrays + len(message["session"]) + len(message["check"]) + 4  # and the node


def measure(*, quick: bool = False) -> Result:
    """Measure attempts of 10, 100 and 1,000 nodes with 1,000 and 100,000 entries."""
    settings = [(5, 10), (10, 20)] if quick else [(10, 1_000), (100, 1_000), (1_000, 1_000)]
    settings += [] if quick else [(10, 100_000), (100, 100_000), (1_000, 100_000)]
    rows: list[Row] = []
    for parties, length in settings:
        one = Attempt(parties, length)
        most = (300.0, 1000.0) if (parties, length) == (100, 1_000) else (None, None)
        what = f"N = {parties:,}, d = {length:,}"
        each = scaled(one.of_nodes(one.node), 1e3)
        rows += [
            Row(f"{what}: a node", "ms", each, at_most=most[0]),
            Row(f"{what}: the server", "ms", [1e3 * one.server], at_most=most[1]),
            Row(f"{what}: a node's bytes", "kB", scaled(one.of_nodes(one.bytes), 1e-3)),
        ]
    few, many = (50, 100) if quick else (100_000, 200_000)
    per_entry = []
    for _ in range(1 if quick else 5):
        short, long = Attempt(10, few), Attempt(10, many)
        per_entry.append(
            float(np.median(long.of_nodes(long.masked)) / np.median(short.of_nodes(short.masked)))
        )
    rows.append(Row(f"masked vector, {many:,} / {few:,} entries", "x", per_entry, at_most=2.5))
    notes = (
        f"CPU time; sums modulo 2^{BITS}; all four rounds, the spread over the nodes that stay. "
        "One node in ten drops out with its masked vector, so its pair masks are restored.",
        "Complete graph up to 100 nodes, one in ten may collude; above, one in twenty.",
    )
    return Result("one attempt in memory, 10% drop out", rows, notes)
