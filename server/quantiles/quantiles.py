"""Quantiles of the users' samples with a trusted server, over public bins.

Every user sends how its record lies over the bins; the server draws a bin for each quantile asked,
or releases the whole cumulative curve and reads all quantiles off it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from clients.quantiles.queries import PER_USER
from fedhist.base.arrays import Floats, Integers
from fedhist.base.checks import check_choice
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.privacy.adjacency import USER_LEVEL, Moves
from fedhist.privacy.guarantee import (
    Adjacency,
    Guarantee,
    Trust,
    check_budget,
    gaussian_multiplier,
    zcdp_rho,
)
from fedhist.privacy.sensitivity import sqrt_up
from fedhist.users.batch import Users
from server.quantiles.curves import (
    ROOT_BITS,
    decoded,
    encoded,
    fitted_bins,
    node_sums,
    quantile_bins,
    squared_change,
    tree_widths,
)
from server.quantiles.quantile_target import QuantileTarget

if TYPE_CHECKING:
    from server.session.curator import Curator

FEW = 4
"""Levels up to which each draws a bin of its own. Measured: the errors of the two kinds cross at
five to seven levels (1,000 to 10,000 users, 128 to 1,024 bins, epsilon 0.5 to 2)."""
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
        noise, made monotone and inverted: one release, however many levels there are. auto: em for
        up to 4 levels, tree beyond.

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record. em: a bin's score is minus the distance, in
    users, of the rank q n from the ranks that the bin holds, of sensitivity 1 for replace-user and
    max(q, 1 - q) otherwise; each level gets max(epsilon / J, sqrt(8 rho / J)), rho being the zCDP
    of (epsilon, delta). tree: one Gaussian or Laplace release of a linear function of the sum of
    the users' rows, each of l1 norm 1 or 0. n counts the records that are not null, and is neither
    used exactly nor published.

    Error
    -----
    The largest rank error of the J quantiles: how far q lies from the ranks that the value holds
    among the users, as a share of them. Without noise at most the share of the users in one bin.
    em: of order J / (n epsilon), or sqrt(J / rho) / n; tree: every rank is off by some
    ln(K) / (n epsilon), and the largest of J by more, five times for J = 31.
    Too few users for either are not asked.
    """

    name: ClassVar[str] = "quantiles"
    paper: ClassVar[str] = "Smith, STOC 2011; Fichtenberger, Henzinger & Upadhyay, ICML 2023"
    needs_server: ClassVar[str] = (
        "it chooses bins by exact scores, or adds noise of a tree to exact sums"
    )
    max_rounds: ClassVar[int] = 1
    revision: ClassVar[int] = 2

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
    def guarantee(self) -> Guarantee:
        return Guarantee(self.epsilon, self.delta, Trust.CENTRAL, Adjacency(self.adjacency))

    @property
    def null_safe(self) -> bool:
        """Where n is hidden: an empty record lies in no bin, and no bin's share divides by n.

        Elsewhere n_users may be the exact number: it decides what is released, and who is refused.
        """
        return Adjacency(self.adjacency) is Adjacency.ADD_REMOVE_USER

    @property
    def mechanism(self) -> ExponentialLevels | NoisyCurve:
        """What is released; from public numbers only."""
        curve = self.kind == "tree" or (self.kind == "auto" and len(self.levels) > FEW)
        given = (float(self.epsilon), float(self.delta), self.positions, self.n_bins)
        made = NoisyCurve if curve else ExponentialLevels
        return made(*given, Adjacency(self.adjacency))

    def rounds(self, server: Curator) -> Script:
        """Ask once, find a bin for each level."""
        mechanism = self.mechanism
        if self.n_users < mechanism.least_users:
            return self.too_few(mechanism.least_users)
        summary = yield self.grid
        if summary.n_users * PER_USER > 1 << (62 - ROOT_BITS) and isinstance(mechanism, NoisyCurve):
            return Estimate.failed(f"{summary.n_users} users are too many for 64-bit sums")
        return Estimate.ok(self.grid.midpoints[mechanism.draw(summary.sums["shares"], server)])

    def resolution_of(self, facts: Facts) -> float:
        """Return the largest share of the users in one bin, and a step. NOT PRIVATE."""
        return self.largest_bin(facts) + 1 / PER_USER

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


@dataclass(frozen=True)
class ExponentialLevels:
    """One draw of a bin for each level, by the exponential mechanism on ranks [1]_.

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record. A bin's score is minus the distance, in users, of
    the rank q n from the ranks F(j - 1) to F(j) that the bin holds, and how deep it lies among them
    where they hold it: -max(F(j - 1) - q n, q n - F(j)). (Without the depth, few values took twice
    the epsilon.) n counts the records that are not null. A record more moves every F by
    some h in [0, 1] and q n by q: differences move by h - q, between -q and 1 - q, so that the
    sensitivity is max(q, 1 - q) for add-remove-user and zero-out-user. Another record moves F by
    up to 1 either way, at equal n: sensitivity 1; a null record in exchange is zeroing out, less.
    Each level gets max(epsilon / J, sqrt(8 rho / J)), rho being the zCDP of (epsilon, delta), since
    the exponential mechanism has bounded range [2]_.

    References
    ----------
    .. [1] Smith, "Privacy-preserving statistical estimation with optimal convergence rates",
       STOC 2011.
    .. [2] Cesar & Rogers, "Bounding, concentrating, and truncating", ALT 2021: epsilon^2 / 8-zCDP.
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
        """Say how deep every level's rank lies in each bin's ranks, in users: (J, K)."""
        upto = np.cumsum(shares) / PER_USER
        rank = self.levels[:, None] * upto[-1]
        below = np.append(0.0, upto[:-1])
        return np.asarray(-np.maximum(below - rank, rank - upto))

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


@dataclass(frozen=True)
class NoisyCurve:
    """The whole cumulative curve with noise, and its quantiles by inversion.

    Gaussian noise on a square root of the running sums where delta > 0 and a record is replaced;
    else Laplace noise on a tree, whose sensitivity is half of that where a record is emptied. (Of
    the two the better by up to 1.5 times, and 1.3 times worse for some K and epsilon.)

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record: one release of integers, a linear function of
    the sum of the users' rows, each of non-negative steps that add up to one record, or to none.
    Gaussian: E x, E near 2^12 B, B B the prefix sums; l2 sensitivity
    :func:`~server.quantiles.curves.squared_change`, in records. Laplace: the sums of the nodes of
    h levels of a tree over the bins; a row adds one record to each level, so that the l1
    sensitivity is h for add-remove-user and zero-out-user, and 2 h for replace-user; the tree
    follows from K. All after the release is post-processing: the number of records is read off the
    curve's own end. Papers: see :mod:`server.quantiles.curves`.
    """

    epsilon: float
    delta: float
    levels: Floats
    n_bins: int
    adjacency: Adjacency

    @property
    def gaussian(self) -> bool:
        """Which noise."""
        return self.delta > 0 and self.adjacency is Adjacency.REPLACE_USER

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Bins of a node on each level of the tree, for Laplace noise."""
        return tree_widths(self.n_bins)

    @property
    def end_std(self) -> float:
        """Standard deviation of the noise on the curve's end, in users; of Laplace about."""
        if self.gaussian:
            impulse = np.eye(1, self.n_bins)[0]  # the last sum has the noise of all entries
            size = math.sqrt(squared_change(self.n_bins, self.adjacency))
            spread = float(np.linalg.norm(decoded(impulse)))
            return size * spread * gaussian_multiplier(self.epsilon, self.delta)
        h, replaced = len(self.widths), self.adjacency is Adjacency.REPLACE_USER
        b = max(2, round(self.n_bins ** (1 / h)))
        return math.sqrt((b - 1) * (h if h > 1 else 2)) * (1 + replaced) * h / self.epsilon

    @property
    def least_users(self) -> int:
        """Fewest users that are asked: 12 standard deviations of the noise, an error near 0.1."""
        return math.ceil(min(12 * self.end_std, 1e300))

    def draw(self, shares: Integers, server: Curator) -> Integers:
        """Release the curve; return the bin of each level: (J,) int64."""
        return quantile_bins(self.released(shares, server), self.levels)

    def released(self, shares: Integers, server: Curator) -> Floats:
        """Release the curve: (K,), in steps."""
        if self.gaussian:
            secure = server.grade == "secure"
            noisy = (server.discrete_gaussian if secure else server.gaussian)(
                encoded(shares),
                l2_sensitivity=PER_USER * sqrt_up(squared_change(self.n_bins, self.adjacency)),
                epsilon=self.epsilon,
                delta=self.delta,
                label="cumulative curve",
                moves=Moves.of(lambda a: math.sqrt(squared_change(self.n_bins, a))),
            )
            return decoded(noisy.astype(np.float64))
        nodes = [node_sums(shares, width) for width in self.widths]
        replaced = self.adjacency is Adjacency.REPLACE_USER
        noisy = server.discrete_laplace(
            np.concatenate(nodes),
            l1_sensitivity=float((1 + replaced) * len(nodes) * PER_USER),
            epsilon=self.epsilon,
            label="cumulative curve",
            moves=Moves.of(lambda a: 1.0 + (a is Adjacency.REPLACE_USER)),
        )
        ends = np.cumsum([len(level) for level in nodes])[:-1]
        return np.cumsum(fitted_bins(np.split(noisy.astype(np.float64), ends), self.widths))
