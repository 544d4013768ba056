"""What protocols that trust the server share: guarantee, aggregate trust, noise on totals."""

from __future__ import annotations

from dataclasses import replace

from fedhist.base.arrays import Array
from fedhist.model.aggregated import Aggregated
from fedhist.model.protocol import Protocol
from fedhist.model.query import Query
from fedhist.model.share import Share
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import Adjacency, Guarantee, Moves, Trust
from fedhist.privacy.noise_law import NoiseLaw
from fedhist.privacy.shares import modulus_bits
from server.session.curator import Curator


class Aggregating(Protocol):
    """A protocol that can run under aggregate trust; its dataclass has the field ``trust``."""

    trust: Aggregation | None = None

    def promise(
        self, epsilon: float, delta: float, adjacency: Adjacency, unit: str = "user"
    ) -> Guarantee:
        """State a guarantee under the trust that is configured."""
        if self.trust is None:
            return Guarantee(epsilon, delta, Trust.CENTRAL, adjacency, unit)
        return Guarantee(epsilon, delta, Trust.AGGREGATE, adjacency, unit, str(self.trust))

    def check_integers(self, discrete: bool) -> None:
        """Raise ValueError where nodes would have to add real values."""
        if self.trust is not None and not discrete:
            raise ValueError("under aggregate trust nodes add integers: set discrete = true")

    def asks(self, query: Query, round_index: int) -> Query:
        """Put the query into one for the nodes' shares, of the whole budget; see :meth:`shared`."""
        if self.trust is None:
            return query
        promised = self.guarantee
        return self.shared(query, promised.epsilon, promised.delta)

    def noise_of_shares(self, query: Query) -> NoiseLaw:
        """Law of the noise in the sums of a query where all parties answer, in the units sent."""
        asked = self.asks(query, 0)
        if not isinstance(asked, Aggregated):
            raise ValueError(f"{self.name} is not under aggregate trust")
        return asked.noise

    def shared(
        self,
        query: Query,
        epsilon: float,
        delta: float,
        *,
        rounds: int = 1,
        place: int = 0,
        series_salt: int = 0,
    ) -> Aggregated:
        """Put a query into one for shares of a budget: Laplace noise where delta is 0."""
        who, adjacency = self.trust, self.guarantee.adjacency
        if who is None:
            raise ValueError(f"{self.name} is not under aggregate trust")
        if adjacency is Adjacency.ADD_REMOVE_USER and not self.null_safe:
            raise ValueError(
                f"{self.name} uses the number of users, which nodes do not send under "
                f"{adjacency.value}: take another adjacency"
            )
        series = {"rounds": rounds, "place": place, "series_salt": series_salt}
        return by_shares(query, who, epsilon, delta, adjacency, **series)


def by_shares(
    query: Query,
    who: Aggregation,
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    **series: int,
) -> Aggregated:
    """Put a query into one for shares of a budget, with a modulus that has room for its sums."""
    share = Share(
        "gaussian" if delta else "laplace",
        float(epsilon),
        float(delta),
        adjacency.value,
        who.parties,
        who.tau_d,
        who.tau_c,
        who.max_users,
        **series,
    )
    widest = Aggregated(query, share)
    return replace(widest, share=replace(share, bits=modulus_bits(widest.most)))


class Central(Aggregating):
    """A protocol with the fields epsilon and delta; replacement is its adjacency unless it says."""

    epsilon: float
    delta: float
    adjacency: str = Adjacency.REPLACE_USER.value

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for a user under the declared adjacency, trusting the server."""
        return self.promise(self.epsilon, self.delta, Adjacency(self.adjacency))


def add_noise(
    server: Curator,
    totals: Array,
    sensitivity: float,
    epsilon: float,
    delta: float,
    *,
    discrete: bool,
    label: str = "",
    moves: Moves | None = None,
) -> Array:
    """Add Gaussian noise for an l2 sensitivity; where delta is 0 Laplace noise for an l1 one."""
    named = {"label": label} if label else {}
    if delta:
        gaussian = server.discrete_gaussian if discrete else server.gaussian
        return gaussian(
            totals, l2_sensitivity=sensitivity, epsilon=epsilon, delta=delta, moves=moves, **named
        )
    laplace = server.discrete_laplace if discrete else server.laplace
    return laplace(totals, l1_sensitivity=sensitivity, epsilon=epsilon, moves=moves, **named)
