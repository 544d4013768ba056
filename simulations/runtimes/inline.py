"""The inline runtime: the same kernels in this process, without Flower and without Ray."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence

import numpy as np

from clients.answers import Tell, added_up, fold_node, streams
from fedhist.base.hashing import digest64
from fedhist.model.codec import query_digest
from fedhist.model.evaluation import Watched
from fedhist.model.query import Query, Report, Summary, Tree, check_parties
from fedhist.privacy.guarantee import Trust
from fedhist.users.batch import ROOM, Users, keep
from fedhist.users.shards import BLOCK, Shard
from server.intake import Intake

Progress = Callable[[int, int, int], None]


class InlinePopulation:
    """Nodes in this process; merged in the same order as in the other runtimes.

    Parameters
    ----------
    nodes : sequence of Shard
        Each walked by blocks; without ``fold`` one node's users are held at a time. From the second
        round on users are kept, within :data:`~fedhist.users.batch.ROOM` bytes.
    seed : int or None
        Of the users' coins; None draws them from system entropy.
    fold : bool
        False keeps each user's report, checks it, and folds it on the server's side.
    aggregate : bool
        True draws the summary of each node's blocks from its exact law
        (:meth:`Query.draw_summary`) in place of every user's report: for sweeps.
    progress : callable, optional
        Called with (round, users who were asked, users).
    beside : callable, optional
        Measures each block of users as it answers for the first time.
    memoize : bool
        Draw a user's coins for its record: see :func:`clients.answers.streams`.

    Attributes
    ----------
    measured : Summary or None
        What the users add up to for ``beside``, once they have answered. NOT PRIVATE.
    measuring : float
        Seconds that took.
    """

    def __init__(
        self,
        nodes: Sequence[Shard],
        seed: int | None,
        *,
        fold: bool = True,
        aggregate: bool = False,
        progress: Progress | None = None,
        beside: Callable[[Users], Summary] | None = None,
        memoize: bool = False,
    ) -> None:
        self.nodes, self.seed, self.fold, self.progress = list(nodes), seed, fold, progress
        self.aggregate, self.beside, self.memoize = aggregate, beside, memoize
        self.measured: Summary | None = None
        self.measuring = 0.0
        self._room = ROOM
        self.rounds: list[dict[str, float]] = []

    def ask(self, query: Query, round_index: int) -> Summary:
        """Ask every node and add the answers up."""
        started = time.perf_counter()
        check_parties(query, len(self.nodes))
        digest = query_digest(query, round_index)
        intake = Intake(query, digest, "stop")
        beside = self.beside if self.measured is None else None
        tree, done, said, n_users = Tree(), 0, -1, sum(map(len, self.nodes))

        def say(now: int) -> None:
            nonlocal said
            if self.progress is not None and now > said:
                self.progress(round_index, now, n_users)
            said = now

        def told(node: int, walked: int) -> None:
            say(done + min(walked * BLOCK, len(self.nodes[node])))

        for i, users in enumerate(self.nodes):
            if self.rounds:  # who are asked again may be asked often
                users, taken = keep(users, self._room)
                self.nodes[i], self._room = users, self._room - taken
            watched = users if beside is None else Watched(users, beside)
            self._answer(intake, i, watched, functools.partial(told, i))
            if isinstance(watched, Watched):
                tree.add(i, watched.total)
                self.measuring += watched.seconds
            done += len(users)
            say(done)
        self.measured = tree.total() if len(tree) else self.measured
        answered = time.perf_counter()
        summary = intake.total().summary
        self.rounds.append(
            {
                "replies": len(self.nodes),
                "missing": 0,
                "seconds_asking": answered - started,
                "seconds_merging": time.perf_counter() - answered,
            }
        )
        return summary

    def _answer(self, intake: Intake, index: int, users: Shard, tell: Tell) -> None:
        """Hand over what one node's users answer; honest sums are checked by the session alone."""
        query, digest, seed = intake.query, intake.digest, self.seed
        if self.aggregate and query.trust is not Trust.AGGREGATE:
            if seed is None:
                raise ValueError("sums are drawn from their law with a seed only")

            def drawn(block: Users, number: int) -> Summary | Report:
                at = (index, number) if number else (index,)
                rng = np.random.default_rng(digest64("fedhist.aggregate", seed, digest, *at))
                return query.draw_reports(block, rng) or query.draw_summary(block, rng)

            intake.add(index, added_up(query, users, drawn, tell))
        elif self.fold:
            summary = fold_node(query, users, seed, digest, index, tell, memoize=self.memoize)
            intake.add(index, summary)
        else:
            asked = users.select(query.cohort)
            coins = streams(asked, seed, digest, memoize=self.memoize)
            intake.use(index, digest, query.answer(asked, coins))
