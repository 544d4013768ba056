"""Thresholds over bounded domains: how far off every way to choose one is.

Every private method chooses its threshold as the protocol ``adaptive-histogram`` does, many times
with different noise; where the law of the choice is known (the exponential mechanism), it takes the
place of the draws. The release itself is not drawn: its expected l1 error at the chosen threshold
is computed exactly. One method at one domain size is also run to its end, to see that both agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.histograms.contributions import NORM_STEPS, NormHistogram
from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.model.query import Summary
from fedhist.privacy.guarantee import Guarantee, Trust, gaussian_multiplier
from fedhist.privacy.ledger import Ledger
from fedhist.privacy.noise_law import NoiseLaw, expected_l1
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard
from server.clip_choice.rule import (
    Choice,
    Search,
    ThresholdTask,
    at_the_ends,
    slope_aim,
    slope_query,
    slope_scores,
)
from server.histograms.adaptive_histogram import AdaptiveHistogram, threshold_rule
from server.histograms.reference_clips import c_star_gaussian
from server.noise import SimulatedNoise, noise_source
from server.session.curator import Curator, Noise
from server.session.journal import Journal
from server.targets.domains import in_domain, totals, user_norms
from simulations.experiments.experiment import exponential_law, mean_and_error
from simulations.runs.options import Options
from simulations.runs.run import execute

C_STAR, BEST, M_QUANTILE = "C* (not private)", "best C (not private)", "M-quantile (not private)"
DP_QUANTILE, DP_SGD, DP_SGD_D = "DP-M-quantile", "DP-SGD, s = 0.1 d", "DP-SGD, s = d"
OUTPUT, OUTPUT_FIXED = "output pert., C_m = DP-M-quantile", "output pert., C_m fixed"
EM = "em-slope (ours)"

RULES: Mapping[str, tuple[str, bool]] = {
    DP_QUANTILE: ("adaptive-quantile", False),
    DP_SGD: ("dp-sgd", False),
    DP_SGD_D: ("dp-sgd", True),
    OUTPUT: ("output-perturbation-paper", False),
    OUTPUT_FIXED: ("printed-output", False),
    EM: ("em-slope", False),
}
"""Rule of each private method, and whether its slopes are left uncut (s = d)."""

NEGLIGIBLE = 1e-12
"""Thresholds that are chosen with a smaller probability are left out of a mixture."""

PER_OCTAVE = 8
"""Thresholds per factor of two that "best C" is searched over."""


def clipped_curve(users: Shard, domain: Keys, clips: Floats, norm: int) -> Floats:
    """Compute the clipped totals for many thresholds in one pass over the users.

    With v the users' norms, the total at C is the sum of N over v <= C plus C times the sum of
    N / v over v > C; both are cumulative over bins of v.
    """
    d, bins = len(domain), len(clips) + 1
    whole, shares = np.zeros((bins, d)), np.zeros((bins, d))
    for n, user, item, count in in_domain(users, domain):
        size = np.bincount(user, count**norm, n) ** (1 / norm)
        cell = np.searchsorted(clips, size)[user] * d + item  # first threshold >= the norm
        whole += np.bincount(cell, count, bins * d).reshape(bins, d)
        shares += np.bincount(cell, count / size[user], bins * d).reshape(bins, d)
    below = np.cumsum(whole, axis=0)[:-1]
    above = np.cumsum(shares[::-1], axis=0)[::-1][1:]
    return np.asarray(below + clips[:, None] * above)


@dataclass(frozen=True)
class Losses:
    """Thresholds and relative l1 losses on one domain. NOT PRIVATE.

    ``clips``, ``losses``: mapping of method to (repeats,) float64, a method without randomness has
    one entry; ``grid``, ``grid_losses``: (K,) float64, loss at every threshold of the linear
    search; ``weights``: probabilities of the thresholds, for the methods whose law is known
    exactly.
    """

    clips: Mapping[str, Floats]
    losses: Mapping[str, Floats]
    grid: Floats
    grid_losses: Floats
    weights: Mapping[str, Floats] = field(default_factory=dict)

    def summary(self, method: str) -> tuple[float, float | None]:
        """Return the expected loss, and its standard error where it is an average over choices."""
        if method in self.weights:
            return float(self.weights[method] @ self.losses[method]), None
        return mean_and_error(self.losses[method])

    def mean(self, method: str) -> float:
        """Mean loss: over the repeats, or over the exact law of the choice."""
        return self.summary(method)[0]


@dataclass(frozen=True)
class Setting:
    """One domain size on one population.

    ``domain``: the d most frequent items; chosen with all users' data, as in the paper. NOT
    PRIVATE. ``settings``: those of the experiment.
    """

    users: Users
    domain: Keys
    settings: Any
    seed: int

    @property
    def delta(self) -> float:
        """1 / 2n, for the release and again for the choice."""
        return 0.5 / len(self.users)

    @cached_property
    def index(self) -> NormIndex:
        """Norms of all users. NOT PRIVATE."""
        return NormIndex(self.users, self.domain)

    @cached_property
    def unit(self) -> NoiseLaw:
        """The release's noise at C = 1."""
        return NoiseLaw("gaussian", gaussian_multiplier(self.settings.epsilon, self.delta))

    @property
    def mass(self) -> float:
        """M, the expected l1 norm of the release's noise per unit of C."""
        return len(self.domain) * self.unit.mean_absolute

    def protocol(self, method: str) -> AdaptiveHistogram:
        """Build the protocol of a private method with the paper's budgets."""
        s = self.settings
        rule, dense = RULES[method]
        fixed = method == OUTPUT_FIXED
        rule = "output-perturbation" if fixed else rule
        needs_delta = threshold_rule(rule).needs_delta
        return AdaptiveHistogram(
            self.domain,
            epsilon=s.epsilon + s.epsilon_choice,
            delta=self.delta * (2 if needs_delta else 1),
            epsilon_choice=s.epsilon_choice,
            threshold=rule,
            noise="gaussian",
            clip_max=s.fixed_clip_max if fixed else s.clip_max,
            sparsity=len(self.domain) if dense else None,
            nonneg=False,
            n_users=len(self.users),
            steps=s.steps,
        )

    def measure(self) -> Losses:
        """Choose thresholds by every method and compute the losses of all of them in one pass."""
        l1, l2 = self.index.l1, self.index.l2
        rank = min(max(round(self.mass), 1), len(l2))
        clips = {
            C_STAR: np.array([c_star_gaussian(l1, l2, self.mass)]),
            M_QUANTILE: np.array([np.partition(l2, len(l2) - rank)[len(l2) - rank]]),
        }
        for method in RULES:
            repeats = range(self.settings.repeats if method != EM else 0)
            seeds = [digest64("fedhist.choices", method, self.seed, r) for r in repeats]
            clips[method] = self.choose(method, seeds)
        clips[EM], weights = self.law(EM)
        top = max(1.0, float(l2.max(initial=0.0)), *(float(c.max()) for c in clips.values()))
        octaves = np.log2(top) + 4
        grid = top * 2.0 ** -np.linspace(octaves, 0, int(np.ceil(octaves * PER_OCTAVE)) + 1)
        every = np.unique(np.concatenate([grid, *clips.values()]))
        loss = self.losses_at(every)
        losses = {m: loss[np.searchsorted(every, c)] for m, c in clips.items()}
        at = int(np.argmin(loss))
        clips[BEST], losses[BEST] = every[[at]], loss[[at]]
        grid_losses = loss[np.searchsorted(every, grid)]
        return Losses(clips, losses, grid, grid_losses, {EM: weights})

    def choose(self, method: str, seeds: Iterable[int]) -> Floats:
        """Choose thresholds by a private method, one for each seed."""
        protocol = self.protocol(method)
        task, rule = protocol.task, protocol.rule.search
        if method == OUTPUT_FIXED:
            rule = printed_output
            noises = [noise_of(rule, task, s) for s in seeds]
        else:
            noises = [noise_source("simulated", s, protocol) for s in seeds]
        return np.array([self.index.search(rule, task, n) for n in noises])

    def law(self, method: str) -> tuple[Floats, Floats]:
        """Compute the exact law of a choice by the exponential mechanism: thresholds, weights."""
        task = self.protocol(method).task
        p = self.index.law(task)
        likely = p > NEGLIGIBLE
        return task.grid[likely], p[likely] / p[likely].sum()

    def losses_at(self, clips: Floats) -> Floats:
        """Exact expected relative l1 loss of the release at increasing thresholds, (K,)."""
        truth = totals(self.users, self.domain)
        clipped = clipped_curve(self.users, self.domain, clips, norm=2)
        laws = (NoiseLaw("gaussian", self.unit.scale * c) for c in clips)
        errors = [
            expected_l1(law, np.maximum(truth - k, 0.0))
            for law, k in zip(laws, clipped, strict=True)
        ]
        return np.asarray(np.array(errors) / truth.sum(), dtype=np.float64)

    def whole_runs(self, method: str) -> Floats:
        """Relative losses of whole runs of the protocol over the expected ones, (repeats,)."""
        protocol, truth = self.protocol(method), totals(self.users, self.domain)
        out = []
        for r in range(self.settings.whole_runs):
            seed = digest64("fedhist.whole-runs", self.seed, r)
            estimate = execute(protocol, self.users, Options(seed=seed)).estimate
            expected = self.losses_at(np.array([float(estimate.public["clip"])]))[0]
            out.append(protocol.loss(np.asarray(estimate.value), truth) / truth.sum() / expected)
        return np.array(out)


# -- choices by the norms of all users, without walking them -------------------------------------

Rule = Callable[[ThresholdTask, Curator], Search]


class NormIndex:
    """Norms of all users within a domain, sorted. NOT PRIVATE: it holds them exactly.

    A rule asks for histograms of l2 norms only: each answer costs a few binary searches instead of
    a walk over all records, and is the same integers.

    ``l1``, ``l2``: (n,) float64, in the order of the users.
    """

    def __init__(self, users: Shard, domain: Keys) -> None:
        self.l1, self.l2 = user_norms(users, domain)
        order = np.argsort(self.l2, kind="stable")
        self._size, l1 = self.l2[order], self.l1[order]
        self._slope = np.divide(l1, self._size, out=np.zeros_like(l1), where=self._size > 0)
        self._tails = lru_cache(maxsize=8)(self._cumulate)

    def _cumulate(self, radius: float) -> NDArray[np.int64]:
        """Sum of the weights of the users from place k on, smallest norm first: (n + 1,)."""
        weight = np.ones(len(self._slope), dtype=np.int64)
        if radius:
            weight = np.floor(np.minimum(self._slope / radius, 1.0) * NORM_STEPS).astype(np.int64)
        return np.append(np.cumsum(weight[::-1])[::-1], 0)

    def answer(self, query: NormHistogram) -> Summary:
        """Answer for all users, as they would themselves."""
        first = np.searchsorted(self._size, np.asarray(query.edges), side="right")
        tails = np.append(self._tails(float(query.radius))[first], 0)
        return Summary(len(self.l2), {"weight": tails[:-1] - tails[1:]})

    def search(self, rule: Rule, task: ThresholdTask, noise: Noise) -> float:
        """Run a rule by itself, on a ledger of the task's own budget, and return its threshold.

        With the noise of a protocol's run it is that run's choice; a whole session, whose records
        nobody reads here, is several times slower.
        """
        budget = Guarantee(task.epsilon, task.delta, Trust.CENTRAL, task.adjacency)
        server = Curator(Ledger(budget), noise, Journal())
        script = rule(task, server)
        try:
            query = next(script)
            while True:
                if not isinstance(query, NormHistogram) or query.norm != 2:
                    raise ValueError(f"{rule.__name__} asks for {query}, not for l2 norms")
                query = script.send(self.answer(query))
        except StopIteration as stop:
            choice: Choice = stop.value
        return choice.clip

    def law(self, task: ThresholdTask) -> Floats:
        """Compute the exact law of the default rule's choice, over the grid: (K,)."""
        query = slope_query(task)
        scores, size = slope_scores(task, slope_aim(task), query, self.answer(query))
        return exponential_law(scores, size, task.epsilon)


def noise_of(rule: Rule, task: ThresholdTask, seed: int) -> Noise:
    """Seeded noise for a rule that is no protocol's."""
    key = digest64("fedhist.experiments", seed, rule.__name__, repr(task.domain.digest))
    return lambda index: SimulatedNoise(key, index)


# -- Algorithm 2 as printed ------------------------------------------------------------------------

BINS = 4096


def printed_output(task: ThresholdTask, server: Curator) -> Search:
    """Minimise G(C) + (n lambda / 2) C^2 over C >= 0 and add Laplace noise, C_m being c_max.

    Figure 5 needs it. It is no rule of ``adaptive-histogram``: its noise is four times what the
    privacy needs.

    lambda = 2 sqrt(2 s) / (C_m sqrt(n epsilon')), where the algorithm prints epsilon for epsilon'
    (Corollary 4.5 has it right); noise of scale 4 sqrt(s) / (lambda n epsilon'). Added to what is
    printed: slopes are cut to sqrt(s), C is projected to [c_min, c_max], and norms are rounded up
    to one of 4,096 values.

    Privacy
    -------
    epsilon' is charged, as the paper states; a quarter of it is what the noise needs, because the
    minimiser changes by at most sqrt(s) / (lambda n) with one user.
    """
    if task.n_users is None:
        raise ValueError(f"n_users must be public, got {task.n_users}")
    edges = np.geomspace(task.c_min, task.c_max, BINS)
    query = NormHistogram(task.domain, tuple(edges.tolist()), task.norm, task.radius)
    summary = yield query
    strength = 2 * math.sqrt(2 * task.n_users / task.epsilon) * task.radius / task.c_max
    # M + strength C - S(C) rises; with S constant between edges it meets zero at the smallest of
    crossing = (query.unit * query.tails(summary) - task.mass) / strength
    best = float(np.maximum(np.append(0.0, edges[1:]), crossing).min())
    sensitivity = 4 * task.radius / strength
    noisy = server.laplace(
        np.array(best), l1_sensitivity=sensitivity, epsilon=task.epsilon, label="printed-output"
    )
    clip = min(max(float(noisy), task.c_min), task.c_max)
    return Choice(clip, at_the_ends(clip, task))
