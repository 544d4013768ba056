"""What ``unbounded-histogram`` is evaluated from: sums over users for every item. NOT PRIVATE."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from fedhist.base.arrays import Array, Floats, Integers
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.losses import L1
from fedhist.model.measures import Measure, Measured
from fedhist.model.query import Summary
from fedhist.protocols.clip_choice.unbounded import BoundTask, bound_probabilities
from fedhist.protocols.histograms import unbounded_theory as theory
from fedhist.protocols.histograms.keys_then_counts import KeysThenCounts
from fedhist.users.batch import Users
from fedhist.users.key_sample import Sampled, one_in, told_apart
from fedhist.users.keys import Keys

NEGLIGIBLE = 1e-9
"""Probability below which a threshold does not count in a predicted error."""

CELLS = 1 << 24
"""Moments that are kept at once: of more thresholds, some at a time."""


@dataclass(frozen=True)
class KeySums(Measure):
    """Totals of every item, and moments of what is sent of it.

    Attributes
    ----------
    method : KeysThenCounts, int or BoundTask
        Keys first; or samples of C tokens, which is given or chosen.
    release_at : callable
        Law of the release of samples at a given C.
    """

    finds_keys: ClassVar[bool] = True
    method: KeysThenCounts | int | BoundTask
    release_at: Callable[[int], theory.KeyRelease]

    def of(self, users: Users) -> Summary:
        """Add up a block: (V,) each, over the vocabulary, or the sample of it."""
        users = told_apart(users)
        method, sums = self.method, {"whole": theory.item_totals(users)}
        if isinstance(method, KeysThenCounts):
            sums |= method.weights(users)
        elif not isinstance(method, BoundTask):
            mean, variance = theory.clipped_moments(users, [method])
            sums |= {"mean": mean[0], "variance": variance[0]}
        return Summary(len(users), sums)

    def finish(self, total: Summary) -> Measured:
        """Read the sums."""
        return FoundKeys(self, total)


@dataclass(frozen=True)
class FoundKeys(Measured):
    """The sums over all users, for the items that are told apart. NOT PRIVATE."""

    measure: KeySums
    total: Summary

    @cached_property
    def one_in(self) -> int:
        """Of so many items about one is told apart."""
        return one_in(self.users.none.vocabulary)

    @cached_property
    def _told_apart(self) -> Sampled:
        """The users, by the items that are told apart."""
        return Sampled(self.users)

    @cached_property
    def _places(self) -> Integers:
        """Where the items that occur are in the vocabulary, in byte order."""
        total = self.total.sums["whole"]
        if self.one_in > 1:
            total = np.append(total[:-1], 0.0)  # the last stands for all that are not sampled
        return theory.in_byte_order(self._told_apart.none.vocabulary, total)

    @cached_property
    def support(self) -> Keys:
        """The items that occur, in byte order."""
        return self._told_apart.none.vocabulary.take(self._places)

    @property
    def truth(self) -> Array:
        """The total count of every item that occurs, (k,)."""
        return self["whole"]

    @property
    def diagnostics(self) -> Mapping[str, float]:
        """Say that items are sampled."""
        return {"items sampled 1 in": float(self.one_in)} if self.one_in > 1 else {}

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
        counts' error averaged over some draws of the keys. Where items are sampled, that of all is
        so many times that of the sample; with keys first it is that of all items.
        """
        method, source = self.measure.method, "E|released - true|; Liu et al. 2023, (8)"
        sampled = f"; sampled 1 in {self.one_in}" if self.one_in > 1 else ""
        if isinstance(method, KeysThenCounts):
            of_all = (method, self.support, self)
            expected = self._of_stages(method) if sampled else self._at_stages(*of_all)
            source = "missed keys, and counts over draws of the rest"
            return ErrorBound(L1, expected, False, source)
        if not isinstance(method, BoundTask):
            expected = self._expected(method, self["mean"], self["variance"])
            exact = not sampled and not self["variance"].any()
            return ErrorBound(L1, expected, exact, source + sampled)
        clips, probabilities = bound_probabilities(method, self._told_apart, self.one_in)
        likely = np.flatnonzero(probabilities > NEGLIGIBLE)
        expected, step = 0.0, max(1, CELLS // max(1, len(self.total.sums["whole"])))
        for start in range(0, len(likely), step):
            some = likely[start : start + step]
            moments = theory.clipped_moments(self._told_apart, clips[some].tolist())
            for i, mean, variance in zip(some, *moments, strict=True):
                here = mean[self._places], variance[self._places]
                expected += probabilities[i] * self._expected(int(clips[i]), *here)
        return ErrorBound(L1, expected, False, source + sampled)

    def _expected(self, clip: int, mean: Floats, variance: Floats) -> float:
        law = self.measure.release_at(clip)
        return float(self.one_in * theory.expected_loss(self.truth, mean, variance, law))

    def _of_stages(self, stages: KeysThenCounts) -> float:
        """Predict the error with keys first from all keys: a user's counts are clipped together.

        One array of each sum over the whole vocabulary is held, and no tree of them.
        """
        none = self.users.none
        sums = {"whole": theory.item_totals(none), **stages.weights(none)}
        for block in self.users.blocks():
            sums["whole"] += theory.item_totals(block)
            for name, found in stages.weights(block).items():
                sums[name] += found
        there = np.flatnonzero(sums["whole"])
        keys = none.vocabulary.take(there)
        return self._at_stages(stages, keys, {name: x[there] for name, x in sums.items()})

    def _at_stages(
        self, stages: KeysThenCounts, keys: Keys, sums: Mapping[str, Floats] | FoundKeys
    ) -> float:
        chance = stages.keys.chance(sums["mean"], np.sqrt(sums["variance"]))
        return stages.expected(self.users, keys, sums["whole"], chance)
