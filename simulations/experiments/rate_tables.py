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

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.model.protocol import Protocol
from fedhist.protocols import Density, MeanL2, MeanLinf
from fedhist.users.batch import Users
from simulations.experiments.experiment import Findings, mean_and_error, power_law
from simulations.experiments.local_runs import ball_means, box_means, measure, naive_mse
from simulations.experiments.sparse_selection import Task
from simulations.populations.density_samples import DensitySamples
from simulations.runs.options import Options
from simulations.runs.run import execute

BOX, BALL = "Table 2: box", "Table 2: ball"
SPARSE, DENSITY = "Table 3: sparse", "Table 4: density"
FIGURE = "Figure 1: item level with n T users over user level"
ITEM, USER = "item level, local", "user level, local"
Measured = tuple[float, float | None]
Rate = Callable[[float], float]
STYLES = (":", "-.", "--", "-")


def run(findings: Findings) -> None:
    """Measure the four tables, and the ratios of Figure 1."""
    for part in (_box, _ball, _sparse, _density):
        part(findings)


def _table(
    findings: Findings, name: str, Ts: Sequence[int], measured: Sequence[Measured],
    rates: Mapping[str, Rate],
) -> Floats:  # fmt: skip
    """Draw a table's rates with the measured points; judge slope and constants."""
    s, at, grid = findings.settings, np.array(Ts), np.geomspace(Ts[0], Ts[-1], 60)
    for (label, rate), style in zip(rates.items(), STYLES, strict=False):
        findings.draw(name, label, grid, [rate(float(T)) for T in grid], style=style)
    findings.draw_means(name, "measured, user level", Ts, measured, "o", " ")
    mean = np.array([m for m, _ in measured])
    some = (at >= s.slope_from) & (at <= s.slope_to)
    findings.check(name, "log-log slope in T", power_law(at[some], mean[some])[0])
    ratio = mean / np.array([rates[USER](float(T)) for T in Ts])
    ratio = ratio[at <= s.slope_to]  # the plateau's constant c is not named
    findings.check(name, "least measured / rate", float(ratio.min()))
    findings.check(name, "most measured / rate", float(ratio.max()))
    return mean


def _figure(
    findings: Findings, label: str, Ts: Sequence[int], mean: Floats, item: Floats,
    rates: Mapping[str, Rate],
) -> None:  # fmt: skip
    """Draw item level over user level: the rates' ratio, and that of the measured constants."""
    ratio, grid = item / mean, np.geomspace(Ts[0], Ts[-1], 60)
    theory = [rates[ITEM](float(T)) / rates[USER](float(T)) for T in grid]
    findings.draw(FIGURE, f"{label}, measured", Ts, ratio, marker="o", style=" ")
    findings.draw(FIGURE, f"{label}, rates", grid, theory, style="--")
    findings.check(FIGURE, f"{label}: most item level / measured", float(ratio.max()))
    findings.check(FIGURE, f"{label}: item level / measured at the largest T", ratio[-1])


def _means(
    findings: Findings,
    protocols: Sequence[MeanLinf | MeanL2],
    make: Callable[..., Users],
    most: float,
) -> list[Measured]:
    """Measure means drawn anew, uniform up to ``most`` in every coordinate."""
    measured = list[Measured]()
    for p in protocols:

        def users(rng: np.random.Generator, p: MeanLinf | MeanL2 = p) -> tuple[Users, Floats]:
            theta = rng.uniform(-most, most, p.dimension)
            return make(p.n_users, p.samples_per_user, theta, rng), theta

        errors = measure(p, users, findings.settings.repeats, findings.seed)
        measured.append((errors.mean, errors.stderr))
    return measured


def _box(findings: Findings) -> None:
    """Measure means in a box, for which user level is never better than item level."""
    s = findings.settings
    n, d, e, Ts = s.box_n, s.box_d, s.epsilon, s.box_T
    measured = _means(findings, [MeanLinf(e, n, d, T) for T in Ts], box_means, 0.8)
    rates: dict[str, Rate] = {
        "without privacy": lambda T: d / (n * T),
        "user level, central": lambda T: d / (n * T) + d * d / (n * n * T * e**2),
        ITEM: lambda T: d * d / (n * T * e**2),
        USER: lambda T: rate_box(n, T, e, d),
    }
    mean = _table(findings, BOX, Ts, measured, rates)
    _figure(findings, "box", Ts, mean, np.array([naive_mse(e, n * T, d) for T in Ts]), rates)


def _ball(findings: Findings) -> None:
    """Measure means in a ball, whose error is linear in d."""
    s = findings.settings
    n, d, e, Ts = s.ball_n, s.ball_d, s.epsilon, s.T
    protocols = [MeanL2(e, n, d, T) for T in Ts]
    measured = _means(findings, protocols, ball_means, 0.5 / math.sqrt(d))
    rates: dict[str, Rate] = {
        "without privacy": lambda T: 1 / (n * T),
        ITEM: lambda T: d / (n * T * e**2),
        USER: lambda T: rate_ball(n, T, e, d),
    }
    _table(findings, BALL, Ts, measured, rates)


def _sparse(findings: Findings) -> None:
    """Measure sparse means, for which user level beats item level."""
    settings, e = findings.settings, findings.settings.epsilon
    n, d, s, Ts = settings.sparse_n, settings.sparse_d, settings.s, settings.sparse_T
    tasks = [Task(e, n, T, d, s, settings.amplitude) for T in Ts]
    nothing = tasks[0].nothing
    measured = [
        mean_and_error(t.losses(t.protocol(), findings.seed, "rates", settings.repeats))
        for t in tasks
    ]
    rates: dict[str, Rate] = {
        "without privacy": lambda T: s * math.log(math.e * d / s) / (n * T),
        ITEM: lambda T: min(nothing, s * d * math.log(math.e * d / s) / (n * T * e**2)),
        USER: lambda T: rate_sparse(n, T, e, d, s),
        "selection, upper bound": lambda T: min(
            nothing, s * math.log(d) / T + s * s * math.log(n * e**2 * T) / (n * T * e**2)
        ),
    }
    mean = _table(findings, SPARSE, Ts, measured, rates)
    items = np.array([min(nothing, t.item_level) for t in tasks])
    _figure(findings, "sparse", Ts, mean, items, rates)


def _density(findings: Findings) -> None:
    """Measure densities, whose rates are powers with the smoothness in them."""
    s = findings.settings
    n, e, b, Ts = s.density_n, s.epsilon, s.smoothness, s.density_T
    protocols = [Density(e, n, T, smoothness=b) for T in Ts]
    measured = [
        mean_and_error(_density_losses(p, n, T, s.density_repeats, findings.seed))
        for p, T in zip(protocols, Ts, strict=True)
    ]
    rates: dict[str, Rate] = {
        "without privacy": lambda T: (n * T) ** (-2 * b / (2 * b + 1)),
        ITEM: lambda T: (n * T * e**2) ** (-2 * b / (2 * b + 2)),
        USER: lambda T: rate_density(n, T, e, b),
        "item level, central": lambda T: (
            (n * T) ** (-2 * b / (2 * b + 1)) + (n * T * e) ** (-2 * b / (b + 1))
        ),
    }
    _table(findings, DENSITY, Ts, measured, rates)


def _density_losses(protocol: Protocol, n: int, T: int, repeats: int, seed: int) -> Floats:
    """Run on samples drawn anew; integrated squared errors from the density itself."""
    out = []
    for k in range(repeats):
        own = digest64("rate-tables", seed, n, T, k) >> 1
        people = DensitySamples(n_users=n, samples_per_user=T, density="two-bumps", seed=own)
        estimate = execute(protocol, people.load().users, Options(seed=own)).estimate
        value = estimate.needed(protocol)
        out.append(float(np.mean(np.square(value - people.at_middles(len(value))))))
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
