"""Private choices of the clip C: what a rule is given and returns, and the default rule.

A rule is a part of a script: it yields queries, receives summaries, and returns a :class:`Choice`.
All rules look for the threshold C at which a tail sum over the users meets a public level:

    S(C) = sum over users with norm > C of min(slope, R),        S(C*) = M,

because -S(C) + M is the slope of (a bound on) the expected l1 error at C [1, Theorem 4.3]. With
Gaussian noise the norm is v_i = ||N_i||_2 and the slope r_i = ||N_i||_1 / ||N_i||_2; with Laplace
noise the norm is m_i = ||N_i||_1 and every slope is 1 [1, Lemma 4.2].

The default, "em-slope", takes one round and no delta: the exact sums S(C_k) over a geometric grid
are compared with a level L, and a grid point is drawn with P(C_k) ~ exp(-epsilon' gap_k / (2 R)),
where the gap is the distance of L from the interval [S(C_k), S(C_{k-1})] that the point closes.
Adding, removing, zeroing out or replacing a user changes each S(C_k) by at most R, because with and
without the change the user's part lies in [0, R]; hence every gap, and the choice is epsilon'-DP
under every adjacency. The factor 2 is needed: one user can raise some gaps by R and lower others.

The drawn point has gap <= min + 2 R ln(K / beta) / epsilon' with probability 1 - beta. A level M
below that error cannot be told from the empty tail, where S = 0 for however large a C, and
thresholds there add the most noise. So the level is M, but at least that error for beta = 0.02.
Before any data C has the weight C^-0.75, which is public, costs no privacy and leaves the empty
tail to its first points (the project's own). Where M is below half of that error, the gap is what
S(C_k) has beyond M alone instead, and the weight is C^-3. Such gaps move one way, within a range of
R, so that P(C_k) ~ exp(-epsilon' gap_k / R) is epsilon'-DP, and half of the budget tells as much
(:func:`excess_scores`).

Where users are alike or few, S falls by jumps, and all grid points above the last one have the gap
L by points: a C far above every norm is as likely as the first. By intervals the point just above a
jump is right, and one gap is always 0, for at most a percent or two of error where S is smooth.
Norms count as c_max at most, so that users beyond the grid ask for all of it.

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
from fedhist.base.text import warned
from fedhist.model.query import Query, Summary
from fedhist.privacy.adjacency import ONE_COUNT
from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import Adjacency, check_budget, gaussian_multiplier
from fedhist.users.keys import Keys
from server.session.curator import Curator

TWO_SIDED_DECAY, LIGHT_DECAY = 0.75, 3.0
"""How fast weights fall with C before any data, where the level is looked for from both sides, and
where tails beyond it count alone. Exact mixtures over 96 settings: 2 errs 1.05 times as much as 3
in geometric mean, 4 as much within 3 %, but up to 5 times as much where few users hold much; equal
weights err up to 3.2 times as much as 0.75."""


@dataclass(frozen=True)
class ThresholdTask:
    """The public side of a search for C; a rule may use nothing else and its queries' answers.

    Attributes
    ----------
    domain : Keys
        Public items; others are dropped before any norm is computed.
    norm : {1, 2}
        1 with Laplace noise in the release, 2 with Gaussian noise.
    mass : float
        M, the expected l1 norm of the release's noise per unit of C.
    radius : float
        R, the public bound that slopes are cut to on the client: sqrt(s), or 1 for norm 1.
    c_min, c_max : float
        Public ends of the search, in counts.
    epsilon, delta : float
        Budget of the choice, (epsilon', delta').
    adjacency : Adjacency
    n_users : int or None
        Public number of users, where a printed rule needs it; None where it is not public.
    steps : int
        Rounds of an iterative rule (T).
    per_octave : int
        Grid points per factor of two.
    secure : bool
        Whether noise must be integer-valued.
    trust : Aggregation or None
        The nodes add the noise.
    """

    domain: Keys
    norm: int
    mass: float
    radius: float
    c_min: float
    c_max: float
    epsilon: float
    delta: float
    adjacency: Adjacency
    n_users: int | None = None
    steps: int = 40
    per_octave: int = 4
    secure: bool = False
    trust: Aggregation | None = None

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
    """A private way to choose C.

    Attributes
    ----------
    search : callable of (ThresholdTask, Curator) to a part of a script
    needs_delta : bool
        Whether the choice spends delta' (Gaussian noise); otherwise delta' must be 0.
    rounds : callable of ThresholdTask to int
        Most rounds it takes.
    by_sums : callable of ThresholdTask to float, optional
        Of a rule that needs nothing but sums with noise, which nodes can add: how slopes are cut
        for them, 0 where users are counted.
    """

    search: Callable[[ThresholdTask, Curator], Search]
    needs_delta: bool = False
    rounds: Callable[[ThresholdTask], int] = lambda task: 1
    by_sums: Callable[[ThresholdTask], float] | None = None


# -- scores ----------------------------------------------------------------------------------------


def safe_rank(rank: float, n_edges: int, epsilon: float, beta: float = 0.02) -> float:
    """Raise a rank by the error that the exponential mechanism makes with probability beta.

    Below its own error the mechanism falls into the empty tail, where all edges score alike: the
    paper's rank 1 / epsilon with a tenth of the budget always does.

    >>> round(safe_rank(10.0, 41, 0.1), 1)
    162.5
    """
    check_budget(epsilon)
    return rank + (0.0 if math.isinf(epsilon) else 2 * math.log(n_edges / beta) / epsilon)


def tail_scores(tails: NDArray[np.int64], level: float) -> Floats:
    """Minus the distance of a level from what each threshold stands for, (K,): at most 0.

    Norms count as the last threshold at most, so that nobody is above that one. Threshold k stands
    for all levels from tails[k] to tails[k - 1], the first for all higher ones as well: some score
    is always 0, also where many users have equal norms and tails jump.

    Privacy
    -------
    A score changes by at most what one user changes a tail: it is a maximum of such functions.
    NOT PRIVATE by itself.

    Examples
    --------
    >>> tail_scores(np.array([380, 73, 0, 0]), 153.0).tolist()
    [-227.0, 0.0, -80.0, -153.0]
    """
    low = np.append(tails[:-1], 0).astype(np.float64)
    high = np.append(np.inf, low[:-1])
    return np.asarray(np.minimum(np.minimum(level - low, high - level), 0.0))


def excess_scores(tails: NDArray[np.int64], level: float) -> Floats:
    """Minus what each tail has beyond a level, (K,): at most 0, and 0 for the last threshold.

    With :func:`small_first` before any data: of the thresholds that few users exceed, small ones
    are the likely ones, and each user too many beyond one makes it less likely.

    Privacy
    -------
    One user moves the scores within a range of ``most``, that of
    :attr:`NormHistogram.most`: with weights w and w' at norms N > N' before and after (or the other
    way round), tails below N' move by w' - w, those from N' to below N by -w, and the others not at
    all. All of these lie within max(w, w') of each other and of 0, and what is beyond a level moves
    by as much at most, and the same way. Weights exp(epsilon score / most) then change by factors
    whose ratio is at most e^epsilon, and so do they over their sum: epsilon-DP, and of
    epsilon-bounded range, under every adjacency. Scores that move both ways need a factor of 2.
    NOT PRIVATE by itself.

    Examples
    --------
    >>> excess_scores(np.array([380, 73, 9, 2]), 20.0).tolist()
    [-360.0, -53.0, 0.0, 0.0]
    """
    low = np.append(tails[:-1], 0).astype(np.float64)
    return np.asarray(0.0 - np.maximum(low - level, 0.0))


def small_first(edges: ArrayLike, decay: float) -> Floats:
    """Log weights of thresholds before any data: -decay ln C, (K,); public.

    A threshold that is too large costs noise in proportion to C: there are many of them, whose
    users nobody counts.
    """
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
    """Score every threshold, its weight before any data included, and say the sensitivity.

    That is half the range of the scores' changes where they move one way.
    """
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
