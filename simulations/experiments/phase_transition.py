"""Error of a mean under user-level local privacy against samples per user [1]_. NOT PRIVATE.

It falls as 1 / T up to T* = e^(c n epsilon^2), where it stops: the vote then fails on finer bins.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.1, Theorem 6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.protocols import Mean
from fedhist.users.batch import Users
from server.modes import Mode
from simulations.experiments.experiment import Findings
from simulations.experiments.local_runs import Errors, Grid, coin_means, log_slope, naive_mse

STEADY, FLAT, BEND = "before the plateau", "the plateau", "the bend"
PRINTED = "the paper's mode"
CHANNELS = ("laplace", "onebit", "piecewise")


def run(findings: Findings) -> None:
    """Measure the three panels."""
    p = Phases(findings)
    for part in (p.against_samples, p.channels, p.plateau, p.bend):
        part()


class Phases(Grid):
    """Everything that is measured."""

    def mean(self, n: int, T: int, kind: str = "auto", mode: Mode = "default") -> Mean:
        """Build the protocol: a vote and clipped reports, which is what the paper is about."""
        given: dict[str, Any] = {"low": -1.0, "high": 1.0, "kind": kind, "mode": mode}
        if mode == "default":
            given["method"] = "vote"
        return Mean(self.settings.epsilon, n, T, **given)

    def errors(self, protocol: Mean, T: int) -> Errors:
        """Measure a point, once."""
        spread, taken = self.settings.spread, min(T, protocol.plan.max_items or T)

        def population(rng: np.random.Generator) -> tuple[Users, Floats]:
            theta = rng.uniform(-spread, spread)
            return coin_means(protocol.n_users, taken, theta, rng), np.array([theta])

        reach = 2 * protocol.plan.half_width
        return self.once(protocol, population, self.settings.repeats, T, reach=reach)

    def row(
        self, n: int, Ts: Sequence[int], kind: str = "auto", mode: Mode = "default"
    ) -> list[Errors]:
        """Measure the mean at several T."""
        return [self.errors(self.mean(n, T, kind, mode), T) for T in Ts]

    def risk(self, points: Sequence[tuple[int, int]]) -> Floats:
        """Return the planned errors of (n, T)."""
        return np.array([self.mean(n, T).plan.risk for n, T in points])

    def against_samples(self) -> None:
        """Draw the phase transition for several n, and judge the slopes before the plateau."""
        s, panel = self.settings, "channel auto, for several n"
        for n in s.n_users:
            self.draw_errors(panel, f"n = {n:,}", s.samples, self.row(n, s.samples))
            risk = self.risk([(n, T) for T in s.samples])
            self.findings.draw(panel, "planned risk", s.samples, risk, style="--")
        Ts = s.steady_samples
        slopes = [_slope(Ts, self.row(n, Ts)) for n in s.steady_users]
        self.findings.check(STEADY, "auto: steepest log-log slope in T, over n", *min(slopes))
        self.findings.check(STEADY, "auto: flattest log-log slope in T, over n", *max(slopes))

    def channels(self) -> None:
        """Judge the constants before the plateau, and the paper's mode; draw all of one n."""
        s, n = self.settings, self.settings.panel_users
        Ts, at = s.steady_samples, np.array(s.steady_samples)
        panel = f"n = {n:,}: channels, the paper's mode and the baselines"
        for kind, marker in zip(CHANNELS, "P<>", strict=True):
            rows = [(users, self.row(users, Ts, kind)) for users in s.steady_users]
            mean = np.array([users * at * [e.mean for e in row] for users, row in rows])
            stderr = np.array([users * at * [e.stderr for e in row] for users, row in rows])
            least, most = (mean + 2 * stderr).min(), (mean - 2 * stderr).max()
            self.findings.check(STEADY, f"{kind}: least n T MSE, + 2 stderr", least)
            self.findings.check(STEADY, f"{kind}: most n T MSE, - 2 stderr", most)
            self.findings.check(STEADY, f"{kind}: average n T MSE", float(mean.mean()))
            self.draw_errors(panel, kind, Ts, self.row(n, Ts, kind), marker)
        self.draw_errors(panel, PRINTED, Ts, self.row(n, Ts, mode="paper"), "X")
        slope = _slope(Ts, self.row(s.paper_users, Ts, mode="paper"))
        self.findings.check(PRINTED, "log-log slope in T", *slope)
        bit = naive_mse(s.epsilon, n)
        # a sample +-1 has variance 1 at most; a bit is as spread as it can be
        laplace = naive_mse(s.epsilon, n, kind="laplace", item_variance=1.0)
        self.findings.draw(panel, "naive: one sample, formula", at, bit, style="-.")
        self.findings.draw(panel, "item level, Laplace, formula", at, laplace / at, style=":")
        self.findings.draw(panel, "item level, one bit, formula", at, bit / at, style="--")

    def plateau(self) -> None:
        """Judge how the plateau falls with n, of the runs whose vote succeeded."""
        s, ns, T = self.settings, self.settings.plateau_users, self.settings.plateau_samples
        errors = [self.errors(self.mean(n, T), T) for n in ns]
        flat, risk = np.array([e.localized for e in errors]), self.risk([(n, T) for n in ns])
        relative = math.sqrt(2 / s.repeats)  # of a mean of squared Gaussians
        slope = log_slope(ns, flat, np.full(len(ns), relative))
        self.findings.check(FLAT, "slope of ln MSE in n", *slope)
        self.findings.check(FLAT, "slope of the plans' ln risk in n", log_slope(ns, risk)[0])
        ratio = float(np.exp(np.log(flat / risk).mean()))
        self.findings.check(FLAT, "MSE / planned risk, geometric mean", ratio)
        missed = float(np.mean([e.missed for e in errors]))
        self.findings.check(FLAT, "share of runs whose vote failed", missed)
        panel, axes = f"the plateau, T = {T:.1g}, against n", {"x_label": "n, users"}
        self.findings.draw(
            panel, "runs whose vote succeeded", ns, flat, flat * relative, "x", " ", **axes
        )
        self.findings.draw(panel, "planned risk", ns, risk, style="--", **axes)

    def bend(self) -> None:
        """Judge where the line of slope -1 meets the plateau."""
        s, flat_at, at = self.settings, self.settings.plateau_samples, []
        for n in s.bend_users:
            cap = self.mean(n, flat_at).plan.n_bins ** 2
            # well before the bend, and where a vote pays
            Ts = [T for T in s.samples if 64 <= T <= max(64, cap / 64)]
            constant = np.mean([n * T * e.mean for T, e in zip(Ts, self.row(n, Ts), strict=True)])
            flat = self.errors(self.mean(n, flat_at), flat_at).localized
            at.append(float(constant) / (n * flat) / cap)
        self.findings.check(BEND, "least T of the bend / N^2", min(at))
        self.findings.check(BEND, "most T of the bend / N^2", max(at))


def _slope(Ts: Sequence[int], errors: Sequence[Errors]) -> tuple[float, float]:
    """Fit ln MSE against ln T: slope and standard error."""
    relative = [e.stderr / e.mean for e in errors]
    return log_slope(np.log(Ts), [e.mean for e in errors], relative)
