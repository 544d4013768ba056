"""Sparse means where d is far above the samples: select, then estimate [1]_. NOT PRIVATE.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 4.1, Theorem 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.channels.sign_hashes import HadamardSigns
from fedhist.model.protocol import Protocol
from fedhist.protocols.means.mean_linf import MeanLinf
from fedhist.protocols.means.sparse.plan import VOTE_SHARE
from fedhist.protocols.means.sparse.sparse_mean import SparseMean
from fedhist.protocols.shared.noninteractive_error import naive_mse
from simulations.experiments.asked_users import Asked, SparseCoins, deviations
from simulations.experiments.base import Check, Curve, Request, Result, mean_and_error, power_law
from simulations.experiments.bounded_figures import line
from simulations.experiments.local_populations import users_of
from simulations.experiments.local_runs import largest_ratio
from simulations.experiments.settings import positive, whole, wholes
from simulations.runs.run import Options, execute

AGAINST_D, SUCCESS, HASHES = "against d", "selection", "Hadamard hashes"
SIGN, LAPLACE = "sign", "laplace"
LEVEL = 0.9
"""Share of successes that defines the users needed."""


@dataclass(frozen=True)
class Task:
    """A population and what is asked of it.

    Attributes
    ----------
    epsilon : float
    n, T, d, s : int
    amplitude : float
        Distance from 0 of the s coordinates that are not 0; their signs and places are random.
    """

    epsilon: float
    n: int
    T: int
    d: int
    s: int
    amplitude: float

    def population(self, seed: int) -> SparseCoins:
        """Draw the mean."""
        rng = np.random.default_rng(digest64("sparse support", seed, self.d, self.s))
        theta = np.zeros(self.d)
        places = rng.choice(self.d, min(self.s, self.d), replace=False)
        theta[places] = self.amplitude * rng.choice([-1.0, 1.0], len(places))
        return SparseCoins(self.n, self.T, theta)

    def protocol(self, **wishes: Any) -> SparseMean:
        """Build the protocol of the sparse mean."""
        return SparseMean(
            epsilon=self.epsilon,
            n_users=self.n,
            dimension=self.d,
            samples_per_user=self.T,
            sparsity=self.s,
            **wishes,
        )

    def seed(self, request: Request, label: str, k: int) -> int:
        """Return the seed of run k, of its own for every task and label."""
        return digest64("sparse-selection", request.seed, label, repr(self), k) >> 1

    def losses(self, protocol: Protocol, request: Request, label: str, runs: int) -> Floats:
        """Run on users drawn anew; summed squared errors (runs,), 0 standing in for a refusal."""
        out = []
        for k in range(runs):
            seed = self.seed(request, label, k)
            population = self.population(seed)
            value = population.run(protocol, seed).value
            estimate = np.zeros(self.d) if value is None else value
            out.append(float(np.square(estimate - population.theta).sum()))
        return np.array(out)

    def success(self, protocol: SparseMean, request: Request, label: str, runs: int) -> float:
        """Share of runs whose first round selects exactly the right coordinates."""
        hits, query = 0, protocol.vote_query
        for k in range(runs):
            seed = self.seed(request, label, k)
            population = self.population(seed)
            found = protocol.select(query, Asked(population, seed).ask(query, 0))
            hits += np.array_equal(found, np.flatnonzero(population.theta))
        return hits / runs

    def users_to_select(self, vote: str) -> float:
        """Predict the users at which a lead of sqrt(2 log(d / s)) + 2 deviations is reached."""
        lead = math.sqrt(2 * math.log(self.d / self.s)) + 2
        return (lead / self.protocol(method="select", vote=vote).law.lead(1.0)) ** 2 / VOTE_SHARE

    @property
    def item_level(self) -> float:
        """Summed squared error of n T users with one sample: s d coth^2(eps / 2) 2 log(2 d)/nT."""
        noise = self.s * self.d / math.tanh(self.epsilon / 2) ** 2
        return noise * 2 * math.log(2 * self.d) / (self.n * self.T)

    @property
    def naive(self) -> float:
        """Summed squared error of one bit a user about one coordinate of its own mean."""
        return naive_mse(
            geometry="linf", kind="onebit", epsilon=self.epsilon, dimension=self.d, scale=1.0,
            n_reports=self.n,
        )  # fmt: skip


def run(request: Request) -> Result:
    """Measure the panels."""
    for name in ("repeats", "tries", "comparisons"):
        whole(request, name)
    base = Task(
        positive(request, "epsilon"),
        whole(request, "n"),
        whole(request, "T"),
        max(wholes(request, "dimensions")),
        whole(request, "s"),
        positive(request, "amplitude"),
    )
    parts = [f(request, base) for f in (_against_d, _selection, _hashes, _procedures, _paths)]
    return Result(
        title="Sparse means: selection where d is far above what n users reach",
        paper="Section 4.1",
        checks=tuple(c for checks, _ in parts for c in checks),
        curves=tuple(c for _, curves in parts for c in curves),
        x_label="d, coordinates",
        y_label="summed squared error",
        log="xy",
        notes=(
            "NOT PRIVATE: errors are measured with the truth, the mean of the population",
            f"epsilon = {base.epsilon:g} per user and record, local; {base.s} coordinates at "
            f"+-{base.amplitude:g} in random places, samples +-1; users drawn anew for each run",
            "aggregate path: sums of votes and of reports are drawn from their exact law, and so "
            "are records, of which only what a query reads is drawn, when it asks; 'two paths' "
            "compares with whole records on the per-user path",
            "a protocol that refuses counts as the estimate 0, whose error is 'nothing, 0'",
            "the naive report of one coordinate a user, d^2 coth^2 / n, is above 'nothing, 0' in "
            "all of the figure and not drawn; nor is one item a user, which is no better",
        ),
        population=f"samples of {{-1, 1}}^d; {base.T} a user where nothing else is said",
    )


Part = tuple[list[Check], list[Curve]]


def _against_d(request: Request, base: Task) -> Part:
    dims = wholes(request, "dimensions")
    folds = wholes(request, "fold_dimensions")
    runs = whole(request, "repeats")
    tasks = [replace(base, d=d) for d in dims]
    theory = [t.protocol(method="select", min_signal=t.amplitude).predicted.select for t in tasks]
    found = [
        mean_and_error(t.losses(t.protocol(method="select"), request, "select", runs))
        for t in tasks
    ]
    by_folds = [replace(base, d=d) for d in folds]
    linf = [
        mean_and_error(t.losses(MeanLinf(t.epsilon, t.n, t.d, t.T), request, "mean-linf", 4 * runs))
        for t in by_folds
    ]
    where = f"{AGAINST_D}: n = {base.n:,}, T = {base.T}, s = {base.s}, +-{base.amplitude:g}"
    x, every = np.array(dims, dtype=np.float64), np.unique([*dims, *folds])
    nothing = base.s * base.amplitude**2
    curves = [
        _with_errors(where, "sparse-mean, select", x, found, "o"),
        Curve(where, "its prediction", x, np.array(theory), style="--"),
        _with_errors(where, "mean-linf", np.array(folds, dtype=np.float64), linf, "s"),
        Curve(where, "item level: n T users of 1 sample", every.astype(np.float64),
              np.array([replace(base, d=int(d)).item_level for d in every]), style="-."),
        Curve(where, "nothing, 0", every.astype(np.float64), np.full(len(every), nothing),
              style=":"),
    ]  # fmt: skip
    mean = np.array([m for m, _ in found])
    checks = [line(request, AGAINST_D, f"SSE at d = {d:,}", *f)
              for d, f in zip(dims, found, strict=True)]  # fmt: skip
    lost = [m for t, (m, _) in zip(by_folds, linf, strict=True) if t.d > base.n / 40]
    checks += [
        line(request, AGAINST_D, "log-log slope in d", power_law(x, mean)[0]),
        line(request, AGAINST_D, "largest measured / predicted, - 2 stderr",
             largest_ratio(found, theory)),
        line(request, AGAINST_D, "item level / sparse-mean at the largest d",
             tasks[-1].item_level / float(mean[-1])),
        line(request, AGAINST_D, "mean-linf / nothing, least for d > n / 40",
             min(lost, default=math.nan) / nothing),
        line(request, AGAINST_D, "naive / nothing at the least d", tasks[0].naive / nothing),
        line(request, AGAINST_D, "auto selects, share of d",
             float(np.mean([t.protocol().procedure == "select" for t in tasks]))),
    ]  # fmt: skip
    return checks, curves


def _selection(request: Request, base: Task) -> Part:
    runs = whole(request, "tries")
    dims = wholes(request, "selection_dimensions")
    if len(dims) != 2:
        raise ValueError(f"selection_dimensions must be two, got {dims}")
    factors = [float(f) for f in request.settings["factors"]]
    checks, curves, needed = [], [], {}
    cases = [(d, base.epsilon, SIGN) for d in dims]
    cases.append((cases[0][0], base.epsilon, LAPLACE))
    cases.append((cases[0][0], base.epsilon / 2, SIGN))
    looks = (("o", "-"), ("s", "--"), ("^", "-."), ("D", ":"))
    for (d, epsilon, vote), (marker, style) in zip(cases, looks, strict=True):
        task = replace(base, d=d, epsilon=epsilon)
        predicted = task.users_to_select(vote)
        ns = [round(f * predicted) for f in factors]
        rate = []
        for n in ns:
            at = replace(task, n=n)
            protocol = at.protocol(method="select", vote=vote)
            rate.append(at.success(protocol, request, f"{vote} success", runs))
        label = f"{vote}, d = {d:,}, epsilon = {epsilon:g}"
        needed[d, epsilon, vote] = reaches(ns, rate, LEVEL)
        checks.append(
            line(request, SUCCESS, f"users for {LEVEL:.0%} / predicted: {label}",
                 needed[d, epsilon, vote] / predicted)
        )  # fmt: skip
        error = np.sqrt(np.maximum(np.array(rate) * (1 - np.array(rate)), 0.25 / runs) / runs)
        curves.append(
            Curve("selection of the right coordinates, by users", label, np.array(ns, dtype=float),
                  np.array(rate), error, marker, style, "share of runs", "n, users", "x")
        )  # fmt: skip
    first, wide = dims
    ours = needed[first, base.epsilon, SIGN]
    growth = needed[wide, base.epsilon, SIGN] / ours
    checks += [
        line(request, SUCCESS, "users for laplace / users for signs",
             needed[first, base.epsilon, LAPLACE] / ours),
        line(request, SUCCESS, "users at half epsilon / users",
             needed[first, base.epsilon / 2, SIGN] / ours),
        line(request, SUCCESS, "growth of the users with d / that of log(d / s)",
             growth / (math.log(wide / base.s) / math.log(first / base.s))),
    ]  # fmt: skip
    return checks, curves


def _hashes(request: Request, base: Task) -> Part:
    s, d, m = (whole(request, f"hash_{x}") for x in "sdm")
    checks = []
    for p, name in ((1, "1 permutation"), (16, "16 permutations")):
        found = shares_found(request, s, d, m, base.epsilon, p)
        share, exact = mean_and_error(found), mean_and_error((found == 1).astype(np.float64))
        checks += [
            line(request, HASHES, f"share of the support found, {name}", *share),
            line(request, HASHES, f"share of tries that find all of it, {name}", *exact),
        ]
    return checks, []


def shares_found(request: Request, s: int, d: int, m: int, epsilon: float, p: int) -> Floats:
    """Share of a support of s among the s largest scores, in every try: m voters, all for it."""
    flip, found = 1 / (1 + math.exp(epsilon)), []
    for k in range(whole(request, "hash_tries")):
        rng = np.random.default_rng(digest64("permutations", request.seed, s, d, m, p, k))
        ids = rng.integers(1 << 64, size=m, dtype=np.uint64)
        support = np.sort(rng.choice(d, s, replace=False))
        signs = HadamardSigns(d, int(rng.integers(1 << 40)), p)
        sums = signs.vote_sums(ids, np.arange(m + 1) * s, np.tile(support, m))
        vote = np.where(sums == 0, rng.choice([-1, 1], m), np.sign(sums))
        z = np.where(rng.random(m) < flip, -vote, vote).astype(np.int8)
        scores = signs.scores(signs.fold(ids, z))
        found.append(np.isin(np.argsort(-scores)[:s], support).mean())
    return np.array(found)


def _procedures(request: Request, base: Task) -> Part:
    runs, amplitudes = whole(request, "comparisons"), request.settings["amplitudes"]
    n, T, d, s = (whole(request, f"many_{x}") for x in "nTds")
    task = Task(base.epsilon, n, T, d, s, 0.0)
    checks, curves = [], []
    where = f"two procedures: n = {task.n:,}, T = {task.T}, d = {task.d}, s = {task.s}"
    for method, marker in (("select", "o"), ("threshold", "^")):
        protocol, found = task.protocol(method=method), []
        for a in amplitudes:
            at = replace(task, amplitude=float(a))
            found.append(mean_and_error(at.losses(protocol, request, method, runs)))
            checks.append(line(request, f"amplitude {a:g}", f"SSE of {method}", *found[-1]))
        x = np.array(amplitudes, dtype=np.float64)
        label = f"sparse-mean, {method}"
        curves.append(_with_errors(where, label, x, found, marker, "amplitude of the signals"))
    ours = [task.protocol(min_signal=b).procedure for b in (None, 1.0)]
    for b, procedure in zip(("none", "1"), ours, strict=True):
        quantity = f"auto selects (1) or thresholds (0), min_signal {b}"
        checks.append(line(request, "two procedures", quantity, float(procedure == "select")))
    return checks, curves


def _paths(request: Request, base: Task) -> Part:
    """Compare drawn-when-asked, aggregate, with whole records, report by report."""
    runs = whole(request, "path_runs")
    task = replace(base, d=64, T=40, n=whole(request, "path_users"))
    protocol = task.protocol(method="select")
    whole_records = []
    for k in range(runs):
        seed = task.seed(request, "whole", k)
        rng, theta = np.random.default_rng(seed), task.population(seed).theta
        means = 2 * rng.binomial(task.T, (1 + theta) / 2, (task.n, task.d)) / task.T - 1
        value = execute(protocol, users_of(means, rng), Options(seed=seed)).estimate.value
        estimate = np.zeros(task.d) if value is None else value
        whole_records.append(float(np.square(estimate - theta).sum()))
    asked = task.losses(protocol, request, "asked", runs)
    z = deviations(asked, np.array(whole_records))
    quantity = "aggregate and per-user path: |difference of SSE| / standard error"
    return [line(request, "two paths", quantity, z)], []


def reaches(ns: list[int], rate: list[float], level: float) -> float:
    """Return the n from which the rate stays at a level, interpolated in log n.

    >>> round(reaches([100, 10_000], [0.0, 1.0], 0.5))
    1000
    """
    above = np.array(rate) >= level
    if not above[-1] or above.all():
        return float(ns[0]) if above[-1] else math.nan
    i = len(ns) - int(np.argmin(above[::-1]))
    x = np.log(np.array(ns, dtype=np.float64))
    part = (level - rate[i - 1]) / (rate[i] - rate[i - 1])
    return float(np.exp(x[i - 1] + part * (x[i] - x[i - 1])))


def _with_errors(
    where: str,
    label: str,
    x: Floats,
    found: list[tuple[float, float | None]],
    marker: str,
    x_label: str = "",
) -> Curve:
    y, error = np.array([(m, e or 0.0) for m, e in found]).T
    return Curve(where, label, x, y, error, marker, x_label=x_label)
