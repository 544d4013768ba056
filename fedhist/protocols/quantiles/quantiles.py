"""Quantiles of the users' samples with a trusted server, over public bins.

Every user sends how its record lies over the bins; the server draws a bin for each quantile asked,
or releases the whole cumulative curve and reads all quantiles off it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from fedhist.base.checks import check_choice
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust, check_budget
from fedhist.protocols.quantiles.bin_shares import STEPS, BinShares
from fedhist.protocols.quantiles.choice import Choice, Mechanism, chosen
from fedhist.protocols.quantiles.quantile_target import QuantileTarget
from fedhist.protocols.quantiles.tree import MOST_SUMMED, NoisyCurve
from fedhist.users.batch import Users

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

ADJACENCIES = tuple(a.value for a in Adjacency if a is not Adjacency.REPLACE_ITEM)
Kind = Literal["auto", "em", "tree"]


@register_protocol
@dataclass(frozen=True)
class Quantiles(QuantileTarget):
    """Quantiles of real samples, or of the users' own means, with a trusted server.

    The value has an entry for each level: the middle of a public bin.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    levels : tuple of float
        The levels asked, J of them, increasing in (0, 1): (0.25, 0.5, 0.75) for the quartiles.
    low, high : float
        Public range of the bins; what lies outside counts in the bin at that end.
    n_users : int
        Public planning value, of which the script decides whether to ask at all.
    n_bins : int
        K.
    of : {"samples", "user-means"}
        Quantiles of F(x) = (1/n) sum_u (share of user u's samples that are at most x), in which
        every user weighs the same; or of the users' own means.
    delta : float
        0: the levels share epsilon. Positive: they compose by zCDP where that is better.
    adjacency : {"replace-user", "zero-out-user", "add-remove-user"}
        What is hidden; the number of users too in the last.
    kind : {"auto", "em", "tree"}
        em: the exponential mechanism, once for each level. tree: the whole cumulative curve with
        noise, made monotone and inverted: one release, however many levels there are. auto: the
        one of least predicted error for users who lie evenly over the bins.

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record. em: a bin's score is minus the distance, in
    users, of the rank q n from the ranks that the bin holds, of sensitivity 1 for replace-user and
    max(q, 1 - q) otherwise; each level gets max(epsilon / J, sqrt(8 rho / J)), rho being the zCDP
    of (epsilon, delta). tree: one Gaussian or Laplace release of a linear function of the sum of
    the users' rows, each of l1 norm 1 or 0. n counts the records that are not null, and is neither
    used exactly nor published. Which kind, from public numbers only.

    Error
    -----
    The largest rank error of the J quantiles: how far q lies from the ranks that the value holds
    among the users, as a share of them. Without noise at most the share of the users in one bin.
    em: of order J / (n epsilon), or sqrt(J / rho) / n; tree: ln(K) / (n epsilon) about, whatever J.
    Where more than 0.1 is planned, from public numbers, the estimate comes with a warning.
    """

    name: ClassVar[str] = "quantiles"
    paper: ClassVar[str] = "Smith, STOC 2011; Fichtenberger, Henzinger & Upadhyay, ICML 2023"
    needs_server: ClassVar[str] = (
        "it chooses bins by exact scores, or adds noise of a tree to exact sums"
    )
    max_rounds: ClassVar[int] = 1

    epsilon: float
    levels: tuple[float, ...]
    low: float
    high: float
    n_users: int
    n_bins: int = 256
    of: str = "samples"
    delta: float = 0.0
    adjacency: str = Adjacency.REPLACE_USER.value
    kind: Kind = "auto"

    def __post_init__(self) -> None:
        check_budget(self.epsilon, self.delta)
        self.check_levels()
        check_choice("adjacency", self.adjacency, ADJACENCIES)

    @property
    def query(self) -> BinShares:
        """The one question."""
        return self.grid

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) under the declared adjacency."""
        return Guarantee(self.epsilon, self.delta, Trust.CENTRAL, Adjacency(self.adjacency))

    @property
    def null_safe(self) -> bool:
        """Where n is hidden: an empty record lies in no bin, and no bin's share divides by n.

        Elsewhere n_users may be the exact number: it decides what is released, and who is refused.
        """
        return Adjacency(self.adjacency) is Adjacency.ADD_REMOVE_USER

    @property
    def choice(self) -> Choice[Mechanism]:
        """What is released, and the fewest users that are asked; from public numbers only."""
        given = (float(self.epsilon), float(self.delta), self.levels, self.n_bins, self.adjacency)
        return chosen(self.kind, self.n_users, *given)

    @property
    def mechanism(self) -> Mechanism:
        """What is released."""
        return self.choice.method

    def rounds(self, server: Curator) -> Script:
        """Ask once, find a bin for each level."""
        choice = self.choice
        if self.n_users < choice.least_users:
            return self.too_few(choice.least_users)
        summary = yield self.query
        if summary.n_users > MOST_SUMMED // STEPS and isinstance(choice.method, NoisyCurve):
            return Estimate.failed(f"{summary.n_users} users are too many for 64-bit sums")
        bins = choice.method.draw(summary.sums["shares"], server)
        return Estimate.ok(self.grid.midpoints[bins], warnings=self.warned(choice.error))

    def resolution_of(self, facts: Facts) -> float:
        """Return the largest share of the users in one bin, and a step. NOT PRIVATE."""
        rng = np.random.default_rng(0)  # which the answers do not use
        total = facts.walk(lambda users: self.query.draw_summary(users, rng).sums).sums["shares"]
        return float(total.max() / total.sum()) + 1 / STEPS

    @classmethod
    def example(cls) -> Self:
        """Build a small instance: the quartiles over 16 bins."""
        return cls(2.0, (0.25, 0.5, 0.75), 0.0, 1.0, n_users=120, n_bins=16)

    @classmethod
    def neighbours(cls) -> tuple[Users, Users]:
        """Two populations at which one user shows most, for the audit of the example.

        A quarter of them is in the highest bin, the others in the lowest. One goes over, and the
        last quartile leaves the lowest bin for any of those above it.
        """

        def users(first: int) -> Users:
            at = np.repeat([0, 15], [90, 30])
            at[0] = first
            return Users.from_samples(np.arange(120), np.arange(121), (at + 0.5) / 16)

        return users(0), users(15)
