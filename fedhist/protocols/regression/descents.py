"""What private descent is expected to lose: the rule itself, run on the exact risk. NOT PRIVATE.

A thousand descents from the same start, each with the noise that its oracle really has: Gaussian
noise of the clip of that step, which follows the noisy moves; or the offset of a point near most of
the users' gradients, drawn from its law by directions and radii. Projections are made as in a run.
It shares no code with the client half, nor with the sampler.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.protocols.regression.theory import EmpiricalRisk, Risk
from server.regression.plan import BallPlan, GradientPlan

RUNS = 1000
"""Descents that are averaged on a quadratic risk; a fifth of them on another."""
MOST_WORK = 3e9
"""Multiplications of all descents on the samples; beyond, the risk is taken as quadratic."""
DIRECTIONS = 256
"""Random directions along which the law of a draw is worked out."""

Noise = Callable[[Floats | None, Floats, np.random.Generator], Floats]


def predicted_excess(
    risk: Risk,
    best: Floats,
    *,
    step: float,
    radius: float,
    plan: GradientPlan,
    average: bool = False,
) -> float:
    """Predict the expected excess risk of private descent from 0. NOT PRIVATE.

    Parameters
    ----------
    risk : Risk
    best : (d,) float64
        Its minimiser.
    step : float
        eta.
    radius : float
        Of the ball that iterates are projected to.
    plan : GradientPlan
    average : bool
        Whether the average of the T iterates counts, instead of the last one.

    Error
    -----
    The average of 1000 descents with a fixed seed (200 for a logistic risk): some 2 % of its noise
    part for d = 10, less for more. Clipping is taken not to bite. A logistic risk of very many
    samples is taken as its quadratic at the minimiser.
    """
    quadratic = True
    if isinstance(risk, EmpiricalRisk) and risk.model == "logistic":
        quadratic = 2.0 * RUNS / 5 * plan.steps * risk.x.size > MOST_WORK
    runs = 1 if plan.noiseless else RUNS if quadratic else RUNS // 5
    first, hessian = risk.gradient(best), risk.hessian(best)

    def gradient(thetas: Floats) -> Floats:
        if quadratic:
            return first + (thetas - best) @ hessian
        return np.stack([risk.gradient(theta) for theta in thetas])

    noise = gaussian_noise(plan)
    if plan.balls is not None:
        if not isinstance(risk, EmpiricalRisk):
            raise TypeError("draws near most users' gradients are predicted from all samples")
        noise = drawn_noise(risk, plan, plan.balls)
    rng = np.random.default_rng(20220707)
    thetas = np.zeros((runs, len(best)))
    mean, moved = np.zeros_like(thetas), None
    for _ in range(plan.steps):
        z = np.zeros_like(thetas) if plan.noiseless else noise(moved, thetas, rng)
        after = thetas - step * (gradient(thetas) + z)
        sizes = np.linalg.norm(after, axis=1, keepdims=True)
        after *= np.minimum(1.0, radius / np.maximum(sizes, 1e-300))
        moved = np.linalg.norm(after - thetas, axis=1)
        thetas = after
        mean += thetas / plan.steps
    away = (mean if average else thetas) - best
    if quadratic:
        excess = away @ first + np.einsum("ij,ij->i", away @ hessian, away) / 2
    else:
        excess = np.array([risk.value(best + a) for a in away]) - risk.value(best)
    return max(0.0, float(excess.mean()))


def gaussian_noise(plan: GradientPlan) -> Noise:
    """Noise of a clipped sum, whose clip follows each descent's own last move."""
    std = np.vectorize(plan.noise_std, otypes=[np.float64])

    def noise(moved: Floats | None, thetas: Floats, rng: np.random.Generator) -> Floats:
        sigma = np.full(len(thetas), plan.noise_std(None)) if moved is None else std(moved)
        return np.asarray(sigma[:, None] * rng.standard_normal(thetas.shape))

    return noise


def drawn_noise(risk: EmpiricalRisk, plan: GradientPlan, balls: BallPlan) -> Noise:
    """Offsets of draws from the mean gradient, by their law at the average of the descents."""

    def noise(moved: Floats | None, thetas: Floats, rng: np.random.Generator) -> Floats:
        centre = thetas.mean(axis=0)
        rows = risk.user_gradients(centre)
        sizes = np.linalg.norm(rows, axis=1, keepdims=True)
        rows = rows * np.minimum(1.0, plan.tracking.gradient_bound / np.maximum(sizes, 1e-300))
        offsets = rows - (risk.gradient(centre) - risk.ridge * centre)
        ceiling = math.ceil(balls.kappa * len(rows) * (1 - 1e-12))
        return drawn_points(offsets, balls.radius, balls.epsilon / 2, ceiling, len(thetas), rng)

    return noise


def drawn_points(
    rows: Floats, radius: float, weight: float, ceiling: int, size: int, rng: np.random.Generator
) -> Floats:
    """Draw points with density exp(weight min(f, ceiling)), f the number of rows within radius.

    From the origin out in random directions: along each the points near a row are an interval, so
    that f is constant between their ends, and a piece has the mass b^d - a^d times its density. The
    pieces of all directions stand for the whole space.

    Parameters
    ----------
    rows : (n, d) float64
        Around the origin. NOT PRIVATE.
    radius : float
    weight : float
    ceiling : int
    size : int
    rng : numpy.random.Generator

    Returns
    -------
    (size, d) float64
    """
    n, d = rows.shape
    u = rng.standard_normal((DIRECTIONS, d))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    along = u @ rows.T
    room = along**2 - np.einsum("ij,ij->i", rows, rows) + radius**2
    half = np.sqrt(np.maximum(room, 0.0))
    ends = np.concatenate((along - half, along + half), axis=1)
    ends = np.maximum(np.where(np.tile(room, (1, 2)) > 0, ends, 0.0), 0.0)
    change = np.concatenate((np.ones(n), -np.ones(n)))
    order = np.argsort(ends, axis=1, kind="stable")
    at = np.take_along_axis(ends, order, axis=1)
    f = np.cumsum(change[order], axis=1)[:, :-1]
    low, high = at[:, :-1], at[:, 1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        mass = d * np.log(high) + np.log1p(-((low / high) ** d))
    mass = np.where((high > low) & (f > 0.5), mass + weight * np.minimum(f, ceiling), -np.inf)
    if not np.isfinite(mass).any():
        return np.zeros((size, d))
    share = np.exp(mass - mass.max()).ravel()
    found = rng.choice(share.size, size, p=share / share.sum())
    way, piece = np.divmod(found, mass.shape[1])
    # uniform in r^d between the ends, from the outer one for the sake of large d
    a = (low[way, piece] / high[way, piece]) ** d
    r = high[way, piece] * (a + (1 - a) * rng.random(size)) ** (1 / d)
    return np.asarray(r[:, None] * u[way])
