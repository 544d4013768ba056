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
from fedhist.model.losses import squared_l2
from fedhist.model.protocol import Protocol
from fedhist.protocols.means.mean_linf import MeanLinf
from fedhist.protocols.means.sparse.sparse_mean import SparseMean
from fedhist.users.cohort import Cohort
from simulations.experiments.asked_users import Asked, SparseCoins
from simulations.experiments.experiment import Findings, Request, Result, mean_and_error, power_law
from simulations.experiments.local_runs import largest_ratio

AGAINST_D, SUCCESS = "against d", "selection"
SIGN, LAPLACE = "sign", "laplace"
VOTERS = 0.5
"""Share of the users who select, where selection is measured by itself."""
LEVEL = 0.9
"""Share of successes that defines the users needed."""


@dataclass(frozen=True)
class Task:
    """A population and what is asked of it.

    ``amplitude``: distance from 0 of the s coordinates that are not 0; their signs and places are
    random.
    """

    epsilon: float
    n: int
    T: int
    d: int
    s: int
    amplitude: float

    @classmethod
    def of(cls, request: Request, d: int) -> Task:
        """Read the settings, for so many coordinates."""
        n, T, s = (request.whole(name) for name in "nTs")
        return cls(request.positive("epsilon"), n, T, d, s, request.positive("amplitude"))

    def population(self, seed: int) -> SparseCoins:
        """Draw the mean."""
        rng = np.random.default_rng(digest64("sparse support", seed, self.d, self.s))
        theta = np.zeros(self.d)
        places = rng.choice(self.d, min(self.s, self.d), replace=False)
        theta[places] = self.amplitude * rng.choice([-1.0, 1.0], len(places))
        return SparseCoins(self.n, self.T, theta)

    def protocol(self, **wishes: Any) -> SparseMean:
        """Build the protocol of the sparse mean; by default selection."""
        return SparseMean(
            epsilon=self.epsilon,
            n_users=self.n,
            dimension=self.d,
            samples_per_user=self.T,
            sparsity=self.s,
            **{"method": "select", **wishes},
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
            found = np.zeros(self.d) if value is None else value
            out.append(squared_l2(found, population.theta))
        return np.array(out)

    def success(self, protocol: SparseMean, request: Request, label: str, runs: int) -> float:
        """Share of runs whose first round selects exactly the right coordinates."""
        hits, query = 0, replace(protocol.vote_query, cohort=Cohort(protocol.salt, 0.0, VOTERS))
        for k in range(runs):
            seed = self.seed(request, label, k)
            population = self.population(seed)
            found = protocol.select(query, Asked(population, seed).ask(query, 0))
            hits += np.array_equal(found, np.flatnonzero(population.theta))
        return hits / runs

    def users_to_select(self, vote: str) -> float:
        """Predict the users at which a lead of sqrt(2 log(d / s)) + 2 deviations is reached."""
        lead = math.sqrt(2 * math.log(self.d / self.s)) + 2
        return (lead / self.protocol(vote=vote).law.lead(1.0)) ** 2 / VOTERS

    @property
    def predicted(self) -> float:
        """Summed squared error of selection where all s are found: that of their means."""
        return self.s * self.protocol().plan_of(self.s).risk

    @property
    def item_level(self) -> float:
        """Summed squared error of n T users with one sample: s d coth^2(eps / 2) 2 log(2 d)/nT."""
        noise = self.s * self.d / math.tanh(self.epsilon / 2) ** 2
        return noise * 2 * math.log(2 * self.d) / (self.n * self.T)

    @property
    def naive(self) -> float:
        """Summed squared error of one bit a user about one coordinate of its own mean."""
        return (self.d / math.tanh(self.epsilon / 2)) ** 2 / self.n


def run(request: Request) -> Result:
    """Measure the panels."""
    for name in ("repeats", "tries"):
        request.whole(name)
    base = Task.of(request, max(request.wholes("dimensions")))
    found = Findings(request)
    for part in (_against_d, _selection):
        part(found, base)
    return found.result(
        "Sparse means: selection where d is far above what n users reach",
        "Section 4.1",
        x_label="d, coordinates",
        y_label="summed squared error",
        notes=(
            "NOT PRIVATE: errors are measured with the truth, the mean of the population",
            f"epsilon = {base.epsilon:g} per user and record, local; {base.s} coordinates at "
            f"+-{base.amplitude:g} in random places, samples +-1; users drawn anew for each run",
            "aggregate path: sums of votes and of reports are drawn from their exact law, and so "
            "are records, of which only what a query reads is drawn, when it asks",
            "a protocol that refuses counts as the estimate 0, whose error is 'nothing, 0'",
            "the naive report of one coordinate a user, d^2 coth^2 / n, is above 'nothing, 0' in "
            "all of the figure and not drawn; nor is one item a user, which is no better",
        ),
        population=f"samples of {{-1, 1}}^d; {base.T} a user where nothing else is said",
    )


def _against_d(found: Findings, base: Task) -> None:
    request, n = found.request, base.n
    dims, folds = request.wholes("dimensions"), request.wholes("fold_dimensions")
    runs = request.whole("repeats")
    tasks = [replace(base, d=d) for d in dims]
    theory = [t.predicted for t in tasks]
    ours = [mean_and_error(t.losses(t.protocol(), request, "select", runs)) for t in tasks]
    boxes = [(replace(base, d=d), MeanLinf(base.epsilon, n, d, base.T)) for d in folds]
    linf = [mean_and_error(t.losses(p, request, "mean-linf", 4 * runs)) for t, p in boxes]
    where = f"{AGAINST_D}: n = {n:,}, T = {base.T}, s = {base.s}, +-{base.amplitude:g}"
    every, nothing = np.unique([*dims, *folds]), base.s * base.amplitude**2
    found.draw_means(where, "sparse-mean, select", dims, ours, "o")
    found.draw(where, "its prediction", dims, theory, style="--")
    found.draw_means(where, "mean-linf", folds, linf, "s")
    items = [replace(base, d=int(d)).item_level for d in every]
    found.draw(where, "item level: n T users of 1 sample", every, items, style="-.")
    found.draw(where, "nothing, 0", every, nothing, style=":")
    for d, measured in zip(dims, ours, strict=True):
        found.check(AGAINST_D, f"SSE at d = {d:,}", *measured)
    lost = [m for d, (m, _) in zip(folds, linf, strict=True) if d > n / 40]
    mean = [m for m, _ in ours]
    for quantity, x in (
        ("log-log slope in d", power_law(dims, mean)[0]),
        ("largest measured / predicted, - 2 stderr", largest_ratio(ours, theory)),
        ("item level / sparse-mean at the largest d", tasks[-1].item_level / mean[-1]),
        ("mean-linf / nothing, least for d > n / 40", min(lost, default=math.nan) / nothing),
        ("naive / nothing at the least d", tasks[0].naive / nothing),
    ):
        found.check(AGAINST_D, quantity, x)


def _selection(found: Findings, base: Task) -> None:
    request, runs = found.request, found.request.whole("tries")
    dims, factors = request.wholes("selection_dimensions"), request.settings["factors"]
    if len(dims) != 2:
        raise ValueError(f"selection_dimensions must be two, got {dims}")
    (first, wide), epsilon = dims, base.epsilon
    needed = []
    for d, budget, vote, marker, style in (
        (first, epsilon, SIGN, "o", "-"),
        (wide, epsilon, SIGN, "s", "--"),
        (first, epsilon, LAPLACE, "^", "-."),
        (first, epsilon / 2, SIGN, "D", ":"),
    ):
        task = replace(base, d=d, epsilon=budget)
        predicted = task.users_to_select(vote)
        ns, rate = [round(float(f) * predicted) for f in factors], []
        for n in ns:
            at = replace(task, n=n)
            protocol = at.protocol(vote=vote)
            rate.append(at.success(protocol, request, f"{vote} success", runs))
        label = f"{vote}, d = {d:,}, epsilon = {budget:g}"
        needed.append(reaches(ns, rate, LEVEL))
        quantity = f"users for {LEVEL:.0%} / predicted: {label}"
        found.check(SUCCESS, quantity, needed[-1] / predicted)
        share = np.array(rate)
        error = np.sqrt(np.maximum(share * (1 - share), 0.25 / runs) / runs)
        panel, axes = "selection of the right coordinates, by users", {"log": "x"}
        axes |= {"y_label": "share of runs", "x_label": "n, users"}
        found.draw(panel, label, ns, share, error, marker, style, **axes)
    ours, more, laplace, half = needed
    found.check(SUCCESS, "users for laplace / users for signs", laplace / ours)
    found.check(SUCCESS, "users at half epsilon / users", half / ours)
    growth = more / ours / (math.log(wide / base.s) / math.log(first / base.s))
    found.check(SUCCESS, "growth of the users with d / that of log(d / s)", growth)


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
