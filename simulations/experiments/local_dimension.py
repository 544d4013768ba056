"""Error of means of d coordinates under local privacy, against d and n [1]_. NOT PRIVATE.

A coordinate has n / d users. The error is quadratic in d in a box and linear in a ball, and grows
as d e^(-c n / d) where the users of a coordinate are too few to localise.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Sections 3.2 and 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.protocols import MeanL2, MeanLinf
from fedhist.users.batch import Users
from server.localize.choice import plan_univariate
from simulations.experiments.experiment import Findings
from simulations.experiments.local_runs import (
    Errors,
    Grid,
    ball_means,
    box_means,
    log_slope,
    naive_mse,
)

Geometry = Literal["linf", "l2"]
FoldMean = MeanLinf | MeanL2

AGAINST_D, AGAINST_N, EDGE = "against d", "against n", "the edge"
GEOMETRIES: tuple[tuple[Geometry, str], ...] = (("linf", "o"), ("l2", "s"))
SAFE = 1e-3
"""Planned probability of a failed vote that is called safe."""


def run(findings: Findings) -> None:
    """Measure the three panels."""
    m = Dimensions(findings)
    for part in (m.against_dimension, m.against_users, m.edge):
        part()


class Dimensions(Grid):
    """Everything that is measured."""

    def mean(self, geometry: Geometry, n: int, d: int, T: int | None = None) -> FoldMean:
        """Build the protocol."""
        by_folds = partial(MeanL2, method="folds")
        make: Callable[..., FoldMean] = MeanLinf if geometry == "linf" else by_folds
        size = self.settings.samples if T is None else T
        return make(epsilon=self.settings.epsilon, n_users=n, dimension=d, samples_per_user=size)

    def risk(self, geometry: Geometry, n: int, d: int) -> float:
        """Return the planned squared l2 error."""
        protocol = self.mean(geometry, n, d)
        return protocol.functional.n_folds * protocol.plan.risk

    def errors(self, protocol: FoldMean, coordinates: int) -> Errors:
        """Measure a point, once: so many coordinates over all its runs."""
        s, n, d = self.settings, protocol.n_users, protocol.dimension
        T = int(protocol.samples_per_user)
        ball = isinstance(protocol, MeanL2)
        make, most = (ball_means, 1 / math.sqrt(d)) if ball else (box_means, 1.0)

        def population(rng: np.random.Generator) -> tuple[Users, Floats]:
            theta = rng.uniform(-s.spread * most, s.spread * most, d)
            return make(n, T, theta, rng), theta

        reach = math.inf if isinstance(protocol, MeanL2) else 2 * protocol.plan.half_width
        return self.once(protocol, population, max(s.least_runs, coordinates // d), reach=reach)

    def line(
        self, panel: str, x: Sequence[int], points: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[Geometry, list[Errors], Floats, Floats]]:
        """Measure and draw points (n, d) in box and ball: errors, planned risks, item level."""
        s = self.settings
        for g, marker in GEOMETRIES:
            errors = [self.errors(self.mean(g, n, d), s.coordinates) for n, d in points]
            risk = np.array([self.risk(g, n, d) for n, d in points])
            naive = np.array([naive_mse(s.epsilon, n, d, geometry=g) for n, d in points])
            self.draw_errors(panel, f"mean-{g}: measured", x, errors, marker)
            self.findings.draw(panel, f"mean-{g}: planned risk", x, risk, style="--")
            self.findings.draw(panel, f"{g}: item level", x, naive / s.samples, style=":")
            self.findings.draw(panel, f"{g}: naive", x, naive, style="-.")
            yield g, errors, risk, naive / s.samples

    def against_dimension(self) -> None:
        """Judge the slopes in d, and the plans."""
        s, ds, n = self.settings, self.settings.dimensions, self.settings.users
        panel = f"against d: n = {n:,}, T = {s.samples:,}"
        for g, errors, risk, item in self.line(panel, ds, [(n, d) for d in ds]):
            self.findings.check(AGAINST_D, f"mean-{g}: log-log slope in d", *_slope(ds, errors))
            measured = np.array([e.mean for e in errors])
            for what, by in (("planned risk", risk), ("item level", item)):
                ratio = measured / by
                self.findings.check(AGAINST_D, f"mean-{g}: least MSE / {what}", ratio.min())
                self.findings.check(AGAINST_D, f"mean-{g}: most MSE / {what}", ratio.max())

    def against_users(self) -> None:
        """Judge the slopes in n."""
        s, ns, d = self.settings, self.settings.n_users, self.settings.dimension
        panel = f"against n: d = {d}, T = {s.samples:,}"
        for g, errors, risk, _ in self.line(panel, ns, [(n, d) for n in ns]):
            slope, stderr = _slope(ns, errors)
            self.findings.check(AGAINST_N, f"mean-{g}: log-log slope in n", slope, stderr)
            quantity = f"mean-{g}: the slope less the planned one"
            planned = log_slope(np.log(ns), risk)[0]
            self.findings.check(AGAINST_N, quantity, slope - planned, stderr)

    def edge(self) -> None:
        """Judge the localisation term, of the coordinates whose vote succeeded."""
        s, d, T = self.settings, self.settings.edge_dimension, self.settings.edge_samples
        x = np.array(s.users_per_coordinate)
        protocols = [self.mean("linf", int(share) * d, d, T) for share in x]
        errors = [self.errors(p, s.edge_coordinates) for p in protocols]
        y = np.array([e.localized for e in errors])
        relative = np.array([_relative(e) for e in errors])
        some = (x >= s.edge[0]) & (x <= s.edge[1])
        slope = log_slope(x[some], y[some], relative[some])
        self.findings.check(EDGE, "mean-linf: slope of ln MSE in n / d", *slope)
        missed = float(np.mean([e.missed for e in errors], where=some))
        self.findings.check(EDGE, "share of coordinates whose vote failed", missed)

        def plan(n: int) -> tuple[int, float]:
            one = plan_univariate(n, 1 / 32, 1.0, s.epsilon)
            return one.n_bins, one.failure

        votes = next(n for n in range(1, 1 << 20) if plan(n)[0] > 1)
        safe = next(n for n in range(votes, 1 << 20) if plan(n)[1] < SAFE)
        self.findings.check(EDGE, "least n / d of a plan with a vote", votes)
        self.findings.check(EDGE, "least n / d of a planned failure below 1e-3", safe)
        panel = f"the edge, against n / d: d = {d}, T = {T:,}"
        self.findings.draw(panel, "mean-linf: votes that succeeded", x, y, y * relative, "D")
        risk = [d * p.plan.risk for p in protocols]
        self.findings.draw(panel, "mean-linf: planned risk", x, risk, style="--")


def _slope(x: Sequence[int], errors: Sequence[Errors]) -> tuple[float, float]:
    # a sum of squared Gaussians: the same relative error whatever the draws, or luck has weight
    return log_slope(np.log(x), [e.mean for e in errors], [_relative(e) for e in errors])


def _relative(errors: Errors) -> float:
    return math.sqrt(2 / errors.each.size)
