"""A distribution over public items from few users: the few-users mean of one-hot vectors.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Corollary 8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from clients.few_users.queries import UserShares
from fedhist.base.arrays import Array
from fedhist.base.checks import check_within
from fedhist.base.errors import PopulationError
from fedhist.model.evaluation import Facts
from fedhist.model.registry import register_protocol
from fedhist.model.truths import L1, Prediction
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, check_domain
from server.few_users.few_users_mean import FewUsers
from server.targets.domains import DistributionTarget, holding, project_simplex


@register_protocol
@dataclass(frozen=True, kw_only=True)
class FewUsersDistribution(DistributionTarget, FewUsers):
    """Distribution of the users' items over a public domain, from few users with many items each.

    A user's row holds the shares of its items; as the mean of one-hot vectors it is within r = 1 /
    sqrt(m) of the common distribution, and its norm is at most 1.

    Parameters
    ----------
    epsilon : float
        Budget; inf switches noise off.
    delta : float
        Positive: a draw may miss everybody.
    n_users : int
        Public.
    domain : Keys
        Public items; others are dropped before the shares are taken.
    samples_per_user : float
        m: items per user, public; for users of different sizes a small one. Only the error depends
        on it.
    method, n_blocks, n_runs, kappa, lam, n_rounds, corrupted, failure, mode, salt
        See :class:`~server.few_users.few_users_mean.FewUsersMean`.

    Privacy
    -------
    That of the mean. The estimate is projected to the simplex, which costs nothing.

    Error
    -----
    In l1 at most sqrt(d) times the l2 error of the mean before the projection. Users without items
    in the domain count as 0, which draws the estimate towards even shares.
    """

    name: ClassVar[str] = "few-users-distribution"
    paper: ClassVar[str] = "Narayanan, Mirrokni & Esfandiari, ICML 2022, Corollary 8"
    needs_server: ClassVar[str] = "its estimator reads every user's own row"
    revision: ClassVar[int] = 2

    domain: Keys
    samples_per_user: float

    def __post_init__(self) -> None:
        check_domain(self.domain)
        check_within("samples_per_user", self.samples_per_user, 1, math.inf, "[)")
        _ = self.query
        super().__post_init__()

    @property
    def row_numbers(self) -> tuple[int, float, float | None]:
        """The radius is 1 / sqrt(m), since E|X - p|^2 = 1 - |p|^2 <= 1 for a one-hot X."""
        return len(self.domain), 1 / math.sqrt(self.samples_per_user), 1.0

    @property
    def query(self) -> UserShares:
        return UserShares(self.domain)

    def finish(self, value: Array) -> Array:
        return project_simplex(value)

    def error_of(self, facts: Facts) -> Prediction:
        """Bound the l1 distance from the average of the users' shares."""
        if math.isinf(self.epsilon):
            return super().error_of(facts)
        source = "sqrt(d) times the l2 error of the mean; Narayanan et al. 2022, Corollary 8"
        expected = min(2.0, math.sqrt(len(self.domain)) * self.bound())
        return Prediction(L1, expected, "bound", source)

    def truth_of(self, facts: Facts) -> Array:
        """Average the users' own shares: (d,). NOT PRIVATE. Users without items do not count."""
        if not holding(facts):
            raise PopulationError("no user has an item of the domain; there is no distribution")
        return super().truth_of(facts)

    def diagnostics_of(self, facts: Facts) -> Mapping[str, float]:
        return {"users without items in the domain": float(facts["empty"][0])}

    @classmethod
    def example(cls) -> Self:
        domain = Keys.of([f"item-{j:02d}" for j in range(20)])
        return cls(
            epsilon=2.0, n_users=100, domain=domain, samples_per_user=4000, lam=1.0, n_rounds=500
        )

    @classmethod
    def example_users(cls) -> Users:
        """Make users of 4,000 items whose shares fall with the rank."""
        n, weights = 100, 1 / np.arange(1, 21)
        rng = np.random.default_rng(12)
        counts = rng.multinomial(4000, weights / weights.sum(), n)
        user, item = np.nonzero(counts)
        domain = cls.example().domain
        return Users.from_counts(np.arange(n), user, item, counts[user, item], domain)
