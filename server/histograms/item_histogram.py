"""Histogram whose noise hides one record, and not a user: a baseline, for what that would cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from clients.histograms.queries import MOST_ITEM_CLIP, PerItemClip
from fedhist.base.arrays import Array
from fedhist.base.errors import warned
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.model.truths import L1, Prediction
from fedhist.privacy import noise_law
from fedhist.privacy.guarantee import Adjacency, Guarantee, check_budget
from fedhist.privacy.shares import Aggregation
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, check_domain
from server.histograms.bounded_histogram import BoundedHistogram
from server.session.curator import Curator
from server.targets import domains
from server.targets.domains import DomainHistogram
from server.trust import Aggregating

SENSITIVITY = 2
"""l1: replacing one record takes it from one count and adds it to another."""


@register_protocol
@dataclass(frozen=True)
class ItemHistogram(DomainHistogram, Aggregating):
    """Total count of every item of a public domain, private per record and NOT per user.

    Users send all their counts to a trusted server, which adds noise that hides one record. It is
    what histograms are often released with; a user of T records has T times its epsilon.

    Parameters
    ----------
    domain : Keys
        Public items; others are dropped.
    epsilon : float
        Budget of each RECORD; inf switches noise off.
    nonneg : bool
        Raise negative totals to zero; never increases the l1 error.
    trust : Aggregation, optional
        The nodes add the noise; None: the server does.

    Privacy
    -------
    epsilon-DP for one record of known user, whose number of records is public: it is replaced by
    any other, in the domain or not. That changes two counts by 1 at most, so that discrete Laplace
    noise of scale 2 / epsilon hides it. Under removal of a record the sensitivity would be 1. A
    count of 2^30 or more of one user is sent as 2^30, which moves no two counts further apart.

    Error
    -----
    About 2 / epsilon an item, whatever the number of users and of their records; exact.

    Examples
    --------
    >>> ItemHistogram(Keys.of(["tea", "rye"]), epsilon=1.0).noise.scale
    2.0
    """

    name: ClassVar[str] = "item-histogram"
    paper: ClassVar[str] = "Dwork, McSherry, Nissim & Smith, TCC 2006; discrete noise"

    domain: Keys
    epsilon: float
    nonneg: bool = True
    trust: Aggregation | None = None

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_domain(self.domain)
        _ = self.asks(self.query, 0)

    @property
    def max_rounds(self) -> int:
        return 1

    @property
    def guarantee(self) -> Guarantee:
        """The budget, for one record."""
        return self.promise(self.epsilon, 0.0, Adjacency.REPLACE_ITEM, unit="item")

    @property
    def query(self) -> PerItemClip:
        """The one question."""
        return PerItemClip(self.domain, MOST_ITEM_CLIP)

    @property
    def noise(self) -> noise_law.NoiseLaw:
        """Law of the noise on every entry; of the shares of all parties under aggregate trust."""
        if self.trust is not None:
            return self.noise_of_shares(self.query)
        return noise_law.NoiseLaw("discrete-laplace", SENSITIVITY / self.epsilon)

    def rounds(self, server: Curator) -> Script:
        summary = yield self.query
        value = server.discrete_laplace(
            summary.sums["counts"], l1_sensitivity=SENSITIVITY, epsilon=self.epsilon
        )
        return Estimate.ok(
            np.maximum(value, 0) if self.nonneg else value,
            keys=self.domain,
            stderr=np.full(len(self.domain), self.noise.std),
            public={"n_users": float(summary.n_users), "noise_std": self.noise.std},
            warnings=(
                warned(
                    f"epsilon = {self.epsilon:g} holds for one record, NOT for a user",
                    "it is T times that for a user of T records, whose history is not protected",
                    "take bounded-histogram, or another protocol of user-level privacy",
                ),
                "a user's count of one item is cut at 2^30",
            ),
        )

    def sums(self, users: Users) -> dict[str, Array]:
        cut = domains.totals(users, self.domain, MOST_ITEM_CLIP)
        return {**super().sums(users), "cut": cut}

    def error_of(self, facts: Facts) -> Prediction:
        """Compute the exact expected l1 error. NOT PRIVATE."""
        cut = facts["cut"]
        lost = facts.truth - cut
        expected = noise_law.expected_l1(self.noise, lost, cut if self.nonneg else None)
        return Prediction(L1, expected, "exact", "sum of E|Z| and of what is cut")

    def diagnostics_of(self, facts: Facts) -> Mapping[str, float]:
        cut = float((facts.truth - facts["cut"]).sum())
        return {"events cut at 2^30 of a user": cut} if cut else {}

    @classmethod
    def example(cls) -> Self:
        return cls(BoundedHistogram.example().domain, epsilon=1.0)
