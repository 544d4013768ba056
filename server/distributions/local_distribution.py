"""Learn a discrete distribution under user-level local differential privacy.

A user's shares, less 1 / k each, are a vector of k - 1 coordinates in an orthonormal basis, which
users report in stages (:mod:`server.centred`). By folds, the Hadamard transform of the distribution
is a vector of means in [-1, 1]: a user votes on, or reports about, the row of its fold [1]_.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Sections 3.1, 3.2 and 5.2.
.. [2] Acharya, Liu & Sun, "Discrete distribution estimation under user-level local
   differential privacy", AISTATS 2023: the rate, k^2 / (n T epsilon^2) for the squared l1 error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from clients.frequency_oracles.oracle_votes import OracleReports, chosen_kind
from clients.records.functionals import CentredShares, HadamardRows, from_sum_zero, to_sum_zero
from fedhist.base.arrays import Floats, next_power_of_two
from fedhist.base.checks import check_within
from fedhist.base.search import fewest_users
from fedhist.channels.hadamard import fwht
from fedhist.channels.oracles import OracleChannel, oracle_channel
from fedhist.channels.rank_unit import RankUnit
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Summary
from fedhist.model.registry import register_protocol
from fedhist.privacy.shuffling import Shuffling
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys, user_ids
from fedhist.users.shards import Shard
from server.centred.script import Opening, centred_mean
from server.centred.stages import CentredPlan, plan_centred
from server.localize.choice import Plan
from server.localize.script import FoldProtocol, few_users
from server.targets.domains import DistributionTarget, project_simplex, user_norms, with_domain
from server.targets.sample_sizes import resolve_sizes

if TYPE_CHECKING:
    from server.session.curator import Curator

MOST_IN_VECTORS = 4096
"""Symbols of a domain whose users may report a vector, at a cost of 256 k each."""


@register_protocol
@dataclass(frozen=True)
class LocalDistribution(DistributionTarget, FoldProtocol):
    """The distribution over k public symbols, under local differential privacy.

    Parameters
    ----------
    domain : Keys
        The k >= 1 symbols. A user's items outside it are dropped on its own device.
    epsilon : float
        Budget of each user; inf switches noise off.
    n_users : int
        Public planning value; the estimate uses the number who answered.
    samples_per_user : float
        Public planning value T of items in the domain, repetitions counted;
        ``"harmonic-mean"`` in a configuration, see :class:`Mean`. Privacy never depends on it.
    mean_scale : float, optional
        Planned distance of a user's own distribution from the common one, over that of a corner
        of the simplex from its middle; by default 1 / sqrt(T), for users who draw from one
        distribution. "folds" trust it (the standard deviation of a row, a mean of +-1): enlarge it
        there if the users' own distributions differ; 1 is always enough.
    kind : {"auto", "laplace", "onebit", "piecewise"}
        Of "folds": channel of the second round; "auto" takes the one of least variance, which for
        users of one item each is that at +-1.
    project : bool
        Whether to project the estimate onto the simplex.
    salt : int
        Public salt of the cohorts; those of folds and points are derived from it.
    method : {"centred", "folds"}
        "centred": reports of whole vectors in one to four stages, which learn how far the users are
        apart. One stage is one report of every user: the frequency oracle of least variance on one
        item, or the whole vector; the first for more than 4096 symbols. "folds": a Hadamard row a
        user, which trusts T and needs some 400 / min(1, epsilon^2) users for each.
    trust : Shuffling, optional
        Shuffle trust, by folds; see :class:`~server.trust.Shuffles`.

    Privacy
    -------
    epsilon-LDP for a user's whole record, sequentially interactive: each user answers one
    epsilon-LDP query, about one item, its vector, the vector's distance from a centre, or one
    scalar. Centre, radius and interval come from other users' messages. A user without items in the
    domain reports a null symbol, the centre, or the middle of the interval.

    Error
    -----
    "centred": squared l2 error of about 4 k e^epsilon / (n (e^epsilon - 1)^2) with one stage.
    Several have less where users are alike (``centred_plan.risk``); elsewhere votes cost up to 8%
    of the users a stage.

    "folds": squared l2 error of about 25 K / (n T epsilon^2) for epsilon <= 1, where K is the next
    power of two and n / K is at least some 400 / epsilon^2; squared l1 error at most k times that,
    the rate of [2]. Declare a domain that most users have items of: others draw the estimate
    towards the uniform distribution in a script of one round.

    Examples
    --------
    >>> protocol = LocalDistribution(Keys.range(50), 1.0, 64_000, 100)
    >>> protocol.centred_plan.n_stages, protocol.opens_with_an_item, protocol.n_folds
    (4, True, 63)
    """

    name: ClassVar[str] = "local-distribution"
    paper: ClassVar[str] = (
        "own stages of PrivUnit (Bhowmick et al., arXiv 1812.00984) by ranks; "
        "folds: Kent, Berrett & Yu, arXiv 2405.11923, Section 3.2, on Hadamard rows"
    )
    revision: ClassVar[int] = 4
    domain: Keys
    epsilon: float
    n_users: int
    samples_per_user: float
    mean_scale: float | None = None
    kind: str = "auto"
    project: bool = True
    salt: int = 1
    method: Literal["centred", "folds"] = "centred"
    trust: Shuffling | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        self.check_fields(self.mean_scale)
        check_within("the number of symbols", len(self.domain), 1, 1 << 16)
        _ = self.plan if self.uses_folds else self.centred_plan
        self.check_trust()

    @property
    def uses_folds(self) -> bool:
        """Whether users report a Hadamard row each, and not their vector; one share needs none."""
        return self.method == "folds" or len(self.domain) == 1

    @property
    def radius(self) -> float:
        """Distance of a corner of the simplex from its middle: sqrt(1 - 1 / k)."""
        return math.sqrt(1 - 1 / len(self.domain))

    @property
    def oracle(self) -> OracleChannel:
        """The frequency oracle of least variance, for one item."""
        return oracle_channel("auto", float(self.epsilon), len(self.domain))

    @property
    def opens_with_an_item(self) -> bool:
        """Whether the first users report one item, and not their vector.

        The item drawn adds radius^2 - |x|^2 to the oracle's variance, where a vector's report has
        -|x|^2.
        """
        if math.isinf(self.epsilon):
            return False
        k = len(self.domain)
        v = RankUnit(float(self.epsilon), k - 1).v
        return k > MOST_IN_VECTORS or self.oracle.v + self.radius**2 < v * self.radius**2

    @property
    def centred_plan(self) -> CentredPlan:
        """Stages of reports of whole vectors; from public numbers only. For k >= 2."""
        k, R = len(self.domain), self.radius
        opening = self.oracle.v + R**2 if self.opens_with_an_item else None
        sigma = R * (1.0 if k > MOST_IN_VECTORS else min(self.scale, 1.0))
        return plan_centred(self.n_users, sigma, R, float(self.epsilon), k - 1, opening)

    @property
    def n_folds(self) -> int:
        """Rows of the Hadamard matrix but the first: K - 1; none for one symbol."""
        return next_power_of_two(len(self.domain)) - 1

    @property
    def plan(self) -> Plan:
        """Of "folds": bins, shares and widths of one of them; from public numbers only."""
        return self.fold_plan(self.n_users / max(1, self.n_folds), 1.0)

    @property
    def report_size(self) -> float | None:
        """A row of a single item is +-1; with several, or some other scale, nothing is known."""
        return 1.0 if self.samples_per_user == 1 and self.mean_scale is None else None

    @property
    def scale(self) -> float:
        """Standard deviation of a user's row that is planned with."""
        return self.mean_scale or 1 / math.sqrt(self.samples_per_user)

    @property
    def max_rounds(self) -> int:
        if self.n_folds == 0:
            return 0
        return super().max_rounds if self.uses_folds else self.centred_plan.n_rounds

    def rounds(self, server: Curator) -> Script:
        if self.n_folds == 0:
            return Estimate.ok([1.0], stderr=np.zeros(1), keys=self.domain)
        if not self.uses_folds:
            return (yield from self._stages())
        if not self.plan.feasible:
            return Estimate.refused(self.too_few(self.n_folds, 1.0))
        rows = yield from self.ask(HadamardRows(self.domain), self.plan)
        return self._conclude(rows)

    def _stages(self) -> Script:
        plan, k = self.centred_plan, len(self.domain)
        if not plan.feasible:
            least = fewest_users(lambda n: replace(self, n_users=n).centred_plan.feasible)
            return Estimate.refused(few_users(self, least, "the uniform distribution"))
        centre = yield from centred_mean(
            CentredShares(self.domain),
            plan,
            epsilon=self.epsilon,
            salt=self.salt,
            project=project_coordinates,
            opening=Opening(self._item_query, self._item_shares)
            if self.opens_with_an_item
            else None,
        )
        if isinstance(centre, Estimate):
            return centre
        p = from_sum_zero(centre.value) + 1 / k
        return centre.estimate(project_simplex(p) if self.project else p, self.domain)

    def _item_query(self, cohort: Cohort | None = None) -> OracleReports:
        """Ask for one item of each user."""
        kind = chosen_kind("auto", float(self.epsilon), len(self.domain))
        return OracleReports(self.domain, float(self.epsilon), cohort, kind)

    def _item_shares(self, summary: Summary) -> Floats:
        """Turn reports of one item into coordinates; those who have none are left out."""
        query = self._item_query()
        shares = query.channel.debias(summary.sums[query.sent], summary.n_users)
        held = min(1.0, max(1.0 - float(shares[-1]), 0.1))  # smaller ones are mostly noise
        return to_sum_zero(shares[:-1] / held)

    def _conclude(self, coefficients: Estimate) -> Estimate:
        """Compute H q / K, q_0 = 1; the standard errors are those before the projection."""
        if coefficients.value is None or coefficients.stderr is None:
            return coefficients
        k, K = len(self.domain), self.n_folds + 1
        p = fwht(np.append(1.0, coefficients.value))[:k] / K
        stderr = math.sqrt(np.square(coefficients.stderr).sum()) / K
        return Estimate.ok(
            project_simplex(p) if self.project else p,
            stderr=np.full(k, stderr),
            keys=self.domain,
            public=coefficients.public,
            warnings=coefficients.warnings,
        )

    @property
    def empty_record(self) -> str:
        return "the middle of its interval" if self.uses_folds else ""

    def diagnostics_of(self, facts: Facts) -> Mapping[str, float]:
        return {"users without items in the domain": int(facts["empty"][0])}

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Fill the domain, n_users, and samples_per_user in the domain where that is asked for."""
        p = with_domain(parameters, domain)
        out, notes = resolve_sizes(p, users, lambda some: user_norms(some, p["domain"])[0])
        return cls.planned(out, users), notes

    @classmethod
    def example(cls) -> Self:
        return cls(Keys.of(["chai", "maté", "rye", "tea", "お茶"]), 2.0, 1400, 64)

    @classmethod
    def example_users(cls) -> Users:
        """Users of equal shares, so that every fold's average is that of all, in any amounts."""
        cups = np.array([6, 10, 12, 16, 20]) * (1 + np.arange(1400)[:, None] % 3)
        cups = np.hstack([cups, np.arange(1400)[:, None] % 4])  # milk is outside the domain
        user, item = np.nonzero(cups)
        drinks = Keys.of(["maté", "rye", "tea", "chai", "お茶", "milk"])
        return Users.from_counts(user_ids(Keys.range(1400)), user, item, cups[user, item], drinks)


def project_coordinates(value: Floats) -> Floats:
    """Move coordinates to the nearest ones that a distribution has."""
    return to_sum_zero(project_simplex(from_sum_zero(value) + 1 / (len(value) + 1)))
