"""Which thresholds ``adaptive-histogram`` chooses on known users, and how often. NOT PRIVATE."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedhist.base.arrays import Array, Floats
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.losses import L1
from fedhist.protocols.clip_choice import theory as theory_thresholds
from fedhist.protocols.clip_choice.by_exponential import law_of, slope_aim
from fedhist.protocols.clip_choice.measured.norm_index import NormIndex
from fedhist.protocols.clip_choice.rule import Aim, ThresholdRule, ThresholdTask
from fedhist.protocols.clip_choice.two_norms import norm_law
from fedhist.protocols.histograms.bounded_histogram import BoundedHistogram
from fedhist.protocols.shared.clipped_totals import user_norms
from fedhist.protocols.shared.seen import Seen
from fedhist.users.batch import Users

CLOSE = 1.5
"""Ratio to the error at the best threshold from which on a prediction says so. Of few items there
is no way round it: few users who hold much are not seen (``docs/central.md``)."""

Parts = list[tuple[int, Floats, Floats]]
"""For each norm: thresholds, and the probability of each."""


@dataclass(frozen=True)
class ChoiceLaw:
    """How the threshold is chosen, by public numbers.

    Attributes
    ----------
    rule : ThresholdRule
    tasks : tuple of ThresholdTask
        The search in each norm that the release may be in.
    """

    rule: ThresholdRule
    tasks: tuple[ThresholdTask, ...]

    def tails(self, users: Users) -> dict[str, Array]:
        """Add up what the law of the choice follows from, in the steps of slopes. NOT PRIVATE."""
        if self.rule.aim is None and len(self.tasks) == 1:
            return {}
        norms = user_norms(users, self.tasks[0].domain)
        return {
            f"tails {t.norm}": theory_thresholds.tails_in_steps(
                *norms, t.grid, t.norm, self._aim(t).radius
            )
            for t in self.tasks
        }

    def thresholds(self, seen: Seen) -> tuple[Parts, bool, str]:
        """Return the law, whether it is exact, and where it comes from. NOT PRIVATE."""
        task = self.tasks[-1]
        if len(self.tasks) == 2:
            l1, l2 = self.tasks
            law = norm_law(l1, l2, (self._read(seen, l1), self._read(seen, l2)))
            parts = [(t.norm, t.grid, w) for t, w in zip(self.tasks, law, strict=True)]
            exact, source = True, "mixture over both norms' exponential mechanisms"
        elif self.rule.aim is not None:
            weights = law_of(self._aim(task), task, self._read(seen, task))
            parts = [(task.norm, task.grid, weights)]
            exact, source = True, "mixture over the exponential mechanism; Liu et al. 2023, Sec. 4"
        else:
            index = NormIndex(seen.users, task.domain)
            clips = index.clips(self.rule.search, task)
            chosen, times = np.unique(clips, return_counts=True)
            parts = [(task.norm, chosen, times / len(clips))]
            exact, source = False, f"mean over {len(clips)} runs of the rule on the exact norms"
            source += index.sampled
        return parts, exact, source

    def bound(
        self,
        seen: Seen,
        released: Callable[[float, int], BoundedHistogram],
        *,
        nonneg: bool,
        ratio: bool,
    ) -> ErrorBound:
        """Predict the error: of the release at every threshold, by their law. NOT PRIVATE.

        Parameters
        ----------
        seen : Seen
        released : callable
            Makes the protocol of the release of a threshold, in a norm.
        nonneg : bool
            Whether negative totals are raised to zero.
        ratio : bool
            Whether the release is scaled up afterwards.
        """
        parts, exact, source = self.thresholds(seen)
        exact, source = (False, f"{source}; before the ratio") if ratio else (exact, source)
        expected, least, domain = 0.0, math.inf, self.tasks[0].domain
        for norm, chosen, weights in parts:
            releases = [released(float(c), norm) for c in chosen]
            clips, laws = np.array([r.clip for r in releases]), [r.noise for r in releases]
            what = seen.users, domain, clips, weights, laws, norm, nonneg, seen.truth
            mean, best = theory_thresholds.mixture_l1(*what)
            expected, least = expected + mean, min(least, best)
        if expected / CLOSE > least > 0:
            times = f"{expected / least:.2g}"
            source += "; close: a clip known beforehand may err "
            source += f"{times} times less than the chosen one"
        return ErrorBound(L1, expected, exact, source)

    def _aim(self, task: ThresholdTask) -> Aim:
        return (self.rule.aim or slope_aim)(task)

    def _read(self, seen: Seen, task: ThresholdTask) -> Floats:
        """Read the sum over users above each threshold of what the rule adds up. NOT PRIVATE."""
        step = theory_thresholds.step_of(self._aim(task).radius)
        return np.asarray(seen[f"tails {task.norm}"] * step)
