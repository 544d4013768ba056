"""Sparse means: select where d is far above the samples, or threshold [1]_. NOT PRIVATE.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 4.1, eq. (43)-(48), Theorem 8.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.stats import binom

from clients.localize.queries import BinVotes, ClippedMean
from clients.means.queries import HashedVotes
from fedhist.base.arrays import Floats, Integers, Words
from fedhist.base.hashing import digest64
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.query import Query, Summary
from fedhist.model.truths import squared_l2
from fedhist.users.batch import Users
from fedhist.users.cohort import fold_of
from server.means.mean_linf import MeanLinf
from server.means.sparse_mean import SparseMean
from server.noise import noise_source
from server.session.session import Session
from simulations.experiments.experiment import Findings, mean_and_error, power_law
from simulations.experiments.local_runs import fresh_ids, largest_ratio
from simulations.runtimes.inline import InlinePopulation

SELECT, SECOND = "against d", "second procedure"
THRESHOLD = "threshold"


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

    def population(self, seed: int) -> SparseCoins:
        """Draw the mean."""
        rng = np.random.default_rng(digest64("sparse support", seed, self.d, self.s))
        theta = np.zeros(self.d)
        places = rng.choice(self.d, min(self.s, self.d), replace=False)
        theta[places] = self.amplitude * rng.choice([-1.0, 1.0], len(places))
        return SparseCoins(self.n, self.T, theta, seed)

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

    def losses(self, protocol: Protocol, seed: int, label: str, runs: int) -> Floats:
        """Run on users drawn anew; summed squared errors (runs,), 0 standing in for a refusal."""
        out = []
        for k in range(runs):
            own = digest64("sparse-selection", seed, label, repr(self), k) >> 1
            population = self.population(own)
            value = population.run(protocol).value
            estimate = np.zeros(self.d) if value is None else value
            out.append(squared_l2(estimate, population.theta))
        return np.array(out)

    @property
    def nothing(self) -> float:
        """Summed squared error of the estimate 0."""
        return self.s * self.amplitude**2

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


BLOCK = 1 << 25
"""Numbers of a dense block of records."""


@dataclass(frozen=True, eq=False)
class SparseCoins:
    """Users of one run with T samples of {-1, 1}^d, independent, with the mean theta.

    A user of a local protocol answers one query and then nothing more, and an answer reads one
    scalar of the record, or its votes. So a record, 2 Bin(T, (1 + theta_j) / 2) / T - 1, is drawn
    when its user is asked, and only what the query reads of it: the joint law of all answers is
    that of users who held their records before, and n d numbers are never held.

    ``samples``: T; ``theta``: (d,) float64, mostly 0.
    """

    n_users: int
    samples: int
    theta: Floats
    seed: int

    def run(self, protocol: Protocol) -> Estimate:
        """Run a protocol in which each user answers at most once."""
        session = Session(protocol, noise_source("simulated", self.seed, protocol))
        if session.query is None:  # refused before anybody was asked
            return session.estimate or Estimate.failed("no query and no estimate")
        return session.run(self.ask)

    @cached_property
    def ids(self) -> Words:
        """The users, anew for each seed."""
        rng = np.random.default_rng(digest64("asked ids", self.seed))
        return fresh_ids(self.n_users, rng)

    def ask(self, query: Query, round_index: int) -> Summary:
        """Draw the records of those who are asked, block by block, and ask them."""
        cohort, ids = query.cohort, self.ids
        asked = ids if cohort is None else ids[cohort.contains(ids)]
        size = max(1, BLOCK // len(self.theta))
        parts = []
        for start in range(0, max(len(asked), 1), size):
            # streams of their own: the answers draw from others, keyed by seed and query
            key = digest64("asked records", self.seed, round_index, start)
            rng = np.random.default_rng(key)
            users = self.draw(query, asked[start : start + size], rng)
            node = InlinePopulation([users], key, aggregate=True)
            parts.append(node.ask(query, round_index))
        return Summary.merge(parts)

    def draw(self, query: Query, ids: Words, rng: np.random.Generator) -> Users:
        """Draw the means that can be voted for, or the one of the user's fold; the rest is 0."""
        if isinstance(query, HashedVotes):
            rows = self._votable(len(ids), float(query.threshold), rng)
        else:
            if not isinstance(query, BinVotes | ClippedMean):
                raise TypeError(f"this population answers queries about means, got {query!r}")
            functional: Any = query.functional
            fold = fold_of(ids, query.fold_salt, functional.n_folds)
            column = fold if functional.columns is None else functional.columns[fold]
            rows = np.zeros((len(ids), len(self.theta)))
            rows[np.arange(len(ids)), column] = self._means(self.theta[column], rng)
        return Users.from_samples(ids, np.arange(len(ids) + 1), rows)

    def _means(self, theta: Floats, rng: np.random.Generator) -> Floats:
        return np.asarray(2 * rng.binomial(self.samples, (1 + theta) / 2) / self.samples - 1)

    def _votable(self, n: int, threshold: float, rng: np.random.Generator) -> Floats:
        """Draw every mean that is at least a threshold from 0; those below it may be anything."""
        rows = np.zeros((n, len(self.theta)))
        signal = np.flatnonzero(self.theta)
        rows[:, signal] = self._means(np.tile(self.theta[signal], (n, 1)), rng)
        null = np.flatnonzero(self.theta == 0)
        levels = 2 * np.arange(self.samples + 1) / self.samples - 1
        far = np.abs(levels) >= threshold
        weight = binom.pmf(np.flatnonzero(far), self.samples, 0.5)
        cells = successes(n * len(null), float(weight.sum()), rng)
        values = rng.choice(levels[far], size=len(cells), p=weight / weight.sum())
        rows[cells // len(null), null[cells % len(null)]] = values
        return rows


def successes(trials: int, p: float, rng: np.random.Generator) -> Integers:
    """Return which of many independent trials succeed, by the gaps between them.

    >>> successes(3, 1.0, np.random.default_rng(0)).tolist()
    [0, 1, 2]
    """
    if p <= 0 or trials == 0:
        return np.zeros(0, dtype=np.int64)
    parts, last = [], -1
    while last < trials:
        expected = (trials - last) * p
        gaps = rng.geometric(min(p, 1.0), math.ceil(expected + 4 * math.sqrt(expected) + 8))
        parts.append(last + np.cumsum(gaps))
        last = int(parts[-1][-1])
    places = np.concatenate(parts)
    return np.asarray(places[places < trials], dtype=np.int64)


def run(findings: Findings) -> None:
    """Measure the two procedures of Theorem 8."""
    _selection(findings)
    _thresholding(findings)


def _selection(findings: Findings) -> None:
    """Judge how the error of selection moves with d, beside folds of users for each coordinate."""
    s = findings.settings
    base, seed = Task(s.epsilon, d=1, **s.selection), findings.seed
    runs = s.selection_runs
    tasks = [replace(base, d=d) for d in s.dimensions]
    theory = [t.predicted for t in tasks]
    ours = [mean_and_error(t.losses(t.protocol(), seed, "select", runs)) for t in tasks]
    folds = [replace(base, d=d) for d in s.fold_dimensions]
    boxes = [MeanLinf(s.epsilon, base.n, t.d, base.T) for t in folds]
    linf = [
        mean_and_error(t.losses(p, seed, "mean-linf", 4 * runs))
        for t, p in zip(folds, boxes, strict=True)
    ]
    where = f"{SELECT}: n = {base.n:,}, T = {base.T}, s = {base.s}, +-{base.amplitude:g}"
    every = np.unique([*s.dimensions, *s.fold_dimensions])
    items = [replace(base, d=int(d)).item_level for d in every]
    findings.draw_means(where, "sparse-mean, select", s.dimensions, ours, "o")
    findings.draw(where, "its prediction", s.dimensions, theory, style="--")
    findings.draw_means(where, "mean-linf", s.fold_dimensions, linf, "s")
    findings.draw(where, "item level: n T users of 1 sample", every, items, style="-.")
    findings.draw(where, "nothing, 0", every, base.nothing, style=":")
    for d, measured in zip(s.dimensions, ours, strict=True):
        findings.check(SELECT, f"SSE at d = {d:,}", *measured)
    lost = [m for t, (m, _) in zip(folds, linf, strict=True) if t.d > base.n / 40]
    mean = [m for m, _ in ours]
    findings.check(SELECT, "log-log slope in d", power_law(s.dimensions, mean)[0])
    largest = largest_ratio(ours, theory)
    findings.check(SELECT, "largest measured / predicted, - 2 stderr", largest)
    better = tasks[-1].item_level / mean[-1]
    findings.check(SELECT, "item level / sparse-mean at the largest d", better)
    least = min(lost, default=math.nan) / base.nothing
    findings.check(SELECT, "mean-linf / nothing, least for d > n / 40", least)
    findings.check(SELECT, "naive / nothing at the least d", tasks[0].naive / base.nothing)


def _thresholding(findings: Findings) -> None:
    """Judge how the error of thresholding moves with n, T and d.

    It estimates all d coordinates in folds and drops what noise explains: its error has the factor
    d, and none that asks a user to see a signal in its own samples.
    """
    s = findings.settings
    base = Task(s.epsilon, **s.threshold)

    def errors(tasks: Sequence[Task]) -> list[tuple[float, float | None]]:
        runs = s.threshold_runs
        return [
            mean_and_error(t.losses(t.protocol(method=THRESHOLD), findings.seed, THRESHOLD, runs))
            for t in tasks
        ]

    for axis, words, wanted in (("n", "users", -1), ("T", "samples", -1), ("d", "coordinates", 1)):
        x = getattr(s, f"rates_{axis}")
        tasks = [replace(base, **{axis: value}) for value in x]
        sse = errors(tasks)
        # where it keeps the signals, and nothing else: their s folds' errors
        theory = [t.s * t.protocol(method=THRESHOLD).plan.risk for t in tasks]
        mean = np.array([m for m, _ in sse])
        panel, axes = f"{SECOND}, against {axis}, {words}", {"x_label": f"{axis}, {words}"}
        findings.draw_means(panel, "thresholding", x, sse, "o", " ", **axes)
        findings.draw(panel, "predicted", x, theory, style="--", **axes)
        rate = mean[0] * (np.array(x) / x[0]) ** float(wanted)
        findings.draw(panel, f"{axis}^{wanted}, through the first", x, rate, style=":", **axes)
        slope = power_law(x, mean)[0]
        findings.check(SECOND, f"log-log slope in {axis}", slope)
        less = slope - power_law(x, theory)[0]
        findings.check(SECOND, f"slope in {axis} less the predicted one", less)
    lost = errors([replace(base, n=s.few_n)])[0][0] / base.nothing
    findings.check(SECOND, "thresholding / nothing, with few users for d folds", lost)
