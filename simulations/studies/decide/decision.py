"""Decide: from users to an answer under every level of trust, with something to run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Console

from fedhist.base.errors import nearest
from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.registry import display_of
from fedhist.privacy.guarantee import Trust, approximate, chance_of_telling
from simulations.config.reading import to_toml
from simulations.populations.memory import Memory
from simulations.reporting.shown import Shown
from simulations.reporting.table import (
    BAD,
    GOOD,
    Column,
    Marked,
    Row,
    Table,
    number,
    print_lines,
    print_table,
    wrap,
)
from simulations.studies.decide.drawing import draw_decision
from simulations.studies.decide.problem import Problem, load
from simulations.studies.decide.profile import Profile, profile_of
from simulations.studies.decide.question import Question
from simulations.studies.decide.search import HIGH, LOW, Finding, Trial, search
from simulations.studies.levels import premise_of
from simulations.studies.losses import trivial_answers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {
    Trust.CENTRAL: "a trusted server",
    Trust.AGGREGATE: "secure aggregation",
    Trust.SHUFFLE: "a trusted shuffler",
    Trust.LOCAL: "nobody trusted",
}
MODEST, WEAK = 4.0, 10.0
"""From these epsilons on a promise is called weak, and next to nothing."""
WORDS = {"yes": "yes", "no": "no", "theory": "expected", "measured": "", "unavailable": "none"}

Progress = Callable[[str, float], None]
"""Told what is being done, and how much of all is done, from 0 to 1."""


@dataclass(frozen=True, repr=False)
class Decision(Shown):
    """An answered question. NOT PRIVATE: it is computed from the users' data.

    ``findings``: one for each level of trust, the most trust first.
    """

    kind: ClassVar[str] = "decision"

    question: Question
    problem: Problem
    findings: tuple[Finding, ...]

    def best(self, level: str | Trust) -> Protocol:
        """Return the protocol of a level's answer, which :func:`fedhist.run` takes.

        Parameters
        ----------
        level : {"central", "aggregate", "shuffle", "local"}

        Raises
        ------
        ValueError
            If the level was not asked for, or has no answer.
        """
        word = level.value if isinstance(level, Trust) else level
        by_level = {f.level.value: f for f in self.findings}
        if word not in by_level:
            raise ValueError(f"no level of trust {word!r} here{nearest(str(word), by_level)}")
        f = by_level[str(word)]
        if f.trial is None or (self.question.error is not None and f.x is None):
            raise ValueError(
                f"{word} trust has no answer: {f.reason or 'the error is not reached'}"
            )
        return self.problem.build(f.trial.candidate, self.epsilon_of(f.trial))

    def epsilon_of(self, trial: Trial) -> float:
        """Return the epsilon of a trial."""
        return trial.x if self.question.epsilon is None else self.question.epsilon

    @property
    def title(self) -> str:
        """What was asked, in one line."""
        q, entries = self.question, self.problem.measure.truth.value.size
        what = {
            "histogram": f"histogram of {entries:,} items",
            "distribution": f"distribution over {entries:,} items",
            "quantiles": f"{entries} quantiles",
        }.get(q.target, q.target)
        who = f"{what} from {len(self.problem.users):,} users"
        if q.error is None:
            return f"{who} at epsilon = {q.epsilon:g}: how large is the error?"
        if q.epsilon is None:
            return f"{who}, error at most {q.asked}: which epsilon does it take?"
        return f"{who}, error at most {q.asked}, epsilon = {q.epsilon:g}: how many users?"

    @cached_property
    def verdict(self) -> str:
        """The answer in two or three sentences."""
        free, error = self._without_data()
        said = self._verdict()
        q = self.question
        if free and q.error is not None and error <= q.error:
            said += (
                f" But {free} is {self.problem.measure.write(error)} off without asking anybody: "
                "the target asks for too little."
            )
        return said

    def _verdict(self) -> str:
        q, write = self.question, self.problem.measure.write
        tried = [f for f in self.findings if f.trial is not None]
        if not tried:
            return "No protocol gave an estimate."
        if q.error is None:
            least = min(tried, key=lambda f: f.trial.error if f.trial else math.inf)
            last = tried[-1]
            said = f"The error is {write(least.trial.error if least.trial else None)}"
            said += f" with {NAMES[least.level]}"
            if last is not least and last.trial is not None:
                said += f", and {write(last.trial.error)} with {NAMES[last.level]}"
            return said + "." + self._strength(q.epsilon or math.inf, q.epsilon or math.inf)
        good = [f for f in tried if f.x is not None]
        if not good:
            limit = f"an epsilon up to {HIGH:g}" if q.epsilon is None else "that many users"
            return f"No: {limit} does not reach {q.asked} under any of these levels of trust."
        least = good[-1]
        sure = "simulated" if least.status == "yes" else "expected, not simulated"
        said = f"With {NAMES[least.level]}: {self._x(least.x)} ({sure})"
        best = min(good, key=lambda f: f.x or math.inf)
        if best.x is not None and least.x is not None and best.x < 0.95 * least.x:
            said += f". With {NAMES[best.level]}: {self._x(best.x)}"
        spent = [q.epsilon or f.x or math.inf for f in (least, best)]
        return said + "." + self._strength(*spent)

    def _strength(self, least: float, best: float) -> str:
        """Say what an epsilon is worth: the one of the least trust that has an answer."""
        if best >= WEAK:
            return (
                f" From epsilon = {WEAK:g} on next to nothing is promised: more users are needed."
            )
        chance = chance_of_telling(approximate(least, self.question.delta))
        word = "is a weak promise" if least >= MODEST else "means"
        return (
            f" Epsilon = {number(least, 3)} {word}: who knows everything else tells two records of "
            f"a user apart with a chance of at most {chance:.1%}."
        )

    def _x(self, x: float | None) -> str:
        if self.question.epsilon is not None:
            return f"{number(x, 3)} users"
        return f"epsilon = {number(x, 3)}" + (" or less" if x is not None and x <= LOW else "")

    def _without_data(self) -> tuple[str, float]:
        """Name the best answer that needs no data, and its error; a uniform histogram needs n."""
        m, q = self.problem.measure, self.question
        c = self.problem.candidates[0]
        protocol = self.problem.build(c, q.epsilon or 1.0)
        known = self.problem.known(protocol)
        out = []
        for name, value in trivial_answers(protocol, m.truth.value).items():
            if name == "uniform" and display_of(q.target).unit == "counts":
                continue
            estimate = Estimate.ok(value, keys=m.truth.keys)
            loss = m.of_run(protocol, estimate, self.problem.users, known)
            out.append((m.stated(loss), f"the answer {name!r}"))
        error, name = min(out, default=(math.inf, ""))
        return name, error

    def sections(self) -> list[tuple[str, list[str]]]:
        """Return what must be known beside the table, by title."""
        return [
            ("What undermines it", self._doubts()),
            ("Whom to believe", self._premises()),
            ("What is measured", self._terms()),
        ]

    def _doubts(self) -> list[str]:
        q, n = self.question, len(self.problem.users)
        out = [f"NOT PRIVATE: {fact}" for fact in self.problem.facts]
        for f in self.findings:
            out += [f"{f.level.value}: {w}" for w in (f.trial.warnings if f.trial else ())[:1]]
            if f.x is not None and f.reason:
                out.append(f"{f.level.value}: less is refused, whatever the error: {f.reason}")
            if f.trial and f.trial.runs and f.trial.expected < math.inf:
                ratio = f.trial.error / f.trial.expected if f.trial.expected else 1.0
                if not 0.5 <= ratio <= 2:
                    said = self.problem.measure.write(f.trial.expected)
                    out.append(f"{f.level.value}: {said} was expected; the simulation counts")
        if q.delta * n > 1:
            out.append(f"delta = {q.delta:g} is above 1 / {n:,} users: a record may be published")
        return [*dict.fromkeys(out)]

    def _premises(self) -> list[str]:
        out = []
        for f in self.findings:
            if f.trial is None or f.borrowed:
                continue
            try:
                protocol = self.problem.build(f.trial.candidate, self.epsilon_of(f.trial))
            except ValueError:
                continue
            out.append(f"{f.level.value}: believe {premise_of(protocol).words}")
        return out

    def _terms(self) -> list[str]:
        q, m = self.question, self.problem.measure
        return [
            f"Error: {m.words}; mean over runs on these users, with its 95% interval.",
            f"Truth: {m.about.value}. User-level, replace-user, delta = {q.delta:g}.",
            *(f"NOT PRIVATE: {note}" for note in self.problem.read),
        ]

    def tables(self) -> Sequence[Table]:
        """Return the levels of trust; what was simulated; who was left out."""
        return [self._levels(), self._trials(), self._left_out()]

    def _levels(self) -> Table:
        m, q = self.problem.measure, self.question
        unknown = "users" if q.error is not None and q.epsilon is not None else "epsilon"
        columns = [
            Column("trust", keep=True),
            Column("answer"),
            Column(unknown, right=True, write=lambda x: number(x, 4 if unknown == "users" else 3)),
            Column("protocol"),
            Column("error", right=True, write=m.write),
            Column("± 95%", right=True, write=m.write, key="half_width"),
            Column("runs", right=True),
        ]
        rows = list[Row]()
        for f in self.findings:
            mark = {"yes": GOOD, "no": BAD}.get(f.status, "")
            word = Marked(WORDS[f.status], mark) if mark else WORDS[f.status]
            if f.trial is None:
                rows.append((f.level.value, word, None, f.reason, None, None, None))
                continue
            t, x = f.trial, f.x if q.error is not None else q.epsilon
            name = t.candidate.words + (f" [{t.candidate.level.value}]" if f.borrowed else "")
            half = (t.high - t.low) / 2 if t.runs > 1 else None
            rows.append((f.level.value, word, x, name, t.error, half, t.runs))
        notes = []
        if any(f.borrowed for f in self.findings):
            notes.append("[level]: it trusts less, and can be run here as well")
        if any(f.status == "no" for f in self.findings):
            notes.append("no: the error is the least that was measured")
        return Table.of(columns, rows, notes=tuple(notes))

    def _trials(self) -> Table:
        m = self.problem.measure
        columns = [
            Column("trust", keep=True),
            Column("protocol", keep=True),
            Column("x", right=True, write=lambda x: number(x, 4)),
            Column("error", right=True, write=m.write),
            Column("low", right=True, write=m.write),
            Column("high", right=True, write=m.write),
            Column("expected", right=True, write=m.write),
            Column("runs", right=True),
        ]
        rows: list[Row] = [
            (f.level.value, t.candidate.words, t.x, t.error, t.low, t.high, t.expected, t.runs)
            for f in self.findings
            for t in f.trials
            if t.candidate.level is f.level
        ]
        rows += [
            (f.level.value, name, x, None, None, None, None, 0)
            for f in self.findings
            for name, x in f.searched.items()
            if all(name != t.candidate.words for t in f.trials)
        ]
        return Table.of(columns, rows, title="simulated; rows of 0 runs were searched for only")

    def _left_out(self) -> Table:
        rows = list(self.problem.left_out.items())
        return Table.of(["protocol", "why it is left out"], rows, title="left out")

    def draw(self, figure: Figure) -> None:
        """Draw errors by epsilon, or by the number of users."""
        q, m = self.question, self.problem.measure
        draw_decision(figure, self.title, q, m, self.findings)

    def document(self) -> dict[str, Any]:
        """Return the decision as plain data."""
        q, m = self.question, self.problem.measure
        return {
            "kind": self.kind,
            "question": q.to_dict(),
            "population": self.problem.loaded.title,
            "n_users": len(self.problem.users),
            "loss": m.loss,
            "truth": m.about.value,
            "error": m.words,
            "verdict": self.verdict,
            "levels": [self._level(f) for f in self.findings],
            "left_out": dict(self.problem.left_out),
            "sections": dict(self.sections()),
            "NOT PRIVATE": "errors and settings are computed from the users' data",
        }

    def _level(self, f: Finding) -> dict[str, Any]:
        t = f.trial
        out: dict[str, Any] = {"trust": f.level.value, "status": f.status, "reason": f.reason}
        if t is None:
            return out
        return out | {
            "x": f.x,
            "protocol": {**t.candidate.table, "epsilon": self.epsilon_of(t)},
            "trust of the protocol": t.candidate.level.value,
            "error": t.error,
            "interval": [t.low, t.high],
            "expected": t.expected,
            "runs": t.runs,
        }

    def run_files(self) -> dict[str, str]:
        """Return a configuration of ``fedhist run`` for each level that has an answer, by name.

        Of users in memory there is none: ``best`` returns the protocol.
        """
        people = self.question.population
        if people.get("kind") == Memory.kind:
            return {}
        out = {}
        for f in self.findings:
            if f.trial is None or (self.question.error is not None and f.x is None):
                continue
            protocol = {**f.trial.candidate.table, "epsilon": self.epsilon_of(f.trial)}
            run = self.question.to_dict()["run"]
            tables = {"run": run, "protocol": protocol, "population": people}
            head = f"# {f.level.value} trust: {f.trial.candidate.words}"
            head += f", error {self.problem.measure.write(f.trial.error)}"
            if self.question.epsilon is not None and self.question.error is not None:
                head += f"\n# It takes {f.x:,.0f} users; here are {len(self.problem.users):,}."
            out[f"run-{f.level.value}.toml"] = f"{head}\n\n{to_toml(tables)}"
        return out

    def print(self, console: Console) -> None:
        """Print the answer: at most 40 lines."""
        width = console.width
        print_lines(console, [*wrap(self.title, width), "", *wrap(self.verdict, width)])
        print_table(console, self._levels())
        for title, lines in self.sections():
            if lines:
                print_lines(console, [f"{title}:"])
            for line in lines:
                first, *rest = wrap(line, width - 4)
                print_lines(console, [f"  {first}", *(f"    {r}" for r in rest)])

    def __str__(self) -> str:
        file = StringIO()
        self.print(Console(file=file, width=100, highlight=False))
        return file.getvalue().rstrip()

    def write(self, folder: Path) -> None:
        """Write the study, the run files, and what every folder of results has."""
        super().write(folder)
        (folder / "study.toml").write_text(
            f"# {self.title}\n# {self.verdict}\n\n{to_toml(self.question.to_dict())}",
            encoding="utf-8",
        )
        for name, text in self.run_files().items():
            (folder / name).write_text(text, encoding="utf-8")


def decide(question: Question, progress: Progress | None = None) -> Decision:
    """Answer a question: search by expected errors, verify by fresh runs, on every level.

    Raises ValueError, PopulationError if the users cannot be read, or no protocol estimates the
    target.
    """
    question, loaded = load(question)
    problem = Problem(question, loaded)
    findings = search(problem, progress or (lambda what, share: None))
    return Decision(question, problem, tuple(findings))


def profile_for(question: Question) -> Profile:
    """Profile the users of a question."""
    return profile_of(load(question)[1])
