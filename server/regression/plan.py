"""Private descent, from public numbers: steps, noise, fewest users, draws of few users.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few
   users", ICML 2022, Appendix D.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from server.few_users.plan import ball_volume, few_n_min, part_budget, rounds_needed


def step_size(smoothness: float, strong_convexity: float) -> float:
    """Return 2 / (L + mu), or 1 / L where mu is 0.

    A step then shrinks the distance to the minimiser by (L - mu) / (L + mu) without noise.
    """
    return 2 / (smoothness + strong_convexity) if strong_convexity else 1 / smoothness


def gradient_std(clip: float, multiplier: float, steps: int, n_users: int) -> float:
    """Noise std of each entry of a mean gradient.

    Replacing a user moves the sum of n offsets from a ball of radius clip by 2 clip at most, and
    each of T Gaussians has sqrt(T) times the noise multiplier of all together.

    >>> gradient_std(0.5, 4.0, 25, 1000)
    0.02
    """
    return 2 * clip * multiplier * math.sqrt(steps) / n_users


def least_users(multiplier: float, steps: int, d: int) -> int:
    """Smallest n at which the first gradient's noise is shorter than the longest gradient.

    That is 2 multiplier sqrt(T d), the n >= sqrt(d T) / epsilon of [1, Theorem 29].

    >>> least_users(4.2247, 16, 25)
    169
    """
    return max(1, math.ceil(2 * multiplier * math.sqrt(steps * d)))


class BallPlan(NamedTuple):
    """One of T draws near most users' gradients.

    ``epsilon`` and ``delta`` are its budget; ``radius`` R = lam r sqrt(d) is also the error of a
    draw, within a share 1 / d or so; ``n_rounds`` the mean number of proposals; ``least`` the
    fewest users with which all T draws succeed but with a probability of 1 %.
    """

    epsilon: float
    delta: float
    radius: float
    n_rounds: int
    least: int


def plan_balls(
    epsilon: float,
    delta: float,
    steps: int,
    d: int,
    spread: float,
    *,
    kappa: float = 0.6,
    lam: float | None = None,
) -> BallPlan:
    """Share a budget among T draws: delta / 2 for their slack, the rest as zCDP.

    ``spread`` is r, the typical distance of a user's gradient from the mean gradient; ``lam`` is 1
    below 16 dimensions by default, otherwise .5.

    Examples
    --------
    >>> one = plan_balls(1.0, 1e-6, 1, 100, 0.1)
    >>> one.least, round(one.radius, 3)
    (73, 0.5)
    """
    each, slack = part_budget(epsilon, delta, steps)
    width, failure = lam if lam is not None else (0.5 if d >= 16 else 1.0), 0.01 / steps
    least = few_n_min(each, slack, kappa=kappa, lam=width, failure=failure)
    n_rounds = rounds_needed(ball_volume(width, kappa), kappa, failure)
    return BallPlan(each, slack, width * spread * math.sqrt(d), n_rounds, least)
