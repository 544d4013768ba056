"""l1 error of a distribution under user-level local privacy, against samples per user [1]_.

NOT PRIVATE.

References
----------
.. [1] Acharya, Liu & Sun, "Discrete distribution estimation under user-level local differential
   privacy", AISTATS 2023.
.. [2] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.channels.hadamard import next_power_of_two
from fedhist.model.protocol import Estimate, Protocol
from fedhist.protocols.distributions.distribution import Distribution
from fedhist.protocols.distributions.local_distribution import LocalDistribution
from fedhist.protocols.frequency_oracles.frequency_oracle import FrequencyOracle
from fedhist.protocols.shared.oracle_votes import Kind
from simulations.experiments.asked_users import RowUsers
from simulations.experiments.experiment import Findings, Request, Result, mean_and_error, power_law
from simulations.experiments.local_populations import items_of
from simulations.experiments.local_runs import largest_ratio
from simulations.runs.run import Options, execute

RATE, ONE_ITEM, CENTRAL = "against T", "one item a user", "local and central"
GAUSSIAN = math.sqrt(2 / math.pi)


@dataclass(frozen=True)
class Task:
    """What is public.

    ``exponent``: the distribution is proportional to rank^-exponent.
    """

    epsilon: float
    k: int
    n: int
    T: int
    exponent: float

    @property
    def p(self) -> Floats:
        """The distribution: (k,)."""
        weights = np.arange(1, self.k + 1) ** -self.exponent
        return np.asarray(weights / weights.sum())

    @property
    def users(self) -> RowUsers:
        """The population."""
        return RowUsers(self.n, self.T, self.p)

    @property
    def protocol(self) -> LocalDistribution:
        """The local protocol by folds, whose users report one row each."""
        return LocalDistribution(self.users.domain, self.epsilon, self.n, self.T, method="folds")

    @property
    def predicted(self) -> float:
        """Expected l1 distance before the projection: Gaussian errors, the plan's risk a row."""
        folds = self.protocol.n_folds
        return GAUSSIAN * self.k * math.sqrt(folds * self.protocol.plan.risk) / (folds + 1)

    @property
    def item_level(self) -> float:
        """The same for n T users of one item and one bit about a row of theirs."""
        K = next_power_of_two(self.k)
        row = (K - 1) / math.tanh(self.epsilon / 2) ** 2 / (self.n * self.T)
        return GAUSSIAN * self.k * math.sqrt((K - 1) * row) / K

    def one_item(self, noise: tuple[float, float]) -> float:
        """Compute it for one item a user, of oracles whose reports have variance a + b p - p^2."""
        a, b = noise
        return GAUSSIAN * float(np.sqrt((a + b * self.p - self.p**2) / self.n).sum())

    def seed(self, request: Request, label: str, run: int) -> int:
        """Return the seed of a run, of its own for every task and label."""
        return digest64("local-distribution-error", request.seed, label, repr(self), run) >> 1

    def errors(self, run: Callable[[int], Estimate], seeds: Sequence[int]) -> Floats:
        """Run with each seed; l1 distances from p: (runs,)."""
        return np.array([float(np.abs(run(seed).needed(self) - self.p).sum()) for seed in seeds])

    def local(self, request: Request, runs: int) -> Floats:
        """Measure the local protocol on users drawn anew."""
        seeds = [self.seed(request, "local", r) for r in range(runs)]
        return self.errors(lambda seed: self.users.run(self.protocol, seed), seeds)

    def held(
        self, protocol: Protocol, request: Request, runs: int, items: int, clients: str
    ) -> Floats:
        """Measure any protocol on users who hold so many items each; l1 distances (runs,)."""

        def run(seed: int) -> Estimate:
            rng = np.random.default_rng(seed)
            users = items_of(self.n, items, self.p, rng)
            return execute(protocol, users, Options(seed=seed, clients=clients)).estimate

        label = f"{protocol.name}, {items} items, {clients}"
        return self.errors(run, [self.seed(request, label, r) for r in range(runs)])


def run(request: Request) -> Result:
    """Measure the panels."""
    base = Task(request.positive("epsilon"), 2, 1, 1, float(request.settings["exponent"]))
    found = Findings(request)
    _against_samples(found, base)
    return found.result(
        "l1 error of a distribution against samples per user",
        "Section 3.2, on Hadamard rows",
        x_label="T, samples per user",
        y_label="l1 distance from the distribution",
        notes=(
            "NOT PRIVATE: errors are measured with the truth, the distribution of the population",
            f"epsilon = {base.epsilon:g} per user and record; central: delta = "
            f"{request.settings['delta']:g}, replacement, automatic mechanism; users drawn anew "
            "for each run",
            "aggregate path: sums of votes and of reports are drawn from their exact law, and so "
            "is, when a user is asked, the Hadamard row of T items that it answers about",
            "predicted: before the projection to the simplex, Gaussian; item level: n T users of "
            "one item and one bit",
            "one item a user: a user's one item of T has the law of a user with one item, so that "
            "the frequency oracles are flat in T; they are projected like the others",
        ),
        population=f"T items a user, i.i.d., proportional to rank^-{base.exponent:g}",
    )


def _against_samples(found: Findings, base: Task) -> None:
    request = found.request
    Ts, runs, ratios = sorted(request.wholes("T")), request.whole("repeats"), []
    for k in request.wholes("symbols"):
        panel = f"k = {k} symbols: marks measured, lines theory"
        theories = []
        for each in request.wholes("users_per_symbol"):
            tasks = [replace(base, k=k, n=each * k, T=T) for T in Ts]
            l1 = [mean_and_error(t.local(request, runs)) for t in tasks]
            theories.append([t.predicted for t in tasks])
            found.draw_means(panel, f"local, n = {each:,} k", Ts, l1, style=" ")
            ratios.append(largest_ratio(l1, theories[-1]))
            found.check(f"k = {k}, n = {each * k:,}", f"l1 at T = {Ts[-1]:,}", *l1[-1])
        for theory in theories:
            found.draw(panel, "local, predicted", Ts, theory, style="-")
        _compared(found, tasks, np.array([m for m, _ in l1]), panel, runs)
    found.check(RATE, "largest measured / predicted, - 2 stderr", max(ratios))


def _compared(found: Findings, tasks: list[Task], local: Floats, panel: str, runs: int) -> None:
    """Put the formulas and the other protocols beside the curve of the most users."""
    request, last, where = found.request, tasks[-1], f"{RATE}, k = {tasks[-1].k}"
    x = np.array([t.T for t in tasks], dtype=np.float64)
    some = (x >= request.positive("rate_from")) & (x <= request.positive("rate_to"))
    if some.sum() > 1:
        found.check(where, "log-log slope in T", power_law(x[some], local[some])[0])
    items = [t.item_level for t in tasks]
    found.draw(panel, "item level, largest n", x, items, style="-.")
    found.check(where, "local / item level at the largest T", float(local[-1] / items[-1]))
    oracles: tuple[tuple[Kind, str], ...] = (("unary", "--"), ("hadamard", ":"))
    for kind, style in oracles:
        oracle = FrequencyOracle(last.epsilon, last.users.domain, project=True, kind=kind)
        noise = oracle.query.channel.noise
        mean = float(last.held(oracle, request, runs, 1, "aggregate").mean())
        found.draw(panel, f"{kind}, largest n", x, mean, style=style)
        setting = f"{ONE_ITEM}, k = {last.k}"
        found.check(setting, f"{kind}: measured / formula", mean / last.one_item(noise))
        quantity = f"{kind} / local at the largest T"
        found.check(setting, quantity, mean / float(local[-1]))
    at, central = tasks[: np.searchsorted(x, request.whole("central_T"), "right")], []
    for t in at:
        protocol = Distribution(
            t.users.domain, t.epsilon, t.T, t.n, delta=request.positive("delta")
        )
        some_runs = request.whole("central_runs")
        central.append(mean_and_error(t.held(protocol, request, some_runs, t.T, "per-user"))[0])
    found.draw(panel, "central distribution, largest n", x[: len(at)], central, marker="x")
    for t, mine, theirs in zip(at, local, central, strict=False):
        if t.T in (at[0].T, at[-1].T):
            ratio = float(mine) / theirs
            found.check(f"{CENTRAL}, k = {t.k}", f"l1 local / central, T = {t.T:,}", ratio)
