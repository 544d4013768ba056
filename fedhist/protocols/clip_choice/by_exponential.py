"""Thresholds by the exponential mechanism: one round, no delta; "em-slope" is the default.

The exact sums S(C_k) over a geometric grid are compared with a level L, and a grid point is drawn
with P(C_k) ~ exp(-epsilon' gap_k / (2 R)). For "em-slope" the gap is the distance of L from the
interval [S(C_k), S(C_{k-1})] that the point closes; for "em-slope-point" it is |S(C_k) - L|;
"em-quantile" takes intervals of counts of users. Adding, removing, zeroing out or replacing a user
changes each S(C_k) by at most R, because with and without the change the user's part lies in
[0, R]; hence every gap, and the choice is epsilon'-DP under every adjacency. The factor 2 is
needed: one user can raise some gaps by R and lower others by R.

The drawn point has gap <= min + 2 R ln(K / beta) / epsilon' with probability 1 - beta. A level M
below that error cannot be told from the empty tail, where S = 0 for however large a C, and
thresholds there add the most noise. So the level is M, but at least that error for beta = 0.02.

Where users are alike or few, S falls by jumps, and all grid points above the last one have the gap
L by points: a C far above every norm is as likely as the first. By intervals the point just above a
jump is right, and one gap is always 0, for at most a percent or two of error where S is smooth.
Norms count as c_max at most, so that users beyond the grid ask for all of it.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, Section 4.
.. [2] McSherry & Talwar, "Mechanism design via differential privacy", FOCS 2007.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fedhist.protocols.clip_choice.rule import (
    Choice,
    Search,
    ThresholdRule,
    ThresholdTask,
    at_the_ends,
)
from fedhist.protocols.shared.contributions import (
    NormHistogram,
    em_quantile,
    safe_rank,
    tail_scores,
)
from fedhist.session.curator import Curator


@dataclass(frozen=True)
class Aim:
    """Public side of a mechanism: which tail is compared with which level.

    Attributes
    ----------
    radius : float
        Bound on the slopes that are added up; 0 counts users.
    level : float
        What the tail should be.
    interval : bool
        Whether a grid point is scored by the interval of tails that it closes.
    warnings : tuple of str
        Where M lies below the error of the mechanism.
    """

    radius: float
    level: float
    interval: bool
    warnings: tuple[str, ...] = ()

    @property
    def sensitivity(self) -> float:
        """Largest change of a tail by one user."""
        return self.radius or 1.0


def slope_aim(task: ThresholdTask) -> Aim:
    """Look for the C at which the sum of slopes falls past M; for norm 1 every slope is 1."""
    return _aim(task, task.radius if task.norm == 2 else 0.0)


def point_aim(task: ThresholdTask) -> Aim:
    """Look for a C at which the sum of slopes is M."""
    return _aim(task, task.radius if task.norm == 2 else 0.0, interval=False)


def rank_aim(task: ThresholdTask) -> Aim:
    """Look for the first threshold that at most M users exceed."""
    return _aim(task, 0.0)


def _aim(task: ThresholdTask, radius: float, interval: bool = True) -> Aim:
    error = (radius or 1.0) * safe_rank(0.0, len(task.grid), task.epsilon)
    if task.mass >= error:
        return Aim(radius, task.mass, interval)
    lower = f"lower the sparsity (R = {radius:.4g}), " if radius > 1 else ""
    other = ', or take threshold = "dp-sgd"' if task.norm == 2 else ""
    why = (
        f"the best threshold has the level M = {task.mass:.4g}, but its choice finds levels from "
        f"{error:.4g} = 2 R ln(K / 0.02) / epsilon' on: it looked for that one and clips more than "
        f"is best; {lower}raise epsilon_choice{other}"
    )
    return Aim(radius, error, interval, (why,))


AIMS: Mapping[str, Callable[[ThresholdTask], Aim]] = {
    "em-slope": slope_aim,
    "em-slope-point": point_aim,
    "em-quantile": rank_aim,
}
"""The rules of this file by name, and what they look for."""


def search_slope(task: ThresholdTask, server: Curator) -> Search:
    """Choose the C at which S falls past the level."""
    return _search(task, server, slope_aim(task), "em-slope")


def search_point(task: ThresholdTask, server: Curator) -> Search:
    """Choose a C with S(C) near the level."""
    return _search(task, server, point_aim(task), "em-slope-point")


def search_quantile(task: ThresholdTask, server: Curator) -> Search:
    """Choose C with about M users above it (no theory for norm 2, where slopes differ)."""
    aim, grid = rank_aim(task), task.grid
    edges = tuple(grid.tolist())
    at = yield from em_quantile(
        server, task.domain, task.norm, edges, aim.level, task.epsilon, "em-quantile"
    )
    return _choice(task, aim, float(grid[at]))


def _search(task: ThresholdTask, server: Curator, aim: Aim, label: str) -> Search:
    grid = task.grid
    query = NormHistogram(task.domain, tuple(grid.tolist()), task.norm, aim.radius)
    summary = yield query
    scores = tail_scores(query.tails(summary), aim.level / query.unit, interval=aim.interval)
    at = server.exponential(
        scores, sensitivity=float(query.most), epsilon=task.epsilon, label=label
    )
    return _choice(task, aim, float(grid[at]))


def _choice(task: ThresholdTask, aim: Aim, clip: float) -> Choice:
    return Choice(clip, (*aim.warnings, *at_the_ends(clip, task)), {"level": aim.level})


RULES = (
    ThresholdRule(
        name="em-slope",
        search=search_slope,
        needs_delta=False,
        norms=(1, 2),
        rounds=lambda task: 1,
        source="exponential mechanism on the slope of the error; after Liu et al. 2023, Thm 4.3",
    ),
    ThresholdRule(
        name="em-slope-point",
        search=search_point,
        needs_delta=False,
        norms=(1, 2),
        rounds=lambda task: 1,
        source="exponential mechanism on the slope of the error, scored by points",
    ),
    ThresholdRule(
        name="em-quantile",
        search=search_quantile,
        needs_delta=False,
        norms=(1, 2),
        rounds=lambda task: 1,
        source="exponential mechanism on the M-quantile; Liu et al. 2023, Lemma 4.2",
    ),
)
