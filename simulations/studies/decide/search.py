"""The search: the least epsilon, or number of users, at which an error is reached.

The expected error proposes, fresh runs dispose. "Yes" is said only where the measured mean error
is at most the target and the upper end of its 95% interval at most 1.05 times the target.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from fedhist.privacy.guarantee import Trust
from simulations.reporting.intervals import half_width
from simulations.studies.decide.problem import (
    FRESH,
    RANKS,
    Candidate,
    Expected,
    Problem,
    words_of,
)

LOW, HIGH = 1 / 64, 64.0
"""Values of epsilon that are searched: beyond 64 nothing is protected."""
LEVEL = 0.95
ABOVE = 1.05
"""Times the target that the upper end of the interval may be."""
AIM = 0.96
"""Share of the target that the search aims at. The mean of r squared normal errors has a relative
standard error of sqrt(2 / r), of Laplace errors sqrt(5 / r), and its root half of it: with
1.96 sqrt(5 / r) / 2 = 5% at r = 1,900 some 2,000 runs settle an answer of one number."""
APART = 1.08
"""Factor between what met the target and what did not, down to which fresh runs are made."""
SURPLUS = 0.92
"""Where the interval ends below this share of the target, less is tried."""
DOUBT = 1.25
"""A few runs may be so far off: up to this many times the target a protocol is searched for."""
FEWEST = 24
"""Fresh runs before anything is said; of answers of one number, four times as many."""
NEAR, CLOSE = 1.02, 0.985
"""The search ends within this factor of epsilon, or this close to the target."""
MORE_USERS = 32
"""Times the users there are, up to which more are drawn from them."""

Progress = Callable[[float], None]
Status = Literal["yes", "no", "theory", "measured", "unavailable"]


@dataclass(frozen=True)
class Effort:
    """How much a search may run: candidates that are verified, runs and steps of each.

    ``answers`` bounds the users who answer in the fresh runs of one step.
    """

    shortlist: int
    search_runs: int
    runs: int
    steps: int
    answers: int


EFFORTS = {
    "quick": Effort(shortlist=1, search_runs=4, runs=400, steps=4, answers=10**7),
    "usual": Effort(shortlist=2, search_runs=8, runs=2000, steps=6, answers=4 * 10**7),
}


def runs_for(runs: int, entries: int) -> int:
    """Return how many runs say of an answer of few entries what these say of one of 16 or more.

    >>> runs_for(8, 1), runs_for(8, 4), runs_for(8, 1000)
    (32, 16, 8)
    """
    return math.ceil(runs * max(1.0, 4 / math.sqrt(max(entries, 1))))


@dataclass(frozen=True)
class Trial:
    """Fresh runs of a candidate at one value of the unknown.

    Attributes
    ----------
    x : float
        Epsilon, or users.
    candidate : Candidate
    error, low, high : float
        Mean error as it is stated, and its 95% interval.
    expected : float
        What the search expected.
    runs : int
    missing : str
        Why a run gave nothing.
    warnings : tuple of str
        What a twentieth of the runs or more warned of.
    exact : bool
        Whether the expected error is a closed form.
    """

    x: float
    candidate: Candidate
    error: float
    low: float
    high: float
    expected: float
    runs: int
    missing: str = ""
    warnings: tuple[str, ...] = ()
    exact: bool = False

    def met(self, target: float) -> bool:
        """Whether "yes" may be said."""
        if self.exact and self.expected > target:
            return False  # a lucky mean is no evidence against a closed form
        return not self.missing and self.error <= target and self.high <= ABOVE * target


@dataclass(frozen=True)
class Finding:
    """The answer on one level of trust.

    Attributes
    ----------
    level : Trust
    status : {"yes", "no", "theory", "measured", "unavailable"}
        "theory": a search without fresh runs. "measured": the error at the given epsilon.
    trial : Trial or None
        What the answer rests on.
    x : float or None
        The epsilon, or the users, of the answer.
    trials : tuple of Trial
    searched : mapping of str to float
        The least x by expected error of each candidate that was searched for.
    reason : str
        Why there is nothing; or why a little less than ``x`` is refused.
    curve : tuple of (float, float)
        Expected errors of the answer's candidate.
    """

    level: Trust
    status: Status
    trial: Trial | None = None
    x: float | None = None
    trials: tuple[Trial, ...] = ()
    searched: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    curve: tuple[tuple[float, float], ...] = ()

    @property
    def borrowed(self) -> bool:
        """Whether it is the answer of a level of less trust, which can be had on this one."""
        return self.trial is not None and self.trial.candidate.level is not self.level


class Asked:
    """The unknown of a search: epsilon, or the number of users at one epsilon."""

    def __init__(self, problem: Problem, epsilon: float | None) -> None:
        self.problem, self.epsilon = problem, epsilon
        n = len(problem.users)
        self.range = (LOW, HIGH) if epsilon is None else (float(min(n, 10)), float(MORE_USERS * n))
        self.start = 1.0 if epsilon is None else float(n)
        self._problems: dict[int, Problem] = {}

    def at(self, c: Candidate, x: float) -> tuple[Problem, Candidate | None, float]:
        """Return the problem, the candidate in it, and the epsilon."""
        if self.epsilon is None:
            return self.problem, c, x
        n = int(x)
        if n not in self._problems:
            self._problems[n] = self.problem.with_users(n)
        other = self._problems[n]
        same = (k for k in other.candidates if (k.place, k.chosen) == (c.place, c.chosen))
        return other, next(same, None), self.epsilon

    def expected(self, c: Candidate, x: float, runs: int) -> float:
        """Return the expected error at a value of the unknown; infinite where there is none."""
        try:
            problem, own, epsilon = self.at(c, x)
        except Exception:
            return math.inf
        return math.inf if own is None else problem.expected(own, epsilon, runs).error

    def rounded(self, x: float) -> float:
        """Return a value of the unknown that can be asked: users are whole."""
        x = min(max(x, self.range[0]), self.range[1])
        return x if self.epsilon is None else float(math.ceil(x))


def least(
    error: Callable[[float], float], target: float, start: float, low: float, high: float
) -> float | None:
    """Return the least x in [low, high] at which a falling error meets a target; None if none does.

    By the power law through the last two points, inside the bracket.

    >>> round(least(lambda x: 0.3 / x, 0.1, 1.0, 0.01, 64.0), 1)
    3.0
    """
    above: tuple[float, float] | None = None
    below: tuple[float, float] | None = None
    x = min(max(start, low), high)
    for _ in range(24):
        e = error(x)
        if e <= target:
            below = x, e
        else:
            above = x, e
        near = below is not None and above is not None and below[0] <= NEAR * above[0]
        if below is not None and (near or below[0] <= low or below[1] >= CLOSE * target):
            return below[0]
        if above is not None and above[0] >= high:
            return None
        if above is None or below is None:
            ratio = e / target if 0 < e < math.inf else 4.0 if e else 0.25
            x = min(max(x * min(max(1.1 * ratio if e > target else ratio, 1 / 16), 16), low), high)
            continue
        share = 0.5
        if below[1] > 0 and math.isfinite(above[1]) and above[1] > below[1]:
            share = math.log(above[1] / (0.995 * target)) / math.log(above[1] / below[1])
            share = min(max(share, 0.1), 0.9)
        x = above[0] * (below[0] / above[0]) ** share
    return below[0] if below is not None else None


def search(problem: Problem, progress: Callable[[str, float], None]) -> list[Finding]:
    """Answer the question on every level, the most trust first."""
    q, levels = problem.question, problem.question.levels
    findings = dict[Trust, Finding]()
    for i, level in enumerate(reversed(levels)):

        def advance(share: float, what: str = f"{level.value} trust", i: int = i) -> None:
            progress(what, (i + share) / len(levels))

        advance(0.0)
        own = problem.of(level)
        if not own:
            findings[level] = Finding(level, "unavailable", reason=problem.why_none(level))
        elif q.error is None:
            findings[level] = _at_epsilon(problem, level, float(q.epsilon or 1.0))
        else:
            findings[level] = _solved(problem, level, q.error, advance)
    progress("", 1.0)
    return _no_worse([findings[level] for level in levels], solved=q.error is not None)


def _solved(problem: Problem, level: Trust, target: float, advance: Progress) -> Finding:
    """Find the least x of a level by expected errors, then by fresh runs."""
    effort = EFFORTS[problem.question.effort]
    asked = Asked(problem, problem.question.epsilon)
    runs, goal = runs_for(effort.search_runs, problem.measure.truth.value.size), AIM * target
    own = problem.of(level)
    few = max(3, runs // 4)
    first = {id(c): asked.expected(c, asked.start, few) for c in own}
    ranked = sorted(own, key=lambda c: first[id(c)])
    best_of: dict[str, tuple[float, Candidate]] = {}  # settings of least x of each protocol

    def try_(c: Candidate) -> None:
        """Search for a candidate, unless it does not beat the others."""
        limits = [best_of[c.name][0]] if c.name in best_of else []
        if len(best_of) >= effort.shortlist:
            limits.append(sorted(x for x, _ in best_of.values())[effort.shortlist - 1])
        high = min(limits, default=asked.range[1])
        there = asked.expected(c, high, few)
        if math.isfinite(there) and there > (DOUBT if few < runs else 1.0) * goal:
            return

        def error(x: float) -> float:
            return asked.expected(c, asked.rounded(x), runs)

        x = least(error, goal, high if limits else asked.start, asked.range[0], high)
        if x is not None:
            best_of[c.name] = asked.rounded(x), c

    for i, c in enumerate(ranked):
        advance(0.4 * i / len(ranked))
        try_(c)
    for _, c in list(best_of.values()):
        for near in problem.nearby(c):
            try_(near)
    xs = sorted(best_of.values(), key=lambda item: item[0])
    searched = {c.words: x for x, c in reversed(xs)}
    if not xs:
        return _unreached(asked, level, ranked, target, few)
    if problem.question.theory:
        x, c = xs[0]
        expected = asked.expected(c, x, runs)
        trial = Trial(x, c, expected, expected, expected, expected, 0)
        return Finding(level, "theory", trial, x, (), searched, curve=curve_of(problem, c))
    trials: list[Trial] = []
    best: Trial | None = None
    for i, (x, c) in enumerate(xs[: effort.shortlist]):
        if best is not None and x >= best.x:
            break
        for step in range(effort.steps):
            advance(0.4 + 0.6 * (i + step / effort.steps) / effort.shortlist)
            trial = measure(asked, c, x, target, effort)
            trials.append(trial)
            if trial.met(target) and (best is None or trial.x < best.x):
                best = trial
            x = asked.rounded(next_x([t for t in trials if t.candidate is c], target))
            if x in (t.x for t in trials if t.candidate is c) or (best and x >= best.x):
                break
    trial = best or min(trials, key=lambda t: t.error)
    status: Status = "yes" if best is not None else "no"
    x_found = best.x if best is not None else None
    curve = curve_of(problem, trial.candidate)
    reason = trial.missing
    if best is not None and not asked.epsilon and not reason:  # a little less may be refused
        reason = problem.expected(best.candidate, 0.9 * best.x, 1).reason
    return Finding(level, status, trial, x_found, tuple(trials), searched, reason, curve)


def next_x(trials: Sequence[Trial], target: float) -> float:
    """Return where to make fresh runs next; a value that was asked ends it.

    Upwards by a part of what the error is too large, because errors may fall faster than
    1 / epsilon; between what met the target and what did not, while they are apart.
    """
    last = trials[-1]
    met = min((t.x for t in trials if t.met(target)), default=math.inf)
    below = max((t.x for t in trials if not t.met(target) and t.x < met), default=0.0)
    if math.isfinite(met):
        if below:
            return math.sqrt(below * met) if met > APART * below else met
        return (
            met if last.high >= SURPLUS * target else met * math.sqrt(max(last.high / target, 0.5))
        )
    up = last.error / (AIM * target) if math.isfinite(last.error) else 4.0
    return last.x * min(max(math.pow(up, 0.7), 1.04), 2.0)


def _unreached(
    asked: Asked, level: Trust, ranked: Sequence[Candidate], target: float, few: int
) -> Finding:
    """Measure who comes nearest, at the end of the range; by a few runs."""
    x, effort = asked.range[1], EFFORTS["quick"]
    nearest = min(ranked, key=lambda c: asked.expected(c, x, few))  # they were asked already
    trial = measure(asked, nearest, x, target, effort)
    if not math.isfinite(trial.error):
        return Finding(level, "unavailable", reason=trial.missing or "no run gave an estimate")
    curve = curve_of(asked.problem, nearest)
    if trial.met(target):  # the few runs of the search were unlucky
        return Finding(level, "yes", trial, x, (trial,), curve=curve)
    return Finding(level, "no", trial, None, (trial,), curve=curve)


def _at_epsilon(problem: Problem, level: Trust, epsilon: float) -> Finding:
    """Measure the errors of a level at one epsilon; the least counts."""
    effort = EFFORTS[problem.question.effort]
    own = problem.of(level)
    ranked = sorted(own, key=lambda c: problem.expected(c, epsilon, effort.search_runs).error)
    asked = Asked(problem, None)
    names = list({c.name: c for c in reversed(ranked)}.values())[::-1]  # the best settings of each
    trials = [measure(asked, c, epsilon, math.nan, effort) for c in names[: effort.shortlist + 1]]
    trial = min(trials, key=lambda t: t.error)
    if not math.isfinite(trial.error):
        return Finding(level, "unavailable", reason=trial.missing or "no run gave an estimate")
    curve = curve_of(problem, trial.candidate)
    return Finding(level, "measured", trial, None, tuple(trials), curve=curve)


def measure(asked: Asked, c: Candidate, x: float, target: float, effort: Effort) -> Trial:
    """Make fresh runs until they settle whether the target is met, or there are enough."""
    losses, warned, number, missing = list[float](), Counter[str](), FRESH, ""
    # Student's interval of a few squared normal errors is too low too often: of one number, 100
    entries, expected = asked.problem.measure.truth.value.size, Expected(math.inf)
    fewest = runs_for(FEWEST, entries)
    try:
        problem, own, epsilon = asked.at(c, x)
        if own is None:
            raise ValueError("it cannot be had for so few users")
        expected = problem.expected(own, epsilon, runs_for(effort.search_runs, entries))
        most, size = min(effort.runs, max(fewest, effort.answers // len(problem.users))), 8
        while True:
            told = problem.run(own, epsilon, range(number, number + size))
            losses += told.losses
            warned.update(told.warnings)
            number, missing, left = number + size, told.missing, most - len(losses)
            if missing or not losses:
                break
            trial = _trial(problem, c, x, losses, expected)
            settled = len(losses) >= fewest and (trial.met(target) or trial.low > target)
            if settled or left <= 0:
                break
            size = min(len(losses), left)
    except Exception as e:
        losses, missing = [], words_of(e)
    if missing or not losses:
        return Trial(x, c, math.inf, math.inf, math.inf, expected.error, len(losses), missing)
    return replace(trial, warnings=tuple(k for k, n in warned.items() if 20 * n >= len(losses)))


def _trial(
    problem: Problem, c: Candidate, x: float, losses: Sequence[float], expected: Expected
) -> Trial:
    """State the mean of some losses with its interval, by Student's distribution."""
    stated, mean = problem.measure.stated, float(np.mean(losses))
    width = half_width(losses, LEVEL)
    half = math.inf if width is None else width
    low, high = stated(max(mean - half, 0.0)), stated(mean + half)
    if mean == 0 and problem.measure.loss == RANKS:
        high = 3 / len(losses)  # what has chance 3 / r is missing in r runs once in twenty
    exact = expected.exact
    return Trial(x, c, stated(mean), low, high, expected.error, len(losses), exact=exact)


def _no_worse(findings: Sequence[Finding], *, solved: bool) -> list[Finding]:
    """Give each level the best answer of those of less trust: whoever trusts may run it as well."""
    out: list[Finding] = []
    best: Finding | None = None
    for f in reversed(findings):
        if best is not None and _value(best, solved) < _value(f, solved):
            trials = (*f.trials, *best.trials)
            f = replace(best, level=f.level, trials=trials, searched=f.searched | best.searched)
        if f.trial is not None and math.isfinite(_value(f, solved)):
            best = f
        out.append(f)
    return out[::-1]


def _value(f: Finding, solved: bool) -> float:
    if solved:
        return f.x if f.x is not None else math.inf
    return f.trial.error if f.trial is not None else math.inf


def curve_of(problem: Problem, c: Candidate) -> tuple[tuple[float, float], ...]:
    """Return expected errors by epsilon, for the figure: what was asked, and a few more."""
    for x in (0.125, 1.0, 8.0):
        problem.expected(c, x, 3)
    return problem.asked_of(c)
