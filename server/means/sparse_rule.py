"""Which procedure for a sparse mean: predicted errors over all amplitudes of the signals [E].

Neither selection nor thresholding is best for every signal, nor is one number of votes a user:
strong signals are found by few votes, those that no user sees in its own mean by many, or by the
average of many reports. The amplitude is not known beforehand, so that the choice of least regret
over a grid of amplitudes is made. Public numbers decide.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 4.1, Theorem 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from fedhist.base.arrays import Floats
from server.means.localize import Plan, plan_univariate
from server.means.support import REACH, VoteLaw, kept_noise, selection_level, vote_threshold

VOTE_SHARES = (0.5, 0.3, 0.15)
"""Of the users, who select: one of these."""
AMPLITUDES = 40
CLOSE = 1.8
"""A choice is close if at some amplitude another one errs so many times less."""
WRONG_FOLD = 0.33
"""Of radius^2: what a coordinate costs that a failed vote puts among the s largest."""


@dataclass(frozen=True)
class Choice:
    """A procedure, and what it may cost not to know the amplitude.

    Attributes
    ----------
    votes : int
        Most votes of a user who selects; 0 for thresholding.
    share : float
        Expected share of the users who select.
    regret : float
        Geometric mean, over the amplitudes, of its error over the least error of all choices.
    worst : float
        The largest such ratio.
    useful : bool
        Whether there is an amplitude at which it is expected to halve the error of the estimate 0.
    """

    votes: int
    share: float
    regret: float
    worst: float
    useful: bool

    @property
    def method(self) -> str:
        """The procedure: "select" or "threshold"."""
        return "select" if self.votes else "threshold"

    @property
    def close(self) -> bool:
        """Whether a declared ``min_signal`` could make a difference."""
        return self.worst > CLOSE


@dataclass(frozen=True)
class SparseSetting:
    """Public numbers that the procedures are planned with.

    Parameters
    ----------
    n_users : float
    mean_scale : float
        Standard deviation of a coordinate of a user's mean.
    dimension, sparsity : int
        d and s < d.
    radius, epsilon : float
    kind : str
        Scalar channel of the refined reports.
    law : VoteLaw
        Its number of votes is replaced by those that are looked at.
    """

    n_users: float
    mean_scale: float
    dimension: int
    sparsity: int
    radius: float
    epsilon: float
    kind: str
    law: VoteLaw

    def law_of(self, votes: int) -> VoteLaw:
        """Return the law of a report about so many votes."""
        return replace(
            self.law, sparsity=votes, reach=REACH * math.sqrt(votes) if self.law.reach else 0.0
        )

    def amplitudes(self, min_signal: float | None = None) -> Floats:
        """Return the amplitudes that may occur: (40,), from what nobody finds to the radius."""
        least = max(min_signal or 0.0, self.mean_scale / 8)
        return np.geomspace(min(least, self.radius), self.radius, AMPLITUDES)

    def select(self, b: Floats, votes: int, share: float) -> Floats:
        """Predict the summed squared error of selection: s (b^2 (1 - h) + h risk(n_2 / s)), (k,).

        h is the chance that a signal of amplitude b (k,) is found: its lead in deviations, by a
        share of the users with so many votes each, passes the level of noise.
        """
        s, lead = self.sparsity, self.lead(b, votes) * math.sqrt(self.n_users * share)
        h = ndtr(lead - selection_level(self.dimension, s))
        refined = self._plan(self.n_users * (1 - share) / s).risk
        return np.asarray(s * (b**2 * (1 - h) + h * refined))

    def threshold(self, b: Floats) -> Floats:
        """Predict the summed squared error of thresholding, (k,).

        Of signals, and of what noise puts beside them where there is room. A failed vote puts a
        coordinate among the s largest.
        """
        d, s = self.dimension, self.sparsity
        plan = self._plan(self.n_users / d)
        kept, noise = kept_noise(b, plan.variance, d)
        null_kept, null_noise = (float(x) for x in kept_noise(0.0, plan.variance, d))
        room = s * (1 - kept) / max((d - s) * null_kept, 1e-300)
        nulls = np.minimum(1.0, room) * (d - s) * null_noise
        wrong = WRONG_FOLD * min(s, d * plan.failure) * self.radius**2
        return np.asarray(s * (noise + (1 - kept) * b**2) + nulls + wrong)

    def choices(
        self, min_signal: float | None = None, max_votes: int | None = None
    ) -> list[Choice]:
        """Return thresholding, and selection with s, 2 s, 4 s ... votes, each with its regret."""
        b = self.amplitudes(min_signal)
        zero = self.sparsity * b**2
        doublings = int(math.log2(self.dimension / self.sparsity))
        votes = {self.sparsity << i for i in range(doublings + 1)} | {max_votes or self.sparsity}
        how = [(0, 0.0), *((w, share) for w in sorted(votes) for share in VOTE_SHARES)]
        errors = np.array([self.select(b, w, p) if w else self.threshold(b) for w, p in how])
        ratio = errors / np.minimum(errors.min(axis=0), zero)
        mean = np.exp(np.log(ratio).mean(axis=1))
        return [
            Choice(w, p, float(m), float(r.max()), bool((2 * e < zero).any()))
            for (w, p), m, r, e in zip(how, mean, ratio, errors, strict=True)
        ]

    def _plan(self, n_users: float) -> Plan:
        return plan_univariate(n_users, self.mean_scale, self.radius, self.epsilon, self.kind)

    def lead(self, b: Floats, votes: int) -> Floats:
        """Mean score of a signal, for signed votes, in deviations of one user's.

        A user's means are Gaussian around b and 0; those of its largest that get its votes are
        the ones beyond the distance at which so many are expected, or beyond the vote's threshold.
        On average noise has as many votes of either sign.
        """
        d, s, x = self.dimension, self.sparsity, b / self.mean_scale

        def expected(t: Floats) -> Floats:
            return np.asarray(s * (ndtr(x - t) + ndtr(-x - t)) + (d - s) * 2 * ndtr(-t))

        low = np.full_like(x, vote_threshold(1.0, d, votes))
        high = low + x + 12.0
        cut = low
        for _ in range(50):
            cut = (low + high) / 2
            many = expected(cut) > votes
            low, high = np.where(many, cut, low), np.where(many, high, cut)
        law = self.law_of(votes)
        gain = np.array([law.gain(min(votes, math.ceil(v))) for v in expected(cut)])
        return np.asarray((ndtr(x - cut) - ndtr(-x - cut)) * gain / law.deviation)


@lru_cache(maxsize=1024)
def sparse_rule(
    setting: SparseSetting,
    method: str = "auto",
    min_signal: float | None = None,
    max_votes: int | None = None,
) -> Choice:
    """Choose the procedure, the number of votes and the voters' share of least mean log regret.

    Parameters
    ----------
    setting : SparseSetting
    method : {"auto", "select", "threshold"}
    min_signal : float, optional
        Declared least amplitude: smaller ones are not looked at.
    max_votes : int, optional
        Declared number of votes; others are looked at for comparison only.

    Returns
    -------
    Choice
        Of several equal ones thresholding, then that of the fewest votes.
    """
    allowed = [
        c
        for c in setting.choices(min_signal, max_votes)
        if method in ("auto", c.method) and c.votes in (0, max_votes or c.votes)
    ]
    return min(allowed, key=lambda c: c.regret)
