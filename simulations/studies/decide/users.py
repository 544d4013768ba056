"""How many users a target takes at a given budget: theory says it, and a simulation of so many."""

from __future__ import annotations

import math
from collections.abc import Sequence

from simulations.studies.decide.search import Trial
from simulations.studies.decide.settled import Candidate, Settled
from simulations.studies.plan.planner import Answer, plan
from simulations.studies.plan.search import REASONS
from simulations.studies.plan.verify import verify

MOST_ENTRIES = 2_000_000
"""Samples of all users together up to which more users than there are are made."""
FEWER = 256
"""Part of the users from which on a lesser number is looked for."""


def solve_users(
    settled: Settled, kept: Sequence[Candidate], epsilon: float, target: float
) -> tuple[Answer | None, Trial | None, str]:
    """Find how many users like these it takes at a budget, by theory, and simulate that.

    Returns
    -------
    answer : Answer or None
    trial : Trial or None
        None without an answer, or where so many users are too many to simulate.
    reason : str
    """
    m, reason = settled.measure, ""
    found: list[tuple[Candidate, Answer]] = []
    n = settled.ready.n_users
    enough = min(settled.predicted(c, epsilon) for c in kept) <= target
    most = n * max(1.0, 8 * MOST_ENTRIES / max(settled.loaded.users.nbytes, 1))
    between = (max(1.0, n // FEWER), float(n)) if enough else (float(n), float(int(most)))
    for c in kept:
        config = settled.config(c, epsilon)
        try:
            answer = plan(
                config,
                m.asked(target),
                "n_users",
                relative=m.divides,
                loss=m.loss,
                between=between,
            )
            found.append((c, answer))
        except REASONS as e:
            reason = str(e)
    if not found:
        return None, None, reason
    candidate, answer = min(found, key=lambda f: (f[1].x or math.inf, f[1].beyond or math.inf))
    done = verify(answer, settled.question.seeds)
    if done is None or not done.losses:
        return answer, None, answer.reason
    error, top = done.measured, done.measured * (1 + done.interval[1] - done.ratio)
    half = m.of_plan(top) - m.of_plan(error)
    trial = Trial(
        float(answer.x or math.nan),
        candidate,
        m.of_plan(error),
        None if math.isnan(half) else half,
        m.of_plan(answer.predicted),
        sum(done.statuses.values()),
        sum(n for k, n in done.statuses.items() if k != "ok"),
    )
    return answer, trial, ""
