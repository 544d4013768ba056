"""The tables of minimax rates and Figure 1 as curves, with measured points. NOT PRIVATE.

Rates are drawn with constants of 1. The formulas of the tables are as restored from the text of
[1]_; that of central user-level privacy is Levy et al.'s.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Tables 1 to 4 and Figure 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.protocols import Density, MeanL2, MeanLinf
from fedhist.users.batch import Users
from simulations.experiments.experiment import Findings, Request, Result, mean_and_error, power_law
from simulations.experiments.local_populations import ball_means, box_means
from simulations.experiments.local_runs import measure, naive_mse
from simulations.experiments.sparse_selection import Task
from simulations.populations.density_samples import DensitySamples
from simulations.runs.run import Options, execute

BOX, BALL = "Table 2: box", "Table 2: ball"
SPARSE, DENSITY = "Table 3: sparse", "Table 4: density"
FIGURE = "Figure 1: item level with n T users over user level"
Measured = tuple[float, float | None]
Rate = Callable[[float], float]
STYLES = (":", "-.", "--", "-")


def run(request: Request) -> Result:
    """Measure the four tables, and the ratios of Figure 1."""
    tables = Tables(request)
    for part in (tables.box, tables.ball, tables.sparse, tables.density):
        part()
    e = tables.epsilon
    return tables.found.result(
        "The tables of rates and Figure 1, computed, with measured points",
        "Tables 2 to 4, Figure 1",
        x_label="T, samples per user",
        y_label="squared error",
        notes=(
            "NOT PRIVATE: errors are measured with the truth, that of the population",
            f"epsilon = {e:g}; rates with constants of 1: a curve says how an error moves, and not "
            "where it lies; users drawn anew for each run, sums of reports from their exact law",
            "user level, Theorems 6, 8 and 9: the larger of the rate of small T and that of T "
            "without end, at most the squared diameter; for sparse means the lower bound",
            "item level: n T users of one sample each; its measured constants are those of one-bit "
            "reports (box), Duchi's ball, and one bit about one of d coordinates with a threshold "
            "(sparse)",
            "central user level: d / (n T) + d^2 / (n^2 T epsilon^2) in the box (Levy et al. 2021)",
        ),
        not_judged=("the rates' constants: the paper does not name them",),
        population="users of T samples +-1 (means), or of T samples of a density",
    )


class Tables:
    """Everything that is measured."""

    def __init__(self, request: Request) -> None:
        self.request, self.found = request, Findings(request)
        self.epsilon = request.positive("epsilon")
        self.repeats = request.whole("repeats", 2)

    def table(
        self, name: str, Ts: Sequence[int], measured: Sequence[Measured], rates: Mapping[str, Rate]
    ) -> Floats:
        """Draw a table's rates with the measured points; judge slope and constants."""
        grid = np.geomspace(Ts[0], Ts[-1], 60)
        for (label, rate), style in zip(rates.items(), STYLES, strict=False):
            self.found.draw(name, label, grid, [rate(float(T)) for T in grid], style=style)
        self.found.draw_means(name, "measured, user level", Ts, measured, "o", " ")
        mean = np.array([m for m, _ in measured])
        least, most = (self.request.whole(f"slope_{end}") for end in ("from", "to"))
        some = [i for i, T in enumerate(Ts) if least <= T <= most]
        if len(some) > 1:
            slope = power_law(np.array(Ts)[some], mean[some])[0]
            self.found.check(name, "log-log slope in T", slope)
        ratio = mean / np.array([rates["user level, local"](float(T)) for T in Ts])
        ratio = ratio[np.array(Ts) <= most]  # the plateau's constant c is not named
        self.found.check(name, "least measured / rate", float(ratio.min()))
        self.found.check(name, "most measured / rate", float(ratio.max()))
        return mean

    def figure(self, label: str, Ts: Sequence[int], mean: Floats, item: Floats, rate: Rate) -> None:
        """Draw item level over user level: the rates' ratio, and that of the measured constants."""
        ratio = item / mean
        self.found.draw(FIGURE, f"{label}, measured", Ts, ratio, marker="o", style=" ")
        grid = np.geomspace(Ts[0], Ts[-1], 60)
        self.found.draw(FIGURE, f"{label}, rates", grid, [rate(float(T)) for T in grid], style="--")
        self.found.check(FIGURE, f"{label}: most item level / measured", float(ratio.max()))
        self.found.check(FIGURE, f"{label}: item level / measured at the largest T", ratio[-1])

    def means(
        self, kind: type[MeanLinf | MeanL2], make: Callable[..., Users],
        n: int, d: int, Ts: Sequence[int], most: float,
    ) -> list[Measured]:  # fmt: skip
        """Measure means drawn anew, uniform up to ``most`` in every coordinate."""
        found = list[Measured]()
        for T in Ts:

            def users(rng: np.random.Generator, T: int = T) -> tuple[Users, Floats]:
                theta = rng.uniform(-most, most, d)
                return make(n, T, theta, rng), theta

            protocol = kind(self.epsilon, n, d, T)
            errors = measure(protocol, users, self.repeats, self.request.seed)
            found.append((errors.mean, errors.stderr))
        return found

    # -- the tables

    def box(self) -> None:
        """Measure means in a box, for which user level is never better than item level."""
        n, d, Ts = (self.request.whole("box_n"), self.request.whole("box_d"),
                    self.request.wholes("box_T"))  # fmt: skip
        e, measured = self.epsilon, self.means(MeanLinf, box_means, n, d, Ts, 0.8)

        def item(T: float) -> float:
            return d * d / (n * T * e**2)

        def user(T: float) -> float:
            return rate_box(n, T, e, d)

        rates: dict[str, Rate] = {
            "without privacy": lambda T: d / (n * T),
            "user level, central": lambda T: d / (n * T) + d * d / (n * n * T * e**2),
            "item level, local": item,
            "user level, local": user,
        }
        mean = self.table(BOX, Ts, measured, rates)
        bits = np.array([naive_mse(e, n * T, d) for T in Ts])
        self.figure("box", Ts, mean, bits, lambda T: item(T) / user(T))

    def ball(self) -> None:
        """Measure means in a ball, whose error is linear in d."""
        n, d, Ts = (self.request.whole("ball_n"), self.request.whole("ball_d"),
                    self.request.wholes("T"))  # fmt: skip
        e = self.epsilon
        measured = self.means(MeanL2, ball_means, n, d, Ts, 0.5 / math.sqrt(d))
        rates: dict[str, Rate] = {
            "without privacy": lambda T: 1 / (n * T),
            "item level, local": lambda T: d / (n * T * e**2),
            "user level, local": lambda T: rate_ball(n, T, e, d),
        }
        self.table(BALL, Ts, measured, rates)

    def sparse(self) -> None:
        """Measure sparse means, for which user level beats item level."""
        names = ("sparse_n", "sparse_d", "s")
        n, d, s = (self.request.whole(name) for name in names)
        Ts, e = self.request.wholes("sparse_T"), self.epsilon
        base = Task(e, n, 1, d, s, self.request.positive("amplitude"))
        tasks = [replace(base, T=T) for T in Ts]
        measured = [
            mean_and_error(t.losses(t.protocol(), self.request, "rates", self.repeats))
            for t in tasks
        ]

        def item(T: float) -> float:
            return s * d * math.log(math.e * d / s) / (n * T * e**2)

        def user(T: float) -> float:
            return rate_sparse(n, T, e, d, s)

        rates: dict[str, Rate] = {
            "without privacy": lambda T: s * math.log(math.e * d / s) / (n * T),
            "item level, local": item,
            "user level, local": user,
            "selection, upper bound": lambda T: min(
                s * base.amplitude**2,
                s * math.log(d) / T + s * s * math.log(n * e**2 * T) / (n * T * e**2),
            ),
        }
        mean = self.table(SPARSE, Ts, measured, rates)
        nothing = s * base.amplitude**2
        items = np.array([min(nothing, t.item_level) for t in tasks])
        self.figure("sparse", Ts, mean, items, lambda T: min(nothing, item(T)) / user(T))

    def density(self) -> None:
        """Measure densities, whose rates are powers with the smoothness in them."""
        n, Ts = self.request.whole("density_n"), self.request.wholes("density_T")
        e, beta = self.epsilon, self.request.positive("smoothness")
        measured = [mean_and_error(self._density(n, T, beta)) for T in Ts]
        rates: dict[str, Rate] = {
            "without privacy": lambda T: (n * T) ** (-2 * beta / (2 * beta + 1)),
            "item level, local": lambda T: (n * T * e**2) ** (-2 * beta / (2 * beta + 2)),
            "user level, local": lambda T: rate_density(n, T, e, beta),
            "item level, central": lambda T: (
                (n * T) ** (-2 * beta / (2 * beta + 1)) + (n * T * e) ** (-2 * beta / (beta + 1))
            ),
        }
        self.table(DENSITY, Ts, measured, rates)

    def _density(self, n: int, T: int, beta: float) -> Floats:
        """Run on samples drawn anew; integrated squared errors from the density itself."""
        out = []
        for k in range(self.request.whole("density_repeats", 2)):
            seed = digest64("rate-tables", self.request.seed, n, T, k) >> 1
            people = DensitySamples(n_users=n, samples_per_user=T, density="two-bumps", seed=seed)
            protocol = Density(self.epsilon, n, T, smoothness=beta)
            estimate = execute(protocol, people.load().users, Options(seed=seed)).estimate
            value = estimate.needed(protocol)
            out.append(float(np.mean(np.square(value - people.exact.on_grid(len(value))))))
        return np.array(out)


def rate_box(n: float, T: float, epsilon: float, d: int) -> float:
    """Order of the risk of a mean in [-1, 1]^d: [1, Theorem 6], c = 1."""
    a = n * epsilon**2
    return min(4.0 * d, max(d * d / (a * T), d * math.exp(-a / d)))


def rate_ball(n: float, T: float, epsilon: float, d: int) -> float:
    """Order of the risk of a mean in the unit ball: [1, Theorem 6], c = 1."""
    a = n * epsilon**2
    return min(4.0, max(d / (a * T), math.exp(-a / d)))


def rate_sparse(n: float, T: float, epsilon: float, d: int, s: int) -> float:
    """Order of the risk of a mean in [-1, 1]^d with s entries not 0: [1, Theorem 8], c = 1."""
    a = n * epsilon**2
    return min(4.0 * s, max(s / T * math.log1p(d / a), math.exp(-a / s)))


def rate_density(n: float, T: float, epsilon: float, smoothness: float) -> float:
    """Order of the integrated squared error of a density: [1, Theorem 9], c = 1."""
    a, b = n * epsilon**2, smoothness
    with np.errstate(over="ignore"):
        return float(max((a * T) ** (-2 * b / (2 * b + 2)), a ** (-2 * b)))
