"""What protocols that trust the server share: their guarantee, and noise on totals."""

from __future__ import annotations

from fedhist.base.arrays import Array
from fedhist.privacy.adjacency import Moves
from fedhist.privacy.guarantee import Adjacency, Guarantee
from fedhist.protocols.shared.aggregating import Aggregating
from fedhist.session.curator import Curator


class Central(Aggregating):
    """A protocol with the fields epsilon and delta; replacement is its adjacency unless it says.

    With the field ``trust`` as well it runs under aggregate trust, where that is not None.
    """

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
    """Add Gaussian noise for an l2 sensitivity; where delta is 0 Laplace noise for an l1 one.

    ``label`` names the charge; empty: the Curator's own word.
    """
    named = {"label": label} if label else {}
    if delta:
        gaussian = server.discrete_gaussian if discrete else server.gaussian
        return gaussian(
            totals, l2_sensitivity=sensitivity, epsilon=epsilon, delta=delta, moves=moves, **named
        )
    laplace = server.discrete_laplace if discrete else server.laplace
    return laplace(totals, l1_sensitivity=sensitivity, epsilon=epsilon, moves=moves, **named)
