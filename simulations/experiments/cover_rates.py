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
from fedhist.model.truths import squared_l2
from fedhist.protocols import CoverSelect
from simulations.experiments.experiment import Findings, mean_and_error
from simulations.experiments.local_runs import log_slope, users_of
from simulations.runs.options import Options
from simulations.runs.run import execute

Geometry = Literal["linf-ball", "l2-ball", "sparse", "sobolev"]

BALLS: tuple[tuple[Geometry, str], ...] = (
    ("l2-ball", "Proposition 3: l2 ball"),
    ("linf-ball", "Proposition 3: box"),
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

    def losses(self, seed: int, runs: int) -> Floats:
        """Run on points drawn anew; squared errors (runs,), those of 0 where it refuses."""
        out, protocol = [], self.protocol
        for k in range(runs):
            own = digest64("cover-rates", seed, repr(self), k) >> 1
            rng = np.random.default_rng(own)
            theta = self.point(rng)
            users = users_of(np.tile(theta, (self.n, 1)), rng)
            options = Options(seed=own, clients="aggregate")
            value = execute(protocol, users, options).estimate.value
            out.append(squared_l2(np.zeros(self.d) if value is None else value, theta))
        return np.array(out)

    @property
    def at_least(self) -> float:
        """The explicit lower bound."""
        row = np.zeros((1, self.d))
        users = users_of(row, np.random.default_rng(0))
        return self.protocol.lower_bounds(users)[0].value


def run(findings: Findings) -> None:
    """Measure the four sets."""
    s = findings.settings
    for geometry, name in BALLS:
        _exponential(findings, name, s.n, [Task(geometry, s.epsilon, 1, d) for d in s.d])
    sparse = [Task("sparse", s.epsilon, 1, d, sparsity=s.s) for d in s.sparse_d]
    _exponential(findings, SPARSE, s.sparse_n, sparse)
    _sobolev(findings, Task("sobolev", s.epsilon, 1, s.sobolev_d, smoothness=s.smoothness))


def _measure(
    findings: Findings, panel: str, label: str, tasks: Sequence[Task], **axes: Any
) -> tuple[Floats, Floats]:
    """Measure and draw one line: mean errors and planned risks; judge the lower bound."""
    ns = [t.n for t in tasks]
    measured = [mean_and_error(t.losses(findings.seed, findings.settings.runs)) for t in tasks]
    planned = np.array([t.protocol.plan.risk for t in tasks])
    findings.draw_means(panel, label, ns, measured, "", " ", **axes)
    findings.draw(panel, f"planned, {label}", ns, planned, style="--", **axes)
    mean, low = np.array([m for m, _ in measured]), np.array([t.at_least for t in tasks])
    if (low > 0).any():
        of = f"{tasks[0].geometry}, d = {tasks[0].d}"
        above = float((mean[low > 0] / low[low > 0]).min())
        findings.check(EXPLICIT, f"least measured / lower bound, {of}", above)
    return mean, planned


def _exponential(findings: Findings, name: str, ns: Sequence[int], bases: Sequence[Task]) -> None:
    """Judge how ln MSE falls in n, for several d, where the plan asks anybody."""
    speeds = []
    for base in bases:
        tasks, label = [replace(base, n=n) for n in ns], f"d = {base.d}"
        mean, planned = _measure(findings, name, label, tasks)
        able = np.array([t.protocol.plan.feasible for t in tasks])  # elsewhere it refuses
        at = np.array(ns)[able]
        slope, plan = (log_slope(at, y[able])[0] for y in (mean, planned))
        findings.check(name, f"slope of ln MSE in n / planned, {label}", slope / plan)
        findings.check(name, f"most measured / planned, {label}", float((mean / planned).max()))
        size = base.sparsity or base.d
        speeds.append(slope * (size + 2) / 2)
    quantity = "decay times (k + 2) / 2, largest over least of all d"
    findings.check(name, quantity, max(speeds, key=abs) / min(speeds, key=abs))


def _sobolev(findings: Findings, base: Task) -> None:
    """Judge the power of n."""
    ns = findings.settings.sobolev_n
    tasks, label = [replace(base, n=n) for n in ns], f"beta = {base.smoothness:g}"
    mean, planned = _measure(findings, SOBOLEV, label, tasks, log="xy")
    rate = planned[-1] * (np.array(ns) / ns[-1]) ** (-2 * base.smoothness)
    findings.draw(SOBOLEV, "n^(-2 beta), through the last", ns, rate, style=":")
    slope, plan = (log_slope(np.log(ns), y)[0] for y in (mean, planned))
    findings.check(SOBOLEV, "log-log slope in n less the planned one", slope - plan)
    findings.check(SOBOLEV, "log-log slope in n", slope)
