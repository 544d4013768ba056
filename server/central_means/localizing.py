"""How a central mean is released: noise on clipped sums, medians, drawn radii, what is stated.

Few users outside a small radius are worth more than nobody outside a large one. The exponential
mechanism weighs both: a radius r has the weight r^-4, times exp(-epsilon) for every user beyond it,
the first 1 / epsilon of them being free. (With r^-3 the mean square of the noise is 2.2 times that
of the smallest radius that holds everybody, and not 1.5; with r^-5 and three times as many free
users the clip took 3 to 5 times the noise.)

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

from clients.central_means.queries import ball_sensitivities
from fedhist.base.arrays import Floats, Integers
from fedhist.privacy.guarantee import ONE_COUNT, Adjacency
from fedhist.privacy.noise_law import noise_per_sensitivity

if TYPE_CHECKING:
    from server.session.curator import Curator

BINS = 4096
"""Of the range, for a median: half a bin is the least radius."""

DECAY = 4.0
"""A radius twice as large has a sixteenth of the weight."""

MISSED = 3.0
"""Minus the logarithm of the chance, 5%, that users who are said to be seen are not."""

FAR = 0.2
"""Users who are as many as a fifth of all and far away are seen, or in the stated error."""


# -- noise


@dataclass(frozen=True)
class SumNoise:
    """Noise on sums of vectors in the unit ball that several steps share."""

    unit: float  # how much one user changes the sum, in radii: in l1 for Laplace noise, else in l2
    multiplier: float  # standard deviation per unit of a step that has the whole budget
    epsilon: float
    delta: float = 0.0  # of all steps together; Laplace noise spends none
    discrete: bool = False  # integer noise on the steps of the grid
    rho: float = 0.0  # positive where the Gaussian is paid for in zCDP

    def std(self, share: float = 1.0) -> float:
        """Return the deviation in each coordinate, in radii, at a share of rho, or of epsilon."""
        return self.unit * self.multiplier / (math.sqrt(share) if self.rho else share)


def sum_noise(
    epsilon: float,
    delta: float,
    dimension: int,
    adjacency: Adjacency,
    *,
    discrete: bool = False,
    rho: float = 0.0,
) -> SumNoise:
    """Choose the noise that is less; with ``rho`` the Gaussian of that zCDP. From public numbers.

    >>> round(sum_noise(1.0, 1e-6, 40, Adjacency.REPLACE_USER).std(), 3)
    8.449
    """
    counted = adjacency is Adjacency.ADD_REMOVE_USER
    l1, l2 = ball_sensitivities(dimension, adjacency, counted=counted)
    if rho:
        return SumNoise(l2, math.sqrt(0.5 / rho), epsilon, delta, discrete, rho)
    laplace = SumNoise(l1, math.sqrt(2) / epsilon, epsilon, 0.0, discrete)
    if not delta:
        return laplace
    unit = noise_per_sensitivity(epsilon, delta, discrete).std
    gaussian = SumNoise(l2, unit, epsilon, delta, discrete)
    return min(laplace, gaussian, key=lambda n: n.std())


# -- where to look


@dataclass(frozen=True)
class RadiusChoice:
    """The exponential mechanism over radii around a centre.

    Privacy
    -------
    epsilon-DP under every adjacency, and epsilon-bounded-range. The score of a radius is minus the
    number of users beyond it, less 1 / epsilon, where that is positive. One user's record, added,
    removed, emptied or replaced, changes these numbers by at most 1, and all of them in one
    direction: who is beyond a radius is beyond the smaller ones. Weights exp(epsilon score) then
    change by factors in [1, e^epsilon] or all in [e^-epsilon, 1], and so does their sum; a factor
    of 2 less than scores need that move both ways. Weights that do not depend on data are free.
    """

    largest: float  # what no clip is needed for
    smallest: float  # what a clip is never smaller than
    epsilon: float

    @property
    def radii(self) -> Floats:
        """The radii in increasing order: (K,) float64."""
        n = max(0, math.floor(2 * math.log2(max(self.largest / self.smallest, 1.0))))
        return np.asarray(self.largest * 2.0 ** (-np.arange(n, -1, -1) / 2))

    def scores(self, inside: Integers) -> Floats:
        """Score the radii, (K,), from the counts of users between one radius and the next."""
        beyond = inside.sum() - np.cumsum(inside)
        public = -DECAY / self.epsilon * np.log(self.radii / self.radii[0])
        return np.asarray(public - np.maximum(beyond - 1 / self.epsilon, 0.0))

    def draw(self, server: Curator, inside: Integers) -> float:
        """Release a radius."""
        # half the range of the changes, which have one sign: weights are exp(epsilon score)
        at = server.exponential(
            self.scores(inside),
            sensitivity=0.5,
            epsilon=self.epsilon,
            label="radius",
            moves=ONE_COUNT,
        )
        return float(self.radii[at])

    def unseen(self, radius: float) -> float:
        """How many users at the largest radius a draw of this one may leave out, 5% apart."""
        return (DECAY * math.log(self.largest / radius) + 1 + MISSED) / self.epsilon

    def clipped(self, radius: float) -> float:
        """Sum of what users near a drawn radius may be shortened by, as a rule.

        As many are beyond as make twice the radius as likely, by two radii on average: a Pareto
        tail with the exponent 3/2 has that, and a normal one a tenth of it.
        """
        beyond = min(2 * radius, self.largest - radius)
        return (1 + DECAY * math.log(2)) / self.epsilon * beyond


def least_radius(n_users: float, epsilon: float) -> float:
    """Return the smallest radius, in the largest, that a draw leaves a fifth out with at most."""
    return math.exp(-max(FAR * n_users * epsilon - 1 - MISSED, 0.0) / DECAY)


@dataclass(frozen=True)
class Localizing:
    """What each step of a central mean gets of a budget."""

    median_epsilon: float  # of the median, from which the first look goes; 0: it is over the range
    radius_epsilons: tuple[float, ...]  # of each radius that is drawn; none where it is public
    noise: SumNoise  # of all looks together, with the rest
    shares: tuple[float, ...]  # of the looks


def least_counted() -> float:
    """Epsilon times the fewest users for a median: it is far off once in a hundred runs at most."""
    return 4 * math.log(BINS / 0.01)


def median_scores(counts: Integers) -> Floats:
    """Score bins, (..., K): minus the larger number of users on one side.

    One user's record changes either number by 1 at most, added, removed, emptied or replaced:
    sensitivity 1.
    """
    upto = np.cumsum(counts, axis=-1)
    return np.asarray(-np.maximum(upto - counts, upto[..., -1:] - upto), dtype=np.float64)


def settled(away: Floats, std: float, radius: float) -> Floats:
    """Shrink a noisy vector towards the origin, and into the ball that holds all means.

    (1 - (d - 2) std^2 / |x|^2)_+ x has a smaller expected squared l2 error than x, d >= 3 [1, 2];
    of a mean no longer than R no multiple larger than R^2 / (R^2 + d std^2) is best [3].

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


def left_out(drawn: list[tuple[RadiusChoice, float]], n_users: float) -> tuple[float, float, float]:
    """Bound what clips to drawn radii move the mean by, in l2: stated, hidden, and whose share."""
    if not drawn:
        return 0.0, 0.0, 0.0
    n, stated, hidden, share = max(n_users, 1.0), 0.0, 0.0, 0.0
    for choice, radius in drawn:
        part = min(choice.unseen(radius) / n, 1.0)
        off = part * (choice.largest - radius)
        if part > FAR:
            stated = max(stated, off)
        elif off > hidden:
            hidden, share = off, part
    choice, radius = drawn[-1]
    return math.hypot(choice.clipped(radius) / n, stated), hidden, share
