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
from server.densities.plan import tail_energy
from server.densities.series import GRID, midpoints
from simulations.experiments.asked_users import SeriesUsers
from simulations.experiments.experiment import Findings, Request, Result, mean_and_error, power_law
from simulations.experiments.local_runs import largest_ratio
from simulations.populations.density_samples import DensitySamples

RATE, PLATEAU, SHRINKING = "rate in T", "plateau", "James-Stein"


@dataclass(frozen=True)
class Task:
    """What is public.

    ``smoothness``, ``radius``: beta and r of the Sobolev ellipsoid.
    """

    epsilon: float
    n: int
    T: int
    smoothness: float
    radius: float

    @property
    def protocol(self) -> Density:
        """The protocol, which chooses its level."""
        return Density(
            self.epsilon,
            self.n,
            self.T,
            smoothness=self.smoothness,
            radius=self.radius,
            basis="fourier",
            method="folds",
        )

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
        value = population.run(protocol, tag >> 1).needed(f"n = {self.n}, T = {self.T}")
        return loss(value, population), value

    def losses(
        self, protocol: Density, population: SeriesUsers, request: Request, runs: int
    ) -> Floats:
        """Run several times: integrated squared errors (runs,)."""
        return np.array([self.run(protocol, population, request, k)[0] for k in range(runs)])

    def users(self, theta: Floats, cells: int) -> SeriesUsers:
        """Build the population with these coefficients."""
        return SeriesUsers(self.n, self.T, theta, cells)


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
    cells, degree = request.whole("cells"), request.whole("degree")
    budget, smooth = request.positive("epsilon"), request.positive("smoothness")
    base = Task(budget, 1, 1, smooth, request.positive("radius"))
    theta = rough(degree, request.positive("energy"))
    if SeriesUsers(1, 1, theta).density.on_grid(1 << 12).min() < 0:
        raise ValueError(f"energy must leave the density positive, got {s['energy']}")
    found = Findings(request)
    for part in (_against_samples, _shrinking):
        part(found, base, theta, cells)
    return found.result(
        "Integrated squared error of a density against samples per user",
        "Theorem 9",
        x_label="T, samples per user",
        y_label="integrated squared error",
        notes=(
            "NOT PRIVATE: errors are measured with the truth, the density of the population",
            f"epsilon = {base.epsilon:g} per user and record, local; the level is chosen for beta "
            f"= {base.smoothness:g}, r = {base.radius:g}; users drawn anew for each run",
            "aggregate path: sums of votes and of reports are drawn from their exact law, and so "
            "is, when a user is asked, the mean of T samples that it answers about",
            f"samples lie on {cells} midpoints; the coefficients in use are the density's own",
            "item level: n T users of one sample and one bit, at the best level for this density; "
            "naive: n users of one sample each, whatever T is (the same formula; T = 1 measures "
            "the protocol there)",
        ),
        population=f"a density with coefficients as j^-1.5 up to frequency {degree}",
    )


def _against_samples(found: Findings, base: Task, theta: Floats, cells: int) -> None:
    request = found.request
    panel, Ts = "against T: marks measured, lines theory", request.wholes("T")
    ns, repeats = request.wholes("n"), request.wholes("repeats")
    if len(repeats) != len(ns):
        raise ValueError(f"repeats must be one for each n, got {repeats}")
    x, rows, theories = np.array(Ts, dtype=np.float64), [], []
    for n, runs in zip(ns, repeats, strict=True):
        tasks = [replace(base, n=n, T=T) for T in Ts]
        theories.append([t.predicted(theta) for t in tasks])
        rows.append(
            [mean_and_error(t.losses(t.protocol, t.users(theta, cells), request, runs))
             for t in tasks]
        )  # fmt: skip
    for n, row, theory in zip(ns, rows, theories, strict=True):
        terms = [replace(base, n=n, T=T).protocol.terms for T in Ts]
        found.draw_means(panel, f"n = {n:,}", Ts, row, style=" ")
        found.draw(panel, "predicted", Ts, theory, style="-")
        found.check(PLATEAU, f"ISE at the largest T, n = {n:,}", *row[-1])
        flat_from = Ts[terms.index(terms[-1])]
        found.check(PLATEAU, f"T from which the level stays, n = {n:,}", flat_from)
    y, predicted = np.array([[m for m, _ in row] for row in rows]), np.array(theories)
    flat = np.array(ns) <= request.whole("plateau_n")
    if flat.sum() > 1:
        many = np.array(ns)[flat]
        quantity = "log-log slope in n of the ISE at the largest T"
        found.check(PLATEAU, quantity, power_law(many, y[flat, -1])[0])
        found.check(PLATEAU, "the same, predicted", power_law(many, predicted[flat, -1])[0])
    most = ns[-1]
    items = np.array([t.item_level(theta, t.n * t.T) for t in tasks])
    naive = tasks[0].item_level(theta, most)
    found.draw(panel, f"item level, n = {most:,}", Ts, items, style="-.")
    found.draw(panel, f"naive, one sample a user, n = {most:,}", Ts, naive, style=":")
    some = (x >= request.whole("rate_from")) & (x <= request.whole("rate_to"))
    if some.sum() > 1:
        slope, planned = (power_law(x[some], v[-1, some])[0] for v in (y, predicted))
        found.check(RATE, "log-log slope in T at the most users", slope)
        found.check(RATE, "the same, predicted", planned)
    largest = largest_ratio([f for row in rows for f in row], predicted.ravel())
    found.check(RATE, "largest measured / predicted, - 2 stderr", largest)
    found.check(RATE, "least measured / predicted", float((y / predicted).min()))
    found.check(RATE, "naive / measured at the largest T", float(naive / y[-1, -1]))
    found.check(RATE, "measured / item level at the largest T", float(y[-1, -1] / items[-1]))


def _shrinking(found: Findings, base: Task, theta: Floats, cells: int) -> None:
    """Measure shrinkage on a smooth density, and draw one estimate of it over the truth."""
    request, name = found.request, str(found.request.settings["smooth"])
    smooth = DensitySamples(n_users=1, samples_per_user=1, density=name)
    n, T, runs = request.whole("shrink_n"), request.whole("shrink_T"), request.whole("runs")
    for where, coefficients, radius in (
        (f"density {name}", smooth.exact.coefficients, "smooth_radius"),
        ("the density above", theta, "radius"),
    ):
        task = replace(base, n=n, T=T, radius=request.positive(radius))
        users = task.users(coefficients, cells)
        one = [task.run(task.protocol, users, request, k) for k in range(runs)]
        ours = float(np.mean([x for x, _ in one]))
        plain = replace(task.protocol, shrink=False)
        for protocol, quantity in (
            (plain, "ISE shrunk / not shrunk"),
            (replace(plain, project=False), "ISE shrunk and projected / neither"),
        ):
            theirs = float(np.mean(task.losses(protocol, users, request, runs)))
            found.check(SHRINKING, f"{quantity}, {where}", ours / theirs)
        if coefficients is theta:
            continue
        ise, value = one[0]
        tail = tail_energy(task.protocol.terms, task.smoothness, task.radius)
        found.check(SHRINKING, "level of the estimate drawn", task.protocol.terms)
        found.check(SHRINKING, "energy that the ellipsoid may leave out", tail)
        panel, at = f"one estimate: n = {n:,}, T = {T:,}, ISE {ise:.2g}", midpoints(GRID)
        axes = {"y_label": "density", "x_label": "x", "log": ""}
        truth = users.density.on_grid()
        found.draw(panel, f"true density ({name})", at, truth, style="--", **axes)
        found.draw(panel, "estimate", at, value, style="-", **axes)
