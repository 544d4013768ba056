"""Public domains of items, and none; what protocols share that count items or share them out.

Totals and norms of users are a path of its own for evaluation only, NOT PRIVATE: a prediction can
contradict a measurement (Liu et al., ICML 2023, Sections 4 and A.1). From noisy statistics to a
distribution is post-processing, which costs no privacy.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020.
.. [2] Duchi, Shalev-Shwartz, Singer & Chandra, "Efficient projections onto the l1-ball", ICML
   2008, Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clients.bounding.contribution import domain_lookup
from fedhist.base.arrays import Array, Floats, Integers
from fedhist.model.display import Display
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Protocol
from fedhist.model.truths import L1, LowerBound, Truth, l1
from fedhist.privacy.guarantee import Trust
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import BLOCK, Shard
from server.targets.lower_bounds import central_share_bounds, planned_sizes, share_bounds, sizes_of
from server.targets.sample_sizes import held

CMAX = 4.0
"""Largest m p that presence is read as: few users then lack the symbol, and noise drowns them."""


def project_simplex(x: ArrayLike) -> Floats:
    """Return the point of the probability simplex nearest to ``x`` in l2, row by row [2].

    >>> project_simplex([0.9, 0.4, -0.3])
    array([0.75, 0.25, 0.  ])
    """
    v = np.asarray(x, dtype=np.float64)
    if not (v.ndim and v.shape[-1]) or not np.isfinite(v).all():
        raise ValueError(f"finite vectors are needed, got shape {v.shape}: {v.ravel()[:5]}")
    v = v - v.max(axis=-1, keepdims=True)  # it ignores a common shift; sums then do not cancel
    k = v.shape[-1]
    down = np.sort(v, axis=-1)[..., ::-1]
    level = (np.cumsum(down, axis=-1) - 1) / np.arange(1, k + 1)
    last = k - 1 - np.argmax((down > level)[..., ::-1], axis=-1, keepdims=True)
    return np.asarray(np.maximum(v - np.take_along_axis(level, last, axis=-1), 0.0))


def project_shares(x: Floats) -> Floats:
    """Return the nearest shares to (k,) ``x`` in l2: none is negative, they add up to 1 at most.

    >>> project_shares(np.array([0.5, 0.2, -0.3])).tolist()
    [0.5, 0.2, 0.0]
    """
    positive = np.maximum(x, 0.0)
    return project_simplex(x) if positive.sum() > 1 else positive


def presence_to_probability(present: ArrayLike, n_users: float, m: int) -> Floats:
    """Read the number of users that have a symbol as the symbol's probability [1, Algorithm 4].

    q = 1 - present / n_users estimates (1 - p)^m, so p = 1 - clip(q, e^-CMAX, 1)^(1/m). Corrected
    against the paper, which clips at 0: noise would then give p = 1.

    >>> presence_to_probability([0, 75, 120], 100, 2)
    array([0.        , 0.5       , 0.86466472])
    """
    if not (n_users > 0 and m >= 1):
        raise ValueError(f"n_users and m must be positive, got {n_users}, {m}")
    q = 1 - np.asarray(present, dtype=np.float64) / n_users
    return np.asarray(0.0 - np.expm1(np.log(np.clip(q, math.exp(-CMAX), 1.0)) / m))


def in_domain(
    users: Shard, domain: Keys
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64], Floats]]:
    """Walk batches of users: their number, and of every entry in the domain user, item, count."""
    for batch in users.blocks(1 << 15):
        v, places = batch.counts, domain_lookup(domain, batch.counts.vocabulary)
        user = np.repeat(np.arange(len(batch)), np.diff(v.indptr))
        item, count = v.item.astype(np.int64), v.count.astype(np.float64)
        if places is not None:
            inside = places[item] >= 0
            user, item, count = user[inside], places[item[inside]].astype(np.int64), count[inside]
        yield len(batch), user, item, count


def user_norms(users: Shard, domain: Keys) -> tuple[Floats, Floats]:
    """Compute l1 and l2 norms of every user's in-domain counts: two (n,) arrays."""
    sums = [np.zeros((2, 0))]
    for n, user, _, count in in_domain(users, domain):
        sums.append(np.array([np.bincount(user, count**norm, n) for norm in (1, 2)]))
    l1, squares = np.hstack(sums)
    return l1, np.sqrt(squares)


def totals(users: Shard, domain: Keys, most: float = math.inf) -> Floats:
    """Compute the true histogram over the domain, (d,), of counts cut at ``most`` an item."""
    out = np.zeros(len(domain))
    for _, _, item, count in in_domain(users, domain):
        out += np.bincount(item, np.minimum(count, most), len(domain))
    return out


def whole_and_clipped(
    users: Shard, domain: Keys, clip: float, norm: int, grid: float = 0.0
) -> tuple[Floats, Floats]:
    """Compute the totals before and after clipping each user to a norm, (d,) each."""
    whole, clipped = np.zeros((2, len(domain)))
    for n, user, item, count in in_domain(users, domain):
        size = np.bincount(user, count**norm, n) ** (1 / norm)
        part = (clip / np.maximum(np.maximum(size, clip), 1e-300))[user] * count
        if grid > 0:
            part = grid * np.floor(part / grid * (1 + 2e-15))
        whole += np.bincount(item, count, len(domain))
        clipped += np.bincount(item, part, len(domain))
    return whole, clipped


def users_shares(users: Shard, domain: Keys) -> dict[str, Array]:
    """Add up users' own shares, their squares, and the users without items of the domain."""
    first, second = np.zeros((2, len(domain)))
    empty = 0
    for n, user, item, count in in_domain(users, domain):
        size = np.bincount(user, count, n)
        share = count / size[user]
        first += np.bincount(item, share, len(domain))
        second += np.bincount(item, np.square(share), len(domain))
        empty += int(np.count_nonzero(size == 0))
    return {"shares": first, "squares": second, "empty": np.array([empty])}


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
        return {"whole": totals(users, self.domain)}

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
