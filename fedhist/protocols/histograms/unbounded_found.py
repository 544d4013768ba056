"""What ``unbounded-histogram`` is evaluated from: sums over users for every item. NOT PRIVATE."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from fedhist.base.arrays import Array, Floats, Integers
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.losses import L1
from fedhist.model.measures import Measure, Measured
from fedhist.model.query import Summary
from fedhist.protocols.clip_choice.unbounded import bound_probabilities
from fedhist.protocols.histograms import unbounded_theory as theory
from fedhist.users.batch import Users
from fedhist.users.keys import Keys

if TYPE_CHECKING:
    from fedhist.protocols.histograms.unbounded_histogram import UnboundedHistogram

NEGLIGIBLE = 1e-9
"""Probability below which a threshold does not count in a predicted error."""

CELLS = 1 << 24
"""Moments that are kept at once: of more thresholds, some at a time."""


@dataclass(frozen=True)
class KeySums(Measure):
    """Totals of every item, and moments of what is sent of it."""

    finds_keys: ClassVar[bool] = True
    protocol: UnboundedHistogram

    def of(self, users: Users) -> Summary:
        """Add up a block: (V,) each, over the vocabulary."""
        p, sums = self.protocol, {"whole": theory.item_totals(users)}
        if p.by_keys:
            sums |= p.stages.weights(users)
        elif p.clip is not None:
            mean, variance = theory.clipped_moments(users, [p.clip])
            sums |= {"mean": mean[0], "variance": variance[0]}
        return Summary(len(users), sums)

    def finish(self, total: Summary) -> Measured:
        """Read the sums."""
        return FoundKeys(self.protocol, total)


@dataclass(frozen=True)
class FoundKeys(Measured):
    """The sums over all users. NOT PRIVATE."""

    protocol: UnboundedHistogram
    total: Summary

    @cached_property
    def _places(self) -> Integers:
        """Where the items that occur are in the vocabulary, in byte order."""
        return theory.in_byte_order(self.users.none.vocabulary, self.total.sums["whole"])

    @cached_property
    def support(self) -> Keys:
        """The items that occur, in byte order."""
        vocabulary = self.users.none.vocabulary
        return Keys.of([vocabulary[int(j)] for j in self._places])

    @property
    def truth(self) -> Array:
        """The total count of every item that occurs, (k,)."""
        return self["whole"]

    def __getitem__(self, name: str) -> Floats:
        """Return one of the sums, of the items that occur: (k,)."""
        return np.asarray(self.total.sums[name][self._places])

    @cached_property
    def error(self) -> ErrorBound:
        """The expected l1 error.

        Exact where C is given and no user has more than C tokens. Otherwise the counts that
        clipping leaves are random, and taken as normal with their exact means and variances; a C
        that is chosen is averaged over the exact law of the choice, by more passes over the users.
        With keys first: what is missed exactly but for the sampling of long records, and the
        counts' error averaged over some draws of the keys.
        """
        p, source = self.protocol, "E|released - true|; Liu et al. 2023, (8)"
        if p.by_keys:
            chance = p.stages.keys.chance(self["mean"], np.sqrt(self["variance"]))
            expected = p.stages.expected(self.users, self.support, self.truth, chance)
            return ErrorBound(L1, expected, False, "missed keys, and counts over draws of the rest")
        if p.clip is not None:
            expected = self._expected(p.clip, self["mean"], self["variance"])
            return ErrorBound(L1, float(expected), not self["variance"].any(), source)
        clips, probabilities = bound_probabilities(p.task, self.users)
        likely = np.flatnonzero(probabilities > NEGLIGIBLE)
        expected, step = 0.0, max(1, CELLS // max(1, len(self.total.sums["whole"])))
        for start in range(0, len(likely), step):
            some = likely[start : start + step]
            moments = theory.clipped_moments(self.users, clips[some].tolist())
            for i, mean, variance in zip(some, *moments, strict=True):
                here = mean[self._places], variance[self._places]
                expected += probabilities[i] * self._expected(int(clips[i]), *here)
        return ErrorBound(L1, float(expected), False, source)

    def _expected(self, clip: int, mean: Floats, variance: Floats) -> float:
        law = self.protocol.release_at(clip)
        return theory.expected_loss(self.truth, mean, variance, law)
