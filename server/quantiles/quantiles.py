"""Quantiles of the users' samples with a trusted server, over public bins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from clients.quantiles.queries import PER_USER
from fedhist.base.arrays import Array, Floats, Integers
from fedhist.base.checks import check_choice
from fedhist.model.evaluation import Facts
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.privacy.guarantee import (
    USER_LEVEL,
    Adjacency,
    Guarantee,
    Moves,
    Trust,
    check_budget,
    zcdp_rho,
)
from fedhist.users.batch import Users
from server.quantiles.quantile_target import QuantileTarget

if TYPE_CHECKING:
    from server.session.curator import Curator

FEW = 4
"""Levels up to which each draws a bin of its own. Measured: the errors of the two kinds cross at
five to seven levels (1,000 to 10,000 users, 128 to 1,024 bins, epsilon 0.5 to 2)."""
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
        Public planning value; where it is too small nobody is asked.
    n_bins : int
        K.
    of : {"samples", "user-means"}
        Quantiles of F(x) = (1/n) sum_u (share of user u's samples that are at most x), in which
        every user weighs the same; or of the users' own means.
    delta : float
        0: the levels share epsilon. Positive: draws of levels compose by zCDP where that is better.
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
    of (epsilon, delta). tree: one Laplace release of a linear function of the sum of the users'
    rows, each of l1 norm 1 or 0. n counts the records that are not null, and is neither used
    exactly nor published.

    Error
    -----
    The largest rank error of the J quantiles: how far q lies from the ranks that the value holds
    among the users, as a share of them. Without noise at most the share of the users in one bin.
    em: of order J / (n epsilon), or sqrt(J / rho) / n; tree: every rank is off by some
    ln(K) / (n epsilon), and the largest of J by more, five times for J = 31.
    Too few users for either are not asked.
    """

    name: ClassVar[str] = "quantiles"
    paper: ClassVar[str] = "Smith, STOC 2011; Hay, Rastogi, Miklau & Suciu, VLDB 2010"
    needs_server: ClassVar[str] = (
        "it chooses bins by exact scores, or adds noise of a tree to exact sums"
    )
    max_rounds: ClassVar[int] = 1
    revision: ClassVar[int] = 3

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
        check_choice("adjacency", self.adjacency, tuple(a.value for a in USER_LEVEL))

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
        levels, epsilon, adjacency = self.positions, float(self.epsilon), Adjacency(self.adjacency)
        if self.kind == "tree" or (self.kind == "auto" and len(levels) > FEW):
            return NoisyCurve(epsilon, levels, self.n_bins, adjacency)
        return ExponentialLevels(epsilon, float(self.delta), levels, self.n_bins, adjacency)

    def rounds(self, server: Curator) -> Script:
        mechanism = self.mechanism
        if self.n_users < mechanism.least_users:
            return self.too_few(mechanism.least_users)
        summary = yield self.grid
        return Estimate.ok(self.grid.midpoints[mechanism.draw(summary.sums["shares"], server)])

    def resolution_of(self, facts: Facts) -> float:
        """Return the largest share of the users in one bin, and a step. NOT PRIVATE."""
        return self.largest_bin(facts) + 1 / PER_USER

    @classmethod
    def example(cls) -> Self:
        return cls(2.0, (0.25, 0.5, 0.75), 0.0, 1.0, n_users=120, n_bins=16)

    @classmethod
    def neighbours(cls) -> tuple[Users, Users]:
        """Two populations at which one user shows most, for the audit of the example."""

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
    """The whole cumulative curve with Laplace noise on a tree, and its quantiles by inversion [1]_.

    Privacy
    -------
    epsilon-DP for a user's whole record: one release of integers, the sums of the nodes of h levels
    of a tree over the bins, which follows from K. A user's row of non-negative steps adds one
    record to each level, or none: the l1 sensitivity is h for add-remove-user and zero-out-user,
    and 2 h for replace-user. All after the release is post-processing: the number of records is
    read off the curve's own end.

    References
    ----------
    .. [1] Hay, Rastogi, Miklau & Suciu, "Boosting the accuracy of differentially private histograms
       through consistency", VLDB 2010.
    """

    epsilon: float
    levels: Floats
    n_bins: int
    adjacency: Adjacency

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Bins of a node on each level of the tree."""
        return tree_widths(self.n_bins)

    @property
    def sensitivity(self) -> int:
        """Of the nodes' sums in l1, in records."""
        return (1 + (self.adjacency is Adjacency.REPLACE_USER)) * len(self.widths)

    @property
    def end_std(self) -> float:
        """Standard deviation of the noise on the curve's end, in users, or about that."""
        h = len(self.widths)
        b = max(2, round(self.n_bins ** (1 / h)))
        return math.sqrt((b - 1) * (h if h > 1 else 2)) * self.sensitivity / self.epsilon

    @property
    def least_users(self) -> int:
        """Fewest users that are asked: 12 standard deviations of the noise, an error near 0.1."""
        return math.ceil(min(12 * self.end_std, 1e300))

    def draw(self, shares: Integers, server: Curator) -> Integers:
        """Release the curve; return the bin of each level: (J,) int64."""
        return quantile_bins(self.released(shares, server), self.levels)

    def released(self, shares: Integers, server: Curator) -> Floats:
        """Release the curve: (K,), in steps."""
        nodes = [node_sums(shares, width) for width in self.widths]
        noisy = server.discrete_laplace(
            np.concatenate(nodes),
            l1_sensitivity=float(self.sensitivity * PER_USER),
            epsilon=self.epsilon,
            label="cumulative curve",
            moves=Moves.of(lambda a: 1.0 + (a is Adjacency.REPLACE_USER)),
        )
        ends = np.cumsum([len(level) for level in nodes])[:-1]
        return np.cumsum(fitted_bins(np.split(noisy.astype(np.float64), ends), self.widths))


def quantile_bins(curve: Floats, levels: Floats) -> Integers:
    """Find the first bin at which a noisy running sum's non-decreasing fit reaches each level.

    >>> quantile_bins(np.array([1.0, 0.0, 8.0, 7.0, 10.0]), np.array([0.04, 0.5, 0.9])).tolist()
    [0, 2, 4]
    """
    from scipy.optimize import isotonic_regression

    fitted = np.asarray(isotonic_regression(curve).x)
    # a curve without a positive end says nothing; a sum of doubles may miss a level by rounding
    at = np.searchsorted(fitted, levels * max(float(fitted[-1]), 0.0) * (1 - 1e-9))
    return np.minimum(at, len(curve) - 1).astype(np.int64)


def tree_widths(n_bins: int) -> tuple[int, ...]:
    """Choose a tree over bins: how many bins a node of each level holds, the last of them 1.

    h levels of b children each, b^h >= K, with the least h^3 (b - 1): noise of scale h on each of
    the h (b - 1) nodes, at most, that add up to a running sum.

    >>> tree_widths(256)
    (16, 1)
    """
    shapes = []
    for h in range(1, max(2, n_bins.bit_length() + 1)):
        b = max(2, int(n_bins ** (1 / h)))
        while b**h < n_bins:
            b += 1
        shapes.append((h**3 * (b - 1), h, b))
    _, h, b = min(shapes)
    return tuple(b**level for level in range(h - 1, -1, -1))


def node_sums(bins: Array, width: int) -> Array:
    """Add up ``width`` bins at a time, the last node holding what is left: (ceil(K / width),)."""
    return np.asarray(np.add.reduceat(bins, np.arange(0, len(bins), width)))


def fitted_bins(nodes: Sequence[Floats], widths: Sequence[int]) -> Floats:
    """Return the bins of least squares, given equally noisy sums of the nodes of every level.

    ``widths`` are the bins of a node, decreasing, each a divisor of the one before; the last is 1.

    >>> fitted_bins([np.array([3.5]), np.array([1.0, 1.0])], [2, 1]).tolist()
    [1.5, 1.5]
    """
    # from the bins up: the best estimate of a node from what lies below it, and its variance
    best, var = [nodes[-1]], [np.ones(len(nodes[-1]))]
    for level in range(len(widths) - 2, -1, -1):
        step = widths[level] // widths[level + 1]
        below, spread = node_sums(best[0], step), node_sums(var[0], step)
        share = spread / (spread + 1)  # of the node's own count
        best.insert(0, share * nodes[level] + (1 - share) * below)
        var.insert(0, share)
    # and down again: what a node has more than its children is spread over them
    fitted = best[0]
    for level in range(1, len(widths)):
        step = widths[level - 1] // widths[level]
        parent = np.arange(len(best[level])) // step
        excess = fitted - node_sums(best[level], step)
        fitted = best[level] + (excess / node_sums(var[level], step))[parent] * var[level]
    return np.asarray(fitted)
