"""The plain branches of a mean from few users: noise on the clipped mean, once or twice."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import gammaln

from fedhist.base.arrays import Floats, Integers
from server.central_means.noise import STEPS, SumNoise, paid_steps
from server.central_means.two_looks import TwoLooks
from server.few_users.box_plan import SHARES, drawn_looks, look_noise
from server.few_users.interpolation import Released
from server.few_users.plan import FewUsersPlan

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

FOLLOWED = 16
"""First means that a prediction follows."""


def release_box(server: Curator, rows: Floats, plan: FewUsersPlan) -> Released:
    """Release the mean of (n, d) rows of norm at most ``plan.box`` by noise on clipped sums.

    Privacy
    -------
    The plan's (epsilon, delta) under replacement: one Gaussian release of a sum that moves by twice
    the radius at most, or two that compose to it exactly; or Laplace noise, where that is less. Of
    "box-centre" the first is over the box, the second clips rows around what it has found. "drawn"
    spends a part of epsilon on the second's radius, by basic composition: see
    :class:`~server.central_means.radius.RadiusChoice`.

    Error
    -----
    sqrt(d) 2 radius z / (n sqrt(share)), z the noise multiplier of (epsilon, delta).
    """
    if plan.method == "drawn":
        return _release_drawn(server, rows, plan)
    shares, noise = SHARES[plan.method], _noise(plan, discrete=server.grade == "secure")
    release = paid_steps(server, noise, shares, plan.method)
    centre = np.zeros(plan.dimension)
    for radius in (plan.box, plan.part_radius)[: len(shares)]:
        steps = whole_steps(rows - centre, radius)
        centre = centre + release(steps.sum(axis=0)) * (radius / STEPS / len(rows))
    return Released(centre, "", {})


def _release_drawn(server: Curator, rows: Floats, plan: FewUsersPlan) -> Released:
    """Look over the box, draw a radius, look within it; average both by their inverse variances."""
    two, n = _looks(plan, discrete=server.grade == "secure"), len(rows)
    release = paid_steps(server, two.noise, two.shares, plan.method)

    def look(centre: Floats, radius: float) -> Floats:
        total = release(whole_steps(rows - centre, radius).sum(axis=0))
        return np.asarray(centre + total * (radius / STEPS / n))

    middle = np.zeros(plan.dimension)
    first = look(middle, plan.box)
    size = np.linalg.norm(rows - first, axis=1)
    radius = float(two.choice.radii[two.choice.draw(server, two.choice.counts(size))])
    second = look(middle if radius >= plan.box else first, radius)
    w = two.weight(radius)
    told = two.choice.told(radius, n)
    return Released(w * second + (1 - w) * first, "", {"radius": radius}, told)


def _looks(plan: FewUsersPlan, *, discrete: bool = False) -> TwoLooks:
    return drawn_looks(
        plan.n_users, plan.dimension, plan.box, plan.epsilon, plan.delta, discrete=discrete
    )


def whole_steps(away: Floats, radius: float) -> Integers:
    """Shorten rows to a radius and round them towards zero, in steps of it: (n, d) int64."""
    inside = away / radius
    norm = np.sqrt(np.square(inside).sum(axis=1, keepdims=True))
    return np.asarray(np.trunc(inside / np.maximum(norm, 1.0) * STEPS), dtype=np.int64)


def box_distance(rows: Floats, plan: FewUsersPlan, times: float = 1.0) -> float:
    """Predict the expected l2 distance from the average of the rows, each of ``times`` users.

    NOT PRIVATE.
    """
    if plan.method == "drawn":
        return _drawn_distance(rows, plan, times) if len(rows) else 0.0
    noise, m, d = _noise(plan), max(1, len(rows)), plan.dimension
    n = m * times
    shares = SHARES[plan.method]
    last = plan.part_radius * noise.std(shares[-1]) / n
    shift = 0.0
    if plan.method == "box-centre" and len(rows):
        rng, mean = np.random.default_rng(20), rows.mean(axis=0)
        std = plan.box * noise.std(shares[0]) / n
        for _ in range(FOLLOWED):
            centre = mean + std * rng.standard_normal(d)
            away = rows - centre
            size = np.linalg.norm(away, axis=1)
            beyond = 1 - plan.part_radius / np.maximum(size, plan.part_radius)
            shift += float(np.square(beyond @ away).sum()) / m**2 / FOLLOWED
    return math.hypot(last * normal_length(d), math.sqrt(shift))


def normal_length(d: int) -> float:
    """E|Z| of d independent normals, in standard deviations."""
    return math.sqrt(2) * math.exp(gammaln((d + 1) / 2) - gammaln(d / 2))


def _drawn_distance(rows: Floats, plan: FewUsersPlan, times: float) -> float:
    """Follow first means and the law of the radius. NOT PRIVATE."""
    two, n, d = _looks(plan), len(rows) * times, plan.dimension
    rng, mean = np.random.default_rng(20), rows.mean(axis=0)
    std, total = plan.box * two.noise.std(two.shares[0]) / n, 0.0
    for _ in range(FOLLOWED):
        first = mean + std * rng.standard_normal(d)
        law = two.choice.law(np.linalg.norm(rows - first, axis=1), times)
        for j in np.flatnonzero(law > 1e-4):
            radius = float(two.choice.radii[j])
            centre = np.zeros(d) if radius >= plan.box else first
            away = rows - centre
            size = np.linalg.norm(away, axis=1)
            second = centre + (radius / np.maximum(size, radius)) @ away / len(rows)
            w = two.weight(radius)
            off = float(np.linalg.norm(w * second + (1 - w) * first - mean))
            each = w * radius * two.noise.std(two.shares[1]) / n * normal_length(d)
            total += law[j] * math.hypot(off, each)
    return total / FOLLOWED


def _noise(plan: FewUsersPlan, *, discrete: bool = False) -> SumNoise:
    return look_noise(plan.method, plan.epsilon, plan.delta, plan.dimension, discrete=discrete)
