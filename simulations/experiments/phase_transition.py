"""Error of a mean under user-level local privacy against samples per user [1]_. NOT PRIVATE.

It falls as 1 / T up to T* = e^(c n epsilon^2), where it stops: the vote then fails on finer bins.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.1, Theorem 6.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.channels.catalogue import UnaryChannel, scalar_channel
from fedhist.model.protocol import Mode
from fedhist.protocols import Mean, NaiveMean
from fedhist.protocols.means.theory import exact_two_stage_mse
from fedhist.protocols.shared.noninteractive_error import naive_mse, scalar_noise
from fedhist.users.batch import Users
from simulations.experiments.base import Check, Curve, Request, Result
from simulations.experiments.bounded_figures import line
from simulations.experiments.local_populations import coin_means
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

Points = Sequence[tuple[Mean | NaiveMean, int]]
"""Protocols, and the samples of each user."""

STEADY, ONE, FLAT, BEND = "before the plateau", "one sample a user", "the plateau", "the bend"
BASELINES, TWICE = "baselines", "two simulations"
CHANNELS = ("laplace", "onebit", "piecewise")
MODES: tuple[Mode, Mode] = ("paper", "default")
POINTS = 8
"""Means that the quadrature is averaged over."""


def run(request: Request) -> Result:
    """Measure the three panels."""
    p = Phases(request)
    checks = (*p.steady(), *p.one_sample(), *p.plateau(), *p.bend(), *p.baselines(), *p.twice())
    auto = scalar_channel("auto", p.epsilon).kind
    return Result(
        title="Mean under local privacy: error against samples per user",
        paper="Theorem 6",
        checks=checks,
        curves=(*p.against_samples(), *p.of_all_kinds(), *p.against_users()),
        x_label="T, samples per user (last panel: n, users)",
        y_label="mean squared error",
        log="xy",
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


@dataclass(frozen=True)
class Phases(OneSetting):
    """Everything that is measured."""

    def __post_init__(self) -> None:
        super().__post_init__()
        whole(self.request, "repeats", 2)

    @property
    def repeats(self) -> int:
        """Runs of a point."""
        return int(self.request.settings["repeats"])

    def mean(self, n: int, T: int, kind: str = "auto", mode: Mode = "default") -> Mean:
        """Build the protocol."""
        return Mean(self.epsilon, n, T, low=-1.0, high=1.0, kind=kind, mode=mode)

    def naive(self, n: int) -> NaiveMean:
        """Build the naive one: Laplace noise on a user's mean."""
        return NaiveMean(self.epsilon, n, kind="laplace")

    def errors(self, protocol: Mean | NaiveMean, T: int, clients: Clients = "aggregate") -> Errors:
        """Measure a point, once."""
        key = protocol, T, clients
        if key not in self._known:
            held, reach = T, math.inf
            if isinstance(protocol, Mean):
                held = min(T, protocol.plan.max_items or T)
                reach = 2 * protocol.plan.half_width
            n = protocol.n_users

            def population(rng: np.random.Generator) -> tuple[Users, Floats]:
                theta = rng.uniform(-self.spread, self.spread)
                return coin_means(n, held, theta, rng), np.array([theta])

            self._known[key] = measure(
                protocol, population, self.repeats, self.request.seed, T,
                clients=clients, reach=reach,
            )  # fmt: skip
        return self._known[key]

    def slope(self, protocols: Points) -> tuple[float, float]:
        """Fit ln MSE against ln T: slope and standard error."""
        found = [self.errors(p, T) for p, T in protocols]
        x = np.log([T for _, T in protocols])
        y = np.log([e.mean for e in found])
        return line_through(x, y, [e.stderr / e.mean for e in found])[1:]

    # -- checks

    def steady(self) -> Iterator[Check]:
        """Judge slope and constants before the plateau."""
        ns, Ts = (wholes(self.request, f"steady_{x}") for x in ("users", "samples"))
        slopes = [self.slope([(self.mean(n, T), T) for T in Ts]) for n in ns]
        steepest, flattest = min(slopes), max(slopes)
        yield line(self.request, STEADY, "auto: steepest log-log slope in T, over n", *steepest)
        yield line(self.request, STEADY, "auto: flattest log-log slope in T, over n", *flattest)
        for kind in CHANNELS:
            constants = [
                (n * T * e.mean, n * T * e.stderr)
                for n in ns for T in Ts for e in [self.errors(self.mean(n, T, kind), T)]
            ]  # fmt: skip
            least = min(c + 2 * s for c, s in constants)
            most = max(c - 2 * s for c, s in constants)
            yield line(self.request, STEADY, f"{kind}: least n T MSE, + 2 stderr", least)
            yield line(self.request, STEADY, f"{kind}: most n T MSE, - 2 stderr", most)
            average = float(np.mean([c for c, _ in constants]))
            yield line(self.request, STEADY, f"{kind}: average n T MSE", average)
        found = self.errors(self.mean(2000, 1024, "laplace"), 1024)
        quantity = "laplace, n = 2000, T = 1024: MSE"
        yield line(self.request, STEADY, quantity, found.mean, found.stderr)

    def one_sample(self) -> Iterator[Check]:
        """Judge T = 1: one round."""
        ns = wholes(self.request, "n_users")
        bins = max(self.mean(n, 1).plan.n_bins for n in ns)
        yield line(self.request, ONE, "most bins at T = 1", bins)
        auto = scalar_channel("auto", self.epsilon).kind
        # a report of +-1 has the channel's variance there; the coin adds 1 - theta^2
        one = scalar_noise(auto, self.epsilon, 1.0) + 1 - self.spread**2 / 3
        found = [self.errors(self.mean(n, 1), 1) for n in ns]
        ratio = np.array([n * e.mean / one for n, e in zip(ns, found, strict=True)])
        errors = np.array([n * e.stderr / one for n, e in zip(ns, found, strict=True)])
        stderr = float(np.sqrt(np.square(errors).sum())) / len(ns)
        quantity = "MSE / that of n reports of +-1, all n"
        yield line(self.request, ONE, quantity, float(ratio.mean()), stderr)

    def plateau(self) -> Iterator[Check]:
        """Judge how the plateau falls with n."""
        ns, T = wholes(self.request, "plateau_users"), whole(self.request, "plateau_samples")
        found = [self.errors(self.mean(n, T), T) for n in ns]
        flat = np.array([e.localized for e in found])
        relative = math.sqrt(2 / self.repeats)  # of a mean of squared Gaussians
        slope, stderr = line_through(ns, np.log(flat), np.full(len(ns), relative))[1:]
        yield line(self.request, FLAT, "slope of ln MSE in n", slope, stderr)
        risk = np.array([self.mean(n, T).plan.risk for n in ns])
        planned = line_through(ns, np.log(risk), np.ones(len(ns)))[1]
        yield line(self.request, FLAT, "slope of the plans' ln risk in n", planned)
        ratio = float(np.exp(np.log(flat / risk).mean()))
        yield line(self.request, FLAT, "MSE / planned risk, geometric mean", ratio)
        theory = np.array([self.quadrature(n, T) for n in ns])
        away = float(np.abs(np.log(flat / theory)).max())
        yield line(self.request, FLAT, "MSE / quadrature, largest |ln|", away)
        missed = float(np.mean([e.missed for e in found]))
        yield line(self.request, FLAT, "share of runs whose vote failed", missed)

    def bend(self) -> Iterator[Check]:
        """Judge where the line of slope -1 meets the plateau."""
        flat_at = whole(self.request, "plateau_samples")
        found = []
        for n in wholes(self.request, "bend_users"):
            cap = self.mean(n, flat_at).plan.n_bins ** 2
            # well before the bend, and where a vote pays
            Ts = [T for T in wholes(self.request, "samples") if 64 <= T <= max(64, cap / 64)]
            constant = np.mean([n * T * self.errors(self.mean(n, T), T).mean for T in Ts])
            flat = self.errors(self.mean(n, flat_at), flat_at).localized
            found.append(float(constant) / (n * flat) / cap)
        yield line(self.request, BEND, "least T of the bend / N^2", min(found))
        yield line(self.request, BEND, "most T of the bend / N^2", max(found))

    def baselines(self) -> Iterator[Check]:
        """Judge the naive report and the paper's own constants."""
        n, Ts = whole(self.request, "panel_users"), wholes(self.request, "steady_samples")
        naive = self.naive(n)
        slope = self.slope([(naive, T) for T in Ts])
        yield line(self.request, BASELINES, "naive user means: log-log slope in T", *slope)
        found = [self.errors(naive, T) for T in Ts]
        scale = n * self.epsilon**2
        level = scale * float(np.mean([e.mean for e in found]))
        stderr = scale * float(np.sqrt(np.sum([e.stderr**2 for e in found]))) / len(found)
        yield line(self.request, BASELINES, "naive user means: n epsilon^2 MSE", level, stderr)
        many = whole(self.request, "paper_users")
        slope = self.slope([(self.mean(many, T, mode="paper"), T) for T in Ts])
        yield line(self.request, BASELINES, "paper's mode: log-log slope in T", *slope)
        T = max(Ts)
        paper, ours = (self.errors(self.mean(many, T, mode=m), T).mean for m in MODES)
        quantity = f"paper's mode / default: MSE at n = {many}, T = {T}"
        yield line(self.request, BASELINES, quantity, paper / ours)

    def twice(self) -> Iterator[Check]:
        """Judge the sums against users that answer one by one."""
        for kind in ("laplace", "piecewise"):
            protocol = self.mean(1000, 256, kind)
            sums, users = (self.errors(protocol, 256, c) for c in PATHS)
            z = distance_in_errors(sums, users)
            yield line(self.request, TWICE, f"{kind}: |z|, users against their sums", z)

    # -- theory and figure

    def quadrature(self, n: int, T: int) -> float:
        """Predict the error of localized runs apart from estimator and planner."""
        plan = self.mean(n, T).plan
        found = [
            exact_two_stage_mse(
                theta=float(theta),
                mean_scale=math.sqrt((1 - theta**2) / T),
                low=-1.0,
                high=1.0,
                n_bins=plan.n_bins,
                n_vote=n * plan.vote_share,
                n_report=n * (1 - plan.vote_share),
                half_width=plan.half_width,
                vote=UnaryChannel(self.epsilon),
                report=scalar_channel("auto", self.epsilon),
                log2_points=12,
            ).localized_mse
            for theta in self.spread * (2 * np.arange(POINTS) + 1 - POINTS) / POINTS
        ]
        return float(np.mean(found))

    def against_samples(self) -> Iterator[Curve]:
        """Draw the phase transition for several n."""
        panel = "channel auto, for several n"
        for n in wholes(self.request, "n_users"):
            Ts = wholes(self.request, "samples")
            yield self._measured(panel, f"n = {n:,}", [(self.mean(n, T), T) for T in Ts])
            risk = [self.mean(n, T).plan.risk for T in Ts]
            yield Curve(panel, "planned risk", _floats(Ts), np.array(risk), style="--")

    def of_all_kinds(self) -> Iterator[Curve]:
        """Draw everything that can be done with the same users."""
        n, Ts = whole(self.request, "panel_users"), wholes(self.request, "steady_samples")
        panel = f"n = {n:,}: channels, the paper's mode and the baselines"
        for kind, marker in zip(CHANNELS, "P<>", strict=True):
            yield self._measured(panel, kind, [(self.mean(n, T, kind), T) for T in Ts], marker)
        paper = [(self.mean(n, T, mode="paper"), T) for T in Ts]
        yield self._measured(panel, "the paper's mode", paper, "X")
        yield self._measured(panel, "naive: user means", [(self.naive(n), T) for T in Ts], "*")
        at = _floats(Ts)
        flat = np.full(len(at), self._report("onebit", n))
        yield Curve(panel, "naive: one sample, formula", at, flat, style="-.")
        # a sample +-1 has variance 1 at most; a bit is as spread as it can be
        laplace = self._report("laplace", n, 1.0) / at
        yield Curve(panel, "item level, Laplace, formula", at, laplace, style=":")
        bits = self._report("onebit", n) / at
        yield Curve(panel, "item level, one bit, formula", at, bits, style="--")

    def against_users(self) -> Iterator[Curve]:
        """Draw the plateau."""
        ns, T = wholes(self.request, "plateau_users"), whole(self.request, "plateau_samples")
        panel = f"the plateau, T = {T:.1g}, against n"
        flat = np.array([self.errors(self.mean(n, T), T).localized for n in ns])
        yerr = flat * math.sqrt(2 / self.repeats)
        yield Curve(panel, "runs whose vote succeeded", _floats(ns), flat, yerr, "x", " ")
        theory = np.array([self.quadrature(n, T) for n in ns])
        yield Curve(panel, "quadrature, of such runs", _floats(ns), theory, style="-")
        risk = np.array([self.mean(n, T).plan.risk for n in ns])
        yield Curve(panel, "planned risk", _floats(ns), risk, style="--")
        naive = np.array([self._report("laplace", n) for n in ns])
        yield Curve(panel, "naive: user means, formula", _floats(ns), naive, style="-.")

    def _report(self, kind: str, n: float, variance: float = 0.0) -> float:
        return naive_mse(
            geometry="linf", kind=kind, epsilon=self.epsilon, dimension=1, scale=1.0,
            n_reports=n, item_variance=variance,
        )  # fmt: skip

    def _measured(self, panel: str, label: str, points: Points, marker: str = "") -> Curve:
        found = [self.errors(p, T) for p, T in points]
        y, yerr = (np.array([getattr(e, x) for e in found]) for x in ("mean", "stderr"))
        return Curve(panel, label, _floats([T for _, T in points]), y, yerr, marker)


def _floats(x: list[int]) -> Floats:
    return np.array(x, dtype=np.float64)
