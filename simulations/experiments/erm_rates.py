"""Users and excess risk of private descent: Theorems 29 to 32 of [1]_. NOT PRIVATE.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Appendix D.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhist.base.hashing import digest64
from fedhist.privacy.guarantee import gaussian_multiplier
from fedhist.protocols.regression.user_level_erm import UserLevelErm
from server.few_users.plan import few_n_min
from server.regression.plan import least_users, plan_balls
from simulations.experiments.erm_theorems import (
    Problem,
    erm_rate,
    erm_users,
    sco_rate,
    sco_users,
    split_strongly,
)
from simulations.experiments.experiment import Findings, Request, Result, mean_and_error, power_law
from simulations.populations.regression import Regression
from simulations.runs.run import Options, execute

USERS, EXCESS, FEW, POPULATION = (
    "users that are needed",
    "Theorem 29: clipped gradients",
    "Theorem 30: few users",
    "Theorems 31 and 32: population risk",
)
THETA, NOISE, SPREAD = 0.5, 0.5, 0.8
"""Every parameter; of a response; and r for 10 features and 20 samples, where descent ends."""


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

    def measure(self, request: Request, runs: int) -> tuple[np.ndarray[Any, Any], float]:
        """Run on users drawn once: excess empirical and population risk, (2, runs); predicted."""
        tag = digest64("erm-rates", request.seed, str(self)) >> 1
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


def run(request: Request) -> Result:
    """Judge users, then measure excess risks."""
    found = Findings(request)
    _users(found)
    _clipped(found)
    _few(found)
    return found.result(
        "Users and excess risk of private descent",
        "Theorems 29 to 32",
        x_label="steps T; dimension d; users n; samples m, by panel",
        y_label="users; excess risk, by panel",
        notes=(
            "NOT PRIVATE: excess risks are measured with the users' data and the true parameters",
            "rates have constants and logarithms of 1: a curve says how an error moves, and not "
            "where it lies. They are stated for epsilon up to 1; with few users, at epsilon = "
            f"{request.positive('few_epsilon'):g}, they are not drawn",
            "Theorem 32 prints sqrt(epsilon) where its condition gives epsilon: as corrected",
        ),
        not_judged=("the constants of Theorems 29 to 32: the paper prints none",),
        population="linear regression: standard normal features, parameters .5, noise .5",
    )


def _users(found: Findings) -> None:
    """Judge how many users the two oracles ask for, from public numbers."""
    request = found.request
    eps, delta = request.positive("epsilon"), request.positive("delta")
    steps, ds = request.wholes("map_steps"), request.wholes("map_dimensions")
    z = gaussian_multiplier(eps, delta)

    def few(T: int, d: int) -> float:
        return float(plan_balls(eps, delta, T, d, 1.0).least)

    def clipped(T: int, d: int) -> float:
        return float(least_users(z, T, d))

    def composed(T: int, d: int) -> float:
        return float(few_n_min(*split_strongly(eps, delta, T), failure=0.01 / T))

    by_d = [few(steps[-1], d) for d in ds]
    found.check(USERS, "few users: most / fewest over d", max(by_d) / min(by_d))
    d, T = ds[-1], steps[-1]
    saved = composed(T, d) / few(T, d)
    found.check(USERS, "few users by strong composition / by ours, largest T", saved)
    panel = f"users that are needed, d = {d:,}, against T"
    found.draw(panel, "few users, Theorem 12", steps, [composed(t, d) for t in steps], style=":")
    for name, needed in (("few users", few), ("clipped", clipped)):
        slope = power_law(steps, [needed(t, d) for t in steps])[0]
        found.check(USERS, f"{name}: log-log slope in T", slope)
        found.draw(panel, name, steps, [needed(t, d) for t in steps], style="-")
    found.check(USERS, "clipped: log-log slope in d", power_law(ds, [clipped(T, x) for x in ds])[0])
    found.check(USERS, "clipped / few users, largest d and T", clipped(T, d) / few(T, d))
    one = Problem(eps, 1, d, 20, 5.0, 6.0, 1.2, SPREAD)
    for label, sparing in (("Theorem 29, order", False), ("Theorem 30, order", True)):
        rate = [erm_users(one, t, sparing) or math.nan for t in steps]
        found.draw(panel, label, steps, rate, style="--")


def _clipped(found: Findings) -> None:
    """Measure the excess of clipped gradients against users and samples, of both risks."""
    request = found.request
    base = Point(
        request.positive("epsilon"),
        request.positive("delta"),
        request.whole("users"),
        request.whole("samples"),
        request.whole("dimension"),
        request.whole("steps"),
    )
    runs, ratios = request.whole("runs", 2), []
    ns, ms = request.wholes("n"), request.wholes("m")
    parts = (
        ("users", ns, [replace(base, n_users=n) for n in ns]),
        ("samples", ms, [replace(base, samples=m) for m in ms]),
    )
    measured: dict[str, Any] = {}
    for what, at, points in parts:
        every = [p.measure(request, runs) for p in points]
        ratios += [float(losses[0].mean()) / predicted for losses, predicted in every]
        slope = power_law(at, [losses[0].mean() for losses, _ in every])[0]
        found.check(EXCESS, f"log-log slope in {what}", slope)
        _draw(found, f"excess risk of clipped gradients against {what}", at, points, every)
        measured[what] = at, points, every
    found.check(EXCESS, "measured / predicted, mean", float(np.mean(ratios)))
    _population(found, *measured["users"])


def _population(
    found: Findings, at: Sequence[int], points: Sequence[Point], every: Sequence[Any]
) -> None:
    """Judge the population risk, where there are users enough for the theorems."""
    ratio, panel = [], "excess population risk against users"
    for p, (losses, _) in zip(points, every, strict=True):
        rate = sco_rate(p.problem())
        if rate is not None:
            ratio.append(float(losses[1].mean()) / rate)
    found.check(POPULATION, "largest measured / rate", max(ratio, default=math.nan))
    rates = [sco_rate(p.problem()) or math.nan for p in points]
    found.draw(panel, "order of Theorems 31 and 32", at, rates, style="--")
    measured = [mean_and_error(losses[1]) for losses, _ in every]
    found.draw_means(panel, "measured", at, measured, "x", " ")
    ds = found.request.wholes("map_dimensions")
    of_d = [replace(points[0], dimension=d).problem() for d in ds]
    many, few = ([sco_users(p, sparing) or math.nan for p in of_d] for sparing in (False, True))
    panel = "users of Theorems 31 and 32, constants of 1, against d"
    found.draw(panel, "Theorem 31", ds, many, style="-")
    found.draw(panel, "Theorem 32", ds, few, style="--")
    found.check(POPULATION, "users of Theorem 31 / of Theorem 32, largest d", many[-1] / few[-1])


def _few(found: Findings) -> None:
    """Measure draws near most gradients, against samples."""
    request = found.request
    ms, runs = request.wholes("few_m"), request.whole("few_runs", 2)
    budget = request.positive("few_epsilon"), request.positive("delta")
    size = request.whole("few_users"), request.whole("few_dimension")
    points = [Point(*budget, size[0], m, size[1], 3, few=True) for m in ms]
    every = [p.measure(request, runs) for p in points]
    slope = power_law(ms, [losses[0].mean() for losses, _ in every])[0]
    found.check(FEW, "log-log slope in samples", slope)
    worst = max((float(losses[0].mean() / q) for losses, q in every), key=lambda x: abs(x - 1))
    found.check(FEW, "measured / predicted, farthest from 1", worst)
    _draw(found, f"excess risk of {size[0]} users against samples", ms, points, every)


def _draw(
    found: Findings, panel: str, at: Sequence[int], points: Sequence[Point], every: Sequence[Any]
) -> None:
    found.draw(panel, "predicted", at, [q for _, q in every], style="-")
    measured = [mean_and_error(losses[0]) for losses, _ in every]
    found.draw_means(panel, "measured", at, measured, "x", " ")
    rates = [erm_rate(p.problem(), p.steps) for p in points]
    if None not in rates:
        found.draw(panel, "order of Theorem 29", at, [r or 0.0 for r in rates], style="--")
