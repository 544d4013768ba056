"""Plan and steps of centred reports: vectors reported around an estimate from earlier users.

Own idea: the first users report over the whole ball. A few others say how far they are from that
estimate, in bins of a geometric grid, and the next ones report what is left inside the radius that
most of them need. Nothing of this trusts the declared number of samples, which plans shares only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np
from scipy.special import ndtr

from fedhist.base.arrays import Floats
from fedhist.channels.rank_unit import RankUnit
from server.targets.domains import project_simplex

MOST_STAGES = 4
SHARES = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5)

LAST_SHARE = 0.3
"""At least what the last stage has of the users."""

CLIP_MASS = 0.3
"""Most of the users that may lie outside the radius that is reported in."""

RADIUS_ROOM = 1.35
"""Planned radius over the root mean square distance."""


@dataclass(frozen=True)
class CentredPlan:
    """Who answers what, from public numbers only."""

    shares: tuple[float, ...]  # of the users, of each stage
    vote_share: float  # of those who say how far they are, before each stage but the first
    radius: float  # R, of the ball that holds all vectors
    sigma: float  # planned root mean square distance of a vector from the mean of all
    v: float  # n times the total variance of a report in the unit ball
    first_v: float  # the same of the first stage, in the units of the vectors
    risk: float  # predicted total variance of the estimate, R^2 at most
    feasible: bool  # whether that is less than R^2, the most that 0 can be off

    @property
    def n_stages(self) -> int:
        """K: 1 is one report of every user."""
        return len(self.shares)

    @property
    def n_rounds(self) -> int:
        """2 K - 1: a stage and the vote before it, which the stage has to wait for."""
        return 2 * len(self.shares) - 1

    @property
    def open_radius(self) -> float:
        """Radius from which the first report, which shortens nobody's vector, is as good as one."""
        return math.sqrt(self.first_v / self.v) * (1 - 1e-12) if self.v > 0 else 0.0

    def opens(self, stage: int, radius: float) -> bool:
        """Whether a stage asks for the first report: one that is as good at the radius learned."""
        return stage == 0 or radius >= self.open_radius

    def left(self, stage: int) -> float:
        """Share of the users who have not reported a vector before a stage."""
        return math.fsum(self.shares[stage:])

    def intervals(self, lo: float) -> tuple[tuple[float, float], ...]:
        """Divide the users whose hash lies in [lo, 1): stage, vote, stage, vote, ..., stage."""
        sizes = [self.shares[0]]
        for share in self.shares[1:]:
            sizes += [self.vote_share, share]
        ends = lo + np.cumsum(sizes) / math.fsum(sizes) * (1.0 - lo)
        edges = [lo, *ends[:-1].tolist(), 1.0]
        return tuple((edges[i], edges[i + 1]) for i in range(len(sizes)))


@lru_cache(maxsize=1024)
def plan_centred(
    n_users: float,
    sigma: float,
    radius: float,
    epsilon: float,
    dimension: int,
    first_v: float | None = None,
    v: float | None = None,
) -> CentredPlan:
    """Find the stages of least predicted variance; more of them only for 3 percent less.

    ``sigma`` is about radius / sqrt(T); ``first_v`` that of another first report than that of a
    vector, ``v`` that of ranks by default. In one dimension the votes' noise passes with a chance
    of Phi(-1/2) for a bias that :func:`learned_radius` believes, which is planned with: of users
    who share a mean the root error is 1.20 times that of a vote, and 1.41 times without.

    >>> plan_centred(20_000, 1.0, 1.0, 1.0, 64).n_stages
    1
    >>> plan = plan_centred(20_000, 1 / 32**0.5, 1.0, 1.0, 64)
    >>> plan.n_stages, plan.shares[:3], plan.risk < 0.0035
    (4, (0.15, 0.1, 0.15), True)
    """
    v = RankUnit(epsilon, dimension).v if v is None else v
    opening = v * radius**2 if first_v is None else first_v
    voters, alarm = vote_share(n_users, epsilon, v), float(ndtr(-0.5)) if dimension == 1 else 0.0

    def variance_of(shares: tuple[float, ...]) -> float:
        precision, rho, square = shares[0] * n_users / opening, radius, radius**2
        for share in shares[1:]:
            # as far as the bins of one vote reach
            least = radius_edges(rho, radius, 0.0)[-1]
            rho = min(rho, max(least, RADIUS_ROOM * math.sqrt(sigma**2 + 1 / precision)))
            square = (1 - alarm) * rho**2 + alarm * square
            precision += share * n_users / (v * square)
        return 1 / precision

    best: tuple[float, tuple[float, ...]] = (opening / n_users, (1.0,))
    for n_stages in range(2, MOST_STAGES + 1 if opening > 0 else 2):
        plans = []
        for some in product(SHARES, repeat=n_stages - 1):
            last = 1 - math.fsum(some) - (n_stages - 1) * voters
            if last >= LAST_SHARE:
                plans.append((variance_of((*some, last)), (*some, last)))
        least = min(plans, default=best)
        if least[0] < 0.97 * best[0]:
            best = least
    variance, shares = best
    return CentredPlan(
        shares=shares,
        vote_share=voters if len(shares) > 1 else 0.0,
        radius=radius,
        sigma=min(sigma, radius),
        v=v,
        first_v=opening,
        risk=min(variance, radius**2),
        feasible=variance <= radius**2,
    )


def vote_share(n_users: float, epsilon: float, v: float) -> float:
    """Share of the users who say how far they are: enough to find the radius, at most 8 percent.

    A few hundred find where most users are. Where many users make the noise of the reports small,
    the votes must see what a small cluster far out would cost. Vague votes are kept, too: where
    they tell a share to +-.44 (n = 1000, epsilon = 1/2, T = 30), three stages had .6 to .9 of the
    error of one report of a density in four of five populations, and 1.4 times that in the fifth.
    """
    one = _share_variance(epsilon)
    least = max(300.0, 400 * one) / n_users
    return min(0.08, max(0.02, least, 2 * one / v if v > 0 else 0.0))


def finds_radius(plan: CentredPlan, n_users: float, epsilon: float) -> bool:
    """Say whether votes tell CLIP_MASS of the users from nobody, by two standard errors."""
    if plan.n_stages == 1:
        return True
    return 2 * math.sqrt(_share_variance(epsilon) / (plan.vote_share * n_users)) <= CLIP_MASS


def _share_variance(epsilon: float) -> float:
    """N times the variance of a small share that randomised symbols tell."""
    odds = min(epsilon, 700.0)
    return 4 * math.exp(-odds) / math.expm1(-odds) ** 2


def radius_edges(before: float, radius: float, sigma: float) -> Floats:
    """Divide the distances from a centre into 2 to 15 bins, the widest first, by edges (m,).

    They fall by sqrt 2 from 1.5 times the radius before, no further than half of ``sigma``. Bin 0
    holds what is beyond the second edge, and the last one all that is nearer than the last edge.

    >>> radius_edges(1.0, 1.0, 0.5).round(3)
    array([1.5  , 1.061, 0.75 , 0.53 , 0.375, 0.265])
    """
    first = min(2 * radius, 1.5 * before)
    edges = first * 2.0 ** (-np.arange(15) / 2)
    return np.asarray(edges[: max(2, int(np.count_nonzero(edges >= sigma / 2)))])


@dataclass(frozen=True)
class Learned:
    """What the votes say of the next stage."""

    radius: float  # to report in
    outside: float = 0.0  # share of the users whose vectors are longer, and shortened
    unseen: float = 0.0  # share of others who may be shortened all the same
    bias: float = 0.0  # of the mean of those outside, in one direction; 0 if it may be noise
    kept: float = 0.0  # share of the centre's own error that stays in a mean of shortened vectors
    usable: float = 1.0  # share of the users who have a vector; others report the centre
    usable_error: float = 0.0  # relative


def learned_radius(
    shares: Floats,
    stds: Floats,
    edges: Floats,
    before: float,
    *,
    precision: float,
    reports: float,
    dimension: int = 1,
    clip_mass: float = CLIP_MASS,
    open_radius: float = math.inf,
) -> Learned:
    """Weigh the noise of a wide radius against the bias of a short one.

    Of the edges that leave few users outside, that of least 1 / (precision + reports / radius^2)
    + (share of the reports in that sum times the bias)^2 is taken, as if all users who are left
    reported in it; of equal ones the shortest. ``open_radius`` has no bias, and nothing wider has
    more noise. ``shares`` (m + 1,) are unbiased, last that of users without a vector, and projected
    on the simplex: noise in the far bins would else decide. ``precision`` is 1 / variance of the
    centre, ``reports`` those expected of all users who are left, over v. A bias counts beyond half
    a standard error; it is stated, as users without a vector are, from two on.

    >>> edges = np.array([1.5, 1.06, 0.75, 0.53])
    >>> shares, stds = np.array([0.0, 0.0625, 0.25, 0.6875, 0.0]), np.full(5, 0.001)
    >>> [learned_radius(shares, stds, edges, 1.0, precision=0, reports=n).radius for n in (20, 1e6)]
    [0.75, 1.0]
    """
    mass = project_simplex(shares)[:-1]
    total = float(mass.sum())
    if total <= 0:
        return Learned(before)
    # a share below its standard error is as likely that: dividing by less than it adds noise only
    whole, sure = max(total, float(stds[-1])), 2.0
    usable = (whole, float(stds[-1]) / whole) if shares[-1] > sure * stds[-1] else (1.0, 0.0)
    mass, noise = mass / total, stds[:-1] / whole
    # nobody counts as outside the first edge: the second is as far as the votes can tell
    beyond = np.concatenate(([0.0], np.cumsum(mass[:-1])))
    allowed = int(np.flatnonzero(beyond <= clip_mass)[-1])
    ends = np.append(edges, 0.0)
    middles = (ends[:-1] + ends[1:]) / 2
    middles[0] = (edges[0] + edges[1]) / 2
    best, least = Learned(before, 0.0, 0.0, 0.0, 0.0, *usable), math.inf
    for radius in dict.fromkeys(np.minimum(edges[: allowed + 1], before).tolist()):
        # bins that lie outside altogether; bin 0 begins at edge 1
        out = (ends[1:] >= radius) & (radius < open_radius)
        far = np.where(out, middles - radius, 0.0)
        bias, error = float(far @ mass), float(np.linalg.norm(far * noise))
        gained = reports / min(radius, open_radius) ** 2
        variance = 1 / (precision + gained)
        risk = variance + (gained * variance * max(0.0, bias - error / 2)) ** 2
        if risk <= least:
            # moving the centre moves r y / |y| by r / |y| across y, and not along it
            across = np.minimum(1.0, radius / middles[out]) * (1 - 1 / dimension)
            kept = float(mass[out] @ (1 - across))
            outside, unseen = float(mass[out].sum()), sure * float(np.linalg.norm(noise[out]))
            if bias <= sure * error:
                bias, unseen = 0.0, outside + unseen
            best, least = Learned(radius, outside, min(1.0, unseen), bias, kept, *usable), risk
    return best
