"""The plain branches of a mean from few users: noise on the clipped mean, once or more."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import betaincinv, erfcx, gammaln, ndtr

from fedhist.base.arrays import Floats, Integers
from server.central_means.noise import STEPS, Kind, SumNoise, paid_steps
from server.central_means.settling import Settling, drawn_noise, settled
from server.central_means.two_looks import TwoLooks, averaged
from server.few_users.box_plan import SHARES, drawn_looks, look_noise
from server.few_users.interpolation import Released
from server.few_users.plan import FewUsersPlan

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

FOLLOWED = 16
"""First means that a prediction follows; half as many where there are three looks."""

MOST_FOLLOWED, FOLLOWED_NUMBERS = 512, 1 << 23
"""First means that a prediction of "box-centre" follows where rows are few: a clip around most of
them takes next to nothing, so that its mean is that of a few."""

RARE = 3e-4
"""Probability of a radius that a prediction does not follow."""


def release_box(server: Curator, rows: Floats, plan: FewUsersPlan) -> Released:
    """Release the mean of (n, d) rows of norm at most ``plan.box`` by noise on clipped sums.

    Means are settled before they are clipped around, and before the last one is released.

    Privacy
    -------
    The plan's (epsilon, delta) under replacement: one Gaussian release of a sum that moves by twice
    the radius at most, or several that compose to it exactly; or Laplace noise, where that is less.
    Of "box-centre" the first is over the box, the second clips rows around what it has found.
    "drawn" spends parts of epsilon on the later looks' radii, by basic composition: see
    :class:`~server.central_means.two_looks.TwoLooks`.

    Error
    -----
    sqrt(d) 2 radius z / (n sqrt(share)) at most, z the noise multiplier of (epsilon, delta): noise
    that is longer than the mean is mostly taken away.
    """
    if plan.method == "drawn":
        return _release_drawn(server, rows, plan)
    shares, noise = SHARES[plan.method], _noise(plan, discrete=server.grade == "secure")
    release = paid_steps(server, noise, shares, plan.method)
    centre = np.zeros(plan.dimension)
    for radius, share in zip((plan.box, plan.part_radius), shares, strict=False):
        total = release(whole_steps(rows - centre, radius).sum(axis=0))
        found = centre + total * (radius / STEPS / len(rows))
        centre = settled(found, radius * noise.std(share) / len(rows), plan.box)
    return Released(centre, "", {})


def _release_drawn(server: Curator, rows: Floats, plan: FewUsersPlan) -> Released:
    """Look over the box, draw a radius, look within it, and once more where a third look helps.

    All looks are averaged by their inverse variances.
    """
    looks, n = _looks(plan, discrete=server.grade == "secure"), len(rows)
    release = paid_steps(server, looks.noise, looks.shares, plan.method)
    centre = mean = around = np.zeros(plan.dimension)
    radius, std = plan.box, math.inf
    told: tuple[str, ...] = ()
    for j, share in enumerate(looks.shares):
        if j:
            choice = looks.choice if j == 1 else looks.next_choice(radius, std)
            size = np.linalg.norm(rows - around, axis=1)
            drawn = float(choice.radii[choice.draw(server, choice.counts(size))])
            told += choice.told(drawn, n)
            centre, radius = (around, drawn) if drawn < radius else (centre, radius)
        total = release(whole_steps(rows - centre, radius).sum(axis=0))
        found = centre + total * (radius / STEPS / n)
        weight, std = averaged(std, radius * looks.noise.std(share) / n)
        mean = weight * found + (1 - weight) * mean
        around = settled(mean, std, plan.box)
    return Released(around, "", {"radius": radius}, told)


def _looks(plan: FewUsersPlan, *, discrete: bool = False) -> TwoLooks:
    return drawn_looks(
        plan.n_users,
        plan.dimension,
        plan.radius,
        plan.box,
        plan.epsilon,
        plan.delta,
        discrete=discrete,
    )


def whole_steps(away: Floats, radius: float) -> Integers:
    """Shorten rows to a radius and round them towards zero, in steps of it: (n, d) int64."""
    inside = away / radius
    norm = np.sqrt(np.square(inside).sum(axis=1, keepdims=True))
    return np.asarray(np.trunc(inside / np.maximum(norm, 1.0) * STEPS), dtype=np.int64)


def box_distance(
    rows: Floats, plan: FewUsersPlan, times: float = 1.0, truth: Floats | None = None
) -> float:
    """Predict the expected l2 distance from ``truth``, by default the average of the rows.

    Each row is that of so many ``times`` users. NOT PRIVATE.
    """
    own = rows.mean(axis=0) if len(rows) else np.zeros(plan.dimension)
    truth = own if truth is None else truth
    if plan.method == "drawn":
        return _drawn_distance(rows, plan, times, truth) if len(rows) else 0.0
    noise, m, d = _noise(plan), max(1, len(rows)), plan.dimension
    n, shares, settling = m * times, SHARES[plan.method], Settling(noise.kind, d, plan.box)
    last = plan.part_radius * noise.std(shares[-1]) / n

    def distance(mean: Floats) -> float:
        length = shifted_length(noise.kind, d, last, float(np.linalg.norm(mean - truth)))
        return settling.error(mean, truth, last, last, length, power=1)

    if plan.method == "box":
        return distance(own)
    rng, total = np.random.default_rng(20), 0.0
    std = plan.box * noise.std(shares[0]) / n
    followed = min(max(FOLLOWED_NUMBERS // max(rows.size, 1), FOLLOWED), MOST_FOLLOWED)
    for _ in range(followed):
        first = settled(own + std * drawn_noise(rng, noise.kind, d), std, plan.box)
        away = rows - first
        size = np.linalg.norm(away, axis=1)
        beyond = 1 - plan.part_radius / np.maximum(size, plan.part_radius)
        total += distance(own - beyond @ away / m)
    return total / followed


DIRECTIONS = 64
"""Directions of an error, of equal probability, that a prediction averages over."""


def held_distance(distance: float, length: float, box: float, d: int) -> float:
    """Predict the expected l2 distance of an estimate that is held in the ball of radius ``box``.

    Parameters
    ----------
    distance : float
        Before, from a point of the ball in a uniformly random direction.
    length : float
        Norm of that point.
    box : float
    d : int

    Examples
    --------
    >>> held_distance(0.1, 0.2, 0.4, 2), round(held_distance(0.8, 0.2, 0.4, 256), 3)
    (0.1, 0.401)
    """
    if length + distance <= box:
        return distance
    middles = (np.arange(DIRECTIONS) + 0.5) / DIRECTIONS
    half = (d - 1) / 2  # (1 + cos) / 2 has the law Beta((d - 1) / 2, (d - 1) / 2)
    cos = 2 * betaincinv(half, half, middles) - 1 if d > 1 else np.sign(2 * middles - 1)
    along, across = length + distance * cos, distance * np.sqrt(1 - cos**2)
    keep = np.minimum(1.0, box / np.maximum(np.hypot(along, across), 1e-300))
    return float(np.hypot(keep * along - length, keep * across).mean())


@lru_cache
def noise_length(kind: Kind, d: int) -> float:
    """E|Z| of d independent numbers, in standard deviations.

    Of Laplace noise by E sqrt(S) = integral of (1 - E exp(-u^2 S)) / (sqrt(pi) u^2) over u > 0, S
    the sum of the squares of d exponential numbers, for each of which
    E exp(-u^2 E^2) = sqrt(pi) / (2 u) erfcx(1 / (2 u)).

    >>> [round(noise_length(kind, d), 3) for kind in ("laplace", "gaussian") for d in (1, 2, 200)]
    [0.707, 1.148, 14.099, 0.798, 1.253, 14.124]
    """
    if kind == "gaussian":
        return math.sqrt(2) * math.exp(gammaln((d + 1) / 2) - gammaln(d / 2))
    step = 0.02
    u = np.exp(np.arange(-1000, 1000) * step) / math.sqrt(d)
    each = math.sqrt(math.pi) / (2 * u) * erfcx(1 / (2 * u))
    return float(((1 - each**d) / u).sum() * step) / math.sqrt(2 * math.pi)


def shifted_length(kind: Kind, d: int, std: float, shift: float) -> float:
    """E|v + Z| of noise of a standard deviation in each of d coordinates, and |v| = ``shift``.

    Exact in one dimension. In more, the root sum of squares of the two lengths: exact for none and
    far away, at most 4 % too much between.

    >>> [round(shifted_length(kind, 1, 1.0, 1.0), 3) for kind in ("laplace", "gaussian")]
    [1.172, 1.167]
    """
    if d > 1:
        return math.hypot(shift, std * noise_length(kind, d))
    t = shift / std
    if kind == "laplace":
        return shift + std * math.exp(-math.sqrt(2) * t) / math.sqrt(2)
    return shift * (1 - 2 * float(ndtr(-t))) + std * noise_length(kind, 1) * math.exp(-t * t / 2)


def _drawn_distance(rows: Floats, plan: FewUsersPlan, times: float, truth: Floats) -> float:
    """Follow means and the laws of the radii. NOT PRIVATE."""
    looks, n, d = _looks(plan), len(rows) * times, plan.dimension
    rng = np.random.default_rng(20)
    settling = Settling(looks.noise.kind, d, plan.box)

    def follow(j: int, centre: Floats, mean: Floats, radius: float, std: float) -> float:
        away = rows - centre
        size = np.linalg.norm(away, axis=1)
        found = centre + (radius / np.maximum(size, radius)) @ away / len(rows)
        each = radius * looks.noise.std(looks.shares[j]) / n
        weight, std = averaged(std, each)
        last = j + 1 == len(looks.shares)
        if not last:
            found = found + each * drawn_noise(rng, looks.noise.kind, d)
        mean = weight * found + (1 - weight) * mean
        if last:
            shift = float(np.linalg.norm(mean - truth))
            length = shifted_length(looks.noise.kind, d, weight * each, shift)
            return settling.error(mean, truth, weight * each, std, length, power=1)
        around = settled(mean, std, plan.box)
        choice = looks.next_choice(radius, std) if j else looks.choice
        law, total = choice.law(np.linalg.norm(rows - around, axis=1), times), 0.0
        for k in np.flatnonzero(law > RARE):
            drawn = float(choice.radii[k])
            inner = (around, mean, drawn, std) if drawn < radius else (centre, mean, radius, std)
            total += law[k] * follow(j + 1, *inner)
        return total

    middle = np.zeros(d)
    followed = FOLLOWED // (len(looks.shares) - 1)
    return sum(follow(0, middle, middle, plan.box, math.inf) for _ in range(followed)) / followed


def _noise(plan: FewUsersPlan, *, discrete: bool = False) -> SumNoise:
    return look_noise(plan.method, plan.epsilon, plan.delta, plan.dimension, discrete=discrete)
