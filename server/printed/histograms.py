"""Histograms as the paper prints them: Algorithm 3, and two rules for the clip [1]_.

Algorithm 3 puts noise on every item that any user has, sent or not: NOT PRIVATE.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Section 4.2, Corollary 4.4, Algorithms 2 and 3,
   Lemma 5.1 and Section 7.1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust
from server.clip_choice.by_paper import Series, free_choice, log_descent, perturbed
from server.clip_choice.rule import Search, ThresholdRule, ThresholdTask
from server.histograms.unbounded_histogram import KeyRelease, UnboundedHistogram
from server.modes import Mode, register_printed
from server.session.curator import Curator
from server.session.unknown_keys import printed_key_threshold


@register_printed
@dataclass(frozen=True)
class UnboundedHistogramAsPrinted(UnboundedHistogram):
    """Real-valued noise of scale C / epsilon, and t = C + (C / epsilon) ln(C / 2 delta)."""

    raw_support: ClassVar[bool] = True
    way_out: ClassVar[str] = 'mode = "paper" draws none'
    mode: Mode = "paper"

    @property
    def guarantee(self) -> Guarantee:
        """Nothing finite: an item that clipping took away may appear."""
        return Guarantee(math.inf, 0.0, Trust.CENTRAL, Adjacency(self.adjacency))

    @property
    def claimed(self) -> Guarantee:
        return Guarantee(self.epsilon, self.delta, Trust.CENTRAL, Adjacency.REPLACE_USER)

    @property
    def real_valued(self) -> bool:
        return True

    def l1_sensitivity(self, clip: int) -> int:
        """C, whatever the adjacency."""
        return clip

    def release_at(self, clip: int) -> KeyRelease:
        """Law of the release at a given C: noise scale, threshold and support."""
        at = printed_key_threshold(clip, self.release_epsilon, self.delta)
        return KeyRelease(clip / self.release_epsilon, at, discrete=False, raw_support=True)


# -- rules for the clip ------------------------------------------------------------------------


def proof_step(
    clip: float, number: int, gap: float, size: float, ends: tuple[float, float]
) -> float:
    """Take one step of the length that the convergence proof asks for, projected.

    C - c_max gap / (size sqrt(t)); ``size`` bounds the root mean square of the noisy slope:
    sqrt(n^2 L^2 + noise variance), for n users of Lipschitz constant L.

    >>> proof_step(5.0, 4, gap=1.0, size=10.0, ends=(1.0, 8.0))
    4.6
    """
    moved = clip - ends[1] * gap / (size * math.sqrt(number))
    return min(max(moved, ends[0]), ends[1])


def public_users(task: ThresholdTask) -> int:
    """Return the public number of users; ValueError without it."""
    if task.n_users is None:
        raise ValueError("a rule as printed needs a public number of users: set n_users")
    return task.n_users


def dp_sgd_paper(task: ThresholdTask, server: Curator) -> Search:
    """Descend G with the step sizes of Corollary 4.4's proof; returns the last iterate.

    C <- C - C_m (M - S + noise) / sqrt(t (n^2 L^2 + noise^2)) with n L = n R + M, for T full-batch
    steps. It hardly moves: 0.4 % of the range for T = 40, n = 1e6, R = 10 and slopes of 3400. The
    rate of the corollary needs the n^2 steps.
    """
    n_users = public_users(task)
    free = free_choice(task)
    if free is not None:
        return free
    series = Series(task, task.slope_radius)
    size = math.hypot(n_users * task.radius + task.mass, series.noise_std)

    def move(clip: float, number: int, tail: float) -> float:
        return proof_step(clip, number, task.mass - tail, size, (task.c_min, task.c_max))

    path = yield from series.clips(server, "dp-sgd-paper", move, (task.c_min + task.c_max) / 2)
    return series.concluded(path[-1])


def output_perturbation_paper(task: ThresholdTask, server: Curator) -> Search:
    """Run Algorithm 2 as printed, with C_m from DP-M-quantile on half of epsilon' (Section 7.1).

    lambda = 2 sqrt(2 s) / (C_m sqrt(n epsilon')), where the algorithm prints epsilon for epsilon'
    (Corollary 4.5 has it right); noise of scale Delta / epsilon' with Delta = 4 sqrt(s) / (lambda
    n).

    Privacy
    -------
    (epsilon', delta')-DP as the paper states, and charged: (epsilon' / 2, delta') for C_m and
    epsilon' / 2 for the output. In truth Delta is four times the exact sensitivity R / Lambda: the
    output costs epsilon' / 8.
    """
    n_users = public_users(task)
    free = free_choice(task)
    if free is not None:
        return free
    half = task.epsilon / 2
    series = Series(replace(task, epsilon=half), 0.0)
    c_m = yield from log_descent(series, server, "output-perturbation: C_m")
    strength = 2 * math.sqrt(2 * n_users / half) * task.radius / c_m
    choice = yield from perturbed(task, server, strength, half, 4)
    return replace(choice, public={**choice.public, "c_m": c_m})


def _rounds(task: ThresholdTask) -> int:
    """Count the rounds of a descent that needs a public number of users."""
    _ = public_users(task)
    return task.steps


PRINTED_RULES = {
    "dp-sgd-paper": ThresholdRule(dp_sgd_paper, True, _rounds),
    "output-perturbation-paper": ThresholdRule(
        output_perturbation_paper, True, lambda task: _rounds(task) + 1
    ),
}
