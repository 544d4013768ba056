"""Predicted error of centred reports on given users: the stages, with normal noise in their place.

How much a stage gains depends on how far the users are from each other, which no public number
says. So the stages are gone through on the users' own vectors: shares of the bins and means of what
is left are computed exactly, and noise is drawn from normal laws of the channels' variances, in a
few runs of a fixed seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.channels.oracles import oracle_channel
from fedhist.model.measures import Walk
from fedhist.model.part import VectorPart
from fedhist.model.query import CHUNK, Summary
from fedhist.protocols.centred.script import Project
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from server.means.centred import (
    CLIP_MASS,
    CentredPlan,
    Learned,
    learned_radius,
    radius_edges,
)

SIMULATED = "the stages on the given users, in normal noise of the channels' variances"
RUNS = 96
_ENTRIES = 1 << 16
"""Numbers of the users' vectors that are gone through in every run, about."""
SALT = 0x5EE
"""Of the public hash that draws these users."""


@dataclass(frozen=True)
class Spread:
    """The users' vectors in short. NOT PRIVATE.

    Attributes
    ----------
    mean : (d,) float64
        Of all users, 0 for one without a usable vector.
    some : (m, d) float64
        Usable vectors of users drawn by a hash.
    usable : float
        Share of the users who have one.
    n_users : int
    """

    mean: Floats
    some: Floats
    usable: float
    n_users: int

    @property
    def square(self) -> float:
        """Mean squared norm, 0 for a user without a usable vector."""
        rows = self.some
        return self.usable * float(np.square(rows).sum(axis=1).mean()) if len(rows) else 0.0


@dataclass(frozen=True)
class Opened:
    """Noise of another first report, given the users.

    Attributes
    ----------
    std : (k,) float64
        Of one report in each of its own coordinates, which are taken as independent.
    turn : callable
        From its coordinates to those of the vectors. Users without a vector are left out of it.
    """

    std: Floats
    turn: Callable[[Floats], Floats]


def spread_of(walk: Walk, n_users: int, part: VectorPart) -> Spread:
    """Average the users' vectors and keep some, by a public hash of their ids. NOT PRIVATE."""
    d = part.n_coordinates
    drawn = Cohort(SALT, 0.0, min(1.0, max(64, _ENTRIES // d) / max(n_users, 1)))

    def of(block: Users) -> Summary:
        total, held = np.zeros(d), 0
        for chunk in block.blocks(CHUNK):
            rows = part.vectors(chunk)
            usable = ~np.isnan(rows[:, 0])
            total += rows[usable].sum(axis=0)
            held += int(usable.sum())
        few = block.select(drawn)
        rows, ids = part.vectors(few), few.ids
        sums = {"vectors": total, "users": np.array([held, len(block)])}
        return Summary(len(few), sums, rows={"some": rows}, ids=ids)

    found = walk(of)
    total, some = found.sums["vectors"], found.rows["some"]
    held, n = found.sums["users"].tolist()
    return Spread(total / max(n, 1), some[~np.isnan(some[:, 0])], held / max(n, 1), n)


def simulated_loss(
    spread: Spread,
    plan: CentredPlan,
    loss: Callable[[Floats], float],
    *,
    epsilon: float,
    project: Project,
    clip_mass: float = CLIP_MASS,
    opened: Opened | None = None,
    runs: int = RUNS,
    seed: int = 1,
) -> float:
    """Average a loss over runs of the stages in normal noise. NOT PRIVATE.

    Parameters
    ----------
    spread : Spread
    plan : CentredPlan
    loss : callable of (d,) float64 to float
        Of an estimate, which is not projected yet.
    epsilon : float
    project : callable
        See :func:`~fedhist.protocols.centred.script.centred_mean`.
    clip_mass : float
    opened : Opened, optional
    runs : int
        One is enough without noise.
    seed : int
    """
    rng = np.random.default_rng(seed)
    found = []
    first_held = spread.square if plan.first_v > 0 else 0.0
    for _ in range(runs if plan.first_v > 0 else 1):
        value, precision, learned = np.zeros(len(spread.mean)), 0.0, Learned(plan.radius)
        for stage, share in enumerate(plan.shares):
            n, mean = share * spread.n_users, spread.mean
            variance = plan.first_v - share * first_held
            if stage > 0:
                value = project(value)
                distance = _lengths(spread.some - value)
                edges = radius_edges(learned.radius, plan.radius, plan.sigma)
                bins, stds = _noisy_bins(distance, edges, spread, plan, epsilon, rng)
                learned = learned_radius(
                    bins,
                    stds,
                    edges,
                    learned.radius,
                    precision=precision,
                    reports=plan.left(stage) * spread.n_users / plan.v,
                    clip_mass=clip_mass,
                    open_radius=plan.open_radius,
                )
                if stage == 1 and opened is None and learned.usable < 1:
                    value = value / learned.usable
                    more = learned.usable**-2 / precision if precision else 0.0
                    more += float(value @ value) * learned.usable_error**2
                    precision, value = 1 / more if more else precision, project(value)
            opens, usable = plan.opens(stage, learned.radius), learned.usable
            centre = np.zeros(len(value)) if opens else value
            if not opens:
                radius, left = learned.radius, spread.some - value
                distance = _lengths(left)
                inside = np.minimum(distance, radius)
                shorter = inside / np.maximum(distance, 1e-300)
                # what shortening moves, on the drawn users; all of them have the exact mean
                moved = (left * (shorter - 1)[:, None]).mean(axis=0) if len(left) else 0.0
                null = (1 - spread.usable) * value
                mean = spread.mean + null + spread.usable * moved
                # a report has a constant norm, of which the vector is part; the target is the mean
                # of all users, of whom the stage has a share
                held = spread.usable * float(np.square(inside).mean()) if len(left) else 0.0
                variance = plan.v * radius**2 - share * held
            if usable < 1 and (not opens or opened is None):
                mean, variance = centre + (mean - centre) / usable, variance / usable**2
            gained = n / variance if variance > 0 else np.inf  # rounding may leave it below
            weight = 1.0 if np.isinf(gained) else gained / (precision + gained)
            if opens and opened is not None:
                mean = spread.mean / max(spread.usable, 1e-300)
                noise = opened.turn(opened.std * rng.standard_normal(len(opened.std))) / np.sqrt(n)
            else:
                noise = rng.standard_normal(len(value)) / np.sqrt(gained * len(value))
            value = value + weight * (mean + noise - value)
            precision += gained
        found.append(loss(value))
    return float(np.mean(found))


def _lengths(rows: Floats) -> Floats:
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows)))


def _noisy_bins(
    distance: Floats,
    edges: Floats,
    spread: Spread,
    plan: CentredPlan,
    epsilon: float,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Shares of the bins and of unusable records in the noise of so many votes; their errors."""
    m = len(edges)
    bins = m - 1 - np.searchsorted(edges[:0:-1], distance)
    shares = np.bincount(bins, minlength=m) / max(len(distance), 1) * spread.usable
    shares = np.append(shares, 1 - spread.usable)
    n = max(plan.vote_share * spread.n_users, 1.0)
    channel, likely = oracle_channel("auto", epsilon, m), np.clip(shares, 0.0, 1.0)
    std = np.sqrt((channel.variance(likely) + likely * (1 - likely)) / n)
    return shares + std * rng.standard_normal(m + 1), std
