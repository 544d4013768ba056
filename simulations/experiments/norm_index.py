"""Run the private choice of a threshold many times on one population, without walking the users.

Where a choice is by the exponential mechanism, its law is known exactly.

A rule asks for histograms of norms only. With the norms of all users sorted, each answer costs a
few binary searches instead of a walk over all records, and is the same integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from clients.histograms.contributions import NORM_STEPS, NormHistogram
from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.model.query import Summary
from fedhist.privacy.guarantee import Guarantee, Trust
from fedhist.privacy.ledger import Ledger
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard
from server.clip_choice.rule import (
    Choice,
    Search,
    ThresholdTask,
    slope_aim,
    slope_query,
    slope_scores,
)
from server.noise import SimulatedNoise
from server.session.curator import Curator, Noise
from server.session.journal import Journal
from server.targets.clipped_totals import user_norms

Rule = Callable[[ThresholdTask, Curator], Search]


class NormIndex:
    """Norms of all users within a domain, sorted. NOT PRIVATE: it holds them exactly.

    ``l1``, ``l2``: (n,) float64, in the order of the users.
    """

    def __init__(self, users: Shard, domain: Keys) -> None:
        self.l1, self.l2 = user_norms(users, domain)
        self._ordered = {n: self._sort(n) for n in (1, 2)}
        self._tails = lru_cache(maxsize=8)(self._cumulate)

    def __len__(self) -> int:
        return len(self.l1)

    def _sort(self, norm: int) -> tuple[Floats, Floats]:
        """Norms and slopes, smallest norm first."""
        size = self.l1 if norm == 1 else self.l2
        order = np.argsort(size, kind="stable")
        size, l1 = size[order], self.l1[order]
        return size, np.divide(l1, size, out=np.zeros_like(l1), where=size > 0)

    def _cumulate(self, norm: int, radius: float) -> NDArray[np.int64]:
        """Sum of the weights of the users from place k on: (n + 1,)."""
        slope = self._ordered[norm][1]
        if radius:
            weight = np.floor(np.minimum(slope / radius, 1.0) * NORM_STEPS).astype(np.int64)
        else:
            weight = np.ones(len(slope), dtype=np.int64)
        return np.append(np.cumsum(weight[::-1])[::-1], 0)

    def answer(self, query: NormHistogram) -> Summary:
        """Answer for all users, as they would themselves."""
        size = self._ordered[query.norm][0]
        first = np.searchsorted(size, np.asarray(query.edges), side="right")
        tails = np.append(self._tails(query.norm, float(query.radius))[first], 0)
        return Summary(len(self), {"weight": tails[:-1] - tails[1:]})

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
                if not isinstance(query, NormHistogram):
                    raise ValueError(f"{rule.__name__} asks for {query}, not for norms")
                query = script.send(self.answer(query))
        except StopIteration as stop:
            choice: Choice = stop.value
        return choice.clip

    def law(self, task: ThresholdTask) -> Floats:
        """Compute the exact law of the default rule's choice, over the grid: (K,)."""
        query = slope_query(task)
        scores, size = slope_scores(task, slope_aim(task), query, self.answer(query))
        return exponential_law(scores, size, task.epsilon)


def exponential_law(scores: Floats, sensitivity: float, epsilon: float) -> Floats:
    """Law of the exponential mechanism, (K,); at epsilon = inf the first best is certain."""
    if math.isinf(epsilon):
        return np.asarray(np.arange(len(scores)) == np.argmax(scores), dtype=np.float64)
    return np.asarray(softmax(scores * (epsilon / (2 * sensitivity))))


def noise_of(rule: Rule, task: ThresholdTask, seed: int) -> Noise:
    """Seeded noise for a rule that is no protocol's."""
    key = digest64("fedhist.experiments", seed, rule.__name__, repr(task.domain.digest))
    return lambda index: SimulatedNoise(key, index)
