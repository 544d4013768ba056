"""A protocol that is held to the laws, with its users and its runs, each made once."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any

import numpy as np

from clients.answers import streams
from fedhist.channels.scalar import ScalarChannel
from fedhist.model.codec import query_digest
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query, Report, Summary
from fedhist.privacy.guarantee import Adjacency
from fedhist.users.batch import Users
from fedhist.users.shards import Shard
from server.noise import SimulatedNoise
from server.session.curator import Noise
from server.session.session import Session
from simulations.contract.neighbours import EMPTY, extreme_records
from simulations.contract.watching import Watch, watch
from simulations.runs.run import parties
from simulations.runtimes.inline import InlinePopulation

SEED = 20
"""Of every run, unless a law says otherwise."""

ABSENT = "absent"
Asked = list[tuple[Query, int, Summary]]
"""What was asked, in which round, and what was answered."""


def noise(seed: int = SEED) -> Noise:
    """Seed the noise of a run."""
    return lambda index: SimulatedNoise(seed, index)


class Subject:
    """A protocol and users to run it on.

    Parameters
    ----------
    protocol : Protocol
    users : Users
    """

    def __init__(self, protocol: Protocol, users: Users) -> None:
        self.protocol, self.users = protocol, users
        self.made: Any = protocol  # for what types do not say of all protocols

    @property
    def fields(self) -> set[str]:
        """Names of the fields that the protocol is made with."""
        return {f.name for f in dataclasses.fields(self.made) if f.init}

    @property
    def nodes(self) -> int:
        """Fewest nodes that can be asked: one, or the parties of aggregate trust."""
        return parties(self.protocol) or 1

    def replaced(self, **changes: Any) -> Any:
        """Return the protocol with other fields."""
        return dataclasses.replace(self.made, **changes)

    # -- runs ------------------------------------------------------------------------------------

    def walk(
        self,
        protocol: Protocol | None = None,
        *,
        nodes: int | None = None,
        seed: int = SEED,
        fold: bool = True,
        users: Shard | None = None,
    ) -> tuple[Estimate, Asked]:
        """Run the protocol, or one like it, and keep what was asked and answered."""
        own = self.protocol if protocol is None else protocol
        parts = (self.users if users is None else users).split(nodes or parties(own) or 1)
        population = InlinePopulation(parts, seed, fold=fold)
        asked: Asked = []

        def ask(query: Query, number: int) -> Summary:
            summary = population.ask(query, number)
            asked.append((query, number, Summary.merge([summary])))  # the session wipes its own
            return summary

        return Session(own, noise(seed)).run(ask), asked

    @cached_property
    def _walked(self) -> tuple[Estimate, Asked]:
        return self.walk()

    @property
    def estimate(self) -> Estimate:
        """The estimate of the run on fewest nodes."""
        return self._walked[0]

    @property
    def asked(self) -> Asked:
        """What that run asked, and a copy of what was answered."""
        return [(q, i, Summary.merge([s])) for q, i, s in self._walked[1]]

    @property
    def queries(self) -> list[tuple[Query, int]]:
        """What that run asked, and in which round."""
        return [(q, i) for q, i, _ in self._walked[1]]

    def answer(self, query: Query, users: Users, number: int, seed: int = SEED) -> Report:
        """Answer a query for some users."""
        return query.answer(users, streams(users, seed, query_digest(query, number)))

    @cached_property
    def integers(self) -> bool:
        """Whether all that nodes send is integers: then the packing changes no bit."""
        return all(map(whole_numbers, (s for _, _, s in self._walked[1])))

    # -- one user's record -----------------------------------------------------------------------

    @cached_property
    def watched(self) -> Watch:
        """A run whose Curator is watched; for protocols that trust the server."""
        return watch(self.protocol, InlinePopulation([self.users], SEED).ask, SEED)

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """Two users whose records are changed."""
        n = len(self.users)
        return tuple(sorted({n // 3, min(n - 1, 2 * n // 3 + 1)}))

    def records(self, row: int) -> dict[str, Users]:
        """Return what the record of the user of a row may become under the guarantee."""
        return extreme_records(self.users, row, self.protocol.guarantee.adjacency)

    @cached_property
    def honest(self) -> list[tuple[Query, list[Report]]]:
        """What the users answer to each question, and a user of every extreme record.

        Of a channel of numbers the least and the largest report as well, which may be rare.
        """
        extreme = extreme_records(self.users, self.rows[0], Adjacency.REPLACE_USER).values()
        answered = []
        for query, number in self.queries:
            groups = [self.users.select(query.cohort), *extreme]
            reports = [self.answer(query, group, number) for group in groups]
            channel = getattr(query.inner, "channel", None)
            if isinstance(channel, ScalarChannel) and math.isfinite(query.release.epsilon):
                ends = channel.alphabet()[[0, -1]].astype(channel.dtype)
                reports.append(Report(self.users.ids[:2], dict.fromkeys(reports[0].arrays, ends)))
            answered.append((query, reports))
        return answered

    @cached_property
    def others(self) -> list[dict[str, Watch]]:
        """Runs in which one user's record is another, and what is released the same.

        By user, and by name of the record. Where adding a user is covered, one without the user.
        """
        runs = []
        for row in self.rows:
            rest = self.users.take(np.delete(np.arange(len(self.users)), row))
            ask_rest = remembering(InlinePopulation([rest], SEED).ask)
            runs.append(
                {
                    name: watch(self.protocol, _both(ask_rest, one), SEED, self.watched.journal)
                    for name, one in self.records(row).items()
                }
            )
            if self.protocol.null_safe:
                runs[-1][ABSENT] = watch(self.protocol, ask_rest, SEED, self.watched.journal)
        return runs


def _both(ask: Callable[[Query, int], Summary], one: Users) -> Callable[[Query, int], Summary]:
    """Ask some users and one more."""
    other = InlinePopulation([one], SEED).ask
    return lambda query, number: Summary.merge([ask(query, number), other(query, number)])


def remembering(ask: Callable[[Query, int], Summary]) -> Callable[[Query, int], Summary]:
    """Ask the same question once."""
    known: dict[str, Summary] = {}

    def asked(query: Query, number: int) -> Summary:
        digest = query_digest(query, number)
        if digest not in known:
            known[digest] = ask(query, number)
        return Summary.merge([known[digest]])

    return asked


def pairs(names: list[str], adjacency: Adjacency) -> Iterator[tuple[str, str]]:
    """Go through the pairs of records that an adjacency calls neighbours."""
    for one, other in combinations(names, 2):
        absent, empty = ABSENT in (one, other), EMPTY in (one, other)
        fits = {Adjacency.ADD_REMOVE_USER: absent, Adjacency.ZERO_OUT_USER: empty and not absent}
        if fits.get(adjacency, not absent):
            yield one, other


def whole_numbers(summary: Summary) -> bool:
    """Whether a summary holds integers only."""
    keyed = (k.values for k in summary.keyed.values())
    return all(
        a.dtype.kind in "iub" for a in [*summary.sums.values(), *keyed, *summary.rows.values()]
    )


def under_adjacencies(protocol: Protocol) -> list[Protocol]:
    """Return the protocol under every adjacency that it takes, with n public and private."""
    made: Any = protocol
    names = {f.name for f in dataclasses.fields(made)}
    variants: list[Protocol] = []
    for adjacency in Adjacency:
        for more in ({}, {"n_users": None}):
            with suppress(ValueError, TypeError):
                if names >= {"adjacency", *more}:
                    changes: dict[str, Any] = {"adjacency": adjacency.value, **more}
                    variant = dataclasses.replace(made, **changes)
                    variants += [variant] if variant.guarantee else []
    return variants


@lru_cache(maxsize=4)
def _example_users(cls: type[Protocol]) -> Users:
    return cls.example_users()


_latest: list[Subject] = []


def subject_of(protocol: Protocol, users: Users | None = None) -> Subject:
    """Return the subject of a protocol and users; that of the last call is the same again."""
    users = _example_users(type(protocol)) if users is None else users
    if not _latest or _latest[0].protocol is not protocol or _latest[0].users is not users:
        _latest[:] = [Subject(protocol, users)]
    return _latest[0]
