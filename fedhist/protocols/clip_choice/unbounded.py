"""Private choice of the contribution bound C for a histogram over an unbounded domain [1]_.

The exponential mechanism over a grid of thresholds, with the (expected) error as score; the scores
and their ranges are in :mod:`fedhist.protocols.clip_choice.bound_scores`. A part of a script: it
yields queries and returns a :class:`~fedhist.protocols.clip_choice.rule.Choice`.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Algorithm 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clients.bounding.size_curves import SHARE
from fedhist.base.arrays import Floats
from fedhist.base.checks import check_integer
from fedhist.privacy.adjacency import Moves
from fedhist.privacy.guarantee import Adjacency, check_budget
from fedhist.protocols.clip_choice import bound_scores as scores
from fedhist.protocols.clip_choice.rule import Choice, Search, at_the_top
from fedhist.protocols.clip_choice.size_curves import SizeCurves, check_grid
from fedhist.protocols.shared.contributions import NormHistogram, tail_scores
from fedhist.session.curator import Curator
from fedhist.users.shards import Shard

PAPER_GRID = tuple(range(10, 1501, 10))
"""The thresholds of the paper's experiments."""


@dataclass(frozen=True)
class BoundTask:
    """The public side of a choice of C.

    Parameters
    ----------
    clip_max : int
        C_m, in tokens; larger bounds are not considered.
    score : {"ramp", "union"}
        W or V of :mod:`fedhist.protocols.clip_choice.bound_scores`.
    range : {"exact", "paper"}
        "paper": threshold and sensitivity as printed; with the score V, Algorithm 4 as it stands.
    adaptive : bool
        Spend half of epsilon on a private upper end C_m' of the grid: the range, and with it the
        noise, shrinks from C_m to C_m', which about 4 ln(K) / epsilon users exceed.
    epsilon : float
        Budget of the choice, epsilon'. Pure: delta' is not needed (the paper reserves one).
    release_epsilon, release_delta : float
        Budget of the release that C is chosen for.
    adjacency : Adjacency
    per_octave : int
        Thresholds per factor of two.
    grid : tuple of int
        Thresholds in [1, clip_max]; () for geometric ones, rounded to integers.

    Privacy
    -------
    :func:`choose_bound` is epsilon-DP under the adjacency, in all.

    Examples
    --------
    >>> task = BoundTask(20, "ramp", "exact", False, 0.1, 1.0, 1e-6, Adjacency.ZERO_OUT_USER, 2)
    >>> task.thresholds
    (1, 2, 3, 4, 5, 7, 10, 14, 20)
    """

    clip_max: int
    score: str
    range: str
    adaptive: bool
    epsilon: float
    release_epsilon: float
    release_delta: float
    adjacency: Adjacency
    per_octave: int = 8
    grid: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_integer("clip_max", self.clip_max)
        if self.score not in scores.SCORES:
            raise ValueError(f'score must be "ramp" or "union", got {self.score!r}')
        if self.range not in ("exact", "paper"):
            raise ValueError(f'range must be "exact" or "paper", got {self.range!r}')
        if self.range == "paper" and (self.score != "union" or self.adaptive):
            raise ValueError(
                'range "paper" is that of the score "union" with a fixed clip_max, got score '
                f"{self.score!r}, adaptive {self.adaptive}"
            )
        check_budget(self.epsilon)
        check_budget(self.release_epsilon, self.release_delta)
        if not math.isinf(self.release_epsilon) and not self.release_delta:
            raise ValueError("releasing unknown keys needs release_delta > 0, got 0")
        if not isinstance(self.adjacency, Adjacency):
            raise ValueError(f"adjacency must be an Adjacency, got {self.adjacency!r}")
        check_integer("per_octave", self.per_octave)
        check_grid(self.thresholds)
        if self.thresholds[-1] > self.clip_max:
            raise ValueError(
                f"thresholds must lie in [1, clip_max = {self.clip_max}], got {self.thresholds[-1]}"
            )

    @property
    def thresholds(self) -> tuple[int, ...]:
        """The grid, (K,) distinct integers."""
        if self.grid:
            return self.grid
        steps = math.ceil(math.log2(self.clip_max) * self.per_octave)
        points = np.geomspace(1, self.clip_max, steps + 1).round().astype(np.int64)
        return tuple(np.unique(points).tolist())

    @property
    def rounds(self) -> int:
        """Questions asked."""
        return 2 if self.adaptive else 1

    @property
    def budgets(self) -> tuple[float, float]:
        """What the upper end and the choice itself may spend."""
        return (self.epsilon / 2, self.epsilon / 2) if self.adaptive else (0.0, self.epsilon)

    @property
    def rank(self) -> float:
        """Users that the private upper end may exceed: 2 ln(K) / (epsilon / 2).

        By then the empty tail, K thresholds at most, weighs no more than the best threshold. To
        end there costs noise, but no bound is lost.
        """
        return 2 * math.log(len(self.thresholds)) / (self.epsilon / 2)

    def end_cost(self, tails: NDArray[np.int64]) -> Floats:
        """Distance of the rank from what each threshold stands for; sensitivity 1."""
        return -tail_scores(tails, self.rank)

    def levels(self, grid: tuple[int, ...]) -> tuple[Floats, Floats]:
        """Threshold and noise scale of the release at every C of a grid."""
        return scores.release_levels(
            grid,
            self.release_epsilon,
            self.release_delta,
            self.adjacency,
            printed=self.range == "paper",
        )

    def score_range(self, grid: tuple[int, ...]) -> float:
        """Range that the mechanism pays for, on a grid."""
        if self.range == "paper":
            return scores.printed_range(self.clip_max)
        return scores.score_range(self.score, grid, self.adjacency)


def choose_bound(task: BoundTask, server: Curator) -> Search:
    """Choose C by the exponential mechanism; asks :attr:`BoundTask.rounds` questions.

    Returns
    -------
    Choice
        ``clip`` is integer-valued. ``public`` has "clip_max", the (private) upper end that was
        used, if there was one.

    Privacy
    -------
    epsilon-DP: epsilon / 2 for the upper end (a quantile of the users' sizes) and epsilon / 2 for
    the choice below it, or epsilon for the choice alone. The weights are exp(-epsilon score /
    range) with a bound on the range over C of one user's change; the paper's weights, with 5 C_m
    for the range, are epsilon-DP as well, and needlessly flat.
    """
    grid = task.thresholds
    for_end, for_choice = task.budgets
    public: dict[str, float] = {}
    if task.adaptive:
        question = NormHistogram(None, tuple(map(float, grid)), 1)
        summary = yield question
        cost = task.end_cost(question.tails(summary))
        end = server.exponential(-cost, sensitivity=1.0, epsilon=for_end, label="bound-clip-max")
        grid = grid[: end + 1]
        public["clip_max"] = float(grid[-1])
        del cost
    summary = yield SizeCurves(grid)
    score = scores.bound_scores(
        task.score,
        grid,
        summary.sums["users"],
        summary.sums["sizes"],
        summary.keyed["shares"].values,
        1 / SHARE,
        task.levels(grid),
    )
    sensitivity = task.score_range(grid) / 2
    at = server.exponential(
        -score,
        sensitivity=sensitivity,
        epsilon=for_choice,
        label="bound",
        moves=Moves.of(lambda a: replace(task, adjacency=a).score_range(grid)),
    )
    clip = grid[at]
    warnings: tuple[str, ...] = ()
    if clip == task.thresholds[-1]:
        warnings = (at_the_top(clip),)
    return Choice(float(clip), warnings, public)


def bound_probabilities(task: BoundTask, users: Shard, one_in: int = 1) -> tuple[Floats, Floats]:
    """Compute the exact distribution of the choice on a known population. NOT PRIVATE.

    Over the upper end and the choice below it; scores come from the users themselves, not from the
    sums that the protocol collects; where only 1 in so many items is told apart, and the last one
    stands for all others, what items cost is so many times what these do.

    Returns
    -------
    grid, probabilities : (K,) float64

    Cost
    ----
    One pass over the data; memory for 2 K numbers for each item.
    """
    grid = task.thresholds
    found = scores.clipped_curves(users, grid)
    if one_in > 1:
        found = replace(found, kept=found.kept[:, :-1])
    score = scores.scores_of_curves(task.score, found, task.levels(grid), one_in)
    return np.array(grid, dtype=np.float64), choice_law(task, found.above, score)


def choice_law(task: BoundTask, above: NDArray[np.int64], score: Floats) -> Floats:
    """Compute the exact distribution of the choice, (K,). NOT PRIVATE.

    Parameters
    ----------
    task : BoundTask
    above : (K,) int64
        Users with more tokens than each threshold.
    score : (K,) float64
        Exact score at every threshold.
    """
    grid = task.thresholds
    for_end, for_choice = task.budgets
    last = np.zeros(len(grid))
    last[-1] = 1.0
    if task.adaptive:
        last = _weights(task.end_cost(above), for_end / 2)
    out = np.zeros(len(grid))
    for k in np.flatnonzero(last):
        rate = for_choice / task.score_range(grid[: k + 1])
        out[: k + 1] += last[k] * _weights(score[: k + 1], rate)
    return out


def _weights(cost: Floats, rate: float) -> Floats:
    """Probabilities proportional to exp(-rate cost); at an infinite rate the first least cost."""
    if math.isinf(rate):
        return np.asarray(np.arange(len(cost)) == np.argmin(cost), dtype=np.float64)
    w = np.exp(-rate * (cost - cost.min()))
    return np.asarray(w / w.sum())
