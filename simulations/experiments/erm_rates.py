"""Users and excess risk of private descent: Theorems 29 to 32 of [1]_. NOT PRIVATE.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Theorem 12 and Appendix D.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.privacy.guarantee import gaussian_multiplier
from server.few_users.plan import Wishes, choose_branch, few_n_min
from server.regression.user_level_erm import UserLevelErm, least_users
from simulations.experiments.experiment import Findings, mean_and_error, power_law
from simulations.populations.regression import Regression
from simulations.runs.options import Options
from simulations.runs.run import execute

USERS, EXCESS, FEW, POPULATION = (
    "users that are needed",
    "Theorem 29: clipped gradients",
    "Theorem 30: few users",
    "Theorems 31 and 32: population risk",
)
THETA, NOISE, SPREAD = 0.5, 0.5, 0.8
"""Every parameter; of a response; and r for 10 features and 20 samples, where descent ends."""


# -- rates of the theorems, with constants and logarithms of 1 -------------------------------------

# Upper bounds of what is possible, of an order: for comparison, no prediction. In terms of r, the
# distance of a user's average gradient from the mean gradient: sigma = r sqrt(m / d).


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


# -- runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """A least-squares task: its users, and the protocol's public constants.

    ``few``: draws near most gradients instead of clipped ones.
    """

    epsilon: float
    delta: float
    n_users: int
    samples: int
    dimension: int
    steps: int
    few: bool = False

    @property
    def spread(self) -> float:
        """r, as sqrt(dimension / samples): that of the start, where draws are to succeed at all."""
        at_start = math.hypot(THETA * math.sqrt(self.dimension), NOISE)
        factor = at_start if self.few else SPREAD * math.sqrt(20 / 10)
        return factor * math.sqrt(self.dimension / self.samples)

    @property
    def protocol(self) -> UserLevelErm:
        """The protocol, whose steps nearly reach the minimiser."""
        more: dict[str, Any] = {"oracle": "few-users", "step": 0.9} if self.few else {}
        return UserLevelErm(
            epsilon=self.epsilon,
            delta=self.delta,
            n_users=self.n_users,
            dimension=self.dimension,
            radius=5.0,
            gradient_bound=6.0,
            spread=self.spread,
            smoothness=1.1 if self.few else 1.2,
            strong_convexity=0.9 if self.few else 0.8,
            steps=self.steps,
            **more,
        )

    def problem(self) -> Problem:
        """Return what the theorems are about."""
        p = self.protocol
        return Problem(
            float(p.epsilon),
            p.n_users,
            p.dimension,
            float(self.samples),
            float(p.radius),
            float(p.gradient_bound),
            float(p.smoothness + p.ridge),
            float(p.spread),
            float(p.strong_convexity + p.ridge),
        )

    def measure(self, seed: int, runs: int) -> tuple[Floats, float]:
        """Run on users drawn once: excess empirical and population risk, (2, runs); predicted."""
        tag = digest64("erm-rates", seed, str(self)) >> 1
        people = Regression(
            n_users=self.n_users,
            samples_per_user=self.samples,
            dimension=self.dimension,
            theta=THETA,
            noise=NOISE,
            seed=tag,
        )
        users, protocol = people.load().users, self.protocol
        risk, best = protocol.risk(users), protocol.truth(users)
        out = np.empty((2, runs))
        for r in range(runs):
            value = execute(protocol, users, Options(seed=tag + r)).estimate.needed(self)
            out[0, r] = risk.value(value) - risk.value(best)
            # features are standard normal: the population's Hessian is the identity
            out[1, r] = float(np.sum(np.square(value - people.parameters))) / 2
        return out, protocol.error(users).expected


def run(findings: Findings) -> None:
    """Judge users, then measure excess risks."""
    for part in (_users, _clipped, _few):
        part(findings)


def _users(findings: Findings) -> None:
    """Judge how many users the two oracles ask for, from public numbers."""
    s = findings.settings
    eps, delta, steps, ds = s.epsilon, s.delta, s.map_steps, s.map_dimensions
    d, T = ds[-1], steps[-1]
    z = gaussian_multiplier(eps, delta)

    def few(T: int, d: int) -> float:
        wishes = Wishes("boosted", n_runs=T)
        return choose_branch(1, d, 1.0, None, eps, delta, wishes).least_users

    def clipped(T: int, d: int) -> float:
        return float(least_users(z, T, d))

    def composed(T: int, d: int) -> float:
        return float(few_n_min(*split_strongly(eps, delta, T), failure=0.01 / T))

    by_d = [few(T, x) for x in ds]
    findings.check(USERS, "few users: most / fewest over d", max(by_d) / min(by_d))
    saved = composed(T, d) / few(T, d)
    findings.check(USERS, "few users by strong composition / by ours, largest T", saved)
    findings.check(
        USERS, "clipped: log-log slope in d", power_law(ds, [clipped(T, x) for x in ds])[0]
    )
    findings.check(USERS, "clipped / few users, largest d and T", clipped(T, d) / few(T, d))
    panel, axes = f"users that are needed, d = {d:,}, against T", {"y_label": "users"}
    for name, needed in (("few users", few), ("clipped", clipped), ("Theorem 12", composed)):
        y = [needed(t, d) for t in steps]
        if needed is not composed:
            findings.check(USERS, f"{name}: log-log slope in T", power_law(steps, y)[0])
        findings.draw(panel, name, steps, y, style="-", **axes)
    one = Problem(eps, 1, d, 20, 5.0, 6.0, 1.2, SPREAD)
    for label, sparing in (("Theorem 29, order", False), ("Theorem 30, order", True)):
        rate = [erm_users(one, t, sparing) or math.nan for t in steps]
        findings.draw(panel, label, steps, rate, style="--")


def _clipped(findings: Findings) -> None:
    """Measure the excess of clipped gradients against users and samples, of both risks."""
    s = findings.settings
    base = Point(s.epsilon, s.delta, s.users, s.samples, s.dimension, s.steps)
    by_users = [replace(base, n_users=n) for n in s.n]
    by_samples = [replace(base, samples=m) for m in s.m]
    first = _excess(findings, EXCESS, "users", s.n, by_users, s.runs)
    second = _excess(findings, EXCESS, "samples", s.m, by_samples, s.runs)
    ratios = [float(losses[0].mean()) / predicted for losses, predicted in (*first, *second)]
    findings.check(EXCESS, "measured / predicted, mean", float(np.mean(ratios)))
    _population(findings, by_users, [losses[1] for losses, _ in first])


def _population(findings: Findings, points: Sequence[Point], risks: Sequence[Floats]) -> None:
    """Judge the population risk, where there are users enough for the theorems."""
    s, panel = findings.settings, "excess population risk against users"
    rates = [sco_rate(p.problem()) or math.nan for p in points]
    measured = [mean_and_error(x) for x in risks]
    ratio = np.array([m for m, _ in measured]) / rates
    findings.check(POPULATION, "largest measured / rate", np.nanmax(ratio))
    findings.draw(panel, "order of Theorems 31 and 32", s.n, rates, style="--")
    findings.draw_means(panel, "measured", s.n, measured, "x", " ")
    of_d = [replace(points[0], dimension=d).problem() for d in s.map_dimensions]
    many, few = ([sco_users(p, sparing) or math.nan for p in of_d] for sparing in (False, True))
    panel, axes = "users of Theorems 31 and 32, constants of 1, against d", {"y_label": "users"}
    findings.draw(panel, "Theorem 31", s.map_dimensions, many, style="-", **axes)
    findings.draw(panel, "Theorem 32", s.map_dimensions, few, style="--", **axes)
    findings.check(POPULATION, "users of Theorem 31 / of Theorem 32, largest d", many[-1] / few[-1])


def _few(findings: Findings) -> None:
    """Measure draws near most gradients, against samples."""
    s = findings.settings
    points = [
        Point(s.few_epsilon, s.delta, s.few_users, m, s.few_dimension, 3, few=True) for m in s.few_m
    ]
    every = _excess(findings, FEW, "samples", s.few_m, points, s.few_runs)
    worst = max((float(losses[0].mean() / q) for losses, q in every), key=lambda x: abs(x - 1))
    findings.check(FEW, "measured / predicted, farthest from 1", worst)


def _excess(
    findings: Findings,
    setting: str,
    what: str,
    at: Sequence[int],
    points: Sequence[Point],
    runs: int,
) -> list[tuple[Floats, float]]:
    """Measure points of one line, judge its slope and draw it."""
    every = [p.measure(findings.seed, runs) for p in points]
    panel = f"{setting}: excess risk against {what}"
    measured = [mean_and_error(losses[0]) for losses, _ in every]
    slope = power_law(at, [m for m, _ in measured])[0]
    findings.check(setting, f"log-log slope in {what}", slope)
    findings.draw(panel, "predicted", at, [q for _, q in every], style="-")
    findings.draw_means(panel, "measured", at, measured, "x", " ")
    rates = [erm_rate(p.problem(), p.steps) or math.nan for p in points]
    if not np.isnan(rates).any():
        findings.draw(panel, "order of Theorem 29", at, rates, style="--")
    return every
