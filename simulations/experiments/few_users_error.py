"""Error of `few-users-mean`, and the users that it needs [1]_. NOT PRIVATE.

Users' means are N(mu, r^2 / d I): at distance about r from their common mean mu.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Theorems 2, 4 and 6, Corollary 8, Lemma 9.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.base.search import MOST_USERS, first_true
from fedhist.users.batch import Users
from server.central_means.central_mean import CentralMean
from server.few_users.few_users_mean import FewUsersMean
from server.few_users.plan import FewUsersPlan
from simulations.experiments.experiment import Findings, mean_and_error, power_law
from simulations.runs.options import Options
from simulations.runs.run import execute

AGAINST_D, AGAINST_N, CORRUPTED = "against d: one ball", "against n: automatic", "corrupted users"
NEEDED = "users that are needed"


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
    def of(cls, settings: Any, **wishes: Any) -> Task:
        """Read the settings."""
        s = settings
        return cls(s.epsilon, s.delta, s.radius, s.box, wishes)

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

    def needed(self, dimension: int) -> int:
        """Fewest users that are not refused, found by asking, not from the plan's own number."""
        return first_true(lambda n: self.plan(n, dimension).feasible, MOST_USERS) or MOST_USERS


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
    def off(self) -> float:
        """How far the mean measured error is from the predicted one, as a share of it."""
        return abs(self.mean / self.plan.error - 1)

    @property
    def worst(self) -> float:
        """Largest measured error over the predicted one; NaN where there are none."""
        return float(self.measured.max()) / self.plan.error if len(self.measured) else math.nan


def run(findings: Findings) -> None:
    """Measure the panels, and count the users that are needed."""
    every = [e for part in (_against_d, _against_n, _corrupted) for e in part(findings)]
    failed = sum(e.failed for e in every)
    total = failed + sum(len(e.measured) for e in every)
    findings.check("all panels", "share of runs without a value", failed / total)
    findings.note(
        f"{failed} of {total} runs returned no value (a garbage bucket): they are left out of the "
        "errors, their budget is spent"
    )
    _needed(findings)
    _interval(findings)


def measure(
    findings: Findings, task: Task, n_users: int, dimension: int, far: float = 0.0
) -> Errors:
    """Run the protocol on users drawn anew each time, a share of them corrupted.

    The corrupted users all hold the same point, opposite mu at distance ``far`` r from 0.
    """
    s, r, protocol = findings.settings, task.radius, task.protocol(n_users, dimension)
    bad = math.floor(task.wishes.get("corrupted", 0.0) * n_users + 1e-9)
    measured, ordinary, failed = [], [], 0
    for k in range(s.repeats):
        tag = digest64("few-users-error", findings.seed, str(task), n_users, dimension, str(far), k)
        rng = np.random.default_rng(tag)
        mu = rng.normal(size=dimension)
        mu *= s.shift * r / np.linalg.norm(mu)
        rows = mu + rng.normal(size=(n_users, dimension)) * r / math.sqrt(dimension)
        rows[:bad] = -mu / np.linalg.norm(mu) * far * r
        ids = np.arange(n_users, dtype=np.uint64)
        users = Users.from_samples(ids, np.arange(n_users + 1), rows)
        ordinary.append(float(np.linalg.norm(rows.mean(axis=0) - mu)))
        estimate = execute(protocol, users, Options(seed=tag >> 1)).estimate
        if estimate.status == "refused":
            raise ValueError(f"n = {n_users}, d = {dimension}: {estimate.reason}")
        if estimate.value is None:
            failed += 1
        else:
            measured.append(float(np.linalg.norm(estimate.value - mu)))
    return Errors(protocol.plan, np.array(measured), float(np.mean(ordinary)), failed)


def finite_dimension(plan: FewUsersPlan) -> float:
    """Distance of one ball's points to the order 1 / d; lam r sqrt(d) is its limit for large d.

    A point at distance v from mu is within R of a share kappa of N(mu, r^2 / d I) users iff v^2 <=
    R^2 - r^2 - 2 z (r / sqrt(d)) v, z the normal quantile of kappa; most volume lies within a
    share 1 / d of that border. Together v^2 = R^2 (1 - (1 + 2 lam z + 2 lam^2) / (lam^2 d)).
    """
    d, lam = plan.dimension, plan.error / (plan.radius * math.sqrt(plan.dimension))
    lost = 1 + 2 * lam * float(ndtri(plan.kappa)) + 2 * lam**2
    return plan.error * math.sqrt(max(0.0, 1 - lost / (lam**2 * d)))


def _against_d(findings: Findings) -> list[Errors]:
    s, task = findings.settings, Task.of(findings.settings, method="ball")
    errors = [measure(findings, task, s.ball_users, d) for d in s.dimensions]
    away = float(np.max([e.off for e in errors]))
    off = float(np.max([abs(e.mean / finite_dimension(e.plan) - 1) for e in errors]))
    findings.check(AGAINST_D, "largest |measured / (lam r sqrt(d)) - 1|", away)
    findings.check(AGAINST_D, "the same with the term in 1 / d", off)
    slope = power_law(s.dimensions, [e.mean for e in errors])[0]
    findings.check(AGAINST_D, "log-log slope in d", slope)
    _draw(findings, f"against d: one ball, n = {s.ball_users}", s.dimensions, errors, "dimension d")
    return errors


def _against_n(findings: Findings) -> list[Errors]:
    s = findings.settings
    task = Task.of(s, method="auto", n_rounds=s.rounds)
    errors = [measure(findings, task, n, s.dimension) for n in s.n_users]
    for method in ("ball", "blocks", "large-n"):
        some = [e.off for e in errors if e.plan.method == method]
        if some:
            what = f"{method}: largest |measured / predicted - 1|"
            findings.check(AGAINST_N, what, float(np.max(some)))
    gained = errors[0].mean / errors[-1].mean
    findings.check(AGAINST_N, "error at the fewest / at the most users", gained)
    where = f"against n: automatic choice, d = {s.dimension}"
    _draw(findings, where, s.n_users, errors, "users n")
    findings.draw(where, "no privacy, r / sqrt(n)", s.n_users, 1 / np.sqrt(s.n_users), style="--")
    return errors


def _corrupted(findings: Findings) -> list[Errors]:
    s, every = findings.settings, list[Errors]()
    wishes = {"method": "ball", "kappa": s.kappa, "lam": s.lam}
    tasks = [Task.of(s, **wishes, corrupted=share) for share in s.corrupted]
    at = np.maximum(100 * np.array(s.corrupted), 1.0)
    for far in s.far:
        errors = [measure(findings, task, s.robust_users, s.dimension, far) for task in tasks]
        where = f"corrupted users at {far:g} r: one ball, n = {s.robust_users}, d = {s.dimension}"
        _draw(findings, where, at, errors, "corrupted users, percent")
        ordinary = np.array([e.ordinary for e in errors]) / s.radius
        findings.draw(where, "ordinary average, no privacy", at, ordinary, marker="^")
        every += errors
    worst = float(np.max([e.worst for e in every]))  # np.max keeps a NaN: it fails
    lost = float(np.max([e.ordinary / e.mean for e in every]))
    findings.check(CORRUPTED, "largest measured / predicted error", worst)
    findings.check(CORRUPTED, "largest ordinary average / measured", lost)
    return every


def _draw(
    findings: Findings, where: str, x: ArrayLike, errors: Sequence[Errors], x_label: str
) -> None:
    """Draw predictions as a line, means of real runs as crosses."""
    r = findings.settings.radius
    findings.draw(
        where,
        "predicted",
        x,
        np.array([e.plan.error for e in errors]) / r,
        marker="o",
        x_label=x_label,
    )
    some = [k for k, e in enumerate(errors) if len(e.measured)]
    mean = np.array([errors[k].mean for k in some]) / r
    spread = np.array([errors[k].measured.std() for k in some]) / r
    at = np.asarray(x)[some]
    findings.draw(where, "real runs (bars: their spread)", at, mean, spread, "x", "none")


# -- users that are needed


def _needed(findings: Findings) -> None:
    """Judge how the users that are needed grow; public numbers decide, and nobody is asked."""
    s = findings.settings
    public = s.epsilon, s.delta, s.map_radius, s.map_box
    ds, ks, panel = s.map_dimensions, s.blocks, "users that are needed, against d"
    axes = {"x_label": "dimension d", "y_label": "users"}
    ball = [Task(*public, {"method": "ball"}).needed(d) for d in ds]
    large = [Task(*public, {"method": "large-n"}).needed(d) for d in ds]
    blocks = [Task(*public, {"method": "blocks", "n_blocks": k}).needed(max(ds)) for k in ks]
    findings.check(NEEDED, "one ball, d >= 16: most / fewest", max(ball) / min(ball))
    for what, least in (
        ("Lemma 9", lemma_9_users(s.epsilon, s.delta)),
        ("users that the proof of Lemma 9 excludes", least_users_of_any(s.epsilon, s.delta)),
    ):
        findings.check(NEEDED, f"one ball / {what}", max(ball) / least)
        findings.draw(panel, what, ds, least, style="--")
    findings.check(NEEDED, "one ball: n", max(ball))
    for k, n in zip(ks, blocks, strict=True):
        findings.check(NEEDED, f"{k} blocks: n", n)
    for d, n in zip(ds, large, strict=True):
        findings.check(NEEDED, f"large n, d = {d:,}: n", n)
    findings.check(NEEDED, "blocks: log-log slope in K", power_law(ks, blocks)[0])
    findings.check(NEEDED, "large n: log-log slope in d", power_law(ds, large)[0])
    findings.draw(panel, "one ball", ds, ball, marker="s", **axes)
    findings.draw(panel, "large n (medians and clip)", ds, large, marker="o")
    findings.draw(
        f"{panel[:-1]}K, d = {max(ds):,}", "blocks", ks, blocks, x_label="blocks K", y_label="users"
    )


def least_users_of_any(epsilon: float, delta: float) -> float:
    """Users with which nobody finds a ball that most users' means lie in, wherever it may be.

    ln(1 + (2/3) (e^epsilon - 1) / delta) / epsilon: at most so many are too few for any finite
    error with probability 2/3; inf where delta = 0. Three times [1, Lemma 9], whose proof gives it:
    a point that all users would make likely, with probability 2/3, has a positive probability
    whatever the data are, and points without number lie far apart.

    >>> round(least_users_of_any(1.0, 1e-6), 2)
    13.95
    """
    return math.log1p(2 / 3 * math.expm1(epsilon) / delta) / epsilon if delta else math.inf


def lemma_9_users(epsilon: float, delta: float) -> float:
    """Users below which [1, Lemma 9] excludes every algorithm; NaN unless 0 < delta <= epsilon^2.

    >>> round(lemma_9_users(1.0, 1e-6), 2), lemma_9_users(1e-4, 1e-6)
    (4.61, nan)
    """
    return math.log(1 / delta) / (3 * epsilon) if 0 < delta <= epsilon**2 else math.nan


# -- a mean in an unknown interval, with a trusted server -----------------------------------------

TAIL, RATE = "Theorem 24: the tail", "Theorem 24: the rate"


def theorem_24(n_users: int, epsilon: float, tau: float, width: float, times: float) -> float:
    """Chance of an error of 8 tau T / (n epsilon), at most e^-T + (B / tau) e^(-n epsilon / 8).

    Users' values lie in [0, B] and within 2 tau of some point; 1 for epsilon from 1 on, of which
    the theorem does not speak.

    >>> round(theorem_24(2000, 0.5, 1.0, 1000.0, 2.0), 4), theorem_24(2000, 1.0, 1.0, 1000.0, 2.0)
    (0.1353, 1.0)
    """
    if not epsilon < 1 or not tau < width:
        return 1.0
    far = math.log(width / tau) - n_users * epsilon / 8
    return min(1.0, math.exp(-times) + math.exp(min(far, 0.0)))


def _interval(findings: Findings) -> None:
    """Measure errors against users, and their tail at the first number of them."""
    s = findings.settings.interval
    eps, tau, ns, times = s["epsilon"], s["tau"], s["n"], s["times"]
    errors = [_interval_errors(findings.seed, s, n) for n in ns]
    unit = 8 * tau / (ns[0] * eps)
    beyond = np.array([float(np.mean(errors[0] >= t * unit)) for t in times])
    bound = np.array([theorem_24(ns[0], eps, tau, s["width"], t) for t in times])
    # three standard errors of a share that is as large as the theorem allows
    room = bound + 3 * np.sqrt(bound * (1 - bound) / s["runs"])
    findings.check(
        TAIL, "largest share beyond / (bound + 3 standard errors)", (beyond / room).max()
    )
    panel, axes = TAIL, {"log": "y", "x_label": "T", "y_label": "share of runs beyond T"}
    findings.draw(panel, "measured", times, beyond, marker="x", style=" ", **axes)
    findings.draw(panel, "Theorem 24", times, bound, style="--", **axes)
    means = [mean_and_error(e) for e in errors]
    panel, axes = RATE, {"x_label": "users n", "y_label": "mean error"}
    findings.draw_means(panel, "measured", ns, means, "x", " ", **axes)
    findings.draw(
        panel, "Theorem 24, T = 1", ns, 8 * tau / (np.array(ns) * eps), style="--", **axes
    )
    findings.check(RATE, "log-log slope in users", power_law(ns, [m for m, _ in means])[0])
    most = max(m * n * eps / tau for (m, _), n in zip(means, ns, strict=True))
    findings.check(RATE, "n epsilon times the mean error / tau, largest", most)


def _interval_errors(seed: int, settings: Mapping[str, Any], n: int) -> Floats:
    """Run on values drawn anew, and return the distances from their average."""
    eps, width, near = (settings[name] for name in ("epsilon", "width", "tau"))
    protocol = CentralMean(
        epsilon=eps, n_users=n, low=0.0, high=width, delta=0.0, radius=2 * near
    )  # fmt: skip
    out = []
    for r in range(settings["runs"]):
        own = digest64("interval-error", seed, n, str(near), r) >> 1
        rng = np.random.default_rng(own)
        centre = rng.uniform(2 * near, width - 2 * near)
        values = centre + rng.uniform(-2 * near, 2 * near, n)
        users = Users.from_samples(np.arange(n, dtype=np.uint64), np.arange(n + 1), values)
        mean = execute(protocol, users, Options(seed=own)).estimate.needed(f"n = {n}")
        out.append(abs(float(mean[0]) - float(values.mean())))
    return np.array(out)
