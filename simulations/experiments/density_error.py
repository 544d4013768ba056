"""Error of a density under user-level local privacy, against samples per user [1]_. NOT PRIVATE.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 5, eq. (49), (50), Theorem 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from server.densities.density import Density
from simulations.experiments.asked_users import SeriesUsers
from simulations.experiments.experiment import Findings, mean_and_error, power_law
from simulations.experiments.local_runs import largest_ratio

RATE, PLATEAU = "rate in T", "plateau"


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

    def losses(self, theta: Floats, cells: int, seed: int, runs: int) -> Floats:
        """Run on users drawn anew; integrated squared errors (runs,)."""
        population, out = SeriesUsers(self.n, self.T, theta, cells), []
        for k in range(runs):
            tag = digest64("density-error", seed, repr(self), len(theta), k)
            estimate = population.run(self.protocol, tag >> 1)
            out.append(loss(estimate.needed(f"n = {self.n}, T = {self.T}"), population))
        return np.array(out)


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


def run(findings: Findings) -> None:
    """Measure the error against T for several n."""
    s = findings.settings
    theta = rough(s.degree, s.energy)
    if SeriesUsers(1, 1, theta).density.on_grid(1 << 12).min() < 0:
        raise ValueError(f"energy must leave the density positive, got {s.energy}")
    x, ns = np.array(s.T, dtype=np.float64), np.array(s.n)
    panel, rows, theories = "against T: marks measured, lines theory", [], []
    for n, runs in zip(s.n, s.repeats, strict=True):
        tasks = [Task(s.epsilon, n, T, s.smoothness, s.radius) for T in s.T]
        row = [mean_and_error(t.losses(theta, s.cells, findings.seed, runs)) for t in tasks]
        rows.append(row)
        theories.append([t.predicted(theta) for t in tasks])
        findings.draw_means(panel, f"n = {n:,}", s.T, row, style=" ")
        findings.draw(panel, "predicted", s.T, theories[-1], style="-")
        findings.check(PLATEAU, f"ISE at the largest T, n = {n:,}", *row[-1])
    y, predicted = np.array([[m for m, _ in row] for row in rows]), np.array(theories)
    flat = ns <= s.plateau_n
    quantity = "log-log slope in n of the ISE at the largest T"
    findings.check(PLATEAU, quantity, power_law(ns[flat], y[flat, -1])[0])
    findings.check(PLATEAU, "the same, predicted", power_law(ns[flat], predicted[flat, -1])[0])
    some = (x >= s.rate_from) & (x <= s.rate_to)
    for what, v in (
        ("log-log slope in T at the most users", y),
        ("the same, predicted", predicted),
    ):
        findings.check(RATE, what, power_law(x[some], v[-1, some])[0])
    largest = largest_ratio([m for row in rows for m in row], predicted.ravel())
    findings.check(RATE, "largest measured / predicted, - 2 stderr", largest)
    items = np.array([t.item_level(theta, t.n * t.T) for t in tasks])
    naive = tasks[0].item_level(theta, s.n[-1])
    findings.check(RATE, "naive / measured at the largest T", float(naive / y[-1, -1]))
    findings.check(RATE, "measured / item level at the largest T", float(y[-1, -1] / items[-1]))
    most = f"n = {s.n[-1]:,}"
    findings.draw(panel, f"item level, {most}", s.T, items, style="-.")
    findings.draw(panel, f"naive, one sample a user, {most}", s.T, naive, style=":")
