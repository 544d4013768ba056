"""Decide: from users in memory to an answer under every level of trust."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from fedhist.privacy.guarantee import Trust
from simulations.reporting.numbers import number
from simulations.reporting.shown import Shown
from simulations.reporting.table import Table
from simulations.studies.decide import figure, output, tables, words
from simulations.studies.decide.findings import Decided, Finding
from simulations.studies.decide.question import Question
from simulations.studies.decide.search import (
    HIGH,
    Planned,
    Trial,
    best_at,
    candidates_for,
    simulate,
    solve_epsilon,
)
from simulations.studies.decide.settled import COARSE, KEPT, Settled, settle
from simulations.studies.decide.users import solve_users
from simulations.studies.records.levels import NOBODY_THERE, suffix

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CURVE = (1 / 32, 1 / 8, *COARSE)
"""Values of epsilon at which the figure asks theory."""

Progress = Callable[[str, float], None]
"""Told what is being done, and how much of all is done, from 0 to 1."""


@dataclass(frozen=True, repr=False)
class Decision(Decided, Shown):
    """An answered question; shows itself as sentences, tables, one picture and a page."""

    kind: ClassVar[str] = "decision"

    @property
    def title(self) -> str:
        """What was asked, in one line."""
        return words.asked(self)

    @property
    def verdict(self) -> str:
        """The answer in one sentence."""
        return words.in_short(self)

    def sentences(self) -> list[str]:
        """Return the verdict: in short, then level by level, then what holds for all of them."""
        return [f"In short: {self.verdict}", *words.verdicts(self), *words.terms(self)]

    def tables(self) -> Sequence[Table]:
        """Return the levels of trust; what was simulated, planned, and left out."""
        return tables.tables_of(self)

    def draw(self, figure_: Figure) -> None:
        """Draw error against epsilon, or against the number of users."""
        figure.draw_decision(self, figure_)

    def write(self, folder: Path) -> None:
        """Write page, picture, tables, the study file and the decision as plain data."""
        output.write(self, folder)


def decide(question: Question, progress: Progress | None = None) -> Decision:
    """Answer a question: plan, simulate and compare under every level of trust.

    Parameters
    ----------
    question : Question
    progress : callable, optional
        Told what is being done and the share of all that is done.

    Returns
    -------
    Decision
        NOT PRIVATE: it is computed from the users' data.

    Raises
    ------
    ValueError, PopulationError
        If the users cannot be read, or no protocol estimates the target.
    """
    settled = settle(question)
    return Decision(settled, tuple(findings(settled, progress)))


def findings(settled: Settled, progress: Progress | None = None) -> list[Finding]:
    """Find the answer on every level that is asked for."""
    q = settled.question
    told: Progress = progress or (lambda what, share: None)
    if q.epsilon is not None:
        return _at_epsilon(settled, q.epsilon, told)
    out = []
    target = float(q.error or math.nan)
    n = len(q.levels)
    for i, level in enumerate(q.levels):
        what = f"{level.value} trust"

        def advance(share: float, what: str = what, i: int = i) -> None:
            told(what, (i + share) / n)

        advance(0.0)
        out.append(_solved(settled, level, target, advance))
    told("", 1.0)
    return out


def _solved(
    settled: Settled, level: Trust, target: float, advance: Callable[[float], None]
) -> Finding:
    if not settled.titles(level):
        return Finding(level, "unavailable", reason=_why_not(settled, level))
    planned, trials, compared = solve_epsilon(settled, level, target, advance)
    if not trials:
        reason = next((p.reason for p in planned if p.reason), "it could not be simulated")
        return Finding(level, "unavailable", reason=reason, others=tuple(planned))
    good = [t for t in trials if t.met(target)]
    trial = min(good, key=lambda t: t.x) if good else _nearest(trials)
    if trial.error is None:
        return Finding(
            level,
            "unavailable",
            reason=_without_result(trial),
            trials=tuple(trials),
            others=tuple(planned),
        )
    own = next(p for p in planned if p.candidate.title == trial.candidate.title)
    return Finding(
        level,
        "reached" if good else "not reached" if _searched(own, trials) else "unsettled",
        trial.candidate,
        trial.x if good else None,
        own.x,
        trial,
        tuple(trials),
        own.answer,
        own.reason,
        curve_of(settled, level, own.candidate.title),
        tuple(planned),
        compared,
    )


def _without_result(trial: Trial) -> str:
    """Say that no run gave an estimate, and why the first did not."""
    records = trial.row.records if trial.row is not None else ()
    why = next((r.reason for r in records if r.reason), "")
    said = (
        f"None of {trial.runs} runs of {trial.candidate.title} at epsilon = "
        f"{number(trial.x, 3)} gave an estimate"
    )
    return f"{said}: {why}" if why else said


def _searched(own: Planned, trials: list[Trial]) -> bool:
    """Say whether a target was missed where it is nearest, and not only where theory met it."""
    return own.x is None or max(t.x for t in trials) >= HIGH


def _nearest(trials: list[Trial]) -> Trial:
    return min(trials, key=lambda t: math.inf if t.error is None else t.error)


def _at_epsilon(settled: Settled, epsilon: float, told: Progress) -> list[Finding]:
    """Measure every level at one budget; with a target, solve for the number of users."""
    q, out = settled.question, []
    goal = math.inf if q.error is None else q.error
    kept = [
        best_at(settled, settled.of(level, title), epsilon)
        for level in q.levels
        for title in settled.titles(level)
    ]
    told("simulating", 0.2)
    trials = simulate(settled, kept, epsilon)
    told("simulating", 0.5)
    for i, level in enumerate(q.levels):
        own = [t for t in trials if t.candidate.level is level]
        best = next((t for t in own if t.error is not None), None)
        if best is None:
            why = _without_result(own[0]) if own else _why_not(settled, level)
            out.append(Finding(level, "unavailable", reason=why, trials=tuple(own)))
            continue
        found = Finding(level, "measured", best.candidate, None, None, best, tuple(own))
        if q.error is None:
            found = replace(found, curve=curve_of(settled, level, best.candidate.title))
        else:
            found = _users(settled, found, epsilon, goal)
        out.append(found)
        told(f"{level.value} trust", 0.5 + 0.5 * (i + 1) / len(q.levels))
    return out


def _users(settled: Settled, found: Finding, epsilon: float, target: float) -> Finding:
    title = found.candidate.title if found.candidate is not None else ""
    # more users are like more epsilon: what reaches the target there, what is best now, and what
    # clips least, whose bias no number of users takes away
    every = settled.of(found.level, title)
    kept = candidates_for(settled, found.level, title, target)[:1]
    for c in (best_at(settled, every, epsilon), max(every, key=lambda c: c.chosen.get("clip", 0))):
        kept += [c] if c not in kept else []
    answer, trial, reason = solve_users(settled, kept, epsilon, target)
    if answer is None:
        return replace(found, status="not reached", reason=reason)
    if trial is not None:
        met = trial.met(target)
        return replace(
            found,
            status="reached" if met else "not reached",
            x=trial.x,
            planned=answer.x,
            candidate=trial.candidate,
            answer=answer,
            trials=(*found.trials, trial),
            trial=trial,
        )
    x = answer.x or answer.beyond
    status = "not reached" if x is None else "unsimulated"
    return replace(found, status=status, x=x, planned=x, answer=answer, reason=reason)


def _why_not(settled: Settled, level: Trust) -> str:
    """Say why nothing is on a level, in the words of those that might have been."""
    told = [
        f"{label.removesuffix(suffix(level))}: {reason}"
        for labels, reason in settled.left_out
        for label in labels.split("; ")
        if label.endswith(suffix(level))
    ]
    return "; ".join(dict.fromkeys(told)) or NOBODY_THERE[level]


def curve_of(settled: Settled, level: Trust, title: str) -> tuple[tuple[float, float], ...]:
    """Ask theory for a protocol's error by epsilon, with the best settings at each."""
    every, least = settled.of(level, title), COARSE[0]
    few = sorted(every, key=lambda c: settled.predicted(c, least))[:KEPT]
    found = (
        (x, min(settled.predicted(c, x) for c in (few if x < least else every))) for x in CURVE
    )
    return tuple((x, e) for x, e in found if math.isfinite(e))
