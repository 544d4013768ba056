"""Error of a vote over the cells of a cover, against users: samples without end [1]_. NOT PRIVATE.

Every user knows the point. The error falls exponentially in n / d in balls and boxes, in n / s for
sparse vectors, and as a power of n on a Sobolev ellipsoid.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 2, Theorem 1, Propositions 3 to 5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.model.losses import squared_l2
from fedhist.protocols import CoverSelect
from simulations.experiments.experiment import Findings, Request, Result, mean_and_error
from simulations.experiments.local_populations import users_of
from simulations.experiments.local_runs import log_slope
from simulations.runs.run import Options, execute

Geometry = Literal["linf-ball", "l2-ball", "sparse", "sobolev"]

BALLS: tuple[tuple[Geometry, str, str], ...] = (
    ("l2-ball", "Proposition 3: l2 ball", "o"),
    ("linf-ball", "Proposition 3: box", "s"),
)
SPARSE, SOBOLEV, EXPLICIT = "Proposition 4: sparse", "Proposition 5: Sobolev", "Theorem 1"


@dataclass(frozen=True)
class Task:
    """A set of points, and users who all know one of them."""

    geometry: Geometry
    epsilon: float
    n: int
    d: int
    sparsity: int = 0
    smoothness: float = 0.0

    @property
    def protocol(self) -> CoverSelect:
        """The protocol, which chooses its cover."""
        more: dict[str, Any] = {}
        if self.geometry == "sparse":
            more["sparsity"] = self.sparsity
        if self.geometry == "sobolev":
            more["smoothness"] = self.smoothness
        return CoverSelect(self.epsilon, self.n, self.d, geometry=self.geometry, **more)

    def point(self, rng: np.random.Generator) -> Floats:
        """Draw a point of the set of bound 1: uniform, or on the ellipsoid's uniform image."""
        if self.geometry == "linf-ball":
            return rng.uniform(-1, 1, self.d)
        if self.geometry == "sparse":
            theta = np.zeros(self.d)
            places = rng.choice(self.d, self.sparsity, replace=False)
            theta[places] = rng.uniform(-1, 1, self.sparsity)
            return theta
        z = rng.normal(size=self.d)
        ball: Floats = z / math.sqrt(float(z @ z)) * rng.random() ** (1 / self.d)
        if self.geometry == "sobolev":
            ball = ball * np.arange(2, self.d + 2) ** -self.smoothness
        return ball

    def losses(self, request: Request, runs: int) -> Floats:
        """Run on points drawn anew; squared errors (runs,), those of 0 where it refuses."""
        out, protocol = [], self.protocol
        for k in range(runs):
            seed = digest64("cover-rates", request.seed, repr(self), k) >> 1
            rng = np.random.default_rng(seed)
            theta = self.point(rng)
            users = users_of(np.tile(theta, (self.n, 1)), rng)
            options = Options(seed=seed, clients="aggregate")
            value = execute(protocol, users, options).estimate.value
            out.append(squared_l2(np.zeros(self.d) if value is None else value, theta))
        return np.array(out)

    @property
    def at_least(self) -> float:
        """The explicit lower bound."""
        row = np.zeros((1, self.d))
        users = users_of(row, np.random.default_rng(0))
        return self.protocol.lower_bounds(users)[0].value


def run(request: Request) -> Result:
    """Measure the four sets."""
    found = Findings(request)
    budget = request.positive("epsilon")
    for geometry, name, _ in BALLS:
        _exponential(found, name, [Task(geometry, budget, 1, d) for d in request.wholes("d")])
    s, smooth = request.whole("s"), request.positive("smoothness")
    sparse = [Task("sparse", budget, 1, d, sparsity=s) for d in request.wholes("sparse_d")]
    _exponential(found, SPARSE, sparse)
    _sobolev(found, Task("sobolev", budget, 1, request.whole("sobolev_d"), smoothness=smooth))
    return found.result(
        "Users who know the point: error of a vote over a cover, against users",
        "Propositions 3 to 5",
        x_label="n, users",
        y_label="mean squared error",
        log="y",
        notes=(
            "NOT PRIVATE: errors are measured with the truth, the point that all users know",
            f"epsilon = {budget:g} per user; points drawn uniformly from the set, anew in each of "
            f"{request.whole('runs')} runs; votes are drawn from their exact law",
            "planned: delta^2 + diameter^2 P(the wrong cell wins), the upper bound of Theorem 1, "
            "at the best cover; a uniform point is nearer to the centre of its cell than delta",
            "a cover has a limited number of cells, which stops the decay; failures rarer than "
            "one in the number of runs are not seen",
            "the lower bound of Theorem 1 has its own constant (Fano) and is far below",
        ),
        not_judged=("the constants c of the propositions: the paper does not name them",),
        population="users who all hold one point",
    )


def _measure(
    found: Findings, tasks: Sequence[Task]
) -> tuple[list[tuple[float, float | None]], Floats]:
    """Return measured means with errors, and planned risks; judge the lower bound."""
    runs = found.request.whole("runs")
    measured = [mean_and_error(t.losses(found.request, runs)) for t in tasks]
    planned = np.array([t.protocol.plan.risk for t in tasks])
    low = np.array([t.at_least for t in tasks])
    above = float(min(m / b if b else math.inf for (m, _), b in zip(measured, low, strict=True)))
    if math.isfinite(above):
        of = f"{tasks[0].geometry}, d = {tasks[0].d}"
        found.check(EXPLICIT, f"least measured / lower bound, {of}", above)
    return measured, planned


def _exponential(found: Findings, name: str, bases: Sequence[Task]) -> None:
    """Judge how ln MSE falls in n, for several d, where the plan asks anybody."""
    ns = found.request.wholes("sparse_n" if name == SPARSE else "n")
    speeds, finest = [], []
    for base, marker in zip(bases, "osD^", strict=False):
        tasks = [replace(base, n=n) for n in ns]
        measured, planned = _measure(found, tasks)
        mean = np.array([m for m, _ in measured])
        label = f"d = {base.d}"
        found.draw_means(name, label, ns, measured, marker, " ", log="y")
        found.draw(name, f"planned, {label}", ns, planned, style="--", log="y")
        able = np.array([t.protocol.plan.feasible for t in tasks])  # elsewhere it refuses
        at = np.array(ns)[able]
        slope, plan = (log_slope(at, y[able])[0] for y in (mean, planned))
        found.check(name, f"slope of ln MSE in n / planned, {label}", slope / plan)
        found.check(name, f"most measured / planned, {label}", float((mean / planned).max()))
        size = base.sparsity or base.d
        speeds.append(slope * (size + 2) / 2)
        finest.append(float(mean[-1]))
    quantity = "decay times (k + 2) / 2, largest over least of all d"
    found.check(name, quantity, max(speeds, key=abs) / min(speeds, key=abs))
    quantity = "MSE at the most users, largest over least of all d"
    found.show(name, quantity, max(finest) / min(finest))


def _sobolev(found: Findings, base: Task) -> None:
    """Judge the power of n."""
    ns = found.request.wholes("sobolev_n")
    measured, planned = _measure(found, [replace(base, n=n) for n in ns])
    axes = {"log": "xy"}
    found.draw_means(SOBOLEV, f"beta = {base.smoothness:g}", ns, measured, "o", " ", **axes)
    found.draw(SOBOLEV, "planned", ns, planned, style="--", **axes)
    rate = planned[-1] * (np.array(ns) / ns[-1]) ** (-2 * base.smoothness)
    found.draw(SOBOLEV, "n^(-2 beta), through the last", ns, rate, style=":", **axes)
    mean = np.array([m for m, _ in measured])
    slope, plan = (log_slope(np.log(ns), y)[0] for y in (mean, planned))
    found.check(SOBOLEV, "log-log slope in n less the planned one", slope - plan)
    found.check(SOBOLEV, "log-log slope in n", slope)
