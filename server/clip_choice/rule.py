"""Private choices of the clip C: what a rule is given and returns, and the default rule.

A rule is a part of a script. All look for the C at which a tail sum meets a public level:

    S(C) = sum over users with norm > C of min(slope, R),        S(C*) = M,

because -S(C) + M is the slope of (a bound on) the expected l1 error at C [1, Theorem 4.3]. With
Gaussian noise norm and slope are ||N_i||_2 and ||N_i||_1 / ||N_i||_2; with Laplace noise they are
||N_i||_1 and 1 [1, Lemma 4.2].

The default, "em-slope", draws a grid point with P(C_k) ~ exp(-epsilon' gap_k / (2 R)): the gap is
the distance of the level from the interval [S(C_k), S(C_{k-1})] that the point closes. One user
changes each S(C_k), hence every gap, by at most R: epsilon'-DP under every adjacency. The gap is at
most min + 2 R ln(K / beta) / epsilon' with probability 1 - beta. A level below that error cannot be
told from the empty tail, where S = 0 for however large a C: so the level is M, but at least that
error for beta = 0.02; and where M is below half of it, :func:`excess_scores` are taken instead.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Section 4.
.. [2] McSherry & Talwar, "Mechanism design via differential privacy", FOCS 2007.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clients.histograms.contributions import NormHistogram
from fedhist.base.arrays import Floats
from fedhist.base.errors import warned
from fedhist.model.query import Query, Summary
from fedhist.privacy.guarantee import ONE_COUNT, Adjacency, check_budget, gaussian_multiplier
from fedhist.privacy.shares import Aggregation
from fedhist.users.keys import Keys
from server.session.curator import Curator

TWO_SIDED_DECAY, LIGHT_DECAY = 0.75, 3.0
"""How fast weights fall with C before any data, where the level is looked for from both sides, and
where tails beyond it count alone. Exact mixtures over 96 settings: 2 errs 1.05 times as much as 3
in geometric mean, 4 as much within 3 %, but up to 5 times as much where few users hold much; equal
weights err up to 3.2 times as much as 0.75."""


@dataclass(frozen=True)
class ThresholdTask:
    """The public side of a search for C; a rule may use nothing else and its queries' answers."""

    domain: Keys  # other items are dropped before any norm is computed
    norm: int  # 1 with Laplace noise in the release, 2 with Gaussian noise
    mass: float  # M, the expected l1 norm of the release's noise per unit of C
    radius: float  # R, what clients cut slopes to: sqrt(s), or 1 for norm 1
    c_min: float  # ends of the search, in counts
    c_max: float
    epsilon: float  # budget of the choice
    delta: float
    adjacency: Adjacency
    n_users: int | None = None  # None where it is not public
    steps: int = 40  # rounds of an iterative rule
    per_octave: int = 4  # grid points per factor of two
    secure: bool = False  # whether noise must be integer-valued
    trust: Aggregation | None = None  # the nodes add the noise

    @property
    def multiplier(self) -> float:
        """Std of Gaussian noise for the whole budget, per unit of sensitivity: of all shares."""
        one = gaussian_multiplier(self.epsilon, self.delta)
        return one if self.trust is None else one * self.trust.excess

    @property
    def slope_radius(self) -> float:
        """Cut of the slopes in a NormHistogram; 0 (everybody weighs 1) for l1 norms."""
        return 0.0 if self.norm == 1 else self.radius

    @property
    def grid(self) -> Floats:
        """Geometric grid from c_min to c_max, both included, (K,) in counts."""
        octaves = math.log2(self.c_max / self.c_min)
        return np.geomspace(self.c_min, self.c_max, math.ceil(octaves * self.per_octave) + 1)


@dataclass(frozen=True)
class Choice:
    """What a rule returns: the threshold, in counts, what to know about it, and public numbers."""

    clip: float
    warnings: tuple[str, ...] = ()
    public: Mapping[str, float] = field(default_factory=dict)


Search = Generator[Query, Summary, Choice]


@dataclass(frozen=True)
class ThresholdRule:
    """A private way to choose C."""

    search: Callable[[ThresholdTask, Curator], Search]
    needs_delta: bool = False  # for Gaussian noise; otherwise delta' must be 0
    rounds: Callable[[ThresholdTask], int] = lambda task: 1
    # of a rule that needs nothing but noisy sums, which nodes can add: how slopes are cut
    by_sums: Callable[[ThresholdTask], float] | None = None


# -- scores ----------------------------------------------------------------------------------------


def safe_rank(rank: float, n_edges: int, epsilon: float, beta: float = 0.02) -> float:
    """Raise a rank by the error that the exponential mechanism makes with probability 0.02.

    >>> round(safe_rank(10.0, 41, 0.1), 1)
    162.5
    """
    check_budget(epsilon)
    return rank + (0.0 if math.isinf(epsilon) else 2 * math.log(n_edges / beta) / epsilon)


def tail_scores(tails: NDArray[np.int64], level: float) -> Floats:
    """Minus the distance of a level from what each threshold stands for, (K,): at most 0.

    Threshold k stands for all levels from tails[k] to tails[k - 1], the first for all higher ones
    as well, and nobody is above the last: some score is always 0, also where tails jump. A score
    changes by at most what one user changes a tail. NOT PRIVATE by itself.

    >>> tail_scores(np.array([380, 73, 0, 0]), 153.0).tolist()
    [-227.0, 0.0, -80.0, -153.0]
    """
    low = np.append(tails[:-1], 0).astype(np.float64)
    high = np.append(np.inf, low[:-1])
    return np.asarray(np.minimum(np.minimum(level - low, high - level), 0.0))


def excess_scores(tails: NDArray[np.int64], level: float) -> Floats:
    """Minus what each tail has beyond a level, (K,): at most 0, and 0 for the last threshold.

    Privacy
    -------
    One user moves the scores within a range of ``most``, that of
    :attr:`NormHistogram.most`: with weights w and w' at norms N > N' before and after (or the other
    way round), tails below N' move by w' - w, those from N' to below N by -w, and the others not at
    all. All of these lie within max(w, w') of each other and of 0, and what is beyond a level moves
    by as much at most, and the same way. Weights exp(epsilon score / most) then change by factors
    whose ratio is at most e^epsilon, and so do they over their sum: epsilon-DP, and of
    epsilon-bounded range, under every adjacency. NOT PRIVATE by itself.

    >>> excess_scores(np.array([380, 73, 9, 2]), 20.0).tolist()
    [-360.0, -53.0, 0.0, 0.0]
    """
    low = np.append(tails[:-1], 0).astype(np.float64)
    return np.asarray(0.0 - np.maximum(low - level, 0.0))


def small_first(edges: ArrayLike, decay: float) -> Floats:
    """Log weights of thresholds before any data: -decay ln C, (K,); public."""
    return -decay * np.log(np.asarray(edges, dtype=np.float64))


# -- the default rule ------------------------------------------------------------------------------


class Aim(NamedTuple):
    """The level that tails are compared with; whether only what is beyond it counts; warnings."""

    level: float
    excess: bool
    warnings: tuple[str, ...] = ()


def slope_aim(task: ThresholdTask) -> Aim:
    """Look for the level M, or for the least that the mechanism finds; every l1 slope is 1."""
    size = task.slope_radius or 1.0
    error = size * safe_rank(0.0, len(task.grid), task.epsilon)
    if task.mass >= error:
        return Aim(task.mass, False)
    level, excess, form = error, False, "2 R ln(K / 0.02) / epsilon'"
    if task.mass < error / 2:  # equal weights would find twice as much: those that fall fast do not
        level, excess = task.mass, True
        error = size * LIGHT_DECAY * math.log(4) / task.epsilon  # a clip 4 times too small is seen
        form = f"{LIGHT_DECAY:g} R ln(4) / epsilon'"
    if error <= 1.1 * task.mass:
        return Aim(level, excess)
    lower = f"lower the sparsity (R = {task.slope_radius:.4g}), " if task.slope_radius > 1 else ""
    other = ', or take threshold = "dp-sgd"' if task.norm == 2 else ""
    why = warned(
        f"the choice of the clip has little budget: it finds levels from {error:.4g} = {form} on, "
        f"where the best clip has the level M = {task.mass:.4g}",
        "a lower clip than the best may be taken, and more of the counts cut away",
        f"{lower}raise epsilon_choice{other}",
    )
    return Aim(level, excess, (why,))


def slope_scores(
    task: ThresholdTask, aim: Aim, query: NormHistogram, summary: Summary
) -> tuple[Floats, float]:
    """Score every threshold, its weight before any data included, and say the sensitivity."""
    tails, level = query.tails(summary), aim.level / query.unit
    scores = excess_scores(tails, level) if aim.excess else tail_scores(tails, level)
    sensitivity = query.most / 2 if aim.excess else float(query.most)
    first = small_first(query.edges, LIGHT_DECAY if aim.excess else TWO_SIDED_DECAY)
    return scores + first * (2 * sensitivity / task.epsilon), sensitivity


def slope_query(task: ThresholdTask) -> NormHistogram:
    """Ask how much users weigh beyond each threshold of the grid."""
    return NormHistogram(task.domain, tuple(task.grid.tolist()), task.norm, task.slope_radius)


def em_slope(task: ThresholdTask, server: Curator) -> Search:
    """Choose C by the exponential mechanism [2] on the slope of the error: epsilon'-DP."""
    aim, query = slope_aim(task), slope_query(task)
    summary = yield query
    scores, sensitivity = slope_scores(task, aim, query, summary)
    at = server.exponential(
        scores, sensitivity=sensitivity, epsilon=task.epsilon, label="em-slope", moves=ONE_COUNT
    )
    clip = float(task.grid[at])
    return Choice(clip, (*aim.warnings, *at_the_ends(clip, task)), {"level": aim.level})


# -- what to know about a choice -------------------------------------------------------------------


def mostly_noise(numbers: str) -> str:
    """Say that a choice is one of its noise."""
    return warned(
        f"the chosen clip is mostly noise ({numbers})",
        "it may be far from the best one, and the error as much larger",
        "raise epsilon_choice, or lower sparsity where slopes are summed",
    )


def at_the_top(most: float) -> str:
    """Say that a clip is the largest that there was to choose from."""
    return warned(
        f"the chosen clip is the upper end of its grid, {most:g}",
        "what users hold beyond it is cut away, and the estimate is too low by that",
        "raise clip_max",
    )


def at_the_ends(clip: float, task: ThresholdTask) -> tuple[str, ...]:
    """Warn where a search ended at an end of its grid: the best threshold may lie beyond it."""
    if clip <= task.c_min * (1 + 1e-9):
        return (
            warned(
                f"the chosen clip is the lower end of its grid, {task.c_min:g}",
                "a smaller one might have had less noise",
                "lower clip_min if users may hold less",
            ),
        )
    return (at_the_top(task.c_max),) if clip >= task.c_max * (1 - 1e-9) else ()
