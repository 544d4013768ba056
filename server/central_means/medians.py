"""Budgets of an interval mean: medians, radius, mean; and the floor; all from public numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.base.text import warned
from fedhist.privacy.adjacency import ONE_COUNT
from fedhist.privacy.guarantee import Adjacency, zcdp_rho
from server.central_means.noise import SumNoise, sum_noise
from server.central_means.radius import RadiusChoice

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

BINS = 4096
"""Bins over the range, where no scale is given."""

MOST_SHARE, LEAST_SHARE = 0.15, 0.01
"""Of the budget that the medians of all coordinates get."""

SPARE = 2.0
"""How many times the floor the medians get, within their shares: with just the floor one in a
hundred lies far off, and its radius with it, which is what the mean square is then made of."""

WRONG = 0.01
"""Probability of a median far off that the floor allows."""

RARE = 0.01
"""Probability of each tail of medians, in all coordinates, that predictions follow by itself."""

RADIUS_USERS = 500.0
"""The radius is drawn with so many units of epsilon in all users together, within its shares: one
user in twenty far away then counts 25, which :mod:`~server.central_means.radius` sees."""

RADIUS_SHARES = 0.08, 0.2
"""Of epsilon. Far users whom the draw does not see cost much more than a twelfth of the budget."""

RHO_SHARES = 0.08, 0.2
"""The same of rho, of which an exponential mechanism needs the square of its epsilon only."""


@dataclass(frozen=True)
class IntervalPlan:
    """What each step of an interval mean gets.

    Attributes
    ----------
    median_epsilon : float
        Of each coordinate's median.
    radius_epsilon : float
        Of the radius; 0 where the scale is public.
    noise : SumNoise
        Of the mean, with the rest.
    floor : float
        Fewest users: (4 / median_epsilon) ln(bins d / .01), so that no median lies far off.
    """

    median_epsilon: float
    radius_epsilon: float
    noise: SumNoise
    floor: float


def plan_interval(
    epsilon: float,
    delta: float,
    n_users: int,
    dimension: int,
    n_bins: int,
    adjacency: Adjacency,
    *,
    scale_known: bool,
    discrete: bool,
    counted: bool = False,
) -> IntervalPlan:
    """Share the budget; by basic composition or by zCDP, whichever leaves less noise.

    The shares fall as users become more: medians and radius need a number of users times epsilon.
    Where weights are ``counted``, something else is paid for beside, by basic composition.
    """
    least = 4 * math.log(n_bins * dimension / WRONG)
    wanted = SPARE * least / n_users, RADIUS_USERS / n_users
    low, high = RADIUS_SHARES
    first = min(max(wanted[0] * dimension / epsilon, LEAST_SHARE), MOST_SHARE)
    second = 0.0 if scale_known else min(max(wanted[1] / epsilon, low), high)
    left = (1 - first - second) * epsilon
    noise = sum_noise(left, delta, dimension, adjacency, discrete=discrete, counted=counted)
    each = first * epsilon / dimension
    found = [IntervalPlan(each, second * epsilon, noise, least / each)]
    if delta and dimension > 1 and not counted:
        rho = zcdp_rho(epsilon, delta)
        first = min(max(wanted[0] ** 2 * dimension / (8 * rho), LEAST_SHARE), MOST_SHARE)
        low, high = RHO_SHARES
        second = 0.0 if scale_known else min(max(wanted[1] ** 2 / (8 * rho), low), high)
        noise = sum_noise(
            epsilon, delta, dimension, adjacency,
            discrete=discrete, rho=(1 - first - second) * rho,
        )  # fmt: skip
        each = math.sqrt(8 * first * rho / dimension)
        found.append(IntervalPlan(each, math.sqrt(8 * second * rho), noise, least / each))
    good = [p for p in found if p.floor <= n_users]
    return min(good or found, key=lambda p: p.noise.std() if good else p.floor)


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


def few_counted(n_users: float, floor: float) -> tuple[str, ...]:
    """Warn where a released number of users is less than medians needed."""
    if n_users >= floor:
        return ()
    return (
        warned(
            f"medians were drawn among some {max(n_users, 0.0):.0f} users, fewer than the "
            f"{math.ceil(floor)} that they need",
            "they may lie anywhere in the range, and the mean with them, which no stated error has",
            "box-mean needs no medians; more users or a larger epsilon make them safe",
        ),
    )


def some_medians(
    counts: Integers, epsilon_each: float, n_draws: int, rng: np.random.Generator, times: float = 1
) -> tuple[Integers, Floats]:
    """Return quantiles of the law of the released bins, for predictions. NOT PRIVATE.

    In random order. Each of the counted is that of so many ``times`` users. Medians far off are
    rare, and errors with them large: three more are of each tail, down to what one run in ten
    thousand draws, in one coordinate at a time, whichever it is.

    Returns
    -------
    bins : (n_draws + 6, d) int64
    law : (n_draws + 6,) float64
        What each stands for; 1 in all.
    """
    d = len(counts)
    # law: a body of equal parts between the tails, and each tail in three
    ends = np.array([1.0, 0.1, 0.01, 0.0]) * RARE / d
    middle = ends[:-1] * math.sqrt(0.1)
    tails = np.concatenate([middle, 1 - middle])
    whose = rng.integers(0, d, len(tails))
    bins = np.empty((n_draws + len(tails), d), dtype=np.int64)
    for j, score in enumerate(median_scores(counts) * times):
        upto = np.cumsum(np.exp(epsilon_each / 2 * (score - score.max())))
        order = np.append(rng.permutation(n_draws), rng.integers(0, n_draws, len(tails)))
        at = ends[0] + (1 - 2 * ends[0]) * (order + 0.5) / n_draws
        at[n_draws:][whose == j] = tails[whose == j]
        bins[:, j] = np.searchsorted(upto, at * upto[-1])
    law = np.tile(-d * np.diff(ends), 2)
    return bins, np.append(np.full(n_draws, (1 - law.sum()) / n_draws), law)


def interval_radius(half: float, n_bins: int, epsilon: float) -> RadiusChoice:
    """Draw a radius around medians: half a bin at least."""
    return RadiusChoice(half, half / n_bins, epsilon)
