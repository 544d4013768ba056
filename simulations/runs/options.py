"""What a run is asked for, and what it gives: the options and the outcome of :mod:`.run`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from fedhist.base.arrays import PlainArguments
from fedhist.base.checks import check_choice, check_integer, check_within
from fedhist.model.protocol import Estimate
from fedhist.model.query import Query, Summary
from fedhist.users.batch import Users
from server.session.session import Session
from simulations.adversaries import Adversary
from simulations.config.reading import Delta, Must, Settings, Whole

Runtime = Literal["inline", "ray"]
DEFAULT_NODES = 2000
"""Most Flower nodes on Ray where a run names no number."""

MASKED = "masked"
CHOICES: Mapping[str, tuple[str, ...]] = {
    "runtime": ("inline", "ray"),
    "noise": ("simulated", "secure"),
    # how local reports are simulated: one by one, as clients do, or as sums of the same law
    "clients": ("per-user", "aggregate"),
    # a user whose message fails is left out, or costs its node
    "on_bad_reply": ("drop", "stop"),
    # sums under aggregate trust: by a server that is trusted not to look, or by masks
    "aggregation": ("ideal", MASKED),
}
"""What an option may be."""


Probability = Annotated[float, Must("a number in [0, 1]", lambda p: 0 <= p <= 1)]


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    ``rounds``: statistics of each round (replies, bytes, seconds); ``seconds``: wall time of each
    phase; ``seed``: the simulation's seed, drawn if none was given; ``adversaries``: what
    adversaries did and what became of it, counted ("injected", "dropped"); empty
    without adversaries. NOT PRIVATE; ``measured``: what the users add up to for ``Options.beside``;
    None where the first round was not asked here, or not of the users as they are. NOT PRIVATE;
    ``replayed``: rounds whose answers came from the journal, whoever the users are now.
    """

    estimate: Estimate
    rounds: list[dict[str, float]]
    seconds: dict[str, float]
    seed: int
    adversaries: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    measured: Summary | None = None
    replayed: int = 0

    @property
    def from_journal(self) -> str:
        """What of the run was not asked here, in words; empty if all was."""
        if not self.replayed:
            return ""
        rounds = "1 round" if self.replayed == 1 else f"{self.replayed} rounds"
        return f"{rounds} from the journal: of the users who were asked then, not of these"


@dataclass(frozen=True)
class Options(metaclass=PlainArguments):
    """How to run a protocol; see :func:`simulations.runs.run.run` for what each means.

    ``progress`` is called with (round, users who have answered, users). ``watch``, if given, is
    called with every query before it is asked; ``beside`` measures each block of users as it
    answers for the first time. NOT PRIVATE: it never travels with a message. ``memoize``: a user's
    coins are those of its record, too, so that the same record gets the same report in every run.
    """

    seed: int | None = None
    runtime: str = "inline"
    nodes: int | None = None
    workers: int | None = None
    ray_address: str | None = None
    noise: str = "simulated"
    fold: bool = True
    clients: str = "per-user"
    memoize: bool = False
    min_replies: int | None = None
    max_users_per_node: int | None = None
    timeout: float = 3600.0
    journal: str | Path | None = None
    plugins: Sequence[str] = ()
    watch: Callable[[Query], None] | None = field(default=None, compare=False)
    beside: Callable[[Users], Summary] | None = field(default=None, compare=False)
    adversaries: Sequence[Adversary] = ()
    on_bad_reply: str = "drop"
    aggregation: str = "ideal"
    progress: Callable[[int, int, int], None] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name, known in CHOICES.items():
            check_choice(name, getattr(self, name), known)
        if self.clients == "aggregate" and self.runtime != "inline":
            raise ValueError(
                f'clients = "aggregate" needs runtime "inline", got {self.runtime!r}: it sends no '
                'messages; set runtime = "inline" (fedhist run --runtime inline)'
            )
        if self.noise == "secure" and (self.clients == "aggregate" or self.adversaries):
            raise ValueError(
                'noise = "secure" has no seed, but clients = "aggregate" and '
                'adversaries are simulated with one: set noise = "simulated"'
            )
        if self.memoize and (self.clients == "aggregate" or self.runtime != "inline"):
            raise ValueError("reports are kept where they are made one by one, inline")
        if self.clients == "aggregate" and self.adversaries:
            raise ValueError('adversaries send messages, but clients = "aggregate" makes none')
        least = {"seed": 0, "nodes": 1, "workers": 1, "min_replies": 1, "max_users_per_node": 1}
        for name, smallest in least.items():
            if getattr(self, name) is not None:
                check_integer(name, getattr(self, name), least=smallest)
        check_within("timeout", self.timeout, 0, math.inf, "(]")
        if self.nodes is not None:
            self.n_nodes(self.nodes)

    def n_nodes(self, n_users: int) -> int:
        """Return the number of nodes that n_users users are split over.

        Raises ValueError if more nodes must answer than there are.
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
    def masked(self) -> bool:
        """Whether sums under aggregate trust are made under masks."""
        return self.aggregation == MASKED


@dataclass(frozen=True)
class RepeatTable(Settings):
    """The table [repeat].

    ``times``: periods; ``change``: probability that a user who stays has another record in the next
    period; ``leave``: probability that a user has left by the next period; another one comes in the
    place; ``delta``: at which totals over periods are stated; 0: at that of all periods together.
    """

    table: ClassVar[str] = "repeat"
    times: Whole = 12
    change: Probability = 0.0
    leave: Probability = 0.0
    delta: Delta = 0.0


def ended(session: Session) -> Estimate:
    """Return the estimate of a session that has ended."""
    if session.estimate is None:
        raise RuntimeError("the session has not ended")
    return session.estimate
