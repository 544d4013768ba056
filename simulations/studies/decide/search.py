"""The search for an answer on one level of trust: theory proposes, simulation disposes.

The planner says what each protocol and each choice of its settings takes. The best are simulated
there by a comparison. Where the simulation does not meet the target, or beats it by far, it is
moved by the slope in logarithms and simulated again: what is reported was simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Trust
from simulations.studies.compare.rows import Row
from simulations.studies.compare.run import run_comparison
from simulations.studies.compare.setup import set_up
from simulations.studies.decide.question import SHORTLIST, STEPS
from simulations.studies.decide.settled import COARSE, KEPT, Candidate, Settled, taken_by
from simulations.studies.plan.planner import RANGE, Answer, plan
from simulations.studies.plan.search import REASONS

LOW, HIGH = RANGE["epsilon"]
SURPLUS = 0.5
"""Where a simulation stays below this share of the target for sure, less epsilon is tried."""
OFF = 2.0
"""Theory and simulation that differ by more are said to, and theory is then no evidence."""
BLIND = 0.8
"""The same where theory is no guide, or was refuted: the search may have gone too far."""
SLACK = 1.25
"""Of the target: what a simulation may show, within its interval, where theory meets it."""
AIM = 0.95
"""Share of the target that a search aims at, so that the next seeds meet it, too."""

GROWTH = 1.15
"""Least step upwards while no simulation has met the target."""

Advance = Callable[[float], None]
"""Told how much of a level is done, from 0 to 1."""


@dataclass(frozen=True)
class Trial:
    """A protocol simulated at one value of the unknown.

    Attributes
    ----------
    x : float
    candidate : Candidate
    error, half_width : float or None
        As they are said; None where no run was ok, or there was one.
    theory : float
        Infinite without a prediction.
    runs, missing : int
    row : Row or None
        Of the comparison.
    """

    x: float
    candidate: Candidate
    error: float | None
    half_width: float | None
    theory: float
    runs: int
    missing: int = 0
    row: Row | None = None

    @property
    def top(self) -> float:
        """Upper end of the error's interval."""
        return math.inf if self.error is None else self.error + (self.half_width or 0.0)

    def met(self, target: float) -> bool:
        """Say whether a target is met: by theory and not contradicted, or by simulation for sure.

        A mean over few runs that happens to lie below the target is no evidence against theory.
        """
        if self.error is None or self.missing:
            return False
        half = self.half_width or 0.0
        if self.theory <= 1.001 * target and not self.contradicted:
            return self.error - half <= target and self.error <= SLACK * target
        return self.error + half <= target

    @property
    def contradicted(self) -> bool:
        """Whether the error is so far above theory's that theory is no evidence."""
        low = 0.0 if self.error is None else self.error - (self.half_width or 0.0)
        return (self.ratio or 0.0) > OFF and low > self.theory

    @property
    def ratio(self) -> float | None:
        """Simulated over predicted error."""
        known = self.error is not None and 0 < self.theory < math.inf
        return self.error / self.theory if known and self.error is not None else None


@dataclass(frozen=True)
class Planned:
    """What theory says of one protocol on one level, with the best of its settings."""

    candidate: Candidate
    kept: tuple[Candidate, ...]
    answer: Answer | None
    reason: str = ""

    @property
    def x(self) -> float | None:
        """The least epsilon that will do, by theory."""
        return None if self.answer is None else self.answer.x


def candidates_for(settled: Settled, level: Trust, title: str, target: float) -> list[Candidate]:
    """Return the settings of a protocol that reach a target first, by theory on coarse steps."""
    every = settled.of(level, title)
    if len(every) <= 1:
        return every

    def order(c: Candidate) -> tuple[float, float]:
        points = []
        for x in COARSE:
            points.append((x, settled.predicted(c, x)))
            if points[-1][1] <= target:
                return points[-1]
        return math.inf, min(e for _, e in points)

    return sorted(every, key=order)[:KEPT]


def best_at(settled: Settled, kept: Sequence[Candidate], epsilon: float) -> Candidate:
    """Return the settings of least predicted error."""
    return min(kept, key=lambda c: settled.predicted(c, epsilon))


def bracket(settled: Settled, c: Candidate, target: float) -> tuple[float, float]:
    """Return the part of the range in which theory first meets a target, from coarse steps.

    Without a step that meets it, the part around the one of least error.
    """
    steps = (LOW, *COARSE)
    errors = [settled.predicted(c, x) for x in COARSE]
    met = next((i for i, e in enumerate(errors) if e <= target), None)
    if met is not None:
        return steps[met], steps[met + 1]
    least = errors.index(min(errors)) + 1
    if math.isinf(errors[least - 1]):
        return LOW, HIGH  # theory refuses all steps: look at everything
    return steps[least - 1], steps[min(least + 1, len(steps) - 1)]


def _dominated(settled: Settled, c: Candidate, by: Candidate, at: tuple[float, float]) -> bool:
    """Say whether settings are no better than others at both ends of a part of the range."""
    ends = [x for x in at if x in COARSE]  # those are known already
    return all(settled.predicted(c, x) >= settled.predicted(by, x) for x in ends)


def plan_title(settled: Settled, level: Trust, title: str, target: float) -> Planned:
    """Plan a protocol on a level: the settings that theory likes best for the target."""
    kept = candidates_for(settled, level, title, target)
    m, found, reason = settled.measure, list[tuple[Candidate, Answer]](), ""
    between = bracket(settled, kept[0], target)
    for c in kept:
        if c is not kept[0] and _dominated(settled, c, kept[0], between):
            continue
        try:
            answer = plan(
                settled.config(c),
                m.asked(target),
                "epsilon",
                relative=m.divides,
                loss=m.loss,
                between=between,
            )
        except REASONS as e:
            reason = str(e)
        else:
            found.append((c, answer))
    if not found:
        return Planned(kept[0], tuple(kept), None, reason)

    def order(item: tuple[Candidate, Answer]) -> tuple[float, float]:
        a = item[1]
        least = a.best.error if a.best is not None else math.inf
        return (a.x if a.x is not None else math.inf), least

    candidate, answer = min(found, key=order)
    return Planned(candidate, tuple(kept), answer, answer.reason)


def shortlist(found: Sequence[Planned], effort: str) -> list[Planned]:
    """Return what is worth simulating on a level, the best first.

    Theory of what is projected may ignore the projection, and be far too high: the first of those
    who are not among the best by theory is simulated, too.
    """

    def order(p: Planned) -> tuple[float, float]:
        best = p.answer.best.error if p.answer is not None and p.answer.best is not None else None
        return (p.x if p.x is not None else math.inf), math.inf if best is None else best

    ranked = sorted(found, key=order)
    most = SHORTLIST[effort]
    late = (p for p in ranked[most:] if p.candidate.table.get("project"))
    return [*ranked[:most], *islice(late, 1)]


def simulate(settled: Settled, candidates: Sequence[Candidate], epsilon: float) -> list[Trial]:
    """Compare candidates at one budget, level by level; the best of a level comes first."""
    if not candidates:
        return []
    levels = tuple(t for t in Trust if any(c.level is t for c in candidates))
    entries = tuple(replace(c.entry, named=False) for c in candidates)
    comparison = replace(
        settled.comparison,
        epsilon=epsilon,
        entries=entries,
        levels=levels,
        truth="" if settled.ready.truth is Truth.OWN else settled.ready.truth.value,
        common=taken_by(settled.comparison.common, candidates),
    )
    try:
        found = run_comparison(set_up(comparison))
    except ValueError as e:
        if "nothing can be compared" in str(e):
            return []
        raise
    of = {c.entry.label: c for c in candidates}
    out, m = [], settled.measure
    for row in found.rows:
        c = of[row.label]
        error = m.shown(row.mean)
        out.append(
            Trial(
                epsilon,
                c,
                error,
                _half(m.shown, row, error),
                settled.predicted(c, epsilon),
                len(row.records),
                sum(row.missing.values()),
                row,
            )
        )
    return out


def _half(
    shown: Callable[[float | None], float | None], row: Row, error: float | None
) -> float | None:
    """Return half the width of an error's interval as it is said."""
    if row.mean is None or row.half_width is None or error is None:
        return None
    top = shown(row.mean + row.half_width)
    return None if top is None else top - error


def solve_epsilon(
    settled: Settled, level: Trust, target: float, advance: Advance
) -> tuple[list[Planned], list[Trial], tuple[str, ...]]:
    """Find the least epsilon on a level, by theory and then by simulation.

    Returns
    -------
    planned : list of Planned
        The best first.
    trials : list of Trial
        What was simulated, in order; the winner of each step.
    compared : tuple of str
        All who were simulated.
    """
    titles = settled.titles(level)
    found = []
    for i, title in enumerate(titles):
        found.append(plan_title(settled, level, title, target))
        advance(0.4 * (i + 1) / len(titles))
    short = shortlist(found, settled.question.effort)
    if not short:
        return [], [], ()
    x = short[0].x if short[0].x is not None else _most(short[0])
    trials: list[Trial] = []
    compared: list[str] = []
    steps = STEPS[settled.question.effort]
    for step in range(steps):
        at = [best_at(settled, p.kept, x) for p in short]
        ran = simulate(settled, at, x)
        advance(0.4 + 0.6 * (step + 1) / steps)
        if not ran:
            break
        compared += [t.candidate.title for t in ran]
        trials.append(ran[0])
        if trials[-1].error is None:
            break
        short = [p for p in short if _near(p, ran)]
        move = next_epsilon(trials, target)
        if move is None or step + 1 == steps:
            break
        x = move
    return [*short, *(p for p in found if p not in short)], trials, tuple(dict.fromkeys(compared))


def _most(p: Planned) -> float:
    """Return where a protocol that does not reach the target comes nearest to it."""
    best = p.answer.best if p.answer is not None else None
    return best.x if best is not None and math.isfinite(best.error) else HIGH


def _near(p: Planned, ran: Sequence[Trial]) -> bool:
    """Say whether a protocol is within a factor 1.5 of the best that was simulated with it."""
    own = next((t for t in ran if t.candidate.title == p.candidate.title), None)
    best = ran[0].error
    return (
        own is not None and own.error is not None and best is not None and own.error <= 1.5 * best
    )


def next_epsilon(trials: Sequence[Trial], target: float) -> float | None:
    """Say which epsilon to simulate next; None if the last one settles it.

    Between what did and what did not, or along the slope of the last two, or along 1 / epsilon.
    """
    good = [t.x for t in trials if t.met(target)]
    bad = [t.x for t in trials if t.error is not None and not t.met(target)]
    low, high = (
        max((x for x in bad if x < min(good, default=HIGH)), default=LOW),
        min(good, default=HIGH),
    )
    last = trials[-1]
    if last.error is None or last.error <= 0:
        return None
    surplus = SURPLUS if last.theory <= 1.001 * target and not bad else BLIND
    if last.met(target) and (last.top >= surplus * target or last.x <= LOW):
        return None
    if (not good and last.x >= HIGH) or (good and high <= 1.05 * low):
        return None
    slope = _slope([t for t in trials if t.error])
    x: float = last.x * (AIM * target / last.top) ** (1 / slope)
    if not good:
        x = max(x, GROWTH * max(bad))
    elif low > LOW:  # stay inside, away from the ends
        x = min(max(x, low * (high / low) ** 0.1), high * (low / high) ** 0.1)
    return min(max(x, LOW), HIGH)


def _slope(trials: Sequence[Trial]) -> float:
    """Return d log error / d log epsilon of the last two trials; -1 where they tell nothing."""
    if len(trials) < 2:
        return -1.0
    a, b = trials[-2:]
    if a.x == b.x or not a.error or not b.error:
        return -1.0
    slope = math.log(b.error / a.error) / math.log(b.x / a.x)
    return min(max(slope, -3.0), -0.15)
