"""A bin for each level by the exponential mechanism on ranks [1]_.

.. [1] Smith, "Privacy-preserving statistical estimation with optimal convergence rates", STOC 2011.
.. [2] Cesar & Rogers, "Bounding, concentrating, and truncating", ALT 2021: epsilon^2 / 8-zCDP.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.privacy.adjacency import USER_LEVEL, Moves
from fedhist.privacy.guarantee import Adjacency, zcdp_rho
from fedhist.protocols.quantiles.bin_shares import STEPS
from fedhist.protocols.quantiles.theory import Ranks, largest_in_order

if TYPE_CHECKING:
    from fedhist.session.curator import Curator


@dataclass(frozen=True)
class ExponentialLevels:
    """One draw of a bin for each level.

    Parameters
    ----------
    epsilon, delta : float
        Of all levels together.
    levels : (J,) float64
    n_bins : int
    adjacency : Adjacency

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record. A bin's score is minus the distance, in users, of
    the rank q n from the ranks F(j - 1) to F(j) that the bin holds; n counts the records that are
    not null. The distance is max(F(j - 1) - q n, q n - F(j), 0). A record more moves every F by
    some h in [0, 1] and q n by q: differences move by h - q, between -q and 1 - q, so that the
    sensitivity is max(q, 1 - q) for add-remove-user and zero-out-user. Another record moves F by
    up to 1 either way, at equal n: sensitivity 1; a null record in exchange is zeroing out, less.
    Each level gets max(epsilon / J, sqrt(8 rho / J)), rho being the zCDP of (epsilon, delta), since
    the exponential mechanism has bounded range [2].
    """

    epsilon: float
    delta: float
    levels: Floats
    n_bins: int
    adjacency: Adjacency

    @property
    def epsilon_each(self) -> float:
        """Budget of one level: J of them compose to (epsilon, delta), either way."""
        J = len(self.levels)
        rho = zcdp_rho(self.epsilon, self.delta) if self.delta else 0.0
        return max(self.epsilon / J, math.sqrt(8 * rho / J))

    @property
    def sensitivities(self) -> Floats:
        """How much one user can change a score of each level, in users: (J,)."""
        q, replaced = self.levels, self.adjacency is Adjacency.REPLACE_USER
        return np.ones(len(q)) if replaced else np.maximum(q, 1 - q)

    @property
    def moves(self) -> Moves:
        """How much a user moves a score in units of :attr:`sensitivities`, the worst level's."""
        each = [replace(self, adjacency=a).sensitivities / self.sensitivities for a in USER_LEVEL]
        return Moves(*(float(ratio.max()) for ratio in each))

    @property
    def least_users(self) -> int:
        """Fewest users that are asked, by the rule of thumb (8 / epsilon_each) ln(100 K)."""
        return math.ceil(8 / max(self.epsilon_each, 1e-300) * math.log(100 * self.n_bins))

    def scores(self, shares: Integers) -> Floats:
        """Minus the distance of every level's rank from each bin's ranks, in users: (J, K)."""
        upto = np.cumsum(shares) / STEPS
        rank = self.levels[:, None] * upto[-1]
        below = np.append(0.0, upto[:-1])
        return np.asarray(-np.maximum(np.maximum(below - rank, rank - upto), 0.0))

    def draw(self, shares: Integers, server: Curator) -> Integers:
        """Draw a bin for each level, and put them in order: (J,) int64."""
        bins = server.exponential_rows(
            self.scores(shares) / self.sensitivities[:, None],
            sensitivity=1.0,
            epsilon_each=self.epsilon_each,
            changed=len(self.levels),
            label="quantiles",
            moves=self.moves,
        )
        # in order no rank error is larger, and quantiles must not decrease
        return np.sort(bins)

    def expected(self, given: Ranks) -> float:
        """Predict the largest rank error; exact for one level."""
        if math.isinf(self.epsilon):
            nearest = given.away.argmin(axis=1)
            law = np.equal.outer(nearest, np.arange(self.n_bins)).astype(float)
        else:
            scale = given.n * self.epsilon_each / 2 / self.sensitivities
            law = np.exp(-given.away * scale[:, None])
        return largest_in_order(given.errors, law)
