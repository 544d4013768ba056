"""Totals whose nodes add too little noise, and the correct ones beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import ClassVar

from bank_frame import BankProtocol, held, item_users, protocol, query

from fedhist import (
    Adjacency,
    Bounds,
    Estimate,
    Guarantee,
    Keys,
    Query,
    Report,
    Streams,
    Summary,
    Trust,
    Users,
    WireError,
)
from fedhist.model.aggregated import Aggregated
from fedhist.model.protocol import Script
from fedhist.model.registry import register_part
from fedhist.model.share import Share
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.sensitivity import sqrt_up
from fedhist.privacy.shares import ShareNoise
from server.session.curator import Curator
from server.trust.central import Aggregating

ITEMS = Keys.range(2)
TEN, THREE = Aggregation(10), Aggregation(3, 0.0, 0.0)


@query("bank-items-held")
class ItemsHeld(Query):
    """Which of two items a user holds: integers, the empty record none."""

    trust: ClassVar[Trust] = Trust.CENTRAL

    domain: Keys

    def integer_sensitivity(self, norm: int, adjacency: Adjacency) -> float:
        """Both items come or go; the user itself stays."""
        if adjacency is not Adjacency.ZERO_OUT_USER:
            return super().integer_sensitivity(norm, adjacency)
        return 2.0 if norm == 1 else sqrt_up(2)

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send two bits."""
        return Report(users.ids, {"held": held(users, self.domain)})

    def fold(self, report: Report) -> Summary:
        """Add up."""
        return Summary(report.n_users, {"held": report.arrays["held"].sum(axis=0)})

    def check(self, report: Report) -> None:
        """One array."""
        if report.arrays.keys() != {"held"}:
            raise WireError(f"'held' is expected, got {sorted(report.arrays)}")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """At most everybody."""
        return {"held": Bounds((2,), "i", 0, n_users)}


class SumBank(BankProtocol, Aggregating):
    """Release the numbers of holders by shares of noise; a subclass says which shares."""

    adjacency: ClassVar[Adjacency] = Adjacency.ZERO_OUT_USER
    shares: ClassVar[type[Share]] = Share
    epsilon: float
    delta: float
    trust: Aggregation

    @property
    def guarantee(self) -> Guarantee:
        """The claim."""
        return self.promise(self.epsilon, self.delta, self.adjacency)

    def rounds(self, server: Curator) -> Script:
        """Ask, and release what the nodes have made noisy."""
        summary = yield ItemsHeld(ITEMS)
        total, budget = summary.sums["held"], {"epsilon": self.epsilon}
        if not self.delta:
            return Estimate.ok(server.discrete_laplace(total, l1_sensitivity=2.0, **budget))
        noisy = server.discrete_gaussian(
            total, l2_sensitivity=sqrt_up(2), delta=self.delta, **budget
        )
        return Estimate.ok(noisy)

    def asks(self, query: Query, round_index: int) -> Query:
        """Put the bank's shares in place of the correct ones."""
        asked = super().asks(query, round_index)
        if self.shares is Share or not isinstance(asked, Aggregated):
            return asked
        told = {f.name: getattr(asked.share, f.name) for f in fields(Share)}
        return replace(asked, share=self.shares(**told))

    @classmethod
    def neighbours(cls) -> tuple[Users, Users]:
        """Somebody holds both items, or nothing."""
        rest = [{"0": 1}] * 4
        return item_users([{"0": 1, "1": 1}, *rest], ITEMS), item_users([{}, *rest], ITEMS)

    @classmethod
    def example_users(cls) -> Users:
        """The first of the two."""
        return cls.neighbours()[0]


@dataclass(frozen=True)
class LaplaceSums(SumBank):
    """Ten nodes of which one may drop out, and one collude: 8 shares are certain."""

    epsilon: float = 1.0
    delta: float = 0.0
    trust: Aggregation = TEN


@dataclass(frozen=True)
class GaussianSums(SumBank):
    """Three nodes, all of them honest and there: as little noise as shares may have."""

    epsilon: float = 1.0
    delta: float = 1e-6
    trust: Aggregation = THREE


@protocol("bank-ok-shares")
class OkShares(LaplaceSums):
    """Correct: 8 shares are the noise."""


@protocol("bank-ok-gaussian-shares")
class OkGaussianShares(GaussianSums):
    """Correct: the multiplier's variance, and 4 for rounding."""


def share_of(parties: int, noise: ShareNoise) -> ShareNoise:
    """Size a share so that another number of them is the noise."""
    return replace(noise, honest=parties)


@register_part
@dataclass(frozen=True)
class ByAll(Share):
    """The variance divided by all nodes that are asked."""

    wire_name: ClassVar[str] = "bank-share-by-all"

    def noise(self, sensitivity: float) -> ShareNoise:
        """N in place of M."""
        return share_of(self.parties, super().noise(sensitivity))


@protocol("bank-shares-by-all")
class SharesByAll(LaplaceSums):
    """N shares are the noise: nobody drops out, nobody colludes."""

    shares: ClassVar[type[Share]] = ByAll


@register_part
@dataclass(frozen=True)
class Unrounded(Share):
    """A discrete Gaussian of the continuous one's variance."""

    wire_name: ClassVar[str] = "bank-share-unrounded"

    def noise(self, sensitivity: float) -> ShareNoise:
        """Take 4 off again."""
        right = super().noise(sensitivity)
        return replace(right, size=(right.size**2 - 4) ** 0.5)


@protocol("bank-no-rounding-variance")
class NoRoundingVariance(GaussianSums):
    """The analytic Gaussian's variance for integers: (1, 1) is moved at 1.008 delta."""

    shares: ClassVar[type[Share]] = Unrounded


@register_part
@dataclass(frozen=True)
class Scaled(Share):
    """A share whose size the server may name."""

    wire_name: ClassVar[str] = "bank-share-scaled"

    scale: float = 0.0

    def noise(self, sensitivity: float) -> ShareNoise:
        """Believe the message, where it says something."""
        right = super().noise(sensitivity)
        return replace(right, size=self.scale) if self.scale else right


@protocol("bank-scale-in-the-message")
class ScaleInTheMessage(LaplaceSums):
    """The honest server names no scale; another one names a small one, at the same cost."""

    shares: ClassVar[type[Share]] = Scaled


@query("bank-eager-sums")
class EagerSums(Aggregated):
    """Lifts the total of whoever has answered."""

    def lift(self, total: Summary, nodes: int) -> Summary:
        """Take any number of nodes for the quorum."""
        return super().lift(total, max(nodes, self.share.aggregation.quorum))


@protocol("bank-no-quorum")
class NoQuorum(LaplaceSums):
    """A sum of too few shares is looked at."""

    def asks(self, query: Query, round_index: int) -> Query:
        """Ask for the same, to be lifted too early."""
        asked = super().asks(query, round_index)
        return EagerSums(asked.query, asked.share) if isinstance(asked, Aggregated) else asked
