"""Thresholds by the exponential mechanism: one round, no delta; "em-slope" is the default.

The exact sums S(C_k) over a geometric grid are compared with a level L, and a grid point is drawn
with P(C_k) ~ exp(-epsilon' gap_k / (2 R)). For "em-slope" the gap is the distance of L from the
interval [S(C_k), S(C_{k-1})] that the point closes; "em-quantile" takes intervals of counts of
users. Adding, removing, zeroing out or replacing a user changes each S(C_k) by at most R, because
with and without the change the user's part lies in [0, R]; hence every gap, and the choice is
epsilon'-DP under every adjacency. The factor 2 is needed: one user can raise some gaps by R and
lower others by R.

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
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Floats
from fedhist.base.text import warned
from fedhist.privacy.adjacency import ONE_COUNT
from fedhist.privacy.guarantee import check_budget
from fedhist.protocols.clip_choice.rule import (
    Choice,
    Search,
    ThresholdRule,
    ThresholdTask,
    at_the_ends,
)
from fedhist.protocols.shared.contributions import NormHistogram
from fedhist.session.curator import Curator

TOLD = 1.1
"""Ratio of the level to M beyond which it is worth a warning."""

LIGHT = 0.5
"""Part of the error of equal weights below which M asks for weights that fall fast with C."""

DECAY, LIGHT_DECAY = 0.75, 3.0
"""How fast weights fall with C before any data, where the level is looked for from both sides, and
where tails beyond it count alone. Exact mixtures over 96 settings: 2 errs 1.05 times as much as 3
in geometric mean, 4 as much within 3 %, but up to 5 times as much where few users hold much; equal
weights err up to 3.2 times as much as 0.75."""

OFF = 4.0
"""How many times as small as the best a clip may be, where weights fall fast, before users are said
to be overlooked."""


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


# -- the rules -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Aim:
    """Public side of a mechanism: which tail is compared with which level.

    Attributes
    ----------
    radius : float
        Bound on the slopes that are added up; 0 counts users.
    level : float
        What the tail should be.
    warnings : tuple of str
        Where M lies below the error of the mechanism.
    excess : bool
        Whether only what a tail has beyond the level counts against a threshold.
    """

    radius: float
    level: float
    warnings: tuple[str, ...] = ()
    excess: bool = False

    def scores(self, query: NormHistogram, tails: NDArray[np.int64], epsilon: float) -> Floats:
        """Score every threshold, its weight before any data included; see :meth:`sensitivity`."""
        level = self.level / query.unit
        scores = excess_scores(tails, level) if self.excess else tail_scores(tails, level)
        decay = LIGHT_DECAY if self.excess else DECAY
        return scores + small_first(query.edges, decay) * (2 * self.sensitivity(query) / epsilon)

    def sensitivity(self, query: NormHistogram) -> float:
        """Return that of the scores; half the range of their changes where they move one way."""
        return query.most / 2 if self.excess else float(query.most)


def slope_aim(task: ThresholdTask) -> Aim:
    """Look for the C at which the sum of slopes falls past M; for norm 1 every slope is 1."""
    return aim_at(task, task.slope_radius)


def rank_aim(task: ThresholdTask) -> Aim:
    """Look for the first threshold that at most M users exceed; without theory for norm 2."""
    return aim_at(task, 0.0)


def aim_at(task: ThresholdTask, radius: float) -> Aim:
    """Look for the level M, or for the least that the mechanism finds."""
    size = radius or 1.0
    error = size * safe_rank(0.0, len(task.grid), task.epsilon)
    if task.mass >= error:
        return Aim(radius, task.mass)
    level, excess, form = error, False, "2 R ln(K / 0.02) / epsilon'"
    if task.mass < LIGHT * error:
        level, excess = task.mass, True
        error = size * LIGHT_DECAY * math.log(OFF) / task.epsilon
        form = f"{LIGHT_DECAY:g} R ln({OFF:g}) / epsilon'"
    lower = f"lower the sparsity (R = {radius:.4g}), " if radius > 1 else ""
    other = ', or take threshold = "dp-sgd"' if task.norm == 2 else ""
    why = warned(
        f"the choice of the clip has little budget: it finds levels from {error:.4g} = {form} on, "
        f"where the best clip has the level M = {task.mass:.4g}",
        "a lower clip than the best may be taken, and more of the counts cut away",
        f"{lower}raise epsilon_choice{other}",
    )
    return Aim(radius, level, (why,) if error > TOLD * task.mass else (), excess)


def exponential_rule(name: str, aim: Callable[[ThresholdTask], Aim], source: str) -> ThresholdRule:
    """Make the rule that looks for an aim by the exponential mechanism: epsilon'-DP."""

    def search(task: ThresholdTask, server: Curator) -> Search:
        wanted, grid = aim(task), task.grid
        query = NormHistogram(task.domain, tuple(grid.tolist()), task.norm, wanted.radius)
        summary = yield query
        at = server.exponential(
            wanted.scores(query, query.tails(summary), task.epsilon),
            sensitivity=wanted.sensitivity(query),
            epsilon=task.epsilon,
            label=name,
            moves=ONE_COUNT,
        )
        clip = float(grid[at])
        return Choice(clip, (*wanted.warnings, *at_the_ends(clip, task)), {"level": wanted.level})

    return ThresholdRule(name, search, source)


EM_SLOPE = exponential_rule(
    "em-slope",
    slope_aim,
    "exponential mechanism on the slope of the error; after Liu et al. 2023, Thm 4.3",
)
EM_QUANTILE = exponential_rule(
    "em-quantile",
    rank_aim,
    "exponential mechanism on the M-quantile; Liu et al. 2023, Lemma 4.2",
)
