"""Run a protocol on users: one function for every runtime that this process can drive."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from fedhist.base.hashing import digest64
from fedhist.flower.host import Config, Publish, ServerSetup
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query, Summary
from fedhist.model.registry import load_builtin, load_plugin
from fedhist.session.codec import protocol_digest
from fedhist.session.curator import Noise, NoiseSource
from fedhist.session.journal import Journal
from fedhist.session.session import Session
from fedhist.users.batch import Users
from server.noise import SecureNoise, SimulatedNoise
from simulations.adversaries import Adversary, HostilePopulation, UncheckedSession
from simulations.runtimes.inline import InlinePopulation

Runtime = Literal["inline", "ray"]
RUNTIMES: tuple[Runtime, ...] = ("inline", "ray")
DEFAULT_NODES = 2000
"""Most Flower nodes on Ray where a run names no number."""

GRADES = ("simulated", "secure")
CLIENTS = ("per-user", "aggregate")
"""How local reports are simulated: one by one, as clients do, or as sums of the same law."""

ON_BAD_REPLY = ("drop", "null", "stop")
"""What becomes of a user whose message fails its check: nothing, the null record, or the end."""

NOT_SAFE = "NOT SAFE: the server checked no message (run.checks = false)"


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Attributes
    ----------
    estimate : Estimate
    rounds : list of dict
        Statistics of each round (replies, bytes, seconds).
    seconds : dict of str to float
        Wall time of each phase.
    seed : int
        The simulation's seed, drawn if none was given.
    adversaries : dict
        What adversaries did and what became of it, counted ("injected", "dropped", "replaced");
        empty without adversaries. NOT PRIVATE.
    """

    estimate: Estimate
    rounds: list[dict[str, float]]
    seconds: dict[str, float]
    seed: int
    adversaries: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """How to run a protocol; see :func:`run` for what each means.

    ``watch``, if given, is called with every query before it is asked (inline only).
    """

    seed: int | None = None
    runtime: str = "inline"
    nodes: int | None = None
    workers: int | None = None
    ray_address: str | None = None
    noise: str = "simulated"
    fold: bool = True
    clients: str = "per-user"
    min_replies: int | None = None
    timeout: float = 3600.0
    journal: str | Path | None = None
    plugins: Sequence[str] = ()
    policy: Config | None = None
    watch: Callable[[Query], None] | None = field(default=None, compare=False)
    adversaries: Sequence[Adversary] = ()
    on_bad_reply: str = "drop"
    checks: bool = True
    progress: Callable[[int, int, int], None] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.runtime not in RUNTIMES:
            raise ValueError(f"runtime must be one of {', '.join(RUNTIMES)}, got {self.runtime!r}")
        if self.noise not in GRADES:
            raise ValueError(f"noise must be one of {', '.join(GRADES)}, got {self.noise!r}")
        if self.clients not in CLIENTS:
            raise ValueError(f"clients must be one of {', '.join(CLIENTS)}, got {self.clients!r}")
        if self.clients == "aggregate" and self.runtime != "inline":
            raise ValueError(
                f'clients = "aggregate" needs runtime "inline", got {self.runtime!r}: it sends no '
                'messages; set runtime = "inline" (fedhist run --runtime inline)'
            )
        if self.on_bad_reply not in ON_BAD_REPLY:
            raise ValueError(
                f"on_bad_reply must be one of {', '.join(ON_BAD_REPLY)}, got {self.on_bad_reply!r}"
            )
        if self.noise == "secure" and (self.clients == "aggregate" or self.hostile):
            raise ValueError(
                'noise = "secure" has no seed, but clients = "aggregate", adversaries and '
                'checks = false are simulated with one: set noise = "simulated"'
            )
        if self.clients == "aggregate" and self.hostile:
            raise ValueError('adversaries send messages, but clients = "aggregate" makes none')
        if self.runtime != "inline" and (self.on_bad_reply == "null" or not self.checks):
            raise ValueError('on_bad_reply = "null" and checks = false need runtime "inline"')
        if self.seed is not None and self.seed < 0:
            raise ValueError(f"seed must be non-negative, got {self.seed}")
        if self.nodes is not None and self.nodes < 1:
            raise ValueError(f"nodes must be positive, got {self.nodes}")
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers must be positive, got {self.workers}")
        if not self.timeout > 0:
            raise ValueError(f"timeout must be positive, got {self.timeout}")
        if self.min_replies is not None and self.min_replies < 1:
            raise ValueError(f"min_replies must be positive, got {self.min_replies}")
        if self.nodes is not None:
            self.n_nodes(self.nodes)

    def n_nodes(self, n_users: int) -> int:
        """Return the number of nodes that n_users users are split over.

        Raises
        ------
        ValueError
            If more nodes must answer than there are.
        """
        count = self.nodes or (1 if self.runtime == "inline" else min(DEFAULT_NODES, n_users))
        if self.min_replies is not None and self.min_replies > count:
            raise ValueError(
                f"min_replies must be at most the number of nodes, {count}, got {self.min_replies}"
            )
        return count

    def coins(self, seed: int) -> int | None:
        """Return the seed of the users' coins; None, system entropy, with secure noise."""
        return None if self.noise == "secure" else seed

    @property
    def hostile(self) -> bool:
        """Whether anybody misbehaves, or the server checks nothing."""
        return bool(self.adversaries) or not self.checks


def run(
    protocol: Protocol,
    users: Users,
    *,
    seed: int | None = None,
    runtime: Runtime = "inline",
    nodes: int | None = None,
    workers: int | None = None,
    noise: Literal["simulated", "secure"] = "simulated",
    clients: Literal["per-user", "aggregate"] = "per-user",
    journal: str | Path | None = None,
    min_replies: int | None = None,
) -> Estimate:
    """Run a protocol on simulated users and return its estimate, with the ledger.

    Parameters
    ----------
    protocol : Protocol
    users : Users
    seed : int, optional
        Makes the run reproducible; None draws one. Secure noise has none, whatever is given.
    runtime : {"inline", "ray"}
    nodes : int, optional
        Flower nodes that the users are split over evenly; default: one for inline, at most
        2,000 for Ray. Integer-valued protocols give the same estimate for any number.
    workers : int, optional
        Ray actors; default: all cores.
    noise : {"simulated", "secure"}
        Grade of the Curator's noise and of the users' coins: seeded, or system entropy through
        exact integer samplers. Protocols that have none for their noise refuse.
    clients : {"per-user", "aggregate"}
        "aggregate" draws the sums of local reports from their exact law, without making the
        reports: for sweeps, inline only.
    journal : path, optional
        Folder that makes the run survive a restart. Without a seed, the users' coins of a round
        that was not journalled are drawn again: the first answers died with the process, unseen.
    min_replies : int, optional
        Fewest nodes that must answer; default: all.

    Returns
    -------
    Estimate

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
    return execute(protocol, users, options).estimate


def execute(protocol: Protocol, users: Users, options: Options) -> Outcome:
    """Run a protocol and keep what was measured on the way."""
    if not isinstance(users, Users):
        raise ValueError(
            f"users must be fedhist.Users, got {type(users).__name__}; Users.from_frame makes them"
        )
    if len(users) == 0:
        raise ValueError("the population is empty: there are no users to ask")
    options.n_nodes(len(users))
    return drive(*open_session(protocol, options), users, options)


def open_session(protocol: Protocol, options: Options) -> tuple[Session, int]:
    """Open the session of a run, for any runtime: its noise, its journal, its seed.

    Returns
    -------
    session : Session
        Nobody was asked; it has ended where the protocol refuses, or where its journal has.
    seed : int
        The one of the options, drawn if they have none.
    """
    load_builtin()
    for plugin in options.plugins:
        load_plugin(plugin)
    seed = options.seed if options.seed is not None else secrets.randbits(62)
    journal = Journal(options.journal) if options.journal is not None else None
    make = Session if options.checks else UncheckedSession
    return make(protocol, noise_source(options.noise, seed, protocol), journal), seed


def drive(session: Session, seed: int, users: Users, options: Options) -> Outcome:
    """Ask the users until an open session has ended."""
    n_nodes = options.n_nodes(len(users))
    if session.query is None:  # refused before asking anybody, or replayed to its end
        return Outcome(_estimate(session), [], {}, seed)
    if options.runtime == "inline":
        return _run_inline(session, users, n_nodes, seed, options)
    from simulations.runtimes.ray import run_ray

    return run_ray(session, users, n_nodes, seed, options)


def server_setup(session: Session, n_nodes: int, publish: Publish, options: Options) -> ServerSetup:
    """Set the ServerApp up for a session, for any of Flower's runtimes."""
    return ServerSetup(
        session,
        n_nodes,
        publish,
        options.fold,
        options.min_replies,
        options.timeout,
        on_bad_reply=options.on_bad_reply,
    )


def _estimate(session: Session) -> Estimate:
    if session.estimate is None:
        raise RuntimeError("the session has not ended")
    return session.estimate


def noise_source(grade: str, seed: int, protocol: Protocol) -> Noise:
    """Make the Curator's noise: one independent source per draw.

    Seeded noise is a function of the seed AND of the protocol with all its fields: two budgets
    under one seed would otherwise share their noise, and their difference would have none.
    """
    return NoiseFactory(grade, digest64("fedhist.server", seed, protocol_digest(protocol)))


@dataclass(frozen=True)
class NoiseFactory:
    """Makes one independent noise source per draw, of one grade."""

    grade: str
    key: int

    def __call__(self, index: int) -> NoiseSource:
        """Make the source of draw number ``index``."""
        return SecureNoise() if self.grade == "secure" else SimulatedNoise(self.key, index)


def _run_inline(
    session: Session, users: Users, n_nodes: int, seed: int, options: Options
) -> Outcome:
    if options.hostile:
        return _run_hostile(session, users, n_nodes, seed, options)
    population = InlinePopulation(
        users.split(n_nodes),
        options.coins(seed),
        fold=options.fold,
        aggregate=options.clients == "aggregate",
        progress=options.progress,
    )
    started = time.perf_counter()
    estimate = session.run(_watched(population, options))
    seconds = {"run": time.perf_counter() - started}
    return Outcome(estimate, population.rounds, seconds, seed)


def _watched(population: InlinePopulation, options: Options) -> Callable[[Query, int], Summary]:
    """Show every query to whoever watches before it is asked."""

    def ask(query: Query, round_index: int) -> Summary:
        if options.watch is not None:
            options.watch(query)
        return population.ask(query, round_index)

    return ask


def _run_hostile(
    session: Session, users: Users, n_nodes: int, seed: int, options: Options
) -> Outcome:
    population = HostilePopulation(
        users.split(n_nodes),
        seed,
        options.adversaries,
        checks=options.checks,
        on_bad_reply=options.on_bad_reply,
        min_replies=options.min_replies,
        progress=options.progress,
    )
    started = time.perf_counter()
    try:
        estimate = session.run(_watched(population, options))
    except Exception as e:
        if options.checks:
            raise
        reason = f"the server, which checks nothing, broke off: {type(e).__name__}: {e}"
        estimate = Estimate.failed(reason).with_ledger(session.ledger)
    if not options.checks:
        estimate = replace(estimate, warnings=(*estimate.warnings, NOT_SAFE))
    seconds = {"run": time.perf_counter() - started}
    return Outcome(estimate, population.rounds, seconds, seed, population.counts)
