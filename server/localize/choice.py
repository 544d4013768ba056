"""Localize, then refine: the public plan of the two rounds, and the reading of the vote.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.1 and Appendix B.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from clients.localize.queries import MAX_BINS
from fedhist.base.arrays import Floats
from fedhist.base.search import fewest_users
from fedhist.channels.bits import UnaryChannel
from fedhist.channels.scalar import planned_v, scalar_channel

LEAST_MASS = 0.6
"""A window that holds less than this share of the users is probably the wrong one."""
MOST_FAILURE = 0.05
"""A planned probability of a wrong window above this deserves a warning."""


@dataclass(frozen=True)
class Plan:
    """How a population estimates one mean; computed from public numbers only."""

    n_bins: int  # of the vote; 1: no vote, every user answers over the whole range
    vote_share: float  # expected share of the users who vote
    half_width: float  # of the interval that is refined, in the units of the range
    variance: float  # of the estimate if the vote finds the right window
    failure: float  # bound on the probability that it does not
    risk: float  # predicted mean squared error; that of the midpoint where nothing is better
    max_items: int = 0  # samples of a user that count; 0 for all
    feasible: bool = True  # whether it is expected to beat the midpoint of the range

    @property
    def n_rounds(self) -> int:
        """Two, or one where a vote would not help."""
        return 1 if self.n_bins == 1 else 2


@lru_cache(maxsize=4096)
def plan_univariate(
    n_users: float,
    mean_scale: float,
    half_range: float,
    epsilon: float,
    kind: str = "auto",
    size: float | None = None,
) -> Plan:
    """Choose bins, vote share and refinement width by least predicted risk.

    ``mean_scale`` is the standard deviation of a user's mean around the common one, or a bound,
    ``half_range`` half of high - low. ``size`` is the distance of every user's mean from the
    midpoint, in half ranges, where it is known. risk = (N - 2) Phi(-z) R^2 + (v (2H)^2 + sigma^2) /
    n2 + (clipping bias)^2 counts every wrong window, and the mean where the bins serve it worst.

    >>> plan_univariate(2000, 1 / 32, 1.0, 1.0).n_bins > 8, plan_univariate(2000, 1, 1, 1).n_bins
    (True, 1)
    """
    if not (n_users > 0 and mean_scale > 0 and half_range > 0):
        raise ValueError(
            "n_users, mean_scale and half_range must be positive, "
            f"got {n_users}, {mean_scale} and {half_range}"
        )
    channel, tau = scalar_channel(kind, epsilon, size), UnaryChannel(epsilon).tau
    n, sigma, R = float(n_users), float(mean_scale), float(half_range)
    alone = _one_round(n, sigma, R, planned_v(channel, size))
    most = min(2 * R / sigma, MAX_BINS)
    if most < 3 or tau >= 1.0:  # no use for a vote: coarse means, or noise is off
        return alone
    with np.errstate(divide="ignore", over="ignore"):  # absurdly small epsilon: infinite risk
        voted = _two_rounds(n, sigma, R, tau, channel.v, int(most))
    return voted if voted.risk < alone.risk else alone


def _one_round(n: float, sigma: float, R: float, v: float) -> Plan:
    risk = (4 * v * R**2 + min(sigma, R) ** 2) / n
    return Plan(1, 0.0, R, risk, 0.0, min(risk, R**2), feasible=risk <= R**2)


def _two_rounds(n: float, sigma: float, R: float, tau: float, v: float, most: int) -> Plan:
    N = np.unique(np.geomspace(3, most, 256).round())[:, None, None]
    shares, a = np.array([0.5, 0.4, 0.3, 0.2, 0.1, 0.05]), np.arange(1.0, 4.01, 0.25)
    n1 = (n * shares)[:, None]
    n2 = n - n1
    delta = 2 * R / N
    scale = np.maximum(delta / 2, sigma)
    b = delta / sigma
    mass = ndtr(1.5 * b) - ndtr(-0.5 * b)  # least mass of the best pair of adjacent bins
    z = mass * tau * np.sqrt(n1 / (1 - tau**2))  # its lead over an empty pair, in deviations
    failure = (N - 2) * ndtr(-z)
    wobble = (delta / 2) * np.sqrt(20 * (1 - tau**2) / (4 * tau**2 * n1))  # of the centroid
    H = np.minimum(R, a * scale + 1.5 * np.minimum(wobble, 1.5 * scale))
    variance = (v * (2 * H) ** 2 + min(sigma, R) ** 2) / n2
    density = np.exp(-(a**2) / 2) / math.sqrt(2 * math.pi)
    bias = scale * (density - a * ndtr(-a))
    risk = failure * R**2 + variance + bias**2
    best = np.unravel_index(np.argmin(risk), risk.shape)
    i, j, _ = best
    return Plan(
        n_bins=int(N[i, 0, 0]),
        vote_share=float(shares[j]),
        half_width=float(H[best]),
        variance=float(variance[best]),
        failure=min(1.0, float(failure[i, j, 0])),
        risk=min(float(risk[best]), R**2),
        feasible=bool(risk[best] <= R**2),
    )


def least_users(
    mean_scale: float,
    half_range: float,
    epsilon: float,
    kind: str = "auto",
    size: float | None = None,
) -> int:
    """Return the least number of users whose estimate is expected to beat the midpoint.

    >>> least_users(1 / 32, 1.0, 1.0), least_users(1 / 32, 1.0, 0.1)
    (5, 401)
    """
    scales = mean_scale, half_range, epsilon
    return fewest_users(lambda n: plan_univariate(n, *scales, kind, size).feasible)


@lru_cache(maxsize=1024)
def plan_paper(
    n_users: float,
    samples_per_user: float,
    mean_scale: float,
    half_range: float,
    epsilon: float,
    dimension: int = 1,
) -> Plan:
    """Plan as the paper does, with K = 1/4 and c = 1/100 for its unnamed constants.

    T* = min(T, exp(c n min(epsilon, epsilon^2))), delta = sqrt(K log(n epsilon^2 T*) / T*),
    ceil(2 / delta) bins, half of the users vote for three bins each, and an interval of width
    exactly 7 delta is refined by Laplace noise [1, eq. (25)-(30)]. For one of d rotated
    coordinates of vectors in a ball, T* d takes the place of T* in delta [1, eq. (34)]. ValueError
    where that plan does not exist: n epsilon^2 T* is at most 1, or a vote has more than MAX_BINS.
    """
    v = scalar_channel("laplace", epsilon).v
    if math.isinf(epsilon):  # log(n epsilon^2 T) is infinite: one bin
        return _one_round(n_users, mean_scale, half_range, v)
    square = epsilon * epsilon
    cap = math.exp(min(700.0, 0.01 * n_users * min(epsilon, square)))
    items = max(1, math.floor(min(samples_per_user, cap)))
    strength = n_users * square * items * dimension
    log = math.log(strength) if strength > 0 else -math.inf
    if log <= 0:
        raise ValueError(f"the paper needs n epsilon^2 T > 1, got {math.exp(log)}")
    delta = math.sqrt(0.25 * log / (items * dimension))
    n_bins = max(1, math.ceil(2 / delta))
    if n_bins > MAX_BINS:
        raise ValueError(f"{n_bins} bins are more than the {MAX_BINS} that a vote may have")
    sigma = min(mean_scale * math.sqrt(max(1.0, samples_per_user / items)), half_range)
    if n_bins == 1:
        return replace(_one_round(n_users, sigma, half_range, v), max_items=items)
    half_width = min(1.0, 3.5 * delta) * half_range
    half = n_users / 2
    variance = (v * (2 * half_width) ** 2 + sigma**2) / half
    tau = UnaryChannel(epsilon, ones=3).tau
    # a vote that is always cast against one that never is: 2 n1 bits that differ by tau n1
    lead = tau * math.sqrt(2 * half / (1 - tau**2)) if tau < 1 else math.inf
    failure = min(1.0, (n_bins - 1) * float(ndtr(-lead)))
    risk = variance + failure * half_range**2
    return Plan(n_bins, 0.5, half_width, variance, failure, risk, items)


def best_window(frequencies: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """Locate every fold's mean in its pair of adjacent bins with the most votes: place and mass.

    By the centroid of the two bins and the two beside them, at most 3/4 of a bin from the edge
    between the two. Of equal pairs the lowest counts. The mass is the share in the two bins.

    >>> place, mass = best_window(np.array([[0.0, 0.25, 0.5, 0.25, 0.0]]), 0.0, 5.0)
    >>> place.tolist(), mass.tolist()
    ([2.6666666666666665], [0.75])
    """
    both = frequencies[:, :-1] + frequencies[:, 1:]
    window, n_bins = np.argmax(both, axis=1)[:, None], frequencies.shape[1]
    mass = np.take_along_axis(both, window, axis=1)[:, 0]
    four = window + np.arange(-1, 3)
    exists = (four >= 0) & (four < n_bins)
    h = np.take_along_axis(frequencies, np.clip(four, 0, n_bins - 1), axis=1) * exists
    shift = (h * np.array([-1.5, -0.5, 0.5, 1.5])).sum(axis=1) / np.maximum(0.5, mass)
    place = low + (window[:, 0] + 1 + np.clip(shift, -0.75, 0.75)) * ((high - low) / n_bins)
    return np.asarray(place), mass


def keep_inside(centre: Floats, half_width: float, low: float, high: float) -> Floats:
    """Shift intervals centre +- half_width into [low, high]; their width stays."""
    middle, slack = (low + high) / 2, max(0.0, (high - low) / 2 - half_width)
    return np.clip(centre, middle - slack, middle + slack)


# -- a mean from too few users for a vote ----------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """One round of clipped reports."""

    share: float  # of all users
    half_width: float  # of the interval around the estimate before it
    user_variance: float  # of the stage's average, times its users


@dataclass(frozen=True)
class StagePlan:
    """The stages, and the mean squared error that they lead to, clipping included."""

    stages: tuple[Stage, ...]
    risk: float

    @property
    def n_rounds(self) -> int:
        """The stages."""
        return len(self.stages)


@lru_cache(maxsize=1024)
def plan_stages(n_users: float, mean_scale: float, half_range: float, v: float) -> StagePlan:
    """Choose one to six stages by least predicted variance; one more only for 3 percent less.

    A stage of share f and half width r = min(R, 1.85 sqrt(sigma^2 + 1/P)) adds f n / (4 v r^2 +
    sigma^2) to the precision P of the estimate so far, with sigma = ``mean_scale``, R =
    ``half_range`` and ``v`` the scalar channel's variance over squared width.

    >>> [round(s.half_width, 2) for s in plan_stages(250.0, 500**-0.5, 1.0, 2.2).stages]
    [1.0, 0.78, 0.53, 0.36, 0.25, 0.18]
    """
    own = min(mean_scale, half_range) ** 2

    def stage(share: float, precision: float) -> Stage:
        spread = math.sqrt(own + 1 / precision) if precision else math.inf
        r = min(half_range, 1.85 * spread)
        return Stage(share, r, 4 * v * r * r + own)

    best: dict[int, tuple[float, tuple[Stage, ...]]] = {}

    def extend(before: tuple[Stage, ...], precision: float, left: float) -> None:
        last = stage(left, precision)
        variance = 1 / (precision + left * n_users / last.user_variance)
        k = len(before) + 1
        if k not in best or variance < best[k][0]:
            best[k] = variance, (*before, last)
        if k == 6:
            return
        for share in (0.1, 0.15, 0.2, 0.3, 0.4, 0.5):
            if left - share >= 0.2 - 1e-9:  # for the last stage
                more = stage(share, precision)
                gained = share * n_users / more.user_variance
                extend((*before, more), precision + gained, left - share)

    extend((), 0.0, 1.0)
    variance, chosen = best[1]
    for k in range(2, 7):
        if best[k][0] < 0.97 ** (k - len(chosen)) * variance:
            variance, chosen = best[k]
    return StagePlan(chosen, stages_risk(chosen, n_users, mean_scale))


def stages_risk(stages: tuple[Stage, ...], n_users: float, mean_scale: float) -> float:
    """Follow the law of the estimate's error from stage to stage; return its mean square."""
    first = stages[0].user_variance / (stages[0].share * n_users)
    grid = np.linspace(-6, 6, 801) * math.sqrt(first)
    weight = _phi(grid / math.sqrt(first))
    weight /= weight.sum()
    precision = 1 / first
    for s in stages[1:]:
        noise = s.user_variance / (s.share * n_users)
        part = 1 / noise / (precision + 1 / noise)
        told = grid + clipped_normal(-grid, mean_scale, s.half_width)
        moved = grid + part * (told - grid)
        spread = max(part * math.sqrt(noise), grid[1] - grid[0])
        z = (grid[:, None] - moved) / spread
        density = np.exp(np.maximum(z * z / -2, -300.0))  # denormal numbers are slow
        weight = density @ (weight / density.sum(axis=0))
        precision += 1 / noise
    return float(weight @ grid**2)


def clipped_normal(mean: Floats, scale: float, half_width: float) -> Floats:
    """Mean of a normal (mean, scale) clipped to [-half_width, half_width].

    >>> float(clipped_normal(np.array([0.0]), 1.0, 0.5)[0])
    0.0
    """
    low, high = (-half_width - mean) / scale, (half_width - mean) / scale
    below, above = ndtr(low), ndtr(-high)
    inside = mean * (1 - below - above) + scale * (_phi(low) - _phi(high))
    return np.asarray(inside + half_width * (above - below))


def _phi(x: Floats) -> Floats:
    return np.asarray(np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi))
