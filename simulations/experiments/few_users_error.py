"""Error of `few-users-mean` against dimension, users and corrupted users [1]_. NOT PRIVATE.

Users' means are N(mu, r^2 / d I): at distance about r from their common mean mu.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Theorems 2, 4 and 6, Corollary 8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.model.protocol import Estimate
from fedhist.protocols.few_users.few_users_mean import FewUsersMean
from fedhist.users.batch import Users
from server.few_users.plan import FewUsersPlan
from simulations.experiments.experiment import Findings, Request, Result, power_law
from simulations.runs.run import Options, execute

AGAINST_D, AGAINST_N, CORRUPTED = "against d: one ball", "against n: automatic", "corrupted users"


@dataclass(frozen=True)
class Task:
    """What is public: budget, scale and wishes.

    ``radius``: r, the typical distance of a user's mean from mu; ``wishes``: further fields of the
    protocol: method, n_blocks, kappa, lam, n_rounds, corrupted.
    """

    epsilon: float
    delta: float
    radius: float
    box: float | None
    wishes: Mapping[str, Any]

    @classmethod
    def of(cls, request: Request, **wishes: Any) -> Task:
        """Read the request's settings."""
        s = request.settings
        budget = float(s["epsilon"]), float(s["delta"])
        return cls(*budget, float(s["radius"]), float(s["box"]), wishes)

    def protocol(self, n_users: int, dimension: int) -> FewUsersMean:
        """Build the protocol, with the paper's branch that "auto" chooses."""
        protocol = FewUsersMean(
            epsilon=self.epsilon,
            delta=self.delta,
            n_users=n_users,
            dimension=dimension,
            radius=self.radius,
            box=self.box,
            **self.wishes,
        )
        if protocol.method != "auto":
            return protocol
        plan = protocol.plan
        blocks = plan.n_parts if plan.method == "blocks" else None
        return replace(protocol, method=plan.method, n_blocks=blocks)

    def plan(self, n_users: int, dimension: int) -> FewUsersPlan:
        """Return the branch that the protocol takes."""
        return self.protocol(n_users, dimension).plan

    def run(self, users: Users, seed: int) -> Estimate:
        """Run the protocol once."""
        protocol = self.protocol(len(users), users.reals.values.shape[1])
        return execute(protocol, users, Options(seed=seed)).estimate


@dataclass(frozen=True)
class Errors:
    """Runs at one point.

    ``measured``: (R,) float64, l2 distances from mu of the runs that returned a value;
    ``ordinary``: l2 distance of the users' ordinary average, without privacy; ``failed``: runs that
    spent the budget and returned nothing.
    """

    plan: FewUsersPlan
    measured: Floats
    ordinary: float
    failed: int

    @property
    def mean(self) -> float:
        """Mean measured error; NaN where no run returned a value."""
        return float(self.measured.mean()) if len(self.measured) else math.nan

    @property
    def ratio(self) -> float:
        """Mean measured error over the predicted one."""
        return self.mean / self.plan.error

    @property
    def worst(self) -> float:
        """Largest measured error over the predicted one; NaN where there are none."""
        return float(self.measured.max()) / self.plan.error if len(self.measured) else math.nan


def run(request: Request) -> Result:
    """Measure the three panels."""
    s = request.settings
    if int(s["repeats"]) < 1:
        raise ValueError(f"repeats must be positive, got {s['repeats']}")
    found = Findings(request)
    every = [e for part in (_against_d, _against_n, _corrupted) for e in part(found)]
    failed = sum(e.failed for e in every)
    total = failed + sum(len(e.measured) for e in every)
    found.check("all panels", "share of runs without a value", failed / total)
    return found.result(
        "Error of a mean from few users",
        "Theorems 4 and 6, Corollary 8",
        x_label="dimension d; users n; corrupted users in percent, by panel",
        y_label="l2 distance from the common mean, in units of r",
        notes=(
            "NOT PRIVATE: errors are measured with the truth, mu",
            f"({s['epsilon']:g}, {s['delta']:g})-DP per user under replacement; r = {s['radius']:g}"
            f", box {s['box']:g}; {s['repeats']} runs per point, on users drawn anew",
            f"{failed} of {total} runs returned no value (a garbage bucket): they are left out of "
            "the errors, their budget is spent",
            "the automatic choice is among the paper's branches: noise on the clipped mean, which "
            "never refuses, is left out",
            "corrupted users all hold one point, opposite mu; 0 % is drawn at 1 %",
        ),
        not_judged=("the constants of Theorems 4 and 6: the paper prints none",),
        population=f"users' means N(mu, r^2 / d I), mu of length {s['shift']:g} r",
    )


def measure(request: Request, task: Task, n_users: int, dimension: int, far: float = 0.0) -> Errors:
    """Run the protocol on users drawn anew each time, a share of them corrupted.

    The corrupted users all hold the same point, opposite mu at distance ``far`` r from 0.
    """
    s = request.settings
    share, r = float(task.wishes.get("corrupted", 0.0)), task.radius
    bad = math.floor(share * n_users + 1e-9)
    measured, ordinary, failed = [], [], 0
    for k in range(int(s["repeats"])):
        tag = digest64("few-users-error", request.seed, str(task), n_users, dimension, str(far), k)
        rng = np.random.default_rng(tag)
        mu = rng.normal(size=dimension)
        mu *= float(s["shift"]) * r / np.linalg.norm(mu)
        rows = mu + rng.normal(size=(n_users, dimension)) * r / math.sqrt(dimension)
        rows[:bad] = -mu / np.linalg.norm(mu) * far * r
        ids = np.arange(n_users, dtype=np.uint64)
        users = Users.from_samples(ids, np.arange(n_users + 1), rows)
        ordinary.append(float(np.linalg.norm(rows.mean(axis=0) - mu)))
        estimate = task.run(users, tag >> 1)
        if estimate.status == "refused":
            raise ValueError(f"n = {n_users}, d = {dimension}: {estimate.reason}")
        if estimate.value is None:
            failed += 1
        else:
            measured.append(float(np.linalg.norm(estimate.value - mu)))
    return Errors(
        task.plan(n_users, dimension), np.array(measured), float(np.mean(ordinary)), failed
    )


def finite_dimension(plan: FewUsersPlan) -> float:
    """Distance of one ball's points to the order 1 / d; lam r sqrt(d) is its limit for large d.

    A point at distance v from mu is within R of a share kappa of N(mu, r^2 / d I) users iff v^2 <=
    R^2 - r^2 - 2 z (r / sqrt(d)) v, z the normal quantile of kappa; most volume lies within a
    share 1 / d of that border. Together v^2 = R^2 (1 - (1 + 2 lam z + 2 lam^2) / (lam^2 d)).
    """
    d, lam = plan.dimension, plan.error / (plan.radius * math.sqrt(plan.dimension))
    lost = 1 + 2 * lam * float(ndtri(plan.kappa)) + 2 * lam**2
    return plan.error * math.sqrt(max(0.0, 1 - lost / (lam**2 * d)))


def _against_d(found: Findings) -> list[Errors]:
    request, s = found.request, found.request.settings
    ds, n = [int(d) for d in s["dimensions"]], int(s["ball_users"])
    task = Task.of(request, method="ball")
    errors = [measure(request, task, n, d) for d in ds]
    away = float(np.max([abs(e.ratio - 1) for e in errors]))
    off = float(np.max([abs(e.mean / finite_dimension(e.plan) - 1) for e in errors]))
    found.check(AGAINST_D, "largest |measured / (lam r sqrt(d)) - 1|", away)
    found.check(AGAINST_D, "the same with the term in 1 / d", off)
    found.check(AGAINST_D, "log-log slope in d", power_law(ds, [e.mean for e in errors])[0])
    _draw(found, f"against d: one ball, n = {n}", ds, errors)
    return errors


def _against_n(found: Findings) -> list[Errors]:
    request, s = found.request, found.request.settings
    ns, d = [int(n) for n in s["n_users"]], int(s["dimension"])
    task = Task.of(request, method="auto", n_rounds=int(s["rounds"]))
    errors = [measure(request, task, n, d) for n in ns]
    for method in ("ball", "blocks", "large-n"):
        some = [abs(e.ratio - 1) for e in errors if e.plan.method == method]
        if some:
            what = f"{method}: largest |measured / predicted - 1|"
            found.check(AGAINST_N, what, float(np.max(some)))
    gained = errors[0].mean / errors[-1].mean
    found.check(AGAINST_N, "error at the fewest / at the most users", gained)
    where = f"against n: automatic choice, d = {d}"
    _draw(found, where, ns, errors)
    found.draw(where, "no privacy, r / sqrt(n)", ns, 1 / np.sqrt(ns), style="--")
    return errors


def _corrupted(found: Findings) -> list[Errors]:
    request, s = found.request, found.request.settings
    n, d = int(s["robust_users"]), int(s["dimension"])
    shares, radius = [float(x) for x in s["corrupted"]], float(s["radius"])
    wishes = {"method": "ball", "kappa": float(s["kappa"]), "lam": float(s["lam"])}
    tasks = [Task.of(request, **wishes, corrupted=share) for share in shares]
    at = np.maximum(100 * np.array(shares), 1.0)
    every: list[Errors] = []
    for far in (float(x) for x in s["far"]):
        errors = [measure(request, task, n, d, far) for task in tasks]
        where = f"corrupted users at {far:g} r: one ball, n = {n}, d = {d}"
        _draw(found, where, at, errors)
        ordinary = np.array([e.ordinary for e in errors]) / radius
        found.draw(where, "ordinary average, no privacy", at, ordinary, marker="^")
        every += errors
    worst = float(np.max([e.worst for e in every]))  # np.max keeps a NaN: it fails
    lost = float(np.max([e.ordinary / e.mean for e in every]))
    found.check(CORRUPTED, "largest measured / predicted error", worst)
    found.check(CORRUPTED, "largest ordinary average / measured", lost)
    return every


def _draw(found: Findings, where: str, x: ArrayLike, errors: list[Errors]) -> None:
    """Draw predictions as a line, means of real runs as crosses."""
    r = float(found.request.settings["radius"])
    found.draw(where, "predicted", x, np.array([e.plan.error for e in errors]) / r, marker="o")
    some = [k for k, e in enumerate(errors) if len(e.measured)]
    mean = np.array([errors[k].mean for k in some]) / r
    spread = np.array([errors[k].measured.std() for k in some]) / r
    at = np.asarray(x)[some]
    found.draw(where, "real runs (bars: their spread)", at, mean, spread, "x", "none")
