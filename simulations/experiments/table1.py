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


def run(findings: Findings) -> None:
    """Measure table and figure.

    The paper prints one run of the private choice: its number is judged by the law of one run, for
    which choice, sampling and noise are drawn many times. The expected loss is shown as well: the
    average over the exact probabilities of the choice.
    """
    s = findings.settings
    if s.clip_step > s.clip_max:
        raise ValueError(f"clip_step must be at most clip_max, got {s.clip_step}")
    for case in cases(findings):
        row = Row.of(findings, case)
        if findings.request.population != SYNTHETIC and len(case.users) < s.whole_file:
            findings.only_shown()
            findings.not_judged.append(
                f"{case.name}: the printed numbers are of the whole file, and this part has "
                f"{len(case.users):,} users"
            )
        row.judge_table(findings)
        row.judge_bound(findings)
        row.draw(findings)


@dataclass(frozen=True)
class Row:
    """Everything that table and figure say of one case: the choice of C, and what that costs.

    ``losses``: (repeats, K); ``probabilities``: (K,); ``runs``: (DRAWS,), losses of whole runs;
    ``quantiles``: threshold and losses of each.
    """

    case: Case
    task: BoundTask
    losses: Floats
    probabilities: Floats
    runs: Floats
    quantiles: dict[str, tuple[int, Floats]]

    @classmethod
    def of(cls, findings: Findings, case: Case) -> Row:
        """Sample the users at all thresholds, and run choice, sampling and release."""
        s, release = findings.settings, case.release
        rng = np.random.default_rng(digest64("table1", findings.seed, case.name))
        task = release.task(s.epsilon_choice, s.clip_max, s.clip_step)
        levels = np.quantile(margins(case.users)[0], (0.5, 0.9), method="inverted_cdf")
        clips: Counts = np.maximum(levels, 1).astype(np.int64)
        every = np.unique(np.concatenate([task.grid, clips]))
        sampled = Sampled.of(case.users, every, s.repeats, rng)
        grid, p = np.array(task.grid), choice_of(task, case.users)
        runs = sampled.runs(release, rng.choice(grid, size=DRAWS, p=p), rng)
        losses = sampled.losses(release, clips).T
        quantiles = dict(zip((MEDIAN, Q90), zip(clips.tolist(), losses, strict=True), strict=True))
        return cls(case, task, sampled.losses(release, grid), p, runs, quantiles)

    @property
    def expected(self) -> Floats:
        """Expected loss per draw of the sampling: (repeats,)."""
        return np.asarray(self.losses @ self.probabilities)

    @property
    def clip(self) -> float:
        """Expected threshold."""
        return float(np.dot(self.task.grid, self.probabilities))

    def judge_table(self, findings: Findings) -> None:
        """Judge the paper's four numbers, and its claim."""
        name, at = self.case.name, int(np.argmin(self.losses.mean(axis=0)))
        self._printed(findings, BEST, self.losses[:, at])
        self._printed(findings, PRIVATE, self.expected)
        for quantity, (_, losses) in self.quantiles.items():
            self._printed(findings, quantity, losses)
        one, best = self.expected.mean(), self.losses[:, at].mean()
        findings.show(name, f"{PRIVATE} / {BEST}", one / best)
        baseline = min(losses.mean() for _, losses in self.quantiles.values())
        findings.check(name, "private C* / better quantile", one / baseline)
        clips = ", ".join(f"{q} {c}" for q, (c, _) in self.quantiles.items())
        low, high = np.quantile(self.runs, SPREAD)
        findings.note(
            f"{name}: epsilon {self.case.epsilon:g}; best C {self.task.grid[at]}, private C* on "
            f"average {self.clip:.0f}, {clips}; 95 % of the runs with private C* lose {low:.4f} to "
            f"{high:.4f}"
        )

    def _printed(self, findings: Findings, quantity: str, losses: Floats) -> None:
        """Compare with a printed number; one of a single run with the law of one run."""
        name, measured = self.case.name, mean_and_error(losses)
        check = findings.request.judge(self.case.setting, quantity, *measured)
        if check is None:
            findings.show(name, quantity, *measured)
            return
        as_printed = self.case.reading == AS_PRINTED
        cause = findings.settings.cause_as_printed if as_printed else check.cause
        findings.checks.append(replace(check, setting=name, cause=cause))
        if quantity == PRIVATE:
            share = float((self.runs <= (check.paper or 0.0)).mean())
            findings.check(name, ONE_RUN, share)
            findings.checks[-1] = replace(findings.checks[-1], cause=cause)

    def judge_bound(self, findings: Findings) -> None:
        """Judge V against the expected loss at every C, as Figure 3 shows them."""
        ratio = self.bound / self.losses.mean(axis=0)
        room = self.case.epsilon + math.log(findings.settings.clip_max / (2 * self.case.delta))
        findings.check(self.case.name, "smallest V / loss", ratio.min())
        largest = float(ratio.max() / room)
        findings.check(self.case.name, "largest V / loss / 12 log, proven", largest / PROVEN)
        findings.check(self.case.name, "largest V / loss / log", largest)
        findings.show(self.case.name, "largest V / loss", ratio.max())

    @property
    def bound(self) -> Floats:
        """V, relative to all tokens, over the printed grid."""
        users = self.case.users
        return np.asarray(scores_of(self.task, users) / margins(users)[0].sum())

    def draw(self, findings: Findings) -> None:
        """Draw loss and bound at every threshold of the grid, and where the choices fall."""
        panel = self.case.name
        grid, losses = self.task.grid, self.losses.mean(axis=0)
        findings.draw(panel, "expected loss", grid, losses, style="-")
        findings.draw(panel, "private C*", [self.clip], self.expected.mean(), None, "D")
        findings.draw(panel, "V (paper's bound)", grid, self.bound, style=":")
        for (quantity, (c, x)), marker in zip(self.quantiles.items(), "^v", strict=True):
            findings.draw(panel, quantity, [c], x.mean(), marker=marker)
