"""What the protocols that estimate a distribution in l1 share: target, loss, sums over users."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import ClassVar, cast

import numpy as np

from fedhist.base.arrays import Array, Floats, Integers
from fedhist.model.display import Display
from fedhist.model.error_bounds import ErrorBound, LowerBound
from fedhist.model.losses import L1, l1
from fedhist.model.measures import Measure
from fedhist.model.query import Query, Summary
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Trust
from fedhist.protocols.shared.central_bounds import central_share_bounds
from fedhist.protocols.shared.clipped_totals import users_shares
from fedhist.protocols.shared.displays import DISTRIBUTION
from fedhist.protocols.shared.domains import OnDomain
from fedhist.protocols.shared.lower_bounds import planned_sizes, share_bounds, sizes_of
from fedhist.protocols.shared.seen import Seeing, Seen, SeenProtocol
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams, Streams

Moments = tuple[Floats, Floats]


@dataclass(frozen=True)
class SeenShares(Seen):
    """Sums of users' own shares, users by their numbers of items, and what follows. NOT PRIVATE."""

    @property
    def holding(self) -> int:
        """Users with items in the domain."""
        return self.n_users - int(self["sizes"][0])

    @property
    def shares(self) -> Floats:
        """Average of the users' own shares, (k,), empty users left out; zeros if all are."""
        return np.asarray(self["shares"] / max(self.holding, 1))

    def classes(self, n: int) -> Integers:
        """Count users without items, with one, two to three, ...; the last class is open: (n,)."""
        counts = self["sizes"]
        return np.asarray(np.append(counts[: n - 1], counts[n - 1 :].sum()))

    def large(self, size: int) -> int:
        """Count the users with ``size`` items or more, a power of two."""
        return int(self["sizes"][size.bit_length() :].sum())

    def shared_variance(self, size: int) -> float:
        """Twice the covariance of estimate and truth less the truth's variance, per p (1 - p).

        The estimate averages ``size`` samples, a power of two, of each of the s' users with as
        many. With the average of all s users' own it has the covariance 1 / (s s') sum of 1 / m_u
        over these; that has the variance 1 / s^2 sum of 1 / m_u over all. For s users of m samples
        each, and size = m, it is 1 / (s m).
        """
        inverse, large = self["inverse sizes"], self.large(size)
        if not large:
            return 0.0
        both = float(inverse[size.bit_length() :].sum()) / (self.holding * large)
        return 2 * both - float(inverse.sum()) / self.holding**2

    # -- further walks ---------------------------------------------------------------------------

    def moments(self, of: Callable[[Users], Moments]) -> Moments:
        """Add up means and variances over the users."""

        def one(users: Users) -> Summary:
            mean, variance = of(users)
            return Summary(len(users), {"mean": mean, "variance": variance})

        found = self.walk(one).sums
        return found["mean"], found["variance"]

    def answers(self, queries: Sequence[Query], seeds: Sequence[int] = (0,)) -> list[Summary]:
        """Fold the answers to all queries, with each seed, in one walk.

        A user who has more items than a query takes draws them; few draws stand for all.
        """
        asked = list(product(queries, seeds))

        def one(users: Users) -> Summary:
            found = [q.answer_folded(users, partial(_streams, seed=s)) for q, s in asked]
            ids = next((a.ids for a in found if a.rows), None)
            return Summary(len(users), _named(found, "sums"), rows=_named(found, "rows"), ids=ids)

        total = self.walk(one)
        parts = [({}, {}) for _ in asked]  # type: list[tuple[dict[str, Array], dict[str, Array]]]
        for kind, arrays in enumerate((total.sums, total.rows)):
            for name, a in arrays.items():
                i, key = name.split(" ", 1)
                parts[int(i)][kind][key] = a
        return [
            Summary(total.n_users, sums, rows=rows, ids=total.ids if rows else None)
            for sums, rows in parts
        ]


def _named(found: Sequence[Summary], kind: str) -> dict[str, Array]:
    """Put the arrays of all answers side by side, under the answers' numbers."""
    return {f"{i} {k}": a for i, s in enumerate(found) for k, a in getattr(s, kind).items()}


class DistributionTarget(SeenProtocol, OnDomain):
    """A protocol whose estimate has one share for every symbol of ``domain``."""

    target: ClassVar[str] = "distribution"
    loss_name: ClassVar[str] = "l1"
    display: ClassVar[Display | None] = DISTRIBUTION

    @property
    def value_range(self) -> tuple[float, float]:
        """Shares lie in [0, 1]."""
        return 0.0, 1.0

    @property
    def estimates(self) -> Truth:
        """The average of the users' own distributions."""
        return Truth.AVERAGE_OF_USERS

    def measure(self) -> Measure:
        """Add up the users' own shares, and count their items."""
        return Seeing(self, SeenShares)

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Add up shares, and, by classes of numbers of items, users and 1 over these numbers."""
        return users_shares(users, self.domain)

    def truth_of(self, seen: Seen) -> Array:
        """Average the users' own shares, (k,), empty users left out. NOT PRIVATE."""
        return cast(SeenShares, seen).shares

    def error_of(self, seen: Seen) -> ErrorBound:
        """Predict the expected l1 error on known users. NOT PRIVATE."""
        return self.predicted(cast(SeenShares, seen))

    @abstractmethod
    def predicted(self, seen: SeenShares) -> ErrorBound:
        """Predict the expected l1 error on known users. NOT PRIVATE."""

    def lower_bounds_of(self, seen: Seen) -> tuple[LowerBound, ...]:
        """Bound the l1 error of any protocol under this guarantee. NOT PRIVATE."""
        if self.guarantee.trust is Trust.LOCAL:
            return share_bounds(self.guarantee, seen.held, planned_sizes(self), L1, 1)
        sizes = sizes_of(seen.held, *planned_sizes(self))
        return tuple(central_share_bounds(self.guarantee, sizes, len(self.domain)))

    def loss(self, value: Array, truth: Array) -> float:
        """Return the l1 distance: twice the distance in total variation."""
        return l1(value, truth)


def _streams(some: Users, seed: int) -> Streams:
    return SeededStreams(some.ids, seed, "given")
