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
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.protocols import MeanL2, MeanLinf, NaiveMean
from fedhist.users.batch import Users
from server.means.localize import plan_univariate
from simulations.experiments.experiment import Request, Result
from simulations.experiments.local_populations import ball_means, box_means
from simulations.experiments.local_runs import EXACT, Clients, Errors, Grid, log_slope

Geometry = Literal["linf", "l2"]
FoldMean = MeanLinf | MeanL2

AGAINST_D, AGAINST_N, EDGE, BASELINES = "against d", "against n", "the edge", "baselines"
GEOMETRIES: tuple[Geometry, Geometry] = ("linf", "l2")
SAFE = 1e-3
"""Planned probability of a failed vote that is called safe."""


def run(request: Request) -> Result:
    """Measure the three panels."""
    m = Dimensions(request)
    for part in (m.by_dimension, m.by_users, m.edge, m.baselines):
        part()
    for part in (m.against_dimension, m.against_users, m.against_share):
        part()
    return m.found.result(
        "Means under local privacy: error against dimension and users",
        "Sections 3.2 and 3.3",
        x_label="dimension d; users n; users per coordinate n / d, by panel",
        y_label="mean squared l2 error",
        notes=(
            *EXACT,
            f"epsilon = {m.epsilon:g} per user; T = {m.samples:,} samples of +-1 per coordinate, "
            f"over sqrt(d) in the ball: on its sphere; {request.settings['coordinates']} "
            "coordinates per point over all its runs, each run with users and a mean of its own",
            "a vote counts as failed if a coordinate is farther off than the refined interval is "
            "wide; the panel of the edge leaves such coordinates out",
            "item level: one noisy report for each of the n T samples, which protects a sample "
            "and not a user; naive: one noisy report of a user's mean, which T does not improve",
        ),
        not_judged=("the constant c of the localisation term: the paper does not name it",),
        population="users of a common mean in the box [-1, 1]^d, or in the unit ball",
    )


class Dimensions(Grid):
    """Everything that is measured."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.least_runs = request.whole("least_runs", 2)
        self.samples = self.whole("samples")
        """T of all panels but that of the edge."""

    def mean(self, geometry: Geometry, n: int, d: int, T: int | None = None) -> FoldMean:
        """Build the protocol."""
        by_folds = partial(MeanL2, method="folds")
        make: Callable[..., FoldMean] = MeanLinf if geometry == "linf" else by_folds
        size = self.samples if T is None else T
        return make(epsilon=self.epsilon, n_users=n, dimension=d, samples_per_user=size)

    def risk(self, geometry: Geometry, n: int, d: int) -> float:
        """Return the planned squared l2 error."""
        protocol = self.mean(geometry, n, d)
        return protocol.functional.n_folds * protocol.plan.risk

    def errors(
        self, protocol: FoldMean | NaiveMean, clients: Clients = "aggregate", edge: bool = False
    ) -> Errors:
        """Measure a point, once."""
        n, d = protocol.n_users, protocol.dimension
        ball = isinstance(protocol, MeanL2) or getattr(protocol, "geometry", "") == "l2"
        make, most = (ball_means, 1 / math.sqrt(d)) if ball else (box_means, 1.0)
        T = int(protocol.samples_per_user or self.samples)

        def population(rng: np.random.Generator) -> tuple[Users, Floats]:
            theta = rng.uniform(-self.spread * most, self.spread * most, d)
            return make(n, T, theta, rng), theta

        wanted = self.whole("edge_coordinates" if edge else "coordinates")
        reach = 2 * protocol.plan.half_width if isinstance(protocol, MeanLinf) else math.inf
        repeats = max(self.least_runs, wanted // d)
        return self.once(protocol, population, repeats, clients=clients, reach=reach)

    # -- checks

    def by_dimension(self) -> None:
        """Judge the slopes in d, and the plans."""
        ds, n = self.wholes("dimensions"), self.whole("users")
        for g in GEOMETRIES:
            found = [self.errors(self.mean(g, n, d)) for d in ds]
            self.check(AGAINST_D, f"mean-{g}: log-log slope in d", *_slope(ds, found))
            risk = np.array([self.risk(g, n, d) for d in ds])
            planned = log_slope(np.log(ds), risk)[0]
            self.check(AGAINST_D, f"mean-{g}: planned log-log slope in d", planned)
            measured = np.array([e.mean for e in found])
            item = np.array([self.formula(n * self.samples, d, geometry=g) for d in ds])
            for what, by in (("planned risk", risk), ("item level", item)):
                ratio = measured / by
                self.check(AGAINST_D, f"mean-{g}: least MSE / {what}", ratio.min())
                self.check(AGAINST_D, f"mean-{g}: most MSE / {what}", ratio.max())

    def by_users(self) -> None:
        """Judge the slopes in n."""
        ns, d = self.wholes("n_users"), self.whole("dimension")
        for g in GEOMETRIES:
            slope, stderr = _slope(ns, [self.errors(self.mean(g, n, d)) for n in ns])
            self.check(AGAINST_N, f"mean-{g}: log-log slope in n", slope, stderr)
            planned = log_slope(np.log(ns), [self.risk(g, n, d) for n in ns])[0]
            quantity = f"mean-{g}: the slope less the planned one"
            self.check(AGAINST_N, quantity, slope - planned, stderr)

    def edge(self) -> None:
        """Judge the localisation term."""
        low, high = self.wholes("edge")
        some = [x for x in self.wholes("users_per_coordinate") if low <= x <= high]
        found = [self._at_the_edge(x) for x in some]
        slope = log_slope(some, [e.localized for e in found], [_relative(e) for e in found])
        self.check(EDGE, "mean-linf: slope of ln MSE in n / d", *slope)
        missed = float(np.mean([e.missed for e in found]))
        self.check(EDGE, "share of coordinates whose vote failed", missed)

        def plan(n: int) -> tuple[int, float]:
            found = plan_univariate(n, 1 / 32, 1.0, self.epsilon)
            return found.n_bins, found.failure

        votes = next(n for n in range(1, 1 << 20) if plan(n)[0] > 1)
        safe = next(n for n in range(votes, 1 << 20) if plan(n)[1] < SAFE)
        self.check(EDGE, "least n / d of a plan with a vote", votes)
        self.check(EDGE, "least n / d of a planned failure below 1e-3", safe)

    def baselines(self) -> None:
        """Judge the formulas of the naive reports."""
        d = self.whole("dimension")
        n = 1280 * d
        for g, formula in zip(GEOMETRIES, ("d^2 coth^2 / n", "B^2 / n"), strict=True):
            naive = NaiveMean(self.epsilon, n, d, geometry=g, kind="onebit")
            found, by = self.errors(naive), self.formula(n, d, geometry=g)
            quantity = f"naive-mean {g}: MSE / ({formula})"
            self.check(BASELINES, quantity, found.mean / by, found.stderr / by)

    # -- figure

    def against_dimension(self) -> None:
        """Draw the errors against d."""
        n, ds = self.whole("users"), self.wholes("dimensions")
        self._curves(f"against d: n = {n:,}, T = {self.samples:,}", [(n, d) for d in ds], ds)

    def against_users(self) -> None:
        """Draw the errors against n."""
        ns, d = self.wholes("n_users"), self.whole("dimension")
        self._curves(f"against n: d = {d}, T = {self.samples:,}", [(n, d) for n in ns], ns)

    def against_share(self) -> None:
        """Draw the edge."""
        x, d, T = (
            self.wholes("users_per_coordinate"),
            self.whole("edge_dimension"),
            self.whole("edge_samples"),
        )
        panel = f"the edge, against n / d: d = {d}, T = {T:,}"
        found = [self._at_the_edge(s) for s in x]
        y = np.array([e.localized for e in found])
        yerr = y * [_relative(e) for e in found]
        self.draw(panel, "mean-linf: votes that succeeded", x, y, yerr, "D")
        risk = [d * self.mean("linf", s * d, d, T).plan.risk for s in x]
        self.draw(panel, "mean-linf: planned risk", x, risk, style="--")
        self.draw(panel, "linf: naive", x, [self.formula(s * d, d) for s in x], style="-.")

    def _curves(self, panel: str, points: list[tuple[int, int]], x: list[int]) -> None:
        for g, marker in zip(GEOMETRIES, "os", strict=True):
            found = [self.errors(self.mean(g, n, d)) for n, d in points]
            self.draw_errors(panel, f"mean-{g}: measured", x, found, marker)
            risk = [self.risk(g, n, d) for n, d in points]
            self.draw(panel, f"mean-{g}: planned risk", x, risk, style="--")
            for label, T, style in (
                (f"{g}: item level", self.samples, ":"),
                (f"{g}: naive", 1, "-."),
            ):
                y = [self.formula(n * T, d, geometry=g) for n, d in points]
                self.draw(panel, label, x, y, style=style)

    def _at_the_edge(self, share: int) -> Errors:
        d, T = (self.whole(f"edge_{x}") for x in ("dimension", "samples"))
        return self.errors(self.mean("linf", share * d, d, T), edge=True)


def _slope(x: Sequence[int], found: Sequence[Errors]) -> tuple[float, float]:
    # a sum of squared Gaussians: the same relative error whatever the draws, or luck has weight
    return log_slope(np.log(x), [e.mean for e in found], [_relative(e) for e in found])


def _relative(errors: Errors) -> float:
    return math.sqrt(2 / errors.each.size)
