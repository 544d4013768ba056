"""Run a protocol on users: one function for every runtime that this process can drive."""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, overload

import numpy as np

from fedhist.base.hashing import digest64
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query, Summary
from fedhist.model.registry import load_plugin
from fedhist.privacy.guarantee import Adjacency, Guarantee, Release, Trust, convert
from fedhist.privacy.ledger import Ledger
from fedhist.privacy.shares import Aggregation
from fedhist.users.shards import Shard, check_in_memory, check_nodes
from server.noise import noise_source
from server.session.journal import Journal
from server.session.session import IDEAL, Session
from simulations.config.reading import read
from simulations.runs.options import MASKED, Options, Outcome, RepeatTable, Runtime, ended
from simulations.runtimes.inline import InlinePopulation

if TYPE_CHECKING:
    from simulations.runs.repeat import Repeated


@dataclass(frozen=True)
class Estimates(Sequence[Estimate]):
    """The estimates of several protocols, in their order, and what all have spent together."""

    each: tuple[Estimate, ...]
    ledger: Ledger

    def __len__(self) -> int:
        return len(self.each)

    def __getitem__(self, index: Any) -> Any:
        return self.each[index]


@overload
def run(
    protocol: Protocol, users: Shard, *, repeat: Mapping[str, Any], **options: Any
) -> Repeated: ...


@overload
def run(protocol: Protocol, users: Shard, **options: Any) -> Estimate: ...


@overload
def run(
    protocol: Sequence[Protocol], users: Shard | Sequence[Shard], **options: Any
) -> Estimates: ...


def run(  # type: ignore[misc]  # the overloads leave the options to this signature
    protocol: Protocol | Sequence[Protocol],
    users: Shard | Sequence[Shard],
    *,
    seed: int | None = None,
    runtime: Runtime = "inline",
    nodes: int | None = None,
    workers: int | None = None,
    noise: Literal["simulated", "secure"] = "simulated",
    clients: Literal["per-user", "aggregate"] = "per-user",
    journal: str | Path | None = None,
    min_replies: int | None = None,
    repeat: Mapping[str, Any] | None = None,
) -> Estimate | Estimates | Repeated:
    """Run a protocol on simulated users and return its estimate, with the ledger.

    Parameters
    ----------
    protocol : Protocol or list of Protocol
        Several are run one after the other; each spends its own epsilon of the same users.
    users : Users or Shard, or a list of them
        In memory, or walked by blocks of users that are made or read and dropped again. A list has
        the users of each of several protocols: the same ids, with other records.
    seed : int, optional
        Makes the run reproducible; None draws one. Secure noise has none, whatever is given.
    runtime : {"inline", "ray"}
    nodes : int, optional
        Flower nodes that the users are split over evenly; default: one for inline, at most
        2,000 for Ray, the parties under aggregate trust. Integer-valued protocols give the same
        estimate for any number, under other trust.
    workers : int, optional
        Most Ray tasks at a time; default: the CPUs that Ray has.
    noise : {"simulated", "secure"}
        Grade of the Curator's noise and of the users' coins: seeded, or system entropy through
        exact integer samplers. Protocols that have none for their noise refuse.
    clients : {"per-user", "aggregate"}
        "aggregate" draws the sums of local reports from their exact law, without making the
        reports: for sweeps, inline only.
    journal : path, optional
        Folder that makes the run survive a restart, also in the middle of a round, whose sums it
        keeps at intervals. Without a seed, the coins of users who are in no sum there are drawn
        again: their first answers died with the process, unseen.
    min_replies : int, optional
        Fewest nodes that must answer; default: all.
    repeat : mapping, optional
        The table [repeat], such as ``{"times": 12, "change": 0.05}``: ask again in every period, of
        users who change; see :class:`~simulations.runs.options.RepeatTable`. Inline only.

    Returns
    -------
    Estimate
        Of several protocols :class:`Estimates`, with one ledger; with ``repeat`` errors and
        cumulative epsilons, NOT PRIVATE.

    Raises
    ------
    BudgetExceeded, MissingReplies, PopulationError, WireError

    Examples
    --------
    >>> import fedhist
    >>> from fedhist.protocols import BoundedHistogram
    >>> users = fedhist.Users.from_records({"ann": {"tea": 2}, "bob": {"rye": 1, "tea": 1}})
    >>> protocol = BoundedHistogram(domain=users.vocabulary, clip=2.0, epsilon=1.0)
    >>> estimate = fedhist.run(protocol, users, seed=1)
    >>> estimate.status, estimate.value.shape
    ('ok', (2,))
    """
    options = Options(
        seed=seed,
        runtime=runtime,
        nodes=nodes,
        workers=workers,
        noise=noise,
        clients=clients,
        journal=journal,
        min_replies=min_replies,
    )
    if repeat is not None:
        from simulations.runs import repeat as repeats  # what draws figures

        if not isinstance(protocol, Protocol) or not isinstance(users, Shard):
            raise ValueError("repeat asks one protocol of one population (fedhist.Users)")
        return repeats.repeat(execute, protocol, users, read(RepeatTable, repeat), options)
    if isinstance(protocol, Protocol):
        return execute(protocol, cast(Shard, users), options).estimate
    return run_each(protocol, users, options)


def run_each(
    protocols: Sequence[Protocol], users: Shard | Sequence[Shard], options: Options
) -> Estimates:
    """Run protocols one after the other on the same users, in one ledger.

    Raises ValueError and PopulationError before anybody is asked.
    """
    if not protocols:
        raise ValueError("a list of protocols to run is empty")
    views = [users] * len(protocols) if isinstance(users, Shard) else list(users)
    if not all(isinstance(view, Shard) for view in views):
        raise ValueError(
            "users must be fedhist.Users, or a list of them; Users.from_frame makes them"
        )
    if len(views) != len(protocols):
        raise ValueError(f"{len(protocols)} protocols need as many users, got {len(views)}")
    for i, view in enumerate(views):
        if view is not views[0] and not np.array_equal(view.public_ids(), views[0].public_ids()):
            raise ValueError(
                f"users[{i}] are others than users[0]: one budget is of the same users"
            )
    adjacency = common(protocols)
    costs = [planned_cost(p, adjacency) for p in protocols]
    for protocol, view in zip(protocols, views, strict=True):
        check_population(protocol, view, options)
    epsilon, delta = math.fsum(c.epsilon for c in costs), math.fsum(c.delta for c in costs)
    ledger = Ledger(together(protocols, epsilon, delta))
    ledger.noise, ledger.null_safe = options.noise, all(p.null_safe for p in protocols)
    estimates = []
    for i, (protocol, view) in enumerate(zip(protocols, views, strict=True)):
        session, seed = open_session(protocol, own_options(options, i))
        estimate = drive(session, seed, view, options).estimate
        ledger.include(() if estimate.ledger is None else estimate.ledger.entries)
        estimates.append(estimate)
    return Estimates(tuple(estimates), ledger)


def common(protocols: Sequence[Protocol]) -> Adjacency:
    """Return the adjacency that all releases together are stated under.

    Replacement if one is about that; adding and removing if all are, or are null-safe; else zeroing
    out. Raises ValueError if one promises nothing to a user.
    """
    for p in protocols:
        if p.guarantee.unit != "user":
            raise ValueError(f"{p.name}: spending is counted per user, this is {p.guarantee}")
    stated = [p.guarantee.adjacency for p in protocols]
    if Adjacency.REPLACE_USER in stated:
        return Adjacency.REPLACE_USER
    hidden = all(
        p.null_safe or a is Adjacency.ADD_REMOVE_USER
        for p, a in zip(protocols, stated, strict=True)
    )
    return Adjacency.ADD_REMOVE_USER if hidden else Adjacency.ZERO_OUT_USER


def together(protocols: Sequence[Protocol], epsilon: float, delta: float) -> Guarantee:
    """State what all releases promise: the least trust that is needed for one of them."""
    each = [p.guarantee for p in protocols]
    trust = min((g.trust for g in each), key=lambda t: t.rank)
    premise = "; ".join(dict.fromkeys(g.premise for g in each if g.premise))
    return Guarantee(epsilon, delta, trust, common(protocols), premise=premise)


def planned_cost(protocol: Protocol, adjacency: Adjacency) -> Release:
    """State what a protocol may spend under an adjacency; ValueError if it says nothing there."""
    g = protocol.guarantee
    return convert(g.cost, g.adjacency, adjacency, null_safe=protocol.null_safe)


def own_options(options: Options, index: int) -> Options:
    """Give a release a journal and a seed of its own: equal protocols would share their noise."""
    seed, journal = options.seed, options.journal
    return replace(
        options,
        seed=None if seed is None else digest64("fedhist.release", seed, index) >> 2,
        journal=None if journal is None else Path(journal) / f"{index:02d}",
    )


def execute(protocol: Protocol, users: Shard, options: Options) -> Outcome:
    """Run a protocol and keep what was measured on the way."""
    if not isinstance(users, Shard):
        raise ValueError(
            f"users must be fedhist.Users, got {type(users).__name__}; Users.from_frame makes them"
        )
    check_population(protocol, users, options)
    return drive(*open_session(protocol, options), users, options)


def check_population(protocol: Protocol, users: Shard, options: Options) -> None:
    """Refuse what options exclude each other, or the users.

    Raises ValueError, PopulationError before anybody is asked.
    """
    if len(users) == 0:
        raise ValueError("the population is empty: there are no users to ask")
    check_nodes(len(users), for_protocol(options, protocol).n_nodes(len(users)))
    check_held(len(users), options)


def check_held(n_users: int, options: Options) -> None:
    """Refuse what needs users in memory, if they are too many: no user is made to find that."""
    if options.adversaries:
        check_in_memory(n_users, "a run with adversaries")
    elif not options.fold:
        each = -(-n_users // options.n_nodes(n_users))
        check_in_memory(each, 'each node with run.fold = "server"')


def parties(protocol: Protocol) -> int | None:
    """Return the number of nodes that a protocol must be asked of; None: any number."""
    premise = getattr(protocol, "trust", None)
    return premise.parties if isinstance(premise, Aggregation) else None


def for_protocol(options: Options, protocol: Protocol) -> Options:
    """Ask as many nodes as a protocol's trust is about, where the options name no number.

    Raises ValueError if they name another, or if reports are to leave their nodes one by one: the
    nodes add noise to sums.
    """
    count = parties(protocol)
    if count is None:
        return options
    if options.nodes not in (None, count):
        raise ValueError(f"{protocol.name} has {count} parties, but nodes = {options.nodes}")
    if not options.fold:
        raise ValueError(
            'fold = "server" sends every user\'s report to the server; under aggregate trust it '
            'sees sums only: set fold = "node"'
        )
    return replace(options, nodes=count)


def open_session(protocol: Protocol, options: Options) -> tuple[Session, int]:
    """Open the session of a run, for any runtime: its noise, its journal, its seed.

    ``session``: nobody was asked; it has ended where the protocol refuses, or where its journal
    has; ``seed``: the one of the options, drawn if they have none.
    """
    for plugin in options.plugins:
        load_plugin(plugin)
    seed = options.seed if options.seed is not None else secrets.randbits(62)
    journal = Journal(options.journal) if options.journal is not None else None
    words = MASKED if options.masked else IDEAL
    return Session(protocol, noise_source(options.noise, seed, protocol), journal, words), seed


def drive(session: Session, seed: int, users: Shard, options: Options) -> Outcome:
    """Ask the users until an open session has ended; what its journal holds is not asked again."""
    replayed = session.round_index + (session.query is None)
    return replace(_drive(session, seed, users, options), replayed=replayed)


def _drive(session: Session, seed: int, users: Shard, options: Options) -> Outcome:
    options = for_protocol(options, session.protocol)
    n_nodes = options.n_nodes(len(users))
    if options.masked and session.protocol.guarantee.trust is not Trust.AGGREGATE:
        raise ValueError(
            'aggregation = "masked" is for sums under aggregate trust: set protocol.trust = '
            f'"aggregate"; {session.protocol.name} has {session.protocol.guarantee.trust.value} '
            "trust"
        )
    if session.query is None:  # refused before asking anybody, or replayed to its end
        return Outcome(ended(session), [], {}, seed)
    if options.runtime == "inline" and not (options.adversaries or options.masked):
        return _run_inline(session, users, n_nodes, seed, options)
    from simulations.runs.over_grid import run_over_grid

    return run_over_grid(session, users, n_nodes, seed, options)


def _run_inline(
    session: Session, users: Shard, n_nodes: int, seed: int, options: Options
) -> Outcome:
    population = InlinePopulation(
        users.split(n_nodes),
        options.coins(seed),
        fold=options.fold,
        aggregate=options.clients == "aggregate",
        progress=options.progress,
        beside=options.beside,
        memoize=options.memoize,
    )

    def ask(query: Query, round_index: int) -> Summary:
        if options.watch is not None:
            options.watch(query)
        return population.ask(query, round_index)

    started = time.perf_counter()
    estimate = session.run(ask)
    seconds = {"run": time.perf_counter() - started - population.measuring}
    if population.measured is not None:
        seconds["measure"] = population.measuring
    return Outcome(estimate, population.rounds, seconds, seed, measured=population.measured)
