"""Thresholds by the exponential mechanism: one round, no delta; "em-slope" is the default.

The exact sums S(C_k) over a geometric grid are compared with a level L, and a grid point is drawn
with P(C_k) ~ exp(-epsilon' gap_k / (2 R)). For "em-slope" the gap is the distance of L from the
interval [S(C_k), S(C_{k-1})] that the point closes; "em-quantile" takes intervals of counts of
users. Adding, removing, zeroing out or replacing a user
changes each S(C_k) by at most R, because with and without the change the user's part lies in
[0, R]; hence every gap, and the choice is epsilon'-DP under every adjacency. The factor 2 is
needed: one user can raise some gaps by R and lower others by R.

The drawn point has gap <= min + 2 R ln(K / beta) / epsilon' with probability 1 - beta. A level M
below that error cannot be told from the empty tail, where S = 0 for however large a C, and
thresholds there add the most noise. So the level is M, but at least that error for beta = 0.02.
Before any data C has the weight C^-0.75, which is public, costs no privacy and leaves the empty
tail to its first points (the project's own). Where M is below half of that error, the gap is what
S(C_k) has beyond M alone instead, and the weights are C^-2 to C^-6. Such gaps move one way, within
a range of R, so that P(C_k) ~ exp(-epsilon' gap_k / R) is epsilon'-DP, and half of the budget tells
as much (:func:`~fedhist.protocols.shared.contributions.excess_scores`).

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

import math
from collections.abc import Callable

from fedhist.base.arrays import Floats
from fedhist.base.text import warned
from fedhist.model.query import Summary
from fedhist.privacy.adjacency import ONE_COUNT
from fedhist.protocols.clip_choice.rule import (
    Aim,
    Choice,
    Search,
    ThresholdRule,
    ThresholdTask,
    at_the_ends,
)
from fedhist.protocols.clip_choice.theory import em_probabilities, excess_probabilities
from fedhist.protocols.shared.contributions import (
    NormHistogram,
    decay_of,
    excess_scores,
    safe_rank,
    small_first,
    tail_scores,
)
from fedhist.session.curator import Curator

TOLD = 1.1
"""Ratio of the level to M beyond which it is worth a warning."""

LIGHT = 0.5
"""Part of the error of equal weights below which M asks for weights that fall with C."""

DECAY = 0.75
"""How fast weights fall with C, before any data, where the level is looked for from both sides:
least regret over constant, Poisson, Pareto and mixed users, 1.4 at worst where equal weights have
3.2, clips of 1,000 coming once in sixty."""

OFF = 4.0
"""How many times as small as the best a clip may be, where weights fall with C, before users are
said to be overlooked."""


def slope_aim(task: ThresholdTask) -> Aim:
    """Look for the C at which the sum of slopes falls past M; for norm 1 every slope is 1."""
    return aim_at(task, task.radius if task.norm == 2 else 0.0)


def rank_aim(task: ThresholdTask) -> Aim:
    """Look for the first threshold that at most M users exceed; without theory for norm 2."""
    return aim_at(task, 0.0)


def aim_at(task: ThresholdTask, radius: float, interval: bool = True) -> Aim:
    """Look for the level M, or for the least that the mechanism finds."""
    size = radius or 1.0
    error = size * safe_rank(0.0, len(task.grid), task.epsilon)
    if task.mass >= error:
        return Aim(radius, task.mass, interval, decay=DECAY if interval else 0.0)
    level, decay, excess, form = error, DECAY, False, "2 R ln(K / 0.02) / epsilon'"
    if interval and task.mass < LIGHT * error:
        level, excess = task.mass, True
        decay = decay_of(task.n_users, task.epsilon)
        error = size * decay * math.log(OFF) / task.epsilon
        form = f"{decay:g} R ln({OFF:g}) / epsilon'"
    lower = f"lower the sparsity (R = {radius:.4g}), " if radius > 1 else ""
    other = ', or take threshold = "dp-sgd"' if task.norm == 2 else ""
    why = warned(
        f"the choice of the clip has little budget: it finds levels from {error:.4g} = {form} on, "
        f"where the best clip has the level M = {task.mass:.4g}",
        "a lower clip than the best may be taken, and more of the counts cut away",
        f"{lower}raise epsilon_choice{other}",
    )
    warnings = (why,) if error > TOLD * task.mass else ()
    return Aim(radius, level, interval, warnings, decay if interval else 0.0, excess)


def drawn(
    wanted: Aim,
    task: ThresholdTask,
    query: NormHistogram,
    summary: Summary,
    server: Curator,
    label: str,
) -> Choice:
    """Draw a threshold by the exponential mechanism: epsilon'-DP."""
    tails, level, most = query.tails(summary), wanted.level / query.unit, float(query.most)
    if wanted.excess:  # half the range of the changes: logits are scores times epsilon / most
        scores, size = excess_scores(tails, level), most / 2
    else:
        scores, size = tail_scores(tails, level, interval=wanted.interval), most
    scores = scores + small_first(task.grid, wanted.decay) * (2 * size / task.epsilon)
    at = server.exponential(
        scores, sensitivity=size, epsilon=task.epsilon, label=label, moves=ONE_COUNT
    )
    clip = float(task.grid[at])
    warnings = (*wanted.warnings, *at_the_ends(clip, task))
    return Choice(clip, warnings, {"level": wanted.level})


def law_of(wanted: Aim, task: ThresholdTask, tails: Floats) -> Floats:
    """Compute the exact law of :func:`drawn`, (K,), from the tails at the aim's radius."""
    what = tails, wanted.level, wanted.sensitivity, task.epsilon
    first = small_first(task.grid, wanted.decay)
    if wanted.excess:
        return excess_probabilities(*what, first)
    return em_probabilities(*what, wanted.interval, first)


def exponential_rule(name: str, aim: Callable[[ThresholdTask], Aim], source: str) -> ThresholdRule:
    """Make the rule that looks for an aim by the exponential mechanism."""

    def search(task: ThresholdTask, server: Curator) -> Search:
        wanted = aim(task)
        query = NormHistogram(task.domain, tuple(task.grid.tolist()), task.norm, wanted.radius)
        summary = yield query
        return drawn(wanted, task, query, summary, server, name)

    return ThresholdRule(name, search, source, aim=aim)


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
