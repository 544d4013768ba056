"""How long a run will take and how much memory: one block of users is asked and timed before it."""

from __future__ import annotations

import math
import os
import resource
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from clients.answers import streams
from fedhist.base.errors import FedhistError
from fedhist.model.aggregated import Aggregated
from fedhist.model.evaluation import measured
from fedhist.model.protocol import Protocol
from fedhist.model.query import Query
from fedhist.session.journal import LOG
from fedhist.session.session import Session
from fedhist.users.batch import Users
from fedhist.users.kept import ROOM, size_of
from fedhist.users.shards import BLOCK, Shard
from simulations.runs.options import Options
from simulations.runs.run import noise_source
from simulations.runtimes.inline import InlinePopulation

FEW = 200_000
"""Users and rounds, multiplied, below which nobody is asked before."""
WARM = 512
"""Users who are asked first: what is compiled and looked up once is not what the others cost."""
PROBED = 0.02
"""Of the whole work, at most: so much is asked before, up to a block."""
MESSAGE = 0.2e-3
"""Seconds that the driver of a Ray takes for a node's message and its reply."""
COPIES = 5
"""Times that users' rows are there at once, at most: as they come, put together, by id, in use."""
KEY_BYTES = 2000
"""Of a key whose sums are kept, released and written."""
SAID = 5.0
"""Seconds that a run must be expected to take if anything is to be said."""


@dataclass(frozen=True)
class Forecast:
    """What a run is expected to take.

    Attributes
    ----------
    seconds : float
        At most: a protocol may end before its last round.
    n_bytes : int
        Peak of each process that asks users: this one, or every worker.
    n_users, rounds : int
    processes : int
        They share the work; 0: a cluster's, however many it has, and the seconds are of CPU.
    """

    seconds: float
    n_bytes: int
    n_users: int
    rounds: int
    processes: int

    def __str__(self) -> str:
        rounds = f" in up to {self.rounds} rounds" if self.rounds > 1 else ""
        many = {0: "of CPU on the cluster", 1: "in one process"}
        where = many.get(self.processes, f"in {self.processes} workers")
        each = "" if self.processes == 1 else " each"
        return (
            f"{self.n_users:,} users{rounds}: about {in_words(self.seconds)} {where}, "
            f"{self.n_bytes / 2**20:,.0f} MiB{each}"
        )


def in_words(seconds: float) -> str:
    """Write a duration to two digits.

    >>> in_words(34.4), in_words(400), in_words(20_000)
    ('34 s', '7 minutes', '5.6 hours')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def forecast(
    protocol: Protocol, users: Shard, options: Options, repeats: int = 1
) -> Forecast | None:
    """Ask a few users the first question of a protocol and foretell what all of them will take.

    Their answers go nowhere. Nothing is foretold of a run of a few seconds, of one that goes on
    from a journal, of one with adversaries, or of users who cannot be asked: the run says why.
    """
    rounds = protocol.max_rounds * repeats
    total = len(users) * rounds
    on_ray = options.runtime == "ray"
    messages = MESSAGE * options.n_nodes(len(users)) * rounds * on_ray
    if (total < FEW and messages < SAID) or options.hostile or _goes_on(options):
        return None
    try:
        query = Session(protocol, noise_source(options.noise, 0, protocol)).query
        if query is None:
            return None
        asked = query.query if isinstance(query, Aggregated) else query
        _asked(asked, users, WARM, options)
        few = sum(_asked(asked, users, WARM, options)) / WARM
        if few * total + messages < SAID / 2:
            return None
        n = min(BLOCK, len(users), max(WARM, round(PROBED * total)))
        answering, measuring = (x / n for x in _asked(asked, users, n, options))
    except (FedhistError, ValueError):
        return None
    seconds = (answering * rounds + measuring) * len(users)
    making, size = (x / n for x in _made(users, n))
    if options.beside is not None and seconds > SAID / 2:
        fixed, each = _passes(protocol, users, n)
        seconds += fixed + max(0.0, each - measuring - making) * len(users)
    processes = 1
    if on_ray:
        cores = os.cpu_count() or 1
        processes = 0 if options.ray_address else min(options.workers or cores, cores)
        seconds = seconds / max(processes, 1) + messages
    n_bytes = _peak() + _held(asked, users, n, options)
    if protocol.max_rounds > 1 and not isinstance(users, Users):
        n_bytes += min(ROOM, round(size * len(users) / max(processes, 1)))
    return Forecast(seconds, n_bytes, len(users), rounds, processes) if seconds > SAID else None


def _evaluated(protocol: Protocol, users: Shard, n: int) -> float:
    """Return the seconds of measuring the first n users and of what is said of them."""
    started = time.perf_counter()
    found = measured(protocol, users.slice(0, min(n, len(users))))
    _ = found.truth, found.error
    return time.perf_counter() - started


def _passes(protocol: Protocol, users: Shard, n: int) -> tuple[float, float]:
    """Return the seconds of evaluation, of nobody and a user, beside the walk of the answers."""
    try:
        few, many = (_evaluated(protocol, users, k) for k in (WARM, n))
    except Exception:  # the run itself will say why, after its answers
        return 0.0, 0.0
    return few, max(0.0, many - few) / n


def _made(users: Shard, n: int) -> tuple[float, int]:
    """Return the seconds that it takes to make or read the first n users, and their bytes."""
    started = time.perf_counter()
    size = sum(map(size_of, users.slice(0, n).blocks()))
    return time.perf_counter() - started, size


def _goes_on(options: Options) -> bool:
    return options.journal is not None and (Path(options.journal) / LOG).exists()


def _asked(query: Query, users: Shard, n: int, options: Options) -> tuple[float, float]:
    """Ask the first n users as a run does; returns the seconds of answering and of measuring."""
    started = time.perf_counter()
    population = InlinePopulation(
        [users.slice(0, min(n, len(users)))],
        options.coins(0),
        fold=options.fold,
        aggregate=options.clients == "aggregate",
        beside=options.beside,
    )
    population.ask(query, 0)
    return time.perf_counter() - started - population.measuring, population.measuring


def _held(query: Query, users: Shard, n: int, options: Options) -> int:
    """Count what grows with the users: rows by user, and reports where nodes do not fold."""
    bounds = query.bounds(1).values()
    per_user = sum(
        8 * math.prod(k for k in x.shape[1:] if k is not None) for x in bounds if x.part == "rows"
    )
    held = COPIES * per_user * len(users)
    if any(x.part == "keyed" for x in bounds) and users.none.items is not None:
        held += KEY_BYTES * len(users.none.vocabulary)
    if not options.fold:
        some = users.slice(0, n).in_memory()
        report = query.answer(some, streams(some, options.coins(0), ""))
        parts = (*report.arrays.values(), *report.ragged.values())
        each = (some.nbytes + sum(a.nbytes for a in parts)) / n
        held += round(2 * each * len(users) / options.n_nodes(len(users)))
    return held


def _peak() -> int:
    """Return the most memory that this process has had, in bytes."""
    found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found if sys.platform == "darwin" else 1024 * found
