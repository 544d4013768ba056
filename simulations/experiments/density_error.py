"""Error of a density under user-level local privacy, against samples per user [1]_. NOT PRIVATE.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 5, eq. (49), (50), Theorem 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.protocols.densities.density import Density
from fedhist.users.batch import Users
from server.densities.series import GRID, midpoints, tail_energy
from simulations.experiments.asked_users import SeriesUsers, deviations
from simulations.experiments.base import Check, Curve, Request, Result, mean_and_error, power_law
from simulations.experiments.bounded_figures import line
from simulations.experiments.local_populations import fresh_ids
from simulations.experiments.local_runs import largest_ratio
from simulations.experiments.settings import positive, whole, wholes
from simulations.populations.density_samples import DensitySamples
from simulations.runs.run import Options, execute

RATE, PLATEAU, SHRINKING, PATHS = "rate in T", "plateau", "James-Stein", "two paths"


@dataclass(frozen=True)
class Task:
    """What is public.

    Attributes
    ----------
    epsilon : float
    n, T : int
    smoothness, radius : float
        beta and r of the Sobolev ellipsoid.
    """

    epsilon: float
    n: int
    T: int
    smoothness: float
    radius: float

    @property
    def protocol(self) -> Density:
        """The protocol, which chooses its level."""
        return Density(self.epsilon, self.n, self.T, smoothness=self.smoothness, radius=self.radius)

    def predicted(self, theta: Floats) -> float:
        """Variance of the estimated coefficients, folds times risk, and the energy left out."""
        p = self.protocol
        k = p.terms - 1
        return 2 * k * (p.plan.risk if k else 0.0) + float(np.square(theta[p.terms :]).sum())

    def item_level(self, theta: Floats, n_reports: float) -> float:
        """One bit a report about the coefficient of its fold, at the best level for theta.

        The variance of a debiased bit is coth^2(epsilon / 2), that of a coefficient twice as much.
        """
        levels = np.arange(1, 2 * len(theta), 2)
        left = np.array([np.square(theta[j:]).sum() for j in levels])
        noise = 2 * (levels - 1.0) ** 2 / math.tanh(self.epsilon / 2) ** 2 / n_reports
        return float((noise + left).min())

    def run(
        self, protocol: Density, population: SeriesUsers, request: Request, k: int
    ) -> tuple[float, Floats]:
        """Run once on users drawn anew; the integrated squared error, and the estimate."""
        tag = digest64("density-error", request.seed, repr(self), len(population.theta), k)
        estimate = population.run(protocol, tag >> 1)
        if estimate.value is None:
            raise ValueError(f"n = {self.n}, T = {self.T}: {estimate.reason}")
        return loss(estimate.value, population), estimate.value


def loss(value: Floats, population: SeriesUsers) -> float:
    """Integrated squared distance from the density itself, by the midpoint rule."""
    return float(np.mean(np.square(value - population.density.on_grid(len(value)))))


def rough(degree: int, energy: float) -> Floats:
    """Return theta_1, ... of a density at the edge of the Sobolev ellipsoid of smoothness 1.

    c k^(-3/2) for the frequencies k = 1, ..., degree, their phases spread quadratically, which
    keeps the density positive; theta_j^2 falls as j^-3, and sum_j j^2 theta_j^2 = energy^2.
    """
    k = np.arange(1, degree + 1)
    phase = np.pi * (math.sqrt(5) - 1) / 2 * k**2
    theta = np.ones(2 * degree + 1)
    theta[1::2], theta[2::2] = k**-1.5 * np.cos(phase), k**-1.5 * np.sin(phase)
    j = np.arange(2, len(theta) + 1)
    theta[1:] *= energy / math.sqrt(float(np.square(j * theta[1:]).sum()))
    return theta


def run(request: Request) -> Result:
    """Measure the panels."""
    s = request.settings
    cells, degree = whole(request, "cells"), whole(request, "degree")
    base = Task(
        positive(request, "epsilon"), 1, 1, positive(request, "smoothness"),
        positive(request, "radius"),
    )  # fmt: skip
    theta = rough(degree, positive(request, "energy"))
    if SeriesUsers(1, 1, theta).density.on_grid(1 << 12).min() < 0:
        raise ValueError(f"energy must leave the density positive, got {s['energy']}")
    parts = [f(request, base, theta, cells) for f in (_against_samples, _shrinking, _paths)]
    return Result(
        title="Integrated squared error of a density against samples per user",
        paper="Theorem 9",
        checks=tuple(c for checks, _ in parts for c in checks),
        curves=tuple(c for _, curves in parts for c in curves),
        x_label="T, samples per user",
        y_label="integrated squared error",
        log="xy",
        notes=(
            "NOT PRIVATE: errors are measured with the truth, the density of the population",
            f"epsilon = {base.epsilon:g} per user and record, local; the level is chosen for beta "
            f"= {base.smoothness:g}, r = {base.radius:g}; users drawn anew for each run",
            "aggregate path: sums of votes and of reports are drawn from their exact law, and so "
            "is, when a user is asked, the mean of T samples that it answers about; 'two paths' "
            "compares with whole records on the per-user path",
            f"samples lie on {cells} midpoints; the coefficients in use are the density's own",
            "item level: n T users of one sample and one bit, at the best level for this density; "
            "naive: n users of one sample each, whatever T is (the same formula; T = 1 measures "
            "the protocol there)",
        ),
        population=f"a density with coefficients as j^-1.5 up to frequency {degree}",
    )


Part = tuple[list[Check], list[Curve]]


@dataclass(frozen=True)
class Row:
    """One number of users, against T.

    Attributes
    ----------
    tasks : list of Task
    theta : (J,) float64
        Coefficients of the density.
    found : list of (float, float or None)
        Mean integrated squared error and its standard error.
    """

    tasks: list[Task]
    theta: Floats
    found: list[tuple[float, float | None]]

    @property
    def n(self) -> int:
        """Users."""
        return self.tasks[0].n

    @property
    def x(self) -> Floats:
        """T: (K,)."""
        return np.array([t.T for t in self.tasks], dtype=np.float64)

    @property
    def y(self) -> Floats:
        """Mean integrated squared errors: (K,)."""
        return np.array([mean for mean, _ in self.found])

    @property
    def theory(self) -> Floats:
        """Their predictions: (K,)."""
        return np.array([t.predicted(self.theta) for t in self.tasks])

    @property
    def flat_from(self) -> int:
        """The T from which the level is that of the largest T."""
        last = self.tasks[-1].protocol.terms
        return next(t.T for t in self.tasks if t.protocol.terms == last)


def _measure(request: Request, base: Task, theta: Floats, cells: int) -> list[Row]:
    rows = []
    ns, repeats = wholes(request, "n"), wholes(request, "repeats")
    if len(repeats) != len(ns):
        raise ValueError(f"repeats must be one for each n, got {repeats}")
    for n, runs in zip(ns, repeats, strict=True):
        tasks = [replace(base, n=n, T=T) for T in wholes(request, "T")]
        found = []
        for task in tasks:
            users = SeriesUsers(n, task.T, theta, cells)
            errors = [task.run(task.protocol, users, request, k)[0] for k in range(runs)]
            found.append(mean_and_error(np.array(errors)))
        rows.append(Row(tasks, theta, found))
    return rows


def _against_samples(request: Request, base: Task, theta: Floats, cells: int) -> Part:
    rows = _measure(request, base, theta, cells)
    panel = "against T: marks measured, lines theory"
    checks: list[Check] = []
    curves: list[Curve] = []
    for row in rows:
        error = np.array([e or 0.0 for _, e in row.found])
        curves.append(Curve(panel, f"n = {row.n:,}", row.x, row.y, error, style=" "))
        curves.append(Curve(panel, "predicted", row.x, row.theory, style="-"))
        quantity = f"n = {row.n:,}"
        checks += [
            line(request, PLATEAU, f"ISE at the largest T, {quantity}", *row.found[-1]),
            line(request, PLATEAU, f"T from which the level stays, {quantity}", row.flat_from),
        ]
    flat = [row for row in rows if row.n <= whole(request, "plateau_n")]
    if len(flat) > 1:
        n = np.array([row.n for row in flat], dtype=np.float64)
        ours, predicted = (np.array([y[-1] for y in ys]) for ys in (
            [row.y for row in flat], [row.theory for row in flat]
        ))  # fmt: skip
        quantity = "log-log slope in n of the ISE at the largest T"
        checks += [
            line(request, PLATEAU, quantity, power_law(n, ours)[0]),
            line(request, PLATEAU, "the same, predicted", power_law(n, predicted)[0]),
        ]
    last = rows[-1]
    some = (last.x >= whole(request, "rate_from")) & (last.x <= whole(request, "rate_to"))
    found = [f for row in rows for f in row.found]
    theory = np.concatenate([row.theory for row in rows])
    least = float((np.array([mean for mean, _ in found]) / theory).min())
    items = np.array([t.item_level(theta, t.n * t.T) for t in last.tasks])
    naive = np.full(len(items), last.tasks[0].item_level(theta, last.n))
    curves += [
        Curve(panel, f"item level, n = {last.n:,}", last.x, items, style="-."),
        Curve(panel, f"naive, one sample a user, n = {last.n:,}", last.x, naive, style=":"),
    ]
    if some.sum() > 1:
        checks += [
            line(request, RATE, "log-log slope in T at the most users",
                 power_law(last.x[some], last.y[some])[0]),
            line(request, RATE, "the same, predicted",
                 power_law(last.x[some], last.theory[some])[0]),
        ]  # fmt: skip
    checks += [
        line(request, RATE, "largest measured / predicted, - 2 stderr",
             largest_ratio(found, theory)),
        line(request, RATE, "least measured / predicted", least),
        line(request, RATE, "naive / measured at the largest T", float(naive[-1] / last.y[-1])),
        line(request, RATE, "measured / item level at the largest T",
             float(last.y[-1] / items[-1])),
    ]  # fmt: skip
    return checks, curves


def _shrinking(request: Request, base: Task, theta: Floats, cells: int) -> Part:
    """Measure shrinkage on a smooth density, and draw one estimate of it over the truth."""
    s = request.settings
    smooth = DensitySamples(n_users=1, samples_per_user=1, density=str(s["smooth"]))
    n, T, runs = whole(request, "shrink_n"), whole(request, "shrink_T"), whole(request, "runs")
    checks = []
    cases = ((f"density {s['smooth']}", smooth.exact.coefficients, "smooth_radius"),
             ("the density above", theta, "radius"))  # fmt: skip
    for name, coefficients, radius in cases:
        task = replace(base, n=n, T=T, radius=positive(request, radius))
        users = SeriesUsers(n, T, coefficients, cells)
        one = [task.run(task.protocol, users, request, k) for k in range(runs)]
        ours = float(np.mean([x for x, _ in one]))
        plain = replace(task.protocol, shrink=False)
        for protocol, quantity in (
            (plain, "ISE shrunk / not shrunk"),
            (replace(plain, project=False), "ISE shrunk and projected / neither"),
        ):
            theirs = np.mean([task.run(protocol, users, request, k)[0] for k in range(runs)])
            checks.append(line(request, SHRINKING, f"{quantity}, {name}", ours / float(theirs)))
        if name.endswith(str(s["smooth"])):
            ise, value = one[0]
            tail = tail_energy(task.protocol.terms, task.smoothness, task.radius)
            checks.append(line(request, SHRINKING, "level of the estimate drawn",
                               task.protocol.terms))  # fmt: skip
            checks.append(line(request, SHRINKING, "energy that the ellipsoid may leave out", tail))
            panel = f"one estimate: n = {n:,}, T = {T:,}, ISE {ise:.2g}"
            at = midpoints(GRID)
            truth = users.density.on_grid()
            curves = [
                Curve(panel, label, at, y, style=style, y_label="density", x_label="x", log="")
                for label, y, style in (
                    (f"true density ({s['smooth']})", truth, "--"),
                    ("estimate", value, "-"),
                )
            ]
    return checks, curves


def _paths(request: Request, base: Task, theta: Floats, cells: int) -> Part:
    """Compare what is drawn when asked, aggregate, with whole records, report by report."""
    runs = whole(request, "path_runs")
    task = replace(base, n=whole(request, "path_users"), T=whole(request, "path_T"))
    population = SeriesUsers(task.n, task.T, theta, cells)
    asked = np.array([task.run(task.protocol, population, request, k)[0] for k in range(runs)])
    mass = population.density.on_grid(cells) / cells
    whole_records = []
    for k in range(runs):
        seed = digest64("density-error, whole", request.seed, k) >> 1
        rng = np.random.default_rng(seed)
        x = midpoints(cells)[rng.choice(cells, task.n * task.T, p=mass / mass.sum())]
        users = Users.from_samples(fresh_ids(task.n, rng), np.arange(task.n + 1) * task.T, x)
        value = execute(task.protocol, users, Options(seed=seed)).estimate.value
        whole_records.append(math.nan if value is None else loss(value, population))
    z = deviations(asked, np.array(whole_records))
    quantity = "aggregate and per-user path: |difference of ISE| / standard error"
    return [line(request, PATHS, quantity, z)], []
