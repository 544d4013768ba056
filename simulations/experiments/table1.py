"""Table 1 of Liu et al. (ICML 2023): four thresholds for Algorithm 3, on unknown items."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedhist.mixing import digest64
from simulations.experiments.base import Check, Curve, Request, Result, mean_and_error
from simulations.experiments.token_ranks import margins
from simulations.experiments.unbounded_domain import (
    Case,
    Counts,
    Floats,
    Release,
    Sampled,
    check_settings,
    choice_of,
    other_cases,
    synthetic_cases,
)

SYNTHETIC = "synthetic"
"""Both of the paper's synthetic populations, at every support size."""

BEST, PRIVATE, MEDIAN, Q90 = "best C", "private C*", "median", "90 % quantile"


def run(request: Request) -> Result:
    """Measure the table.

    The private choice is not drawn: its probabilities are computed, and the expected losses are
    averaged over them. A few real runs (choice, sampling and noise drawn) stand in the notes.
    """
    check_settings(request, "d", "d_files")
    checks: list[Check] = []
    curves: list[Curve] = []
    notes: list[str] = []
    titles: list[str] = []
    not_judged: list[str] = []
    for case in _cases(request):
        row = _Row.of(request, case)
        checks += row.checks(request)
        curves += row.curves()
        notes += [n for n in case.told if n not in notes]
        notes += row.notes()
        if request.values and not row.judged(request):
            not_judged.append(
                f"{case.name}: the printed numbers are of the whole file, and this part has "
                f"{len(case.users):,} users"
            )
        titles.append(case.title)
    how = (
        "losses are expectations over the noise, exact, averaged over "
        f"{request.settings['repeats']} draws of the sampling, and over the exact probabilities of "
        "the private choice; best C is the best of the printed grid, found by looking at the losses"
    )
    return Result(
        title="Relative loss of Algorithm 3 by threshold, unknown items",
        paper="Table 1",
        checks=tuple(checks),
        curves=tuple(curves),
        x_label="C",
        y_label="relative loss",
        log="xy",
        notes=(how, *notes),
        not_judged=tuple(not_judged),
        population="; ".join(dict.fromkeys(titles)),
    )


def _cases(request: Request) -> Iterator[Case]:
    s = request.settings
    if request.population == SYNTHETIC:
        for kind in s["kinds"]:
            for d in s["d"]:
                yield from synthetic_cases(request, kind, int(d))
    else:
        yield from other_cases(request, [int(d) for d in s["d_files"]])


@dataclass(frozen=True)
class _Choice:
    """The private choice of one algorithm, and what it costs."""

    grid: tuple[int, ...]
    probabilities: Floats
    losses: Floats  # (repeats, K)
    runs: Floats  # (repeats,)

    @property
    def expected(self) -> Floats:
        """Expected loss per draw of the sampling: (repeats,)."""
        return np.asarray(self.losses @ self.probabilities)

    @property
    def mean(self) -> float:
        """Expected threshold."""
        return float(np.dot(self.grid, self.probabilities))


@dataclass(frozen=True)
class _Row:
    """Everything the table says of one case."""

    case: Case
    clips: Floats
    printed: Floats  # losses on the printed grid, (repeats, K)
    ours: Floats
    quantiles: dict[str, tuple[int, Floats]]
    choices: tuple[_Choice, _Choice]

    @classmethod
    def of(cls, request: Request, case: Case) -> _Row:
        s = request.settings
        releases = case.releases()
        tasks = [
            r.task(float(s["epsilon_choice"]), int(s["clip_max"]), int(s["clip_step"]))
            for r in releases
        ]
        sizes = margins(case.users)[0]
        levels = np.quantile(sizes, (0.5, 0.9), method="inverted_cdf").astype(int)
        named = dict(zip((MEDIAN, Q90), np.maximum(levels, 1).tolist(), strict=True))
        grids = [*(t.thresholds for t in tasks), tuple(named.values())]
        clips = np.unique(np.concatenate(grids))
        # Both readings of the i.i.d. rows have the same users, and so the same sampling.
        sampled = Sampled.of(case.users, clips, int(s["repeats"]), request.seed, case.setting)
        rng = np.random.default_rng(digest64("table1", request.seed, case.name))
        losses = [sampled.losses(r) for r in releases]
        at = [np.searchsorted(clips, t.thresholds) for t in tasks]
        choices = []
        for release, task, where, loss in zip(releases, tasks, at, losses, strict=True):
            p = choice_of(task, case.users)
            runs = _runs(sampled, release, where, p, rng)
            choices.append(_Choice(task.thresholds, p, loss[:, where], runs))
        quantiles = {q: (c, losses[0][:, np.searchsorted(clips, c)]) for q, c in named.items()}
        grid = np.asarray(tasks[0].thresholds, dtype=np.float64)
        first, second = losses[0][:, at[0]], losses[1][:, at[0]]
        return cls(case, grid, first, second, quantiles, (choices[0], choices[1]))

    def checks(self, request: Request) -> Iterator[Check]:
        """Judge the paper's four numbers, and its claims for ours."""
        paper, ours = (c.expected for c in self.choices)
        best = self.printed[:, np.argmin(self.printed.mean(axis=0))]
        values = {BEST: best, PRIVATE: paper, **{q: x for q, (_, x) in self.quantiles.items()}}
        settings, tolerance = request.settings, request.tolerances
        printed = str(settings["cause_as_printed"]) if self.case.reading == "as printed" else ""
        for quantity, x in values.items():
            mean, error = mean_and_error(x)
            check = request.judge(self.case.setting, quantity, mean, error)
            if check is None:  # a population the paper has not: for orientation
                check = Check(
                    self.case.setting, quantity, None, mean, -np.inf, np.inf, stderr=error
                )
            elif not self.judged(request):
                check = dataclasses.replace(check, low=-np.inf, high=np.inf)
            yield dataclasses.replace(check, setting=self.case.name, cause=printed or check.cause)
        baselines = min(x.mean() for _, x in self.quantiles.values())
        yield Check(
            self.case.name,
            "private C* / better quantile",
            None,
            float(paper.mean() / baselines),
            0.0,
            float(tolerance["baselines"]),
            claim="the private choice outperforms the median and the 90 % quantile",
            cause=str(settings["cause_quantiles"]),
        )
        best_ours = self.ours[:, np.argmin(self.ours.mean(axis=0))]
        for quantity, mine, theirs in ((BEST, best_ours, best), (PRIVATE, ours, paper)):
            mean, error = mean_and_error(mine)
            yield Check(
                self.case.name,
                f"{quantity}, ours",
                None,
                mean,
                0.0,
                float(tolerance["ours"]) * float(theirs.mean()),
                claim="ours loses no more than the paper's algorithm",
                cause=str(settings["cause_ours"]),
                stderr=error,
            )

    def judged(self, request: Request) -> bool:
        """Say whether these users can be those of the printed numbers."""
        whole = int(request.tolerances["whole_file"])
        return request.population == SYNTHETIC or len(self.case.users) >= whole

    def curves(self) -> Iterator[Curve]:
        """Draw the loss at every threshold of the printed grid, and where the choices fall."""
        yield Curve(self.case.name, "paper's algorithm", self.clips, self.printed.mean(axis=0))
        yield Curve(self.case.name, "ours", self.clips, self.ours.mean(axis=0))
        for label, choice, marker in zip(
            ("private C*, paper", "private C*, ours"), self.choices, "Ds", strict=True
        ):
            at, loss = np.array([choice.mean]), np.array([choice.expected.mean()])
            yield Curve(self.case.name, label, at, loss, marker=marker)
        for (quantity, (c, x)), marker in zip(self.quantiles.items(), "^v", strict=True):
            at = np.array([float(c)])
            yield Curve(self.case.name, quantity, at, np.array([x.mean()]), marker=marker)

    def notes(self) -> Iterator[str]:
        """Say which thresholds were chosen, and what a few real runs lost."""
        paper, ours = self.choices
        best = self.clips[np.argmin(self.printed.mean(axis=0))]
        runs = [", ".join(f"{x:.4f}" for x in c.runs) for c in self.choices]
        yield (
            f"{self.case.name}: epsilon {self.case.epsilon:g}; best C {best:.0f}, private C* on "
            f"average {paper.mean:.0f} (ours {ours.mean:.0f}), median {self.quantiles[MEDIAN][0]},"
            f" 90 % quantile {self.quantiles[Q90][0]}; real runs with private C*: {runs[0]}; "
            f"ours: {runs[1]}"
        )


def _runs(
    sampled: Sampled, release: Release, where: Counts, p: Floats, rng: np.random.Generator
) -> Floats:
    """Run choice and release once per sample: (repeats,) relative losses."""
    out = []
    for kept in sampled.kept:
        k = where[rng.choice(len(p), p=p)]
        out.append(release.measured(int(sampled.clips[k]), kept[k], sampled.totals, rng))
    return np.array(out) / float(sampled.totals.sum())
