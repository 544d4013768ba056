"""What the frequency oracles share: one item per user, drawn from its own, and one report of it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from clients.records.draws import drawn_symbols
from fedhist.base.arrays import Array, Words
from fedhist.base.errors import PopulationError
from fedhist.channels.oracles import OracleChannel, oracle_channel
from fedhist.model.display import Display
from fedhist.model.evaluation import Facts
from fedhist.model.losses import SQUARED_L2, squared_l2
from fedhist.model.prediction import LowerBound, Prediction
from fedhist.model.protocol import Estimate, Script
from fedhist.model.query import Summary
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import check_budget
from fedhist.privacy.shuffler import Shuffling
from fedhist.protocols.shared.clipped_totals import own_shares
from fedhist.protocols.shared.displays import DISTRIBUTION
from fedhist.protocols.shared.domains import OnDomain, check_domain
from fedhist.protocols.shared.lower_bounds import share_bounds
from fedhist.protocols.shared.oracle_votes import OracleVotes
from fedhist.protocols.shared.sample_sizes import held
from fedhist.protocols.shared.shuffles import Batch, NonInteractive
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys, user_ids
from fedhist.users.shards import BLOCK
from fedhist.users.streams import Streams
from server.distributions.simplex import project_simplex

if TYPE_CHECKING:
    from fedhist.session.curator import Curator


@dataclass(frozen=True)
class OracleQuery(OracleVotes):
    """A local query about one item of each user.

    Class attributes
    ----------------
    n_words : int
        Private words of a user from which its item is drawn.

    Parameters
    ----------
    domain : Keys
        The k public symbols; other items are dropped first.
    epsilon : float
    cohort : Cohort, optional

    Privacy
    -------
    epsilon-LDP for a user's whole record, see the oracle's channel: the report is a function of
    the one item.
    """

    n_words: ClassVar[int] = 1
    domain: Keys
    epsilon: float
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        _ = self.channel

    @property
    @abstractmethod
    def kind(self) -> str:
        """Which of :mod:`fedhist.channels.oracles` it is."""

    @property
    def channel(self) -> OracleChannel:
        """What happens to an item."""
        return oracle_channel(self.kind, self.epsilon, len(self.domain))

    def shares(self, summary: Summary) -> Array:
        """Return the unbiased share of the users that drew each symbol: (k,)."""
        return self.channel.debias(summary.sums[self.sent], summary.n_users)[:-1]

    # -- client half

    def drawn(self, users: Users, words: Words) -> Array:
        """Draw every user's symbol, (n,) int64, -1 for none, from its (n, n_words) words."""
        return drawn_symbols(users.counts, self.domain, words[:, 0])

    def symbols(self, users: Users, rng: Streams) -> Array:
        """Draw every user's symbol from its private stream."""
        return self.drawn(users, rng.substream("one-item").words(self.n_words))

    def true_symbols(self, users: Users, rng: np.random.Generator) -> Array:
        """Draw every user's symbol: (n,) int64."""
        words = rng.integers(1 << 64, size=(len(users), self.n_words), dtype=np.uint64)
        return self.drawn(users, words)


class OneVote(NonInteractive, OnDomain):
    """A protocol of one query about one item of each user."""

    @property
    @abstractmethod
    def query(self) -> OracleQuery:
        """The one question."""

    @property
    def batches(self) -> Sequence[Batch]:
        """Everybody at once."""
        return (Batch.of(self.query),)

    @property
    def report_risk(self) -> float:
        """Variance of one report, over the symbols."""
        return self.query.channel.v

    @abstractmethod
    def conclude(self, shares: Array, stderr: Array, n_users: int) -> Estimate:
        """Make an estimate of the shares of the votes and their standard errors: (k,) each."""

    def rounds(self, server: Curator) -> Script:
        """Ask, debias, conclude."""
        query = self.query
        summary = yield query
        n = summary.n_users
        if n == 0:
            return Estimate.failed("nobody answered")
        shares = query.shares(summary)
        a, b = query.channel.noise
        p = np.clip(shares, 0.0, 1.0)  # the average of p^2 over users is at least its square
        return self.conclude(shares, np.sqrt((a + b * p - np.square(p)) / n), n)


@dataclass(frozen=True)
class OneItemOracle(OneVote):
    """A distribution over a public domain from one item of each user.

    Subclasses are the frequency oracles; they say which query asks for the item. Under shuffle
    trust (``trust``) all reports are one batch.
    """

    target: ClassVar[str] = "distribution"
    loss_name: ClassVar[str] = "squared l2"
    display: ClassVar[Display | None] = DISTRIBUTION
    batch: ClassVar[int] = BLOCK

    epsilon: float
    domain: Keys
    project: bool = False
    trust: Shuffling | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_domain(self.domain)
        if not isinstance(self.project, bool):
            raise ValueError(f"project must be true or false, got {self.project!r}")
        _ = self.query
        self.check_trust()

    @property
    def value_range(self) -> tuple[float, float]:
        """Shares lie in [0, 1]."""
        return 0.0, 1.0

    def conclude(self, shares: Array, stderr: Array, n_users: int) -> Estimate:
        """Project if that is wanted."""
        value = project_simplex(shares) if self.project else shares
        public = {"n_report": float(n_users)}
        return Estimate.ok(value, stderr=stderr, keys=self.domain, public=public)

    @property
    def estimates(self) -> Truth:
        """One item of every user: their own shares, nothing for a user without items."""
        return Truth.ONE_ITEM

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Add up users' own shares of the symbols, and the squares of these. NOT PRIVATE."""
        _, share, square, empty = own_shares(users, self.domain)
        return {"share": share, "square": square, "empty": np.array([empty])}

    def truth_of(self, facts: Facts) -> Array:
        """Average the users' own shares, zero for a user without items: (k,). NOT PRIVATE.

        It is the distribution of one item of a random user, drawn uniformly from its own; it adds
        up to the share of users who have an item of the domain.
        """
        if not facts.n_users:
            raise PopulationError("there are no users, hence no distribution")
        return facts["share"] / facts.n_users

    def error_of(self, facts: Facts) -> Prediction:
        """Predict the squared l2 distance: exact unless the estimate is projected. NOT PRIVATE."""
        if self.project:
            return super().error_of(facts)
        p1, p2 = (float(facts[name].sum()) for name in ("share", "square"))
        (a, b), n = self.query.channel.noise, facts.n_users
        mse = (n * len(self.domain) * a + b * p1 - p2) / n**2
        source = f"{self.paper}; the variance of one report a user, summed over users and symbols"
        return Prediction(SQUARED_L2, mse, "exact", source)

    def diagnostics_of(self, facts: Facts) -> Mapping[str, float]:
        """Count the users who have no item of the domain. NOT PRIVATE."""
        return {"users without items": float(facts["empty"][0])}

    def lower_bounds_of(self, facts: Facts) -> tuple[LowerBound, ...]:
        """Bound the squared l2 error of any local protocol. NOT PRIVATE."""
        return share_bounds(self.guarantee, held(facts), (0.0, 0.0), SQUARED_L2, 2)

    def loss(self, value: Array, truth: Array) -> float:
        """Squared l2 distance."""
        return squared_l2(value, truth)

    @classmethod
    def example(cls) -> Self:
        """Build a small instance."""
        return cls(epsilon=2.0, domain=Keys.of([f"item-{j:02d}" for j in range(11)]))

    @classmethod
    def example_users(cls) -> Users:
        """Make users who hold one symbol each, several times, whose shares fall with the rank."""
        n, rng = 300, np.random.default_rng(14)
        weights = 1 / np.arange(1, 12)
        item = rng.choice(11, size=n, p=weights / weights.sum())
        ids = user_ids(Keys.range(n))
        count = rng.integers(1, 9, n)
        return Users.from_counts(ids, np.arange(n), item, count, cls.example().domain)
