"""Public domains of items, and none; what protocols share that count items or share them out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from fedhist.base.arrays import Array, Integers
from fedhist.model.display import Display
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Protocol
from fedhist.model.truths import L1, LowerBound, Truth, l1
from fedhist.privacy.guarantee import Trust
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import BLOCK, Shard
from server.targets import clipped_totals
from server.targets.central_bounds import central_share_bounds
from server.targets.clipped_totals import users_shares
from server.targets.lower_bounds import planned_sizes, share_bounds, sizes_of
from server.targets.sample_sizes import held

DISTRIBUTION = Display(
    form="items", label="share", unit="probability, no unit", entry="symbol", rank="share", loss=L1
)


def with_domain(parameters: Mapping[str, Any], public: Keys | None) -> dict[str, Any]:
    """Complete a configuration with its domain, from strings or the population's public one."""
    given = parameters.get("domain")
    given = public if given is None else given
    if given is None:
        raise ValueError("a bounded domain is needed, got None: the population names none either")
    return {**parameters, "domain": given if isinstance(given, Keys) else Keys.of(given)}


class OnDomain(Protocol):
    """A protocol about the items of a public domain."""

    domain: Keys

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Fill the domain from the population's public one."""
        out, not_private = super().resolve(parameters, users, domain)
        return with_domain(out, domain), not_private


class CountTarget(Protocol):
    """A protocol whose estimate are total counts by item."""

    target: ClassVar[str] = "histogram"
    loss_name: ClassVar[str] = "l1"
    batch: ClassVar[int] = BLOCK
    display: ClassVar[Display | None] = Display(
        form="items",
        label="count (all users)",
        unit="counts",
        entry="item",
        rank="count",
        interval="of the noise (clipping bias apart)",
        loss=L1,
    )

    @property
    def estimates(self) -> Truth:
        return Truth.TOTAL

    def loss(self, value: Array, truth: Array) -> float:
        return l1(value, truth)


class UnboundedCounts(CountTarget):
    """A protocol whose estimate has an entry for every item that it lists itself."""

    occurring: ClassVar[str]
    """Name of the sum that is positive for the items that occur, of one entry per item."""

    def support_of(self, facts: Facts) -> Keys:
        return facts.users.none.vocabulary.take(self.places(facts))

    def places(self, facts: Facts) -> Integers:
        """Where the items that occur are in the vocabulary, in byte order of their names."""
        total, order = facts[self.occurring], facts.users.none.vocabulary.byte_order
        return np.asarray(order[total[order] > 0])


class DomainHistogram(CountTarget, OnDomain):
    """A protocol whose estimate has one total count for every item of ``domain``."""

    @property
    def value_range(self) -> tuple[float, float]:
        return 0.0, math.inf

    def sums(self, users: Users) -> dict[str, Array]:
        """Add up the counts of a block by item, as "whole". NOT PRIVATE."""
        return {"whole": clipped_totals.totals(users, self.domain)}

    def truth_of(self, facts: Facts) -> Array:
        """Return the total count of every item: (d,). NOT PRIVATE."""
        return facts["whole"]

    @classmethod
    def example_users(cls) -> Users:
        """Forty users, some of them empty and some with items outside the domain."""
        names = ["お茶", "tea", "rye", "maté", "chai"]
        rows = ({names[(u + 2 * k) % 5]: 1 + (u + k) % 4 for k in range(u % 4)} for u in range(40))
        return Users.from_records({f"user-{u}": row for u, row in enumerate(rows)})


def holding(facts: Facts) -> int:
    """Count the users with items in the domain."""
    return facts.n_users - int(facts["empty"][0])


class DistributionTarget(OnDomain):
    """A protocol whose estimate has one share for every symbol of ``domain``."""

    target: ClassVar[str] = "distribution"
    loss_name: ClassVar[str] = "l1"
    display: ClassVar[Display | None] = DISTRIBUTION

    @property
    def value_range(self) -> tuple[float, float]:
        return 0.0, 1.0

    @property
    def estimates(self) -> Truth:
        return Truth.AVERAGE_OF_USERS

    def sums(self, users: Users) -> Mapping[str, Array]:
        return users_shares(users, self.domain)

    def truth_of(self, facts: Facts) -> Array:
        """Average the users' own shares, (k,), empty users left out. NOT PRIVATE."""
        return np.asarray(facts["shares"] / max(holding(facts), 1))

    def lower_bounds_of(self, facts: Facts) -> tuple[LowerBound, ...]:
        """Bound the l1 error of any protocol under this guarantee. NOT PRIVATE."""
        if self.guarantee.trust is Trust.LOCAL:
            return share_bounds(self.guarantee, held(facts), planned_sizes(self), L1, 1)
        sizes = sizes_of(held(facts), *planned_sizes(self))
        return tuple(central_share_bounds(self.guarantee, sizes, len(self.domain)))

    def loss(self, value: Array, truth: Array) -> float:
        return l1(value, truth)
