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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.protocols import MeanL2, MeanLinf, NaiveMean
from fedhist.protocols.shared.noninteractive_error import naive_mse
from fedhist.users.batch import Users
from server.means.localize import plan_univariate
from simulations.experiments.base import Check, Curve, Request, Result
from simulations.experiments.bounded_figures import line
from simulations.experiments.local_populations import ball_means, box_means
from simulations.experiments.local_runs import (
    EXACT,
    PATHS,
    Clients,
    Errors,
    OneSetting,
    distance_in_errors,
    line_through,
    measure,
)
from simulations.experiments.settings import whole, wholes

Geometry = Literal["linf", "l2"]
FoldMean = MeanLinf | MeanL2

AGAINST_D, AGAINST_N, EDGE = "against d", "against n", "the edge"
BASELINES, TWICE = "baselines", "two simulations"
GEOMETRIES: tuple[Geometry, Geometry] = ("linf", "l2")
SAFE = 1e-3
"""Planned probability of a failed vote that is called safe."""


def run(request: Request) -> Result:
    """Measure the three panels."""
    m = Dimensions(request)
    checks = (*m.by_dimension(), *m.by_users(), *m.edge(), *m.baselines(), *m.twice())
    return Result(
        title="Means under local privacy: error against dimension and users",
        paper="Sections 3.2 and 3.3",
        checks=checks,
        curves=(*m.against_dimension(), *m.against_users(), *m.against_share()),
        x_label="dimension d; users n; users per coordinate n / d, by panel",
        y_label="mean squared l2 error",
        log="xy",
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


@dataclass(frozen=True)
class Dimensions(OneSetting):
    """Everything that is measured."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.request, "least_runs", 2)

    @property
    def samples(self) -> int:
        """T of all panels but that of the edge."""
        return whole(self.request, "samples")

    def mean(self, geometry: Geometry, n: int, d: int, T: int | None = None) -> FoldMean:
        """Build the protocol."""
        make: Callable[..., FoldMean] = MeanLinf if geometry == "linf" else MeanL2
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
        key = protocol, clients
        if key not in self._known:
            n, d = protocol.n_users, protocol.dimension
            ball = isinstance(protocol, MeanL2) or getattr(protocol, "geometry", "") == "l2"
            make, most = (ball_means, 1 / math.sqrt(d)) if ball else (box_means, 1.0)
            T = int(protocol.samples_per_user or self.samples)

            def population(rng: np.random.Generator) -> tuple[Users, Floats]:
                theta = rng.uniform(-self.spread * most, self.spread * most, d)
                return make(n, T, theta, rng), theta

            wanted = whole(self.request, "edge_coordinates" if edge else "coordinates")
            repeats = max(whole(self.request, "least_runs"), wanted // d)
            reach = 2 * protocol.plan.half_width if isinstance(protocol, MeanLinf) else math.inf
            self._known[key] = measure(
                protocol, population, repeats, self.request.seed, clients=clients, reach=reach
            )
        return self._known[key]

    # -- checks

    def by_dimension(self) -> Iterator[Check]:
        """Judge the slopes in d, and the plans."""
        ds, n = wholes(self.request, "dimensions"), whole(self.request, "users")
        for g in GEOMETRIES:
            found = [self.errors(self.mean(g, n, d)) for d in ds]
            yield line(self.request, AGAINST_D, f"mean-{g}: log-log slope in d", *_slope(ds, found))
            risk = np.array([self.risk(g, n, d) for d in ds])
            planned = line_through(np.log(ds), np.log(risk), np.ones(len(ds)))[1]
            yield line(self.request, AGAINST_D, f"mean-{g}: planned log-log slope in d", planned)
            measured = np.array([e.mean for e in found])
            item = np.array([self._formula(g, n * self.samples, d) for d in ds])
            for what, by in (("planned risk", risk), ("item level", item)):
                ratio = measured / by
                where = f"MSE / {what}"
                yield line(self.request, AGAINST_D, f"mean-{g}: least {where}", ratio.min())
                yield line(self.request, AGAINST_D, f"mean-{g}: most {where}", ratio.max())

    def by_users(self) -> Iterator[Check]:
        """Judge the slopes in n."""
        ns, d = wholes(self.request, "n_users"), whole(self.request, "dimension")
        for g in GEOMETRIES:
            slope, stderr = _slope(ns, [self.errors(self.mean(g, n, d)) for n in ns])
            yield line(self.request, AGAINST_N, f"mean-{g}: log-log slope in n", slope, stderr)
            risk = [self.risk(g, n, d) for n in ns]
            planned = line_through(np.log(ns), np.log(risk), np.ones(len(ns)))[1]
            quantity = f"mean-{g}: the slope less the planned one"
            yield line(self.request, AGAINST_N, quantity, slope - planned, stderr)

    def edge(self) -> Iterator[Check]:
        """Judge the localisation term."""
        low, high = wholes(self.request, "edge")
        shares = wholes(self.request, "users_per_coordinate")
        some = [x for x in shares if low <= x <= high]
        found = [self._at_the_edge(x) for x in some]
        log = np.log([e.localized for e in found])
        relative = [math.sqrt(2 / e.each.size) for e in found]
        slope = line_through(some, log, relative)[1:]
        yield line(self.request, EDGE, "mean-linf: slope of ln MSE in n / d", *slope)
        missed = float(np.mean([e.missed for e in found]))
        yield line(self.request, EDGE, "share of coordinates whose vote failed", missed)

        def plan(n: int) -> tuple[int, float]:
            found = plan_univariate(n, 1 / 32, 1.0, self.epsilon)
            return found.n_bins, found.failure

        votes = next(n for n in range(1, 1 << 20) if plan(n)[0] > 1)
        safe = next(n for n in range(votes, 1 << 20) if plan(n)[1] < SAFE)
        yield line(self.request, EDGE, "least n / d of a plan with a vote", votes)
        yield line(self.request, EDGE, "least n / d of a planned failure below 1e-3", safe)

    def baselines(self) -> Iterator[Check]:
        """Judge the formulas of the naive reports."""
        d = whole(self.request, "dimension")
        n = 1280 * d
        for g, formula in zip(GEOMETRIES, ("d^2 coth^2 / n", "B^2 / n"), strict=True):
            naive = NaiveMean(self.epsilon, n, d, geometry=g, kind="onebit")
            found, by = self.errors(naive), self._formula(g, n, d)
            quantity = f"naive-mean {g}: MSE / ({formula})"
            yield line(self.request, BASELINES, quantity, found.mean / by, found.stderr / by)

    def twice(self) -> Iterator[Check]:
        """Judge the sums against users that answer one by one."""
        for g in GEOMETRIES:
            protocol = self.mean(g, 3200, 4)
            z = distance_in_errors(*(self.errors(protocol, c) for c in PATHS))
            yield line(self.request, TWICE, f"mean-{g}: |z|, users against their sums", z)

    # -- figure

    def against_dimension(self) -> Iterator[Curve]:
        """Draw the errors against d."""
        n, ds = whole(self.request, "users"), wholes(self.request, "dimensions")
        panel = f"against d: n = {n:,}, T = {self.samples:,}"
        yield from self._curves(panel, [(n, d) for d in ds], _floats(ds))

    def against_users(self) -> Iterator[Curve]:
        """Draw the errors against n."""
        ns, d = wholes(self.request, "n_users"), whole(self.request, "dimension")
        panel = f"against n: d = {d}, T = {self.samples:,}"
        yield from self._curves(panel, [(n, d) for n in ns], _floats(ns))

    def against_share(self) -> Iterator[Curve]:
        """Draw the edge."""
        shares, d = (
            wholes(self.request, "users_per_coordinate"),
            whole(self.request, "edge_dimension"),
        )
        T = whole(self.request, "edge_samples")
        panel = f"the edge, against n / d: d = {d}, T = {T:,}"
        found = [self._at_the_edge(x) for x in shares]
        x, y = _floats(shares), np.array([e.localized for e in found])
        yerr = y * np.sqrt([2 / e.each.size for e in found])
        yield Curve(panel, "mean-linf: votes that succeeded", x, y, yerr, "D")
        risk = [d * self.mean("linf", x * d, d, T).plan.risk for x in shares]
        yield Curve(panel, "mean-linf: planned risk", x, np.array(risk), style="--")
        naive = [self._formula("linf", x * d, d) for x in shares]
        yield Curve(panel, "linf: naive", x, np.array(naive), style="-.")

    def _curves(self, panel: str, points: list[tuple[int, int]], x: Floats) -> Iterator[Curve]:
        for g, marker in zip(GEOMETRIES, "os", strict=True):
            found = [self.errors(self.mean(g, n, d)) for n, d in points]
            y, yerr = (np.array([getattr(e, a) for e in found]) for a in ("mean", "stderr"))
            yield Curve(panel, f"mean-{g}: measured", x, y, yerr, marker)
            risk = np.array([self.risk(g, n, d) for n, d in points])
            yield Curve(panel, f"mean-{g}: planned risk", x, risk, style="--")
            item = np.array([self._formula(g, n * self.samples, d) for n, d in points])
            yield Curve(panel, f"{g}: item level", x, item, style=":")
            naive = np.array([self._formula(g, n, d) for n, d in points])
            yield Curve(panel, f"{g}: naive", x, naive, style="-.")

    def _at_the_edge(self, share: int) -> Errors:
        d, T = (whole(self.request, f"edge_{x}") for x in ("dimension", "samples"))
        return self.errors(self.mean("linf", share * d, d, T), edge=True)

    def _formula(self, geometry: Geometry, n_reports: float, d: int) -> float:
        return naive_mse(
            geometry=geometry, kind="onebit", epsilon=self.epsilon, dimension=d, scale=1.0,
            n_reports=n_reports,
        )  # fmt: skip


def _slope(x: list[int], found: list[Errors]) -> tuple[float, float]:
    y = np.array([e.mean for e in found])
    # a sum of squared Gaussians: the same relative error whatever the draws, or luck has weight
    relative = [math.sqrt(2 / e.each.size) for e in found]
    return line_through(np.log(x), np.log(y), relative)[1:]


def _floats(x: list[int]) -> Floats:
    return np.array(x, dtype=np.float64)
