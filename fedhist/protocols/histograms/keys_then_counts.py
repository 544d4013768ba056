"""Keys, then counts: which items there are, and a histogram over them (central).

A histogram over unknown keys by one noise and one threshold pays for the longest record with every
key: its noise is in proportion to C, and so is the count that a key needs to appear. Here a first
release spends a part f of epsilon and all of delta on WHICH items appear, to which a user of many
items adds as much as one of a few (:mod:`fedhist.session.weighted_keys`); a second one counts the
released items with Laplace noise and a clip of its own. Idea and constants are the project's own;
of algorithms that release as many keys as can be (rerouted weights, several passes) the sums are no
counts, and where users may send fifty keys they find no more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import count

import numpy as np

from fedhist.base.arrays import Array, Floats
from fedhist.model.measures import measured
from fedhist.model.protocol import Estimate, Script
from fedhist.privacy.guarantee import Adjacency
from fedhist.protocols.histograms.adaptive_histogram import AdaptiveHistogram
from fedhist.protocols.histograms.distinct_keys import DistinctKeys
from fedhist.protocols.shared.total_loops import add_of_users
from fedhist.session.curator import Curator
from fedhist.session.weighted_keys import WEIGHT, WeightedKeys, weight_of
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard

DRAWS, ENOUGH = (4, 64), 2000.0
"""Least and most draws of keys behind a prediction, and how many keys they shall have in all."""


@dataclass(frozen=True)
class KeysThenCounts:
    """Public numbers of both stages.

    Attributes
    ----------
    keys : WeightedKeys
        The first.
    counts : AdaptiveHistogram
        The second, over whatever domain.
    """

    keys: WeightedKeys
    counts: AdaptiveHistogram

    @classmethod
    def of(
        cls,
        epsilon: float,
        delta: float,
        epsilon_keys: float,
        *,
        limit: int,
        epsilon_choice: float | None,
        clip_max: float,
        adjacency: str,
        discrete: bool,
    ) -> KeysThenCounts:
        """Split a budget: ``epsilon_keys`` and all of delta for the keys."""
        replaced = Adjacency(adjacency) is Adjacency.REPLACE_USER
        left = math.inf if math.isinf(epsilon) else epsilon - epsilon_keys
        counts = AdaptiveHistogram(
            Keys.range(1),
            left,
            epsilon_choice=epsilon_choice,
            clip_max=clip_max,
            adjacency=adjacency,
            discrete=discrete,
        )
        return cls(WeightedKeys(limit, epsilon_keys, delta, replaced, discrete), counts)

    @property
    def max_rounds(self) -> int:
        """One for the keys, and those of the counts."""
        return 1 + self.counts.max_rounds

    def rounds(self, server: Curator) -> Script:
        """Release the keys, then their counts."""
        summary = yield DistinctKeys(self.keys.limit)
        found = server.keys(summary.keyed["weights"], self.keys)
        public = {
            "keys": float(len(found)),
            "key_threshold": self.keys.threshold / WEIGHT,
            "key_noise_std": self.keys.std / WEIGHT,
        }
        if not len(found):
            return Estimate.failed(
                "no item appeared: too few users share any; raise epsilon, or delta", public=public
            )
        estimate = yield from replace(self.counts, domain=found).rounds(server)
        return replace(estimate, public={**estimate.public, **public})

    # -- evaluation: NOT PRIVATE -----------------------------------------------------------------

    def expected(self, users: Shard, keys: Keys, truth: Floats, chance: Floats) -> float:
        """Predict the expected l1 error over the keys that occur. NOT PRIVATE.

        A key's weight is a sum over users, taken as normal with its exact mean and variance over
        what users send; what the keys that do not appear cost follows exactly from that. The error
        of those that do is the exact one of the second stage, averaged over draws of the keys,
        each of which takes two passes over the users.
        """
        if not len(keys):
            return 0.0
        rng = np.random.default_rng(0)
        least, most = DRAWS
        found = 0.0
        errors = []
        for number in count(1):
            shown = np.flatnonzero(rng.random(len(keys)) < chance)
            domain = keys.take(shown)
            some = len(shown) > 0
            counts = replace(self.counts, domain=domain) if some else self.counts
            errors.append(measured(counts, users).error.expected if some else 0.0)
            found += len(shown)
            if number >= most or (number >= least and found >= ENOUGH):
                break
        return float((1 - chance) @ truth) + math.fsum(errors) / len(errors)

    def weights(self, users: Users) -> dict[str, Array]:
        """Add up mean and variance of every item's weight over what users send. NOT PRIVATE."""
        v, limit = users.counts, self.keys.limit
        table = np.array([0, *(weight_of(t) for t in range(1, limit + 1))], dtype=np.float64)
        size = np.diff(v.indptr)
        weight, kept = table[np.minimum(size, limit)], np.minimum(1.0, limit / np.maximum(size, 1))
        mean, variance = np.zeros(len(v.vocabulary)), np.zeros(len(v.vocabulary))
        spread = kept * (1 - kept) * weight**2
        add_of_users(v.indptr, v.item, kept * weight, spread, mean, variance)
        return {"mean": mean, "variance": variance}
