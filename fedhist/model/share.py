"""Share: what each node adds to its sums, so that some of them together are the whole noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from fedhist.base.checks import check_integer
from fedhist.model.part import Part
from fedhist.model.registry import register_part
from fedhist.privacy.aggregation import MOST_PARTIES, TAU, Aggregation
from fedhist.privacy.guarantee import Adjacency, Release
from fedhist.privacy.shares import ShareKind, ShareNoise, share_cost


@register_part
@dataclass(frozen=True)
class Share(Part):
    """What each node adds, and who else does: public, and all that a node needs to size it.

    (epsilon, delta) is the cost of the total to one user; delta is 0 for "laplace". ``parties``,
    ``tau_d``, ``tau_c`` and ``max_users`` are those of
    :class:`~fedhist.privacy.aggregation.Aggregation`. Numbers are added modulo 2^bits. A series of
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
