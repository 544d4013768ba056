"""The inline runtime: the same kernels in this process, without Flower and without Ray."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np

from clients.node import fold_node, streams
from fedhist.base.hashing import digest64
from fedhist.model.query import Query, Summary
from fedhist.session.codec import query_digest
from fedhist.users.batch import Users

Progress = Callable[[int, int, int], None]


class InlinePopulation:
    """Nodes in this process; merged in the same order as in the other runtimes.

    Parameters
    ----------
    nodes : sequence of Users
    seed : int or None
        Of the users' coins; None draws them from system entropy.
    fold : bool
        False keeps each user's report, checks it, and folds it on the server's side.
    aggregate : bool
        True draws each node's summary from its exact law (:meth:`Query.draw_summary`) in place
        of every user's report: for sweeps.
    progress : callable, optional
        Called with (round, nodes answered, nodes).
    """

    def __init__(
        self,
        nodes: Sequence[Users],
        seed: int | None,
        *,
        fold: bool = True,
        aggregate: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.nodes, self.seed, self.fold, self.progress = nodes, seed, fold, progress
        self.aggregate = aggregate
        self.rounds: list[dict[str, float]] = []

    def ask(self, query: Query, round_index: int) -> Summary:
        """Ask every node and add the answers up."""
        started = time.perf_counter()
        digest = query_digest(query, round_index)
        parts: list[Summary] = []
        replies = 0
        for i, users in enumerate(self.nodes):
            found = self._replies(i, query, users.select(query.cohort), digest)
            parts += found
            replies += bool(found)
            if self.progress is not None:
                self.progress(round_index, i + 1, len(self.nodes))
        answered = time.perf_counter()
        summary = self._total(query, parts, replies)
        self.rounds.append(
            {
                "replies": replies,
                "missing": len(self.nodes) - replies,
                "seconds_asking": answered - started,
                "seconds_merging": time.perf_counter() - answered,
            }
        )
        return summary

    def _replies(self, index: int, query: Query, users: Users, digest: str) -> list[Summary]:
        """Return what one node's users answer, as the server takes it in: here one summary."""
        if self.aggregate:
            if self.seed is None:
                raise ValueError("sums are drawn from their law with a seed only")
            key = digest64("fedhist.aggregate", self.seed, digest, index)
            return [query.draw_summary(users, np.random.default_rng(key))]
        return [self._answer(query, users, digest)]

    def _total(self, query: Query, parts: list[Summary], replies: int) -> Summary:
        """Add up what the nodes sent."""
        return Summary.merge(parts)

    def _answer(self, query: Query, users: Users, digest: str) -> Summary:
        if self.fold:
            return fold_node(query, users, self.seed, digest)
        report = query.answer(users, streams(users, self.seed, digest))
        query.check(report)
        return query.fold(report)
