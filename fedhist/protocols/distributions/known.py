"""What predictions know of a population's shares: sums over its users, and further walks.

NOT PRIVATE: for evaluation only.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product

import numpy as np

from fedhist.base.arrays import Array, Floats, Integers
from fedhist.model.error_bounds import ErrorBound, LowerBound
from fedhist.model.measures import Measure, Measured
from fedhist.model.query import Query, Summary
from fedhist.protocols.distributions.theory import share_sums
from fedhist.protocols.shared.distribution_target import DistributionTarget
from fedhist.protocols.shared.sample_sizes import Held
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams, Streams

CLASSES = 64
"""Of numbers of items: none, one, two to three, four to seven, ..."""

EMPTY = "users without items in the domain"
"""Name of a diagnostic."""

Moments = tuple[Floats, Floats]


class FromShares(DistributionTarget):
    """A protocol whose users are evaluated by the sums of their shares, and what follows."""

    def measure(self) -> AddShares:
        """Add up the users' shares, and count their items."""
        return AddShares(self)

    @abstractmethod
    def predicted(self, known: KnownShares) -> ErrorBound:
        """Predict the expected l1 error on known users. NOT PRIVATE."""


@dataclass(frozen=True)
class AddShares(Measure):
    """Sums of shares, of numbers of items, and users by them.

    Attributes
    ----------
    protocol : FromShares
    resolution : float
        What the protocol states, whoever the users are.
    says_empty : bool
        Whether a run's diagnostics count the users without items in the domain.
    """

    protocol: FromShares
    resolution: float = 0.0
    says_empty: bool = False

    def of(self, users: Users) -> Summary:
        """Add up a block."""
        shares, size = share_sums(users, self.protocol.domain)
        at = np.frexp(size)[1]  # 0 for none, j for 2^(j - 1) to 2^j - 1
        inverse = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
        sums: dict[str, Array] = {
            "shares": shares,
            "sizes": np.bincount(at, minlength=CLASSES).astype(np.int64),
            "inverse sizes": np.bincount(at, inverse, CLASSES),
        }
        return Summary(len(users), sums | Held.sums(users))

    def finish(self, total: Summary) -> KnownShares:
        """Keep the sums."""
        return KnownShares(self, total)


@dataclass(frozen=True)
class KnownShares(Measured):
    """What was added up."""

    measure: AddShares
    total: Summary

    @property
    def n_users(self) -> int:
        """All users, those without items too."""
        return self.total.n_users

    @property
    def held(self) -> int:
        """Users with items in the domain."""
        return self.n_users - int(self.total.sums["sizes"][0])

    @cached_property
    def truth(self) -> Floats:
        """Average of the users' own shares, (k,), empty users left out; zeros if all are."""
        return np.asarray(self.total.sums["shares"] / max(self.held, 1))

    @cached_property
    def error(self) -> ErrorBound:
        """What the protocol predicts."""
        return self.measure.protocol.predicted(self)

    @cached_property
    def lower_bounds(self) -> tuple[LowerBound, ...]:
        """Of any protocol under this guarantee, in l1."""
        return self.measure.protocol.bounds_for(Held.read(self.total))

    @property
    def resolution(self) -> float:
        """As the protocol states."""
        return self.measure.resolution

    @property
    def diagnostics(self) -> Mapping[str, float]:
        """Users without items in the domain, where a run does not say."""
        empty = float(self.n_users - self.held)
        return {EMPTY: empty} if self.measure.says_empty else {}

    def classes(self, n: int) -> Integers:
        """Count users without items, with one, two to three, ...; the last class is open: (n,)."""
        counts = self.total.sums["sizes"]
        return np.asarray(np.append(counts[: n - 1], counts[n - 1 :].sum()))

    def large(self, size: int) -> int:
        """Count the users with ``size`` items or more, a power of two."""
        return int(self.total.sums["sizes"][size.bit_length() :].sum())

    def shared_variance(self, size: int) -> float:
        """Twice the covariance of estimate and truth less the truth's variance, per p (1 - p).

        The estimate averages ``size`` samples, a power of two, of each of the s' users with as
        many. With the average of all s users' own it has the covariance 1 / (s s') sum of 1 / m_u
        over these; that has the variance 1 / s^2 sum of 1 / m_u over all. For s users of m samples
        each, and size = m, it is 1 / (s m).
        """
        inverse, large = self.total.sums["inverse sizes"], self.large(size)
        if not large:
            return 0.0
        both = float(inverse[size.bit_length() :].sum()) / (self.held * large)
        return 2 * both - float(inverse.sum()) / self.held**2

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
            found = (q.answer_folded(users, partial(_streams, seed=s)).sums for q, s in asked)
            parts = {f"{i} {k}": a for i, sums in enumerate(found) for k, a in sums.items()}
            return Summary(len(users), parts)

        total = self.walk(one)
        out: list[dict[str, Array]] = [{} for _ in asked]
        for name, a in total.sums.items():
            i, key = name.split(" ", 1)
            out[int(i)][key] = a
        return [Summary(total.n_users, sums) for sums in out]


def _streams(some: Users, seed: int) -> Streams:
    return SeededStreams(some.ids, seed, "given")
