"""Table 1 and Figure 3 of Liu et al. (ICML 2023): Algorithm 3 on unknown items, by threshold."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from server.histograms.bound_choice import BoundTask
from simulations.experiments.experiment import Findings, mean_and_error
from simulations.experiments.unbounded_domain import (
    AS_PRINTED,
    SYNTHETIC,
    Case,
    Counts,
    Release,
    Sampled,
    cases,
    choice_of,
    margins,
    scores_of,
)

BEST, PRIVATE, MEDIAN, Q90 = "best C", "private C*", "median", "90 % quantile"
ONE_RUN = "runs of private C* that lose less than printed"
SPREAD = (0.025, 0.975)
DRAWS = 1000
"""Runs of choice, sampling and noise that a printed number of one run is compared with."""

PROVEN = 12.0
"""Constant of the paper's Corollary B.5: V <= 12 ln(C_m / 2 delta) times the expected loss."""


def run(found: Findings) -> None:
    """Measure table and figure.

    The paper prints one run of the private choice: its number is judged by the law of one run, for
    which choice, sampling and noise are drawn many times. The expected loss is shown as well: the
    average over the exact probabilities of the choice.
    """
    s = found.settings
    if s.clip_step > s.clip_max:
        raise ValueError(f"clip_step must be at most clip_max, got {s.clip_step}")
    for case in cases(found):
        row = Row.of(found, case)
        if found.request.population != SYNTHETIC and len(case.users) < s.whole_file:
            found.only_shown()
            found.not_judged.append(
                f"{case.name}: the printed numbers are of the whole file, and this part has "
                f"{len(case.users):,} users"
            )
        row.judge_table(found)
        row.judge_bound(found)
        row.draw(found)


@dataclass(frozen=True)
class Algorithm:
    """The paper's algorithm or ours on one case: its choice of C, and what that costs.

    ``losses``: (repeats, K); ``probabilities``: (K,); ``runs``: (DRAWS,), losses of whole runs.
    """

    task: BoundTask
    losses: Floats
    probabilities: Floats
    runs: Floats

    @classmethod
    def of(cls, case: Case, release: Release, task: BoundTask, sampled: Sampled,
           rng: np.random.Generator) -> Algorithm:  # fmt: skip
        """Evaluate the losses over the grid, and run choice, sampling and release."""
        grid, p = np.array(task.grid), choice_of(task, case.users)
        chosen = rng.choice(grid, size=DRAWS, p=p)
        losses = sampled.losses(release, grid)
        return cls(task, losses, p, sampled.runs(release, chosen, rng))

    @property
    def best(self) -> tuple[int, Floats]:
        """The best C of the grid, and its losses: (repeats,)."""
        at = int(np.argmin(self.losses.mean(axis=0)))
        return self.task.grid[at], self.losses[:, at]

    @property
    def expected(self) -> Floats:
        """Expected loss per draw of the sampling: (repeats,)."""
        return np.asarray(self.losses @ self.probabilities)

    @property
    def clip(self) -> float:
        """Expected threshold."""
        return float(np.dot(self.task.grid, self.probabilities))

    @property
    def spread(self) -> str:
        """Between which losses 95 % of the runs lie."""
        return "{:.4f} to {:.4f}".format(*np.quantile(self.runs, SPREAD))


@dataclass(frozen=True)
class Row:
    """Everything that table and figure say of one case.

    ``quantiles``: threshold and losses of each.
    """

    case: Case
    paper: Algorithm
    ours: Algorithm
    quantiles: dict[str, tuple[int, Floats]]

    @classmethod
    def of(cls, found: Findings, case: Case) -> Row:
        """Sample the users at all thresholds and evaluate both algorithms."""
        s, releases = found.settings, case.releases()
        rng = np.random.default_rng(digest64("table1", found.seed, case.name))
        tasks = [r.task(s.epsilon_choice, s.clip_max, s.clip_step) for r in releases]
        levels = np.quantile(margins(case.users)[0], (0.5, 0.9), method="inverted_cdf")
        clips: Counts = np.maximum(levels, 1).astype(np.int64)
        every = np.unique(np.concatenate([*(t.grid for t in tasks), clips]))
        sampled = Sampled.of(case.users, every, s.repeats, rng)
        paper, ours = (
            Algorithm.of(case, r, t, sampled, rng) for r, t in zip(releases, tasks, strict=True)
        )
        losses = sampled.losses(releases[0], clips).T
        quantiles = dict(zip((MEDIAN, Q90), zip(clips.tolist(), losses, strict=True), strict=True))
        return cls(case, paper, ours, quantiles)

    def judge_table(self, found: Findings) -> None:
        """Judge the paper's four numbers, and its claims for ours."""
        name, paper, ours = self.case.name, self.paper, self.ours
        self._printed(found, BEST, paper.best[1])
        self._printed(found, PRIVATE, paper.expected)
        for quantity, (_, losses) in self.quantiles.items():
            self._printed(found, quantity, losses)
        one, best = paper.expected.mean(), paper.best[1].mean()
        found.show(name, f"{PRIVATE} / {BEST}", one / best)
        baseline = min(losses.mean() for _, losses in self.quantiles.values())
        found.check(name, "private C* / better quantile", one / baseline)
        found.check(name, f"{BEST}, ours / paper's", ours.best[1].mean() / best)
        found.check(name, f"{PRIVATE}, ours / paper's", ours.expected.mean() / one)
        clips = ", ".join(f"{q} {c}" for q, (c, _) in self.quantiles.items())
        found.note(
            f"{name}: epsilon {self.case.epsilon:g}; best C {paper.best[0]}, private C* on average "
            f"{paper.clip:.0f} (ours {ours.clip:.0f}), {clips}; 95 % of the runs with private C* "
            f"lose {paper.spread}; of ours {ours.spread}"
        )

    def _printed(self, found: Findings, quantity: str, losses: Floats) -> None:
        """Compare with a printed number; one of a single run with the law of one run."""
        name, measured = self.case.name, mean_and_error(losses)
        check = found.request.judge(self.case.setting, quantity, *measured)
        if check is None:
            found.show(name, quantity, *measured)
            return
        as_printed = self.case.reading == AS_PRINTED
        cause = found.settings.cause_as_printed if as_printed else check.cause
        found.checks.append(replace(check, setting=name, cause=cause))
        if quantity == PRIVATE:
            share = float((self.paper.runs <= (check.paper or 0.0)).mean())
            found.check(name, ONE_RUN, share)
            found.checks[-1] = replace(found.checks[-1], cause=cause)

    def judge_bound(self, found: Findings) -> None:
        """Judge V against the expected loss at every C, as Figure 3 shows them."""
        ratio = self.bound / self.paper.losses.mean(axis=0)
        room = self.case.epsilon + math.log(found.settings.clip_max / (2 * self.case.delta))
        found.check(self.case.name, "smallest V / loss", ratio.min())
        largest = float(ratio.max() / room)
        found.check(self.case.name, "largest V / loss / 12 log, proven", largest / PROVEN)
        found.check(self.case.name, "largest V / loss / log", largest)
        found.show(self.case.name, "largest V / loss", ratio.max())

    @property
    def bound(self) -> Floats:
        """V, relative to all tokens, over the printed grid."""
        users = self.case.users
        return np.asarray(scores_of(self.paper.task, users) / margins(users)[0].sum())

    def draw(self, found: Findings) -> None:
        """Draw loss and bound at every threshold of the grid, and where the choices fall."""
        panel = self.case.name
        for label, one, style, marker in (
            ("paper's algorithm", self.paper, "-", "D"),
            ("ours", self.ours, "--", "s"),
        ):
            found.draw(panel, label, one.task.grid, one.losses.mean(axis=0), style=style)
            found.draw(panel, f"private C*, {label}", [one.clip], one.expected.mean(), None, marker)
        found.draw(panel, "V (paper's bound)", self.paper.task.grid, self.bound, style=":")
        for (quantity, (c, x)), marker in zip(self.quantiles.items(), "^v", strict=True):
            found.draw(panel, quantity, [c], x.mean(), marker=marker)
