"""Error of `few-users-mean` against dimension, users and corrupted users [1]_. NOT PRIVATE.

Users' means are N(mu, r^2 / d I): at distance about r from their common mean mu.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Theorems 2, 4 and 6, Corollary 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.model.protocol import Estimate
from fedhist.protocols.few_users.few_users_mean import FewUsersMean
from fedhist.users.batch import Users
from server.few_users.plan import FewUsersPlan
from simulations.experiments.base import Check, Curve, Request, Result, power_law
from simulations.experiments.bounded_figures import line
from simulations.runs.run import Options, execute

AGAINST_D, AGAINST_N, CORRUPTED = "against d: one ball", "against n: automatic", "corrupted users"


@dataclass(frozen=True)
class Task:
    """What is public: budget, scale and wishes.

    Attributes
    ----------
    epsilon, delta : float
    radius : float
        r, the typical distance of a user's mean from mu.
    box : float or None
    wishes : mapping
        Further fields of the protocol: method, n_blocks, kappa, lam, n_rounds, corrupted.
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
        """Build the protocol."""
        return FewUsersMean(
            epsilon=self.epsilon,
            delta=self.delta,
            n_users=n_users,
            dimension=dimension,
            radius=self.radius,
            box=self.box,
            **self.wishes,
        )

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

    Attributes
    ----------
    plan : FewUsersPlan
    measured : (R,) float64
        l2 distances from mu of the runs that returned a value.
    ordinary : float
        l2 distance of the users' ordinary average, without privacy.
    failed : int
        Runs that spent the budget and returned nothing.
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
    checks: list[Check] = []
    curves: list[Curve] = []
    failed = total = 0
    for part in (_against_d, _against_n, _corrupted):
        more, drawn, found = part(request)
        checks += more
        curves += drawn
        failed += sum(e.failed for e in found)
        total += sum(e.failed + len(e.measured) for e in found)
    checks.append(line(request, "all panels", "share of runs without a value", failed / total))
    return Result(
        title="Error of a mean from few users",
        paper="Theorems 4 and 6, Corollary 8",
        checks=tuple(checks),
        curves=tuple(curves),
        x_label="dimension d; users n; corrupted users in percent, by panel",
        y_label="l2 distance from the common mean, in units of r",
        log="xy",
        notes=(
            "NOT PRIVATE: errors are measured with the truth, mu",
            f"({s['epsilon']:g}, {s['delta']:g})-DP per user under replacement; r = {s['radius']:g}"
            f", box {s['box']:g}; {s['repeats']} runs per point, on users drawn anew",
            f"{failed} of {total} runs returned no value (a garbage bucket): they are left out of "
            "the errors, their budget is spent",
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


Part = tuple[list[Check], list[Curve], list[Errors]]


def _against_d(request: Request) -> Part:
    s = request.settings
    ds = [int(d) for d in s["dimensions"]]
    task = Task.of(request, method="ball")
    n = int(s["ball_users"])
    found = [measure(request, task, n, d) for d in ds]
    where = f"against d: one ball, n = {n}"
    away = float(np.max([abs(e.ratio - 1) for e in found]))
    refined = [finite_dimension(e.plan) for e in found]
    off = float(np.max([abs(e.mean / x - 1) for e, x in zip(found, refined, strict=True)]))
    means = np.array([e.mean for e in found])
    checks = [
        line(request, AGAINST_D, "largest |measured / (lam r sqrt(d)) - 1|", away),
        line(request, AGAINST_D, "the same with the term in 1 / d", off),
        line(request, AGAINST_D, "log-log slope in d", power_law(ds, means)[0]),
    ]
    return checks, list(_curves(where, np.array(ds, dtype=np.float64), found, request)), found


def _against_n(request: Request) -> Part:
    s = request.settings
    d = int(s["dimension"])
    task = Task.of(request, method="auto", n_rounds=int(s["rounds"]))
    ns = [int(n) for n in s["n_users"]]
    found = [measure(request, task, n, d) for n in ns]
    where = f"against n: automatic choice, d = {d}"
    checks = []
    for method in ("ball", "blocks", "large-n"):
        some = [abs(e.ratio - 1) for e in found if e.plan.method == method]
        if some:
            what = f"{method}: largest |measured / predicted - 1|"
            checks.append(line(request, AGAINST_N, what, float(np.max(some))))
    gained = found[0].mean / found[-1].mean
    checks.append(line(request, AGAINST_N, "error at the fewest / at the most users", gained))
    at = np.array(ns, dtype=np.float64)
    curves = list(_curves(where, at, found, request))
    curves.append(Curve(where, "no privacy, r / sqrt(n)", at, 1 / np.sqrt(at), style="--"))
    return checks, curves, found


def _corrupted(request: Request) -> Part:
    s = request.settings
    n, d = int(s["robust_users"]), int(s["dimension"])
    shares, radius = [float(x) for x in s["corrupted"]], float(s["radius"])
    wishes = {"method": "ball", "kappa": float(s["kappa"]), "lam": float(s["lam"])}
    at = np.maximum(100 * np.array(shares), 1.0)
    curves: list[Curve] = []
    every: list[Errors] = []
    for far in (float(x) for x in s["far"]):
        tasks = [Task.of(request, **wishes, corrupted=share) for share in shares]
        found = [measure(request, task, n, d, far) for task in tasks]
        where = f"corrupted users at {far:g} r: one ball, n = {n}, d = {d}"
        ordinary = np.array([e.ordinary for e in found])
        curves += _curves(where, at, found, request)
        curves.append(
            Curve(where, "ordinary average, no privacy", at, ordinary / radius, marker="^")
        )
        every += found
    worst = float(np.max([e.worst for e in every]))  # np.max keeps a NaN: it fails
    lost = float(np.max([e.ordinary / e.mean for e in every]))
    checks = [
        line(request, CORRUPTED, "largest measured / predicted error", worst),
        line(request, CORRUPTED, "largest ordinary average / measured", lost),
    ]
    return checks, curves, every


def _curves(where: str, x: Floats, found: list[Errors], request: Request) -> Iterator[Curve]:
    """Draw predictions as a line, means of real runs as crosses."""
    r = float(request.settings["radius"])
    yield Curve(where, "predicted", x, np.array([e.plan.error for e in found]) / r, marker="o")
    some = [k for k, e in enumerate(found) if len(e.measured)]
    mean = np.array([found[k].mean for k in some]) / r
    spread = np.array([found[k].measured.std() for k in some]) / r
    yield Curve(where, "real runs (bars: their spread)", x[some], mean, spread, "x", "none")
