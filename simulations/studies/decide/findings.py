"""What a decision found on each level of trust, as data that sentences and tables are made of."""

from __future__ import annotations

from dataclasses import dataclass

from fedhist.privacy.guarantee import Trust
from simulations.studies.compare.rows import Row
from simulations.studies.decide.search import Planned, Trial
from simulations.studies.decide.settled import Candidate, Settled
from simulations.studies.plan.planner import Answer


@dataclass(frozen=True)
class Finding:
    """What was found on one level of trust.

    Attributes
    ----------
    level : Trust
    status : {"reached", "not reached", "unsettled", "measured", "unsimulated", "unavailable"}
        "unsettled": theory reaches the target, and no simulation did before the search ended.
        "measured": an error at the given epsilon, without a target. "unsimulated": theory's
        answer, which is too large to simulate.
    candidate : Candidate or None
    x : float or None
        The unknown of the decision: epsilon, or the number of users.
    planned : float or None
        What theory said it was.
    trial : Trial or None
        The simulation that the answer rests on.
    trials : tuple of Trial
        All that was simulated on this level.
    answer : Answer or None
    reason : str
        Why there is nothing.
    curve : tuple of (float, float)
        Theory's error by epsilon.
    others : tuple of Planned
    compared : tuple of str
        Protocols that were simulated, among them those that were not the best.
    """

    level: Trust
    status: str
    candidate: Candidate | None = None
    x: float | None = None
    planned: float | None = None
    trial: Trial | None = None
    trials: tuple[Trial, ...] = ()
    answer: Answer | None = None
    reason: str = ""
    curve: tuple[tuple[float, float], ...] = ()
    others: tuple[Planned, ...] = ()
    compared: tuple[str, ...] = ()

    @property
    def row(self) -> Row | None:
        """The comparison's row that the answer rests on; else the last that was simulated."""
        rows = (t.row for t in (self.trial, *reversed(self.trials)) if t is not None)
        return next((row for row in rows if row is not None), None)


@dataclass(frozen=True)
class Decided:
    """An answered question.

    Attributes
    ----------
    settled : Settled
    findings : tuple of Finding
        One for each level of trust, in the order of the ladder.
    """

    settled: Settled
    findings: tuple[Finding, ...]
