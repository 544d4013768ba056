"""Aggregated: a query whose nodes add noise to their sums, of which the server sees the total only.

Every node answers integers, adds its share of noise to each, and sends them modulo a power of two.
Any M honest shares together are the calibrated noise, M = :attr:`Aggregation.honest`, whatever the
other nodes do; so the total is private as it is, by M shares, and more of them only hide more.

The noise, its calibration and its proof: :mod:`fedhist.privacy.shares`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedhist.base.arrays import Bounds
from fedhist.base.checks import check_integer
from fedhist.base.errors import FedhistError, MissingReplies, WireError
from fedhist.model.part import Part
from fedhist.model.query import Around, Query, Report, Summary
from fedhist.model.registry import register_part, register_query
from fedhist.privacy.guarantee import Adjacency, Moves, Release, Trust
from fedhist.privacy.shares import (
    MOST_PARTIES,
    TAU,
    Aggregation,
    ShareKind,
    ShareNoise,
    fits,
    share_cost,
)
from fedhist.users.batch import Users

if TYPE_CHECKING:
    from fedhist.privacy.noise_law import NoiseLaw
    from fedhist.privacy.shares import ShareNoise


@register_part
@dataclass(frozen=True)
class Share(Part):
    """What each node adds, and who else does: public, and all that a node needs to size it.

    (epsilon, delta) is the cost of the total to one user; delta is 0 for "laplace". ``parties``,
    ``tau_d``, ``tau_c`` and ``max_users`` are those of
    :class:`~fedhist.privacy.shares.Aggregation`. Numbers are added modulo 2^bits. A series of
    ``rounds`` adaptive questions costs (epsilon, delta) as a whole; this one is number ``place`` of
    it, from 0, and ``series_salt`` tells two series of otherwise equal shares apart.
    """

    wire_name: ClassVar[str] = "share"

    kind: ShareKind
    epsilon: float
    delta: float
    adjacency: str
    parties: int
    tau_d: float = TAU
    tau_c: float = TAU
    max_users: int = 1 << 32
    bits: int = 64
    rounds: int = 1
    place: int = 0
    series_salt: int = 0

    def __post_init__(self) -> None:
        check_integer("parties", self.parties, MOST_PARTIES)
        _ = self.release, Adjacency(self.adjacency), self.aggregation  # which check their numbers
        if self.bits not in (32, 64):
            raise ValueError(f"bits must be 32 or 64, got {self.bits}")
        check_integer("rounds", self.rounds)
        check_integer("place", self.place, self.rounds - 1, least=0)
        if self.rounds > 1 and self.kind == "laplace":
            raise ValueError(f"a series has Gaussian noise, got {self.rounds} rounds of laplace")

    @property
    def aggregation(self) -> Aggregation:
        """Who takes part."""
        return Aggregation(self.parties, self.tau_d, self.tau_c, self.max_users)

    @property
    def release(self) -> Release:
        """What the total, or the whole series, costs one user."""
        return share_cost(self.kind, self.epsilon, self.delta)

    @property
    def series(self) -> str | None:
        """Name of the series that the share belongs to; None if it is paid for by itself."""
        return None if self.rounds == 1 else repr(replace(self, place=0, bits=64))

    @property
    def norm(self) -> int:
        """Norm of the sensitivity that sizes the noise."""
        return 1 if self.kind == "laplace" else 2

    def noise(self, sensitivity: float) -> ShareNoise:
        """Size the noise that M shares add up to, for a sensitivity in steps and in the norm."""
        return ShareNoise.calibrated(
            self.kind,
            sensitivity=sensitivity,
            epsilon=self.epsilon,
            delta=self.delta,
            honest=self.aggregation.honest,
            rounds=self.rounds,
        )


@register_query
@dataclass(frozen=True)
class Aggregated(Around):
    """The total of a query over all nodes, with the noise that they have added.

    The query has integer sums, and nothing else, in its summary, and an
    :meth:`~fedhist.model.query.Query.integer_sensitivity` for the kind's norm.

    Privacy
    -------
    The total of at least ``quorum`` nodes of which at most tau_c N collude has M honest shares:
    it costs a user ``share.release``, whatever else the colluders know. What one node sends is NOT
    private: its share is 1/M of the noise. One corrupted node can set the total to anything. Each
    user is on one node: one that is on two moves the sums twice as far.
    """

    wire_name: ClassVar[str] = "aggregated"
    trust: ClassVar[Trust] = Trust.AGGREGATE

    query: Query
    share: Share

    def __post_init__(self) -> None:
        inner, share = self.query, self.share
        if inner.trust is not Trust.CENTRAL:
            raise ValueError(f"nodes add noise to exact sums, but {inner.label!r} has none")
        for name, limits in inner.bounds(1).items():
            if limits.part != "sums" or set(limits.kind) - set("iu") or None in limits.shape:
                raise ValueError(
                    f"nodes add noise to integer sums of a known shape; {name!r} of "
                    f"{inner.wire_name!r} is none (set a grid: it makes real values integers)"
                )
        if not fits(self.most, share.bits):
            raise ValueError(
                f"sums up to {self.most} do not fit into {share.bits} bits: take a coarser grid, "
                f"or fewer than max_users = {share.max_users}"
            )
        for name, value in {
            "cohort": inner.cohort,
            "parties": share.parties,
            "quorum": share.aggregation.quorum,
            "series": share.series,
        }.items():
            object.__setattr__(self, name, value)

    @property
    def label(self) -> str:
        return f"{self.query.label}, by shares"

    @property
    def release(self) -> Release:
        return self.share.release

    @property
    def moves(self) -> Moves | None:
        try:
            return Moves.of(lambda a: self.query.integer_sensitivity(self.share.norm, a))
        except ValueError:  # not known for all of them
            return None

    @property
    def exact(self) -> bool:
        return True

    @cached_property
    def adjacency(self) -> Adjacency:
        """What the cost is stated under."""
        return Adjacency(self.share.adjacency)

    @cached_property
    def sensitivity(self) -> float:
        """Of the sums, in the units that are sent; the query's own class states it."""
        return self.query.integer_sensitivity(self.share.norm, self.adjacency)

    @cached_property
    def shares(self) -> ShareNoise:
        """What nodes draw from."""
        return self.share.noise(self.sensitivity)

    @cached_property
    def sends_n(self) -> bool:
        """Whether nodes say how many users answered: not where that is private."""
        return self.adjacency is not Adjacency.ADD_REMOVE_USER

    @cached_property
    def tail(self) -> int:
        """Room for the noise in every entry."""
        shapes = (limits.shape for limits in self.query.bounds(1).values())
        entries = sum(math.prod(k for k in shape if k is not None) for shape in shapes) or 1
        return self.shares.tail(self.share.parties, entries)

    @property
    def most(self) -> int:
        """Largest size of an entry of the total, noise included."""
        limits = self.query.bounds(self.share.max_users).values()
        sizes = (max(abs(x.low), abs(x.high)) for x in limits)
        return math.ceil(max(sizes, default=0)) + self.tail

    @property
    def noise(self) -> NoiseLaw:
        """Law of the noise on an entry of the total where all parties answer, in units sent."""
        return self.shares.law(self.share.parties)

    @property
    def modular(self) -> np.dtype[Any]:
        """Dtype of what nodes send: it wraps as the modulus does."""
        return np.dtype(f"uint{self.share.bits}")

    # -- client half, to which clients.answers adds noise ------------------------------------------

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        raise FedhistError("under aggregate trust a node's sums come with its noise only")

    # -- server half -----------------------------------------------------------------------------

    def check(self, report: Report) -> None:
        raise WireError("under aggregate trust a node sends its sum, not its users' reports")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        tail = self.tail
        return {
            name: replace(limits, kind="i", low=limits.low - tail, high=limits.high + tail)
            for name, limits in self.query.bounds(n_users).items()
        }

    def check_part(self, summary: Summary) -> None:
        if summary.n_users > self.share.max_users:
            raise WireError(f"a reply for {summary.n_users} users, of {self.share.max_users}")
        if summary.n_users and not self.sends_n:
            raise WireError(f"a reply names {summary.n_users} users, whose number is private")
        expected = self.query.bounds(1)
        if not summary.linear or summary.sums.keys() != expected.keys():
            raise WireError(f"sums {sorted(expected)} are expected, got {sorted(summary.sums)}")
        for name, a in summary.sums.items():
            if a.dtype != self.modular or a.shape != expected[name].shape:
                want = f"{self.modular}{expected[name].shape}"
                raise WireError(f"{name!r} is {a.dtype}{a.shape}, expected {want}")

    def lift(self, total: Summary, nodes: int) -> Summary:
        """Read the total as signed numbers, if enough nodes are in it: before, it is not looked at.

        MissingReplies below the quorum: too few honest shares may be in the sum. WireError if
        there are more nodes than parties, or more users than the modulus has room for.
        """
        share = self.share
        if nodes < share.aggregation.quorum:
            why = f"the quorum is {share.aggregation.quorum}: {share.aggregation}"
            raise MissingReplies(share.parties, nodes, {why: 1})
        if nodes > share.parties:
            raise WireError(f"{nodes} nodes answered, of {share.parties} that take part")
        if total.n_users > share.max_users:
            raise WireError(f"sums of {total.n_users} users may wrap, of {share.max_users} at most")
        signed = f"int{share.bits}"
        sums = {name: a.view(signed).astype(np.int64) for name, a in total.sums.items()}
        return Summary(total.n_users, sums)

    def check_summary(self, summary: Summary) -> None:
        n = summary.n_users if self.sends_n else self.share.max_users
        super().check_summary(replace(summary, n_users=n))

    def check_release(
        self, kind: str, sensitivity: float, epsilon: float, delta: float, rounds: int = 1
    ) -> None:
        """Raise FedhistError unless a script asks for the noise that the total has already."""
        share = self.share
        asked = (kind, epsilon, delta, rounds)
        have = (f"discrete_{share.kind}", share.epsilon, share.delta, share.rounds)
        if asked != have:
            raise FedhistError(f"the nodes' shares are {have}, the script asks for {asked}")
        if sensitivity > self.sensitivity * (1 + 1e-9):
            raise FedhistError(
                f"the nodes' shares are for the sensitivity {self.sensitivity:g}, the script's is "
                f"{sensitivity:g}"
            )
