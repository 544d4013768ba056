"""Frequency oracles: one item of each user, for a distribution or for total counts.

References
----------
.. [1] Kairouz, Bonawitz & Ramage, "Discrete distribution estimation under local privacy",
   ICML 2016.
.. [2] Acharya, Sun & Zhang, "Hadamard response: estimating distributions privately, efficiently,
   and with little communication", AISTATS 2019.
.. [3] Feldman, Nelson, Nguyen & Talwar, "Private frequency estimation via projective geometry",
   ICML 2022.
.. [4] Ye & Barg, "Optimal schemes for discrete distribution estimation under locally differential
   privacy", IEEE Transactions on Information Theory, 2018.
.. [5] Wang, Blocki, Li & Jha, "Locally differentially private protocols for frequency estimation",
   USENIX Security 2017.
.. [6] Qin, Yang, Yu, Khalil, Xiao & Ren, "Heavy hitter estimation over set-valued data with local
   differential privacy", CCS 2016 (LDPMiner).
.. [7] Wang, Li & Jha, "Locally differentially private frequent itemset mining", IEEE S&P 2018 (the
   padding-and-sampling-based frequency oracle).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, get_args

import numpy as np

from clients.frequency_oracles.oracle_votes import (
    AnyKind,
    Kind,
    OracleReports,
    OracleSlots,
    chosen_kind,
)
from fedhist.base.arrays import Array
from fedhist.base.checks import check_integer
from fedhist.base.errors import PopulationError
from fedhist.model.display import Display
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.model.truths import SQUARED_L2, LowerBound, Prediction, Truth, squared_l2
from fedhist.privacy.guarantee import check_budget
from fedhist.privacy.shuffling import Shuffling
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, check_domain, user_ids
from fedhist.users.shards import BLOCK, Shard
from server.targets.domains import (
    DISTRIBUTION,
    DomainHistogram,
    OnDomain,
    project_shares,
    users_shares,
    with_domain,
)
from server.targets.lower_bounds import share_bounds
from server.targets.sample_sizes import held
from server.trust import Batch, NonInteractive

if TYPE_CHECKING:
    from server.session.curator import Curator


class OneVote(NonInteractive, OnDomain):
    """A protocol of one query about one item of each user."""

    @property
    @abstractmethod
    def query(self) -> OracleReports:
        """The one question."""

    @property
    def batches(self) -> Sequence[Batch]:
        return (Batch.of(self.query),)

    @property
    def overstates(self) -> str:
        return "the draw of a user's item counts, even of a user who has one"

    @property
    def report_risk(self) -> float:
        return self.query.channel.v

    @abstractmethod
    def conclude(self, shares: Array, stderr: Array, n_users: int) -> Estimate:
        """Make an estimate of the shares of the votes and their standard errors: (k,) each."""

    def rounds(self, server: Curator) -> Script:
        query = self.query
        summary = yield query
        n = summary.n_users
        if n == 0:
            return Estimate.failed("nobody answered")
        shares = query.shares(summary)
        a, b = query.channel.noise
        p = np.clip(shares, 0.0, 1.0)  # the average of p^2 over users is at least its square
        return self.conclude(shares, np.sqrt((a + b * p - np.square(p)) / n), n)


@register_protocol
@dataclass(frozen=True)
class FrequencyOracle(OneVote):
    """Distribution of one item per user, by the best known oracle: local privacy, short messages.

    Each user draws one of its items and sends a report that fits it with more probability than it
    fits others. The server counts, for every symbol, the reports that fit it.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    domain : Keys
        Public symbols; other items are dropped before one is drawn. At most 2^22 (krr: 2^30 - 1,
        subset and unary: 2^16).
    project : bool
        Project the estimate onto the shares that add up to 1 at most, which is free: what they lack
        is the share of users without an item of the domain.
    kind : {"auto", "krr", "hadamard", "projective", "subset", "unary"}
        krr: the symbol or any other [1]. hadamard: an index [2]. projective: a point of a
        projective space over a prime field [3]. subset: w of the symbols [4]. unary: a bit for
        each [5]. auto: the least variance, but of kinds within 3 percent of it the one of shortest
        messages, at most 4,096 bits.
    trust : Shuffling, optional
        Shuffle trust: the promise to whoever sees what an honest shuffler passes on. ``epsilon``
        is then the users' own, see :class:`~server.trust.Shuffles`.

    Privacy
    -------
    epsilon-LDP for a user's whole record, in one round; exact as drawn. A user without items
    reports the null symbol like any other (unary: no bit is set before the flips).

    Error
    -----
    Squared l2 distance of about 4 k e^epsilon / (n (e^epsilon - 1)^2) while e^epsilon is well below
    k, and less for krr and subset beyond. ``stderr`` counts the draw of a user's item too: for
    users of one item each it is too large, by sqrt(f (1 - f) / n) at most for an item of share f.

    Examples
    --------
    >>> from fedhist import Keys
    >>> domain = Keys.of([f"w{j}" for j in range(500)])
    >>> [FrequencyOracle(epsilon, domain).query.kind for epsilon in (1.0, 8.0)]
    ['projective', 'krr']
    """

    name: ClassVar[str] = "frequency-oracle"
    paper: ClassVar[str] = "Feldman, Nelson, Nguyen & Talwar, ICML 2022; Ye & Barg, IEEE T-IT 2018"

    target: ClassVar[str] = "distribution"
    loss_name: ClassVar[str] = "squared l2"
    display: ClassVar[Display | None] = DISTRIBUTION
    batch: ClassVar[int] = BLOCK
    revision: ClassVar[int] = 1
    report_kinds: ClassVar[tuple[str, tuple[str, ...]]] = ("kind", get_args(Kind))

    epsilon: float
    domain: Keys
    project: bool = False
    kind: AnyKind = "auto"
    trust: Shuffling | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_domain(self.domain)
        if not isinstance(self.project, bool):
            raise ValueError(f"project must be true or false, got {self.project!r}")
        _ = self.query
        self.check_trust()

    @property
    def query(self) -> OracleReports:
        epsilon = float(self.epsilon)
        kind = chosen_kind(self.kind, epsilon, len(self.domain))
        return OracleReports(self.domain, epsilon, kind=kind)

    @property
    def value_range(self) -> tuple[float, float]:
        return 0.0, 1.0

    def conclude(self, shares: Array, stderr: Array, n_users: int) -> Estimate:
        value = project_shares(shares) if self.project else shares
        public = {"n_report": float(n_users)}
        return Estimate.ok(value, stderr=stderr, keys=self.domain, public=public)

    @property
    def estimates(self) -> Truth:
        """One item of every user: their own shares, nothing for a user without items."""
        return Truth.ONE_ITEM

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Add up users' own shares of the symbols, and the squares of these. NOT PRIVATE."""
        return users_shares(users, self.domain)

    def truth_of(self, facts: Facts) -> Array:
        """Average the users' own shares, zero for a user without items: (k,). NOT PRIVATE.

        It is the distribution of one item of a random user, drawn uniformly from its own; it adds
        up to the share of users who have an item of the domain.
        """
        if not facts.n_users:
            raise PopulationError("there are no users, hence no distribution")
        return facts["shares"] / facts.n_users

    def error_of(self, facts: Facts) -> Prediction:
        """Predict the squared l2 distance: exact unless the estimate is projected. NOT PRIVATE."""
        if self.project:
            return super().error_of(facts)
        p1, p2 = (float(facts[name].sum()) for name in ("shares", "squares"))
        (a, b), n = self.query.channel.noise, facts.n_users
        mse = (n * len(self.domain) * a + b * p1 - p2) / n**2
        source = f"{self.paper}; the variance of one report a user, summed over users and symbols"
        return Prediction(SQUARED_L2, mse, "exact", source)

    def diagnostics_of(self, facts: Facts) -> Mapping[str, float]:
        return {"users without items": float(facts["empty"][0])}

    def lower_bounds_of(self, facts: Facts) -> tuple[LowerBound, ...]:
        """Bound the squared l2 error of any local protocol. NOT PRIVATE."""
        return share_bounds(self.guarantee, held(facts), (0.0, 0.0), SQUARED_L2, 2)

    def loss(self, value: Array, truth: Array) -> float:
        return squared_l2(value, truth)

    @classmethod
    def example(cls) -> Self:
        return cls(epsilon=2.0, domain=Keys.of([f"item-{j:02d}" for j in range(11)]))

    @classmethod
    def example_users(cls) -> Users:
        """Make users who hold one symbol each, several times, whose shares fall with the rank."""
        rng, item = _ranked_items(14)
        count = rng.integers(1, 9, len(item))
        return Users.from_counts(*_ids(item), item, count, cls.example().domain)


@register_protocol
@dataclass(frozen=True)
class LocalHistogram(DomainHistogram, OneVote):
    """Total count of every item of a public domain, under local privacy, by padding and sampling.

    Each user puts its items into ``clip`` slots, one each; of more items it takes a uniform subset.
    It draws one slot, and reports what lies in it through a frequency oracle [6] [7].

    Parameters
    ----------
    domain : Keys
        Public items, at most 2^22; 2^16 for "unary" and "subset". Others are dropped first.
    epsilon : float
        Budget of each user; inf switches noise off.
    clip : int
        L, in counts: slots of a user. Public: choose it without the data. A user with more items
        counts as L of them, in its own proportions.
    oracle : {"auto", "krr", "hadamard", "projective", "subset", "unary"}
        How a slot is reported, see ``frequency-oracle``. auto: the least variance, but of oracles
        within 3 percent of it the one of shortest messages, at most 4,096 bits.
    nonneg : bool
        Raise negative totals to zero; never increases the l1 error.
    trust : Shuffling, optional
        Shuffle trust: the promise to whoever sees what an honest shuffler passes on. ``epsilon``
        is then the users' own, see :class:`~server.trust.Shuffles`.

    Privacy
    -------
    epsilon-LDP for a user's whole record, in one round; exact as drawn. A user without items, or
    one whose slot is empty, votes for nothing through the same oracle. That one slot of L is drawn
    buys nothing on top: all of them may hold the same item.

    Error
    -----
    Unbiased for the counts clipped to L. The standard deviation of every total is about
    L sqrt(n) / sinh(epsilon / 2), with "hadamard" L sqrt(n) coth(epsilon / 2): sqrt(n) times what a
    trusted server needs, and L times what one item of a user costs.

    Examples
    --------
    >>> LocalHistogram(Keys.of(["tea", "rye"]), epsilon=1.0, clip=4).query.padding
    4
    """

    name: ClassVar[str] = "local-histogram"
    paper: ClassVar[str] = "Qin et al., CCS 2016; Wang, Li & Jha, IEEE S&P 2018"

    domain: Keys
    epsilon: float
    clip: int
    report_kinds: ClassVar[tuple[str, tuple[str, ...]]] = ("oracle", get_args(Kind))
    oracle: AnyKind = "auto"
    nonneg: bool = True
    trust: Shuffling | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_domain(self.domain)
        check_integer("clip", self.clip, 1 << 30)
        _ = self.query
        self.check_trust()

    @property
    def query(self) -> OracleSlots:
        kind = chosen_kind(self.oracle, float(self.epsilon), len(self.domain))
        return OracleSlots(self.domain, float(self.epsilon), padding=self.clip, kind=kind)

    def conclude(self, shares: Array, stderr: Array, n_users: int) -> Estimate:
        slots = float(n_users * self.clip)
        return Estimate.ok(
            slots * (np.maximum(shares, 0.0) if self.nonneg else shares),
            stderr=slots * stderr,
            keys=self.domain,
            public={"clip": float(self.clip), "n_report": float(n_users)},
        )

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Fill the domain; a clip written as 80.0 is 80."""
        out, clip = with_domain(parameters, domain), parameters.get("clip")
        if isinstance(clip, float) and clip.is_integer():
            out["clip"] = int(clip)
        return cls.planned(out, users), []

    @classmethod
    def example(cls) -> Self:
        return cls(Keys.of([f"item-{j:02d}" for j in range(11)]), epsilon=2.0, clip=3)

    @classmethod
    def example_users(cls) -> Users:
        """Make users who hold one item each, three times: every slot is filled."""
        item = _ranked_items(15)[1]
        return Users.from_counts(*_ids(item), item, np.full(len(item), 3), cls.example().domain)


def _ranked_items(seed: int) -> tuple[np.random.Generator, Array]:
    """Draw an item of eleven for 300 users, whose shares fall with the rank; and go on."""
    rng, weights = np.random.default_rng(seed), 1 / np.arange(1, 12)
    return rng, rng.choice(11, size=300, p=weights / weights.sum())


def _ids(item: Array) -> tuple[Array, Array]:
    return user_ids(Keys.range(len(item))), np.arange(len(item))
