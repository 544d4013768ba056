"""Rates of private optimization with constants and logarithms of 1, where their theorems hold [1]_.

Upper bounds of what is possible, of an order: for comparison, no prediction. In terms of r, the
distance of a user's average gradient from the mean gradient: sigma = r sqrt(m / d).

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few
   users", ICML 2022, Theorem 12; Appendix D, Theorems 29 to 32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """What the theorems are about.

    ``epsilon``: they are stated for epsilon up to 1; ``samples``: m, of each user; ``radius``,
    ``gradient_bound``, ``smoothness``: R, G and H; ``spread``: r.
    """

    epsilon: float
    n_users: int
    dimension: int
    samples: float
    radius: float
    gradient_bound: float
    smoothness: float
    spread: float
    strong_convexity: float = 0.0

    @property
    def private_error(self) -> float:
        """Order of the error of one private mean gradient: sigma d / (n sqrt(m) epsilon)."""
        return self.spread * math.sqrt(self.dimension) / (self.n_users * self.epsilon)

    @property
    def sigma(self) -> float:
        """Spread of one sample's gradient in every direction."""
        return self.spread * math.sqrt(self.samples / self.dimension)

    @property
    def both_bounds(self) -> float:
        """G min(G, sigma sqrt(d))."""
        length = self.sigma * math.sqrt(self.dimension)
        return self.gradient_bound * min(self.gradient_bound, length)


def erm_users(problem: Problem, steps: int, few: bool) -> float | None:
    """Order of the users that T private mean gradients need; None for epsilon above 1.

    sqrt(d T) / epsilon [1, Theorem 29]; sqrt(T) / epsilon with few users [1, Theorem 30].
    """
    if problem.epsilon > 1:
        return None
    return math.sqrt(steps * (1 if few else problem.dimension)) / problem.epsilon


def erm_rate(problem: Problem, steps: int) -> float | None:
    """Order of the excess empirical risk [1, Theorem 29]; None for epsilon above 1.

    R^2 H / T + R sigma d / (n sqrt(m) epsilon) for a convex risk; where it is strongly convex, G R
    exp(-T mu / H) + sigma^2 d^2 / (mu n^2 m epsilon^2).

    >>> one = Problem(1.0, 1000, 4, 20, 3.0, 5.0, 1.0, 0.5, strong_convexity=1.0)
    >>> f"{erm_rate(one, 50):.2g}"
    '1e-06'
    """
    p = problem
    if p.epsilon > 1:
        return None
    if not p.strong_convexity:
        return p.radius**2 * p.smoothness / steps + p.radius * p.private_error
    start = p.gradient_bound * p.radius * math.exp(-steps * p.strong_convexity / p.smoothness)
    return start + p.private_error**2 / p.strong_convexity


def sco_users(problem: Problem, few: bool) -> float | None:
    """Order of the users that :func:`sco_rate` is about; None for epsilon above 1.

    min(cbrt(d^2 m H^2 R^2 / (G G' epsilon^4)), H R sqrt(m) / (sigma epsilon)) with G' = min(G,
    sigma sqrt(d)) [1, Theorem 31]; with few users 1 / epsilon plus the same without d^2 and with a
    d below [1, Theorem 32]. Corrected: the theorem prints sqrt(epsilon) there. Its condition n >=
    sqrt(H / lambda) / epsilon with lambda >= sigma d / (n sqrt(m) epsilon R) gives epsilon.
    """
    p = problem
    if p.epsilon > 1:
        return None
    d = 1 if few else p.dimension
    scale = p.smoothness**2 * p.radius**2 * p.samples / (p.both_bounds * p.epsilon**4)
    many = math.cbrt(d**2 * scale)
    bend = p.smoothness * p.radius * math.sqrt(p.samples) / (p.sigma * p.epsilon)
    least = min(many, bend / (p.dimension if few else 1))
    return least + (1 / p.epsilon if few else 0.0)


def sco_rate(problem: Problem, few: bool = True) -> float | None:
    """Order of the excess population risk [1, Theorems 31 and 32].

    R sqrt(G G') / sqrt(m n) + R sigma d / (n sqrt(m) epsilon); None for epsilon above 1 and for
    fewer users than :func:`sco_users` has.
    """
    p, least = problem, sco_users(problem, few)
    if least is None or p.n_users < least:
        return None
    sampling = math.sqrt(p.both_bounds / (p.samples * p.n_users))
    return p.radius * (sampling + p.private_error)


def strong_composition(
    epsilon: float, delta: float, times: int, slack: float
) -> tuple[float, float]:
    """Return what so many (epsilon, delta)-DP releases cost together [1, Theorem 12].

    (sqrt(2 k ln(1 / slack)) epsilon + k epsilon (e^epsilon - 1), k delta + slack). The project
    composes by zCDP, which is never worse for its releases.

    >>> [round(x, 3) for x in strong_composition(0.1, 1e-8, 25, 1e-6)]
    [2.891, 0.0]
    """
    spread = math.sqrt(2 * times * math.log(1 / slack)) * epsilon
    return spread + times * epsilon * math.expm1(epsilon), times * delta + slack


def split_strongly(epsilon: float, delta: float, times: int) -> tuple[float, float]:
    """Return the budget of each of so many releases by Theorem 12, half of delta its slack.

    >>> each = split_strongly(1.0, 1e-6, 16)
    >>> [round(x, 9) for x in strong_composition(*each, 16, 5e-7)]
    [1.0, 1e-06]
    """

    def over(each: float) -> float:
        return strong_composition(each, 0.0, times, delta / 2)[0] - epsilon

    from scipy.optimize import brentq

    return float(brentq(over, 0.0, epsilon, xtol=1e-15)), delta / (2 * times)
