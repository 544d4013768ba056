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
from fedhist.channels.scalar import scalar_channel
from fedhist.model.modes import Mode
from fedhist.protocols import Mean, NaiveMean
from fedhist.users.batch import Users
from simulations.experiments.experiment import Request, Result
from simulations.experiments.local_populations import coin_means
from simulations.experiments.local_runs import EXACT, Clients, Errors, Grid, log_slope

STEADY, ONE, FLAT, BEND = "before the plateau", "one sample a user", "the plateau", "the bend"
BASELINES = "baselines"
CHANNELS = ("laplace", "onebit", "piecewise")
MODES: tuple[Mode, Mode] = ("paper", "default")


def run(request: Request) -> Result:
    """Measure the three panels."""
    p = Phases(request)
    for part in (p.steady, p.one_sample, p.plateau, p.bend, p.baselines):
        part()
    for part in (p.against_samples, p.of_all_kinds, p.against_users):
        part()
    auto = scalar_channel("auto", p.epsilon).kind
    return p.found.result(
        "Mean under local privacy: error against samples per user",
        "Theorem 6",
        x_label="T, samples per user (last panel: n, users)",
        y_label="mean squared error",
        notes=(
            *EXACT,
            f"epsilon = {p.epsilon:g} per user, samples +-1 in [-1, 1]; {p.repeats} runs per "
            f"point, each with a mean from [-{p.spread:g}, {p.spread:g}] drawn anew; channel auto: "
            f"{auto}",
            "mode paper takes the first T* samples: its users hold means of min(T, T*)",
            "a vote counts as failed if the estimate is farther off than the refined interval is "
            "wide; the panel of the plateau leaves such runs out",
            "item level: one noisy report for each of the n T samples, which protects a sample "
            "and not a user; naive: one noisy report of a user's mean, or of one sample",
        ),
        not_judged=("the constant c of Theorem 6: the paper does not name it",),
        population="users with T samples +-1 each, of one common mean",
    )


class Phases(Grid):
    """Everything that is measured."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.repeats = request.whole("repeats", 2)

    def mean(self, n: int, T: int, kind: str = "auto", mode: Mode = "default") -> Mean:
        """Build the protocol: a vote and clipped reports, which is what the paper is about."""
        given: dict[str, Any] = {"low": -1.0, "high": 1.0, "kind": kind, "mode": mode}
        if mode == "default":
            given["method"] = "vote"
        return Mean(self.epsilon, n, T, **given)

    def errors(self, protocol: Mean | NaiveMean, T: int, clients: Clients = "aggregate") -> Errors:
        """Measure a point, once."""
        held, reach = T, math.inf
        if isinstance(protocol, Mean):
            held = min(T, protocol.plan.max_items or T)
            reach = 2 * protocol.plan.half_width

        def population(rng: np.random.Generator) -> tuple[Users, Floats]:
            theta = rng.uniform(-self.spread, self.spread)
            return coin_means(protocol.n_users, held, theta, rng), np.array([theta])

        return self.once(protocol, population, self.repeats, T, clients=clients, reach=reach)

    def row(
        self, n: int, Ts: Sequence[int], kind: str = "auto", mode: Mode = "default"
    ) -> list[Errors]:
        """Measure the mean at several T."""
        return [self.errors(self.mean(n, T, kind, mode), T) for T in Ts]

    def naive(self, n: int, Ts: Sequence[int]) -> list[Errors]:
        """Measure the naive one at several T: Laplace noise on a user's mean."""
        return [self.errors(NaiveMean(self.epsilon, n, kind="laplace"), T) for T in Ts]

    def localized(self, ns: Sequence[int], T: int) -> Floats:
        """Return the errors of runs whose vote succeeded."""
        return np.array([self.errors(self.mean(n, T), T).localized for n in ns])

    def risk(self, points: Sequence[tuple[int, int]]) -> list[float]:
        """Return the planned errors of (n, T)."""
        return [self.mean(n, T).plan.risk for n, T in points]

    # -- checks

    def steady(self) -> None:
        """Judge slope and constants before the plateau."""
        ns, Ts = self.wholes("steady_users"), self.wholes("steady_samples")
        slopes = [_slope(Ts, self.row(n, Ts)) for n in ns]
        self.check(STEADY, "auto: steepest log-log slope in T, over n", *min(slopes))
        self.check(STEADY, "auto: flattest log-log slope in T, over n", *max(slopes))
        for kind in CHANNELS:
            points = [
                (n * T, e) for n in ns for T, e in zip(Ts, self.row(n, Ts, kind), strict=True)
            ]
            mean, stderr = (np.array([k * getattr(e, a) for k, e in points])
                            for a in ("mean", "stderr"))  # fmt: skip
            self.check(STEADY, f"{kind}: least n T MSE, + 2 stderr", (mean + 2 * stderr).min())
            self.check(STEADY, f"{kind}: most n T MSE, - 2 stderr", (mean - 2 * stderr).max())
            self.check(STEADY, f"{kind}: average n T MSE", float(np.mean(mean)))
        found = self.errors(self.mean(2000, 1024, "laplace"), 1024)
        self.check(STEADY, "laplace, n = 2000, T = 1024: MSE", found.mean, found.stderr)

    def one_sample(self) -> None:
        """Judge T = 1: one round."""
        ns = self.wholes("n_users")
        self.check(ONE, "most bins at T = 1", max(self.mean(n, 1).plan.n_bins for n in ns))
        # a report of +-1 has the channel's variance there; the coin adds 1 - theta^2
        one = float(scalar_channel("auto", self.epsilon).variance(1.0)) + 1 - self.spread**2 / 3
        found = [self.errors(self.mean(n, 1), 1) for n in ns]
        ratio = np.array([n * e.mean / one for n, e in zip(ns, found, strict=True)])
        errors = np.array([n * e.stderr / one for n, e in zip(ns, found, strict=True)])
        stderr = float(np.sqrt(np.square(errors).sum())) / len(ns)
        self.check(ONE, "MSE / that of n reports of +-1, all n", float(ratio.mean()), stderr)

    def plateau(self) -> None:
        """Judge how the plateau falls with n."""
        ns, T = self.wholes("plateau_users"), self.whole("plateau_samples")
        flat = self.localized(ns, T)
        relative = math.sqrt(2 / self.repeats)  # of a mean of squared Gaussians
        slope = log_slope(ns, flat, np.full(len(ns), relative))
        self.check(FLAT, "slope of ln MSE in n", *slope)
        risk = np.array(self.risk([(n, T) for n in ns]))
        self.check(FLAT, "slope of the plans' ln risk in n", log_slope(ns, risk)[0])
        ratio = float(np.exp(np.log(flat / risk).mean()))
        self.check(FLAT, "MSE / planned risk, geometric mean", ratio)
        missed = [self.errors(self.mean(n, T), T).missed for n in ns]
        self.check(FLAT, "share of runs whose vote failed", float(np.mean(missed)))

    def bend(self) -> None:
        """Judge where the line of slope -1 meets the plateau."""
        flat_at, found = self.whole("plateau_samples"), []
        for n in self.wholes("bend_users"):
            cap = self.mean(n, flat_at).plan.n_bins ** 2
            # well before the bend, and where a vote pays
            Ts = [T for T in self.wholes("samples") if 64 <= T <= max(64, cap / 64)]
            constant = np.mean([n * T * e.mean for T, e in zip(Ts, self.row(n, Ts), strict=True)])
            found.append(float(constant) / (n * float(self.localized([n], flat_at)[0])) / cap)
        self.check(BEND, "least T of the bend / N^2", min(found))
        self.check(BEND, "most T of the bend / N^2", max(found))

    def baselines(self) -> None:
        """Judge the naive report and the paper's own constants."""
        n, Ts = self.whole("panel_users"), self.wholes("steady_samples")
        found = self.naive(n, Ts)
        self.check(BASELINES, "naive user means: log-log slope in T", *_slope(Ts, found))
        scale = n * self.epsilon**2
        level = scale * float(np.mean([e.mean for e in found]))
        stderr = scale * float(np.sqrt(np.sum([e.stderr**2 for e in found]))) / len(found)
        self.check(BASELINES, "naive user means: n epsilon^2 MSE", level, stderr)
        many = self.whole("paper_users")
        slope = _slope(Ts, self.row(many, Ts, mode="paper"))
        self.check(BASELINES, "paper's mode: log-log slope in T", *slope)
        T = max(Ts)
        paper, ours = (self.errors(self.mean(many, T, mode=m), T).mean for m in MODES)
        self.check(BASELINES, f"paper's mode / default: MSE at n = {many}, T = {T}", paper / ours)

    # -- figure

    def against_samples(self) -> None:
        """Draw the phase transition for several n."""
        panel, Ts = "channel auto, for several n", self.wholes("samples")
        for n in self.wholes("n_users"):
            self.draw_errors(panel, f"n = {n:,}", Ts, self.row(n, Ts))
            self.draw(panel, "planned risk", Ts, self.risk([(n, T) for T in Ts]), style="--")

    def of_all_kinds(self) -> None:
        """Draw everything that can be done with the same users."""
        n, Ts = self.whole("panel_users"), self.wholes("steady_samples")
        panel, at = f"n = {n:,}: channels, the paper's mode and the baselines", np.array(Ts)
        for kind, marker in zip(CHANNELS, "P<>", strict=True):
            self.draw_errors(panel, kind, Ts, self.row(n, Ts, kind), marker)
        self.draw_errors(panel, "the paper's mode", Ts, self.row(n, Ts, mode="paper"), "X")
        self.draw_errors(panel, "naive: user means", Ts, self.naive(n, Ts), "*")
        bit = self.formula(n)
        self.draw(panel, "naive: one sample, formula", at, bit, style="-.")
        # a sample +-1 has variance 1 at most; a bit is as spread as it can be
        laplace = self.formula(n, kind="laplace", item_variance=1.0)
        self.draw(panel, "item level, Laplace, formula", at, laplace / at, style=":")
        self.draw(panel, "item level, one bit, formula", at, bit / at, style="--")

    def against_users(self) -> None:
        """Draw the plateau."""
        ns, T = self.wholes("plateau_users"), self.whole("plateau_samples")
        panel, flat = f"the plateau, T = {T:.1g}, against n", self.localized(ns, T)
        yerr = flat * math.sqrt(2 / self.repeats)
        self.draw(panel, "runs whose vote succeeded", ns, flat, yerr, "x", " ")
        self.draw(panel, "planned risk", ns, self.risk([(n, T) for n in ns]), style="--")
        naive = [self.formula(n, kind="laplace") for n in ns]
        self.draw(panel, "naive: user means, formula", ns, naive, style="-.")


def _slope(Ts: Sequence[int], found: Sequence[Errors]) -> tuple[float, float]:
    """Fit ln MSE against ln T: slope and standard error."""
    relative = [e.stderr / e.mean for e in found]
    return log_slope(np.log(Ts), [e.mean for e in found], relative)
