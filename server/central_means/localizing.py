"""Where a central mean looks: medians or means over the range, drawn radii; from public numbers.

Few users outside a small radius are worth more than nobody outside a large one. The exponential
mechanism weighs both: a radius r has the weight r^-4, times exp(-epsilon) for every user beyond it,
the first 1 / epsilon of them being free.

What no mechanism sees: one that adds at most a share x to the noise of radius r, where nobody is
far away, draws D with a probability of at most x (r / D)^2 there, hence of exp(epsilon k) times
that with k users at D, whom it misses where epsilon k < 2 ln(D / r) + ln(1 / x). So no radius is
drawn that would leave out too many unseen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.privacy.adjacency import ONE_COUNT
from fedhist.privacy.guarantee import Adjacency, zcdp_rho
from server.central_means.noise import SumNoise, sum_noise

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

DECAY = 4.0
"""A radius twice as large has a sixteenth of the weight: all those larger than the smallest one
that holds everybody raise the mean square of the noise by a half; with r^-3 it is 2.2 times as
much. With r^-5 and three times as many free users the clip took 3 to 5 times the noise."""

FREE = 1.0
"""Users beyond the radius that cost nothing, times epsilon: the scale on which they are seen."""

MISSED = 3.0
"""Minus the logarithm of the chance, 5%, that users who are said to be seen are not."""

FAR = 0.1
"""Users who are as many as a tenth of all and far away are seen, or in the stated error."""

RISK = 2.0
"""Where noise is much of the range, in many dimensions, as many may be left out as make twice the
error of a mean over the whole range at most; the stated error then holds them."""

MOST_COUNTS = 1 << 24
"""Bins of all coordinates together."""

BINS = 4096
"""Of a coordinate's range, for medians: half a bin is the least radius."""

WRONG = 0.01
"""Probability of a median far off that the fewest users for medians allow."""

MEDIAN_USERS, MEDIAN_SHARES = 100.0, (0.02, 0.15)
"""Units of epsilon in all users together for a median, twice what it needs, within shares of it."""

RADIUS_USERS = 300.0
"""The same for a radius: one user in ten far away then counts 30."""

LAPLACE_SHARES = ((0.15, 0.4),)
GAUSSIAN_SHARES = ((0.04, 0.12), (0.03, 0.06))
"""Within shares of epsilon, and of rho, for the first radius and the second one: an exponential
mechanism needs the square of its epsilon only, and Gaussian noise the root of its share."""

TWO_LOOKS, THREE_LOOKS = (0.25, 0.75), (0.3, 0.15, 0.55)
"""Of what the radii leave, look by look. Measured: halves and doubles of the first shares cost
5 to 20% where users are much closer to each other than the first look's error."""

WORTHWHILE = 0.5
"""Of the error over the whole range: where looks cannot get below, one look is all."""


@dataclass(frozen=True)
class RadiusChoice:
    """The exponential mechanism over radii around a centre.

    Parameters
    ----------
    largest : float
        B: what no clip is needed for.
    smallest : float
        What a clip is never smaller than; radii are B 2^(-j/2) down to it.
    epsilon : float

    Privacy
    -------
    epsilon-DP under every adjacency, and epsilon-bounded-range. The score of a radius is minus the
    number of users beyond it, less 1 / epsilon, where that is positive. One user's record, added,
    removed, emptied or replaced, changes these numbers by at most 1, and all of them in one
    direction: who is beyond a radius is beyond the smaller ones. Weights exp(epsilon score) then
    change by factors in [1, e^epsilon] or all in [e^-epsilon, 1], and so does their sum; a factor
    of 2 less than scores need that move both ways. Weights that do not depend on data are free.
    """

    largest: float
    smallest: float
    epsilon: float

    @property
    def radii(self) -> Floats:
        """The radii in increasing order, the last one B: (K,) float64."""
        n = max(0, math.floor(2 * math.log2(max(self.largest / self.smallest, 1.0))))
        return np.asarray(self.largest * 2.0 ** (-np.arange(n, -1, -1) / 2))

    def scores(self, inside: Integers) -> Floats:
        """Score the radii, (K,), from the counts of users between one radius and the next.

        Minus the users beyond, less the free ones, and what the public weights add.
        """
        beyond = inside.sum() - np.cumsum(inside)
        public = -DECAY / self.epsilon * np.log(self.radii / self.radii[0])
        return np.asarray(public - np.maximum(beyond - FREE / self.epsilon, 0.0))

    def draw(self, server: Curator, inside: Integers) -> int:
        """Release a radius: its position."""
        # half the range of the changes, which have one sign: weights are exp(epsilon score)
        return server.exponential(
            self.scores(inside),
            sensitivity=0.5,
            epsilon=self.epsilon,
            label="radius",
            moves=ONE_COUNT,
        )

    def unseen(self, radius: float) -> float:
        """How many users at the largest radius a draw of this one may leave out, 5% apart."""
        return (DECAY * math.log(self.largest / radius) + FREE + MISSED) / self.epsilon

    def clipped(self, radius: float) -> float:
        """Sum of what users near a drawn radius may be shortened by, as a rule.

        As many are beyond as make twice the radius as likely, and half a radius on average.
        """
        return (FREE + DECAY * math.log(2)) / self.epsilon * radius / 2


@dataclass(frozen=True)
class Localizing:
    """What each step of a central mean gets of a budget.

    Attributes
    ----------
    median_epsilon : float
        Of each coordinate's median, from which the first look goes; 0: it is over the range.
    radius_epsilons : tuple of float
        Of each radius that is drawn; none where it is public.
    noise : SumNoise
        Of all looks together, with the rest.
    shares : tuple of float
        Of the looks.
    """

    median_epsilon: float
    radius_epsilons: tuple[float, ...]
    noise: SumNoise
    shares: tuple[float, ...]

    def least_users(self, dimension: int) -> float:
        """Fewest users for medians: (4 / median_epsilon) ln(bins d / .01)."""
        if not self.median_epsilon:
            return 0.0
        return 4 / self.median_epsilon * math.log(BINS * dimension / WRONG)

    @property
    def last_std(self) -> float:
        """Noise of the last look, in radii."""
        return self.noise.std(self.shares[-1])


@dataclass(frozen=True)
class Public:
    """The numbers that a plan is made of.

    Parameters
    ----------
    epsilon, delta : float
    n_users, dimension : int
    adjacency : Adjacency
    discrete : bool
    drawn : bool
        Whether radii are drawn.
    """

    epsilon: float
    delta: float
    n_users: int
    dimension: int
    adjacency: Adjacency
    discrete: bool
    drawn: bool

    @property
    def whole_error(self) -> float:
        """Root mean square l2 error of one look over the whole range, in half of it."""
        return self._error(self._noise(self.epsilon, self.delta).std())

    def _error(self, std: float) -> float:
        return math.sqrt(self.dimension) * std / self.n_users

    def _noise(self, epsilon: float, delta: float, rho: float = 0.0) -> SumNoise:
        return sum_noise(
            epsilon, delta, self.dimension, self.adjacency, discrete=self.discrete, rho=rho
        )

    def _laplace(self, shares: tuple[float, ...], *, medians: bool = False) -> Localizing:
        """Share epsilon by basic composition."""
        first, draws = 0.0, tuple[float, ...]()
        if medians:
            wanted = MEDIAN_USERS * self.dimension / (self.n_users * self.epsilon)
            first = _within(wanted, MEDIAN_SHARES)
        if self.drawn:
            wanted = RADIUS_USERS / (self.n_users * self.epsilon)
            draws = (_within(wanted, LAPLACE_SHARES[0]),)
        noise = self._noise((1 - first - sum(draws)) * self.epsilon, 0.0)
        each = first * self.epsilon / self.dimension
        return Localizing(each, tuple(s * self.epsilon for s in draws), noise, shares)

    def _gaussian(self) -> Localizing | None:
        """Share rho(epsilon, delta) by zCDP: a draw of e, of bounded range, costs e^2 / 8."""
        if not self.delta:
            return None
        rho = zcdp_rho(self.epsilon, self.delta)
        wanted, draws = (RADIUS_USERS / self.n_users) ** 2 / (8 * rho), tuple[float, ...]()
        if self.drawn:
            draws = tuple(_within(wanted, shares) for shares in GAUSSIAN_SHARES)
        noise = self._noise(self.epsilon, self.delta, (1 - sum(draws)) * rho)
        return Localizing(0.0, tuple(math.sqrt(8 * s * rho) for s in draws), noise, THREE_LOOKS)

    def plan(self) -> Localizing | None:
        """Choose the steps; None where one look over the whole range is about as good.

        Three looks where Gaussian noise is less, as in many dimensions; else medians where there
        are users enough, and two looks where there are not.
        """
        three, two = self._gaussian(), self._laplace(TWO_LOOKS)
        medians = self._laplace((1.0,), medians=True)
        room = self.dimension * BINS <= MOST_COUNTS
        plans = list[Localizing]()
        if three is not None and three.last_std < self._laplace(THREE_LOOKS).last_std:
            plans.append(three)
        elif room and self.n_users >= medians.least_users(self.dimension):
            plans.append(medians)
        return next((p for p in [*plans, two] if self._worthwhile(p)), None)

    def _worthwhile(self, plan: Localizing) -> bool:
        """Whether steps can be twice as good as one look over the whole range."""
        least = 0.0 if plan.median_epsilon else self._error(plan.noise.std(plan.shares[0]))
        if plan.radius_epsilons:
            least = max(least, self.least_radius(plan.radius_epsilons[0]))
        return self._error(plan.last_std) * least <= WORTHWHILE * self.whole_error

    def least_radius(self, epsilon: float) -> float:
        """Return the smallest radius that a draw leaves few enough out with, in the largest.

        ``RadiusChoice.unseen`` of it is a tenth of the users, or as many as :data:`RISK` says.
        """
        most = max(FAR, RISK * self.whole_error) * self.n_users * epsilon
        return math.exp(-max(most - FREE - MISSED, 0.0) / DECAY)


def _within(share: float, ends: tuple[float, float]) -> float:
    return min(max(share, ends[0]), ends[1])


def median_scores(counts: Integers) -> Floats:
    """Score the bins of every coordinate, (d, K): minus the larger number of users on one side.

    One user's record changes either number by 1 at most, added, removed, emptied or replaced:
    sensitivity 1.
    """
    upto = np.cumsum(counts, axis=1)
    return np.asarray(-np.maximum(upto - counts, upto[:, -1:] - upto), dtype=np.float64)


def draw_medians(server: Curator, counts: Integers, epsilon_each: float) -> Integers:
    """Release the bin of every coordinate's median: (d,), from counts (d, K)."""
    return server.exponential_rows(
        median_scores(counts),
        sensitivity=1.0,
        epsilon_each=epsilon_each,
        changed=len(counts),
        label="medians",
        moves=ONE_COUNT,
    )


def settled(away: Floats, std: float, radius: float) -> Floats:
    """Shrink a noisy vector towards the origin, and into the ball that holds all means.

    With x a vector in d >= 3 dimensions and Gaussian noise of ``std`` in each coordinate,
    (1 - (d - 2) std^2 / |x|^2)_+ x has a smaller expected squared l2 error than x, whatever it is
    an unbiased estimate of [1, 2]. Of a mean no longer than R no multiple larger than
    R^2 / (R^2 + d std^2) is best [3], in any dimension. Laplace noise is shrunk likewise. Reads
    released and public numbers only.

    References
    ----------
    .. [1] James & Stein, "Estimation with quadratic loss", Berkeley Symposium 1961.
    .. [2] Efron & Morris, "Stein's estimation rule and its competitors", JASA 1973.
    .. [3] Donoho, Liu & MacGibbon, "Minimax risk over hyperrectangles", Annals of Statistics 1990.

    Examples
    --------
    >>> [settled(np.array(x), s, 2.4).round(2) for x, s in (([3.0, 4.0, 0.0], 1.0), ([3.0], 9.0))]
    [array([1.44, 1.92, 0.  ]), array([0.2])]
    """
    size, d = max(float(np.linalg.norm(away)), 1e-300), len(away)
    left = 1 - min(math.sqrt(max(d - 2, 0)) * std / size, 1.0) ** 2
    linear = 1 / (1 + d * (std / radius) ** 2)
    return np.asarray(away * min(left, linear, radius / size))


def averaged(std: float, each: float) -> tuple[float, float]:
    """Weight of a new mean beside those before, by inverse variances, and their common deviation.

    >>> averaged(math.inf, 2.0), averaged(3.0, 3.0)[0]
    ((1.0, 2.0), 0.5)
    """
    weight = 1 / (1 + (each / std) ** 2)
    return weight, math.sqrt(weight) * each
