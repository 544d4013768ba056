"""What experiments leave behind: a table, a figure, a folder, and one page for all of them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import fedhist
from fedhist.base.errors import FedhistError
from simulations.experiments.experiment import (
    FAIL,
    PASS,
    Check,
    Experiment,
    Findings,
    Request,
    experiment,
    names,
)
from simulations.reporting.files import check_folder
from simulations.reporting.pictures import COLOURS, letters_across, logarithmic
from simulations.reporting.shown import NoFigureError, Shown
from simulations.reporting.table import BAD, GOOD, HEADING, Marked, Table, number, numeric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPERIMENT, REPRODUCTION = "experiment", "reproduction"
"""The kinds of folders that one experiment and all of them write."""


@dataclass(frozen=True, repr=False)
class Reproduced(Shown):
    """What an experiment measured, and what it was asked."""

    kind: ClassVar[str] = EXPERIMENT

    result: Findings

    @property
    def title(self) -> str:
        what = self.result.what
        return f"{what.title} ({what.paper}): {self.result.users or self.result.request.population}"

    def tables(self) -> Sequence[Table]:
        printed = any(c.paper is not None for c in self.result.checks)
        rows: list[Sequence[object]] = []
        setting = ""
        for c in self.result.checks:
            if c.setting != setting:
                setting = c.setting
                rows.append([Marked(setting, HEADING)])
            paper = "" if c.paper is None else number(c.paper)
            difference = "" if c.paper is None else f"{c.ours - c.paper:+.2g}"
            ours, allowed = _ours(c), _allowed(c)
            cells = (paper, ours, difference, allowed) if printed else (ours, allowed)
            mark = Marked(c.verdict, BAD if c.verdict == FAIL else GOOD)
            rows.append((f"  {c.quantity}", *cells, mark))
        names = ("paper", "ours", "diff.", "allowed") if printed else ("ours", "allowed")
        return [Table.of(("", *numeric(names, keep=True), "verdict"), rows)]

    def sections(self) -> Sequence[tuple[str, Sequence[str]]]:
        result = self.result
        return (
            ("claims", (*claims(result), *causes(result))),
            ("notes", (*result.notes, *result.undrawn)),
            ("not judged", result.not_judged),
        )

    def draw(self, figure: Figure) -> None:
        if not self.result.curves:
            raise NoFigureError(f"{self.title} has no curves to draw")
        draw_on(figure, self.result)

    def document(self) -> dict[str, Any]:
        request, what = self.result.request, self.result.what
        return super().document() | {
            "experiment": what.name,
            "paper": what.paper,
            "population": {"name": request.population, **request.parameters},
            "data": None if request.data is None else request.data.name,
            "settings": dict(request.settings),
            "seed": request.seed,
            "quick": request.quick,
            "checks": [asdict(c) | {"verdict": c.verdict} for c in self.result.checks],
            "curves": [asdict(c) for c in self.result.curves],
            "fedhist": fedhist.__version__,
        }


def folder_of(
    what: Experiment, request: Request, out: str | Path | None, *, force: bool = False
) -> Path:
    """Name the folder of results; ValueError if something else has its place, or nothing can."""
    name = request.population
    usual = str(what.populations.get(name, {}).get("kind", name))
    kind = str(request.parameters.get("kind", name))
    if kind != usual:  # another kind was asked for under this name: not the name's own results
        name = kind
    return check_folder(out or Path("results") / f"{what.name}-{name}", EXPERIMENT, force=force)


# -- words -----------------------------------------------------------------------------------------


def claims(result: Findings) -> list[str]:
    """Say of each of the paper's claims in how many lines it holds."""
    held: dict[str, list[bool]] = {}
    for c in result.checks:
        if c.claim and c.judged:
            held.setdefault(c.claim, []).append(c.verdict != FAIL)
    return [
        f"{PASS if all(each) else FAIL}: {claim}"
        + (f" ({sum(each)} of {len(each)})" if len(each) > 1 else "")
        for claim, each in held.items()
    ]


def causes(result: Findings) -> list[str]:
    """Group the failures by what is known of their cause."""
    groups: dict[str, list[Check]] = {}
    for c in result.failures:
        groups.setdefault(c.cause or "unknown", []).append(c)
    return [
        f"FAIL {c[0].setting}, {c[0].quantity}"
        + (f" and {len(c) - 1} more" if len(c) > 1 else "")
        + f": cause: {cause}"
        for cause, c in groups.items()
    ]


def _ours(c: Check) -> str:
    """Write what was measured, with its standard error where that shows in four digits."""
    shows = c.stderr is not None and c.stderr > 5e-4 * abs(c.ours)
    return number(c.ours) + (f" ± {c.stderr:.1g}" if shows else "")


def _allowed(c: Check) -> str:
    """Write the tolerance as an interval or a bound."""
    if not c.judged:
        return ""
    if math.isinf(c.high):
        return f">= {number(c.low, 3)}"
    if math.isinf(c.low):
        return f"<= {number(c.high, 3)}"
    return f"{number(c.low, 3)} to {number(c.high, 3)}"


# -- the figure ------------------------------------------------------------------------------------


def draw_on(figure: Figure, result: Findings) -> None:
    """Draw the curves, one axes per panel, one legend for all; the figure's height is set."""
    what = result.what
    panels = list(dict.fromkeys(c.panel for c in result.curves))
    labels = list(dict.fromkeys(c.label for c in result.curves))
    wide = figure.get_figwidth()
    # above eight they stand in threes, as Table 1 has three readings of each row
    columns = max(1, min(3 if len(panels) > 8 else 2, len(panels), int(wide / 2.9)))
    rows = math.ceil(len(panels) / columns)
    figure.set_figheight(0.9 + rows * min(3.6, 0.75 * wide / columns))
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    letters = letters_across(wide)
    handles: dict[str, Any] = {}
    for axes, panel in zip(grid, panels, strict=False):
        own = [c for c in result.curves if c.panel == panel]
        for c in own:
            line = _draw_curve(axes, c, labels.index(c.label), c.drawn(what.log))
            handles |= {c.label: line} if line else {}
        for letter in next((c.log for c in own if c.log is not None), what.log):
            logarithmic(axes, letter)
        axes.set_title(textwrap.fill(panel, min(64, letters // columns)), loc="left")
        axes.set_xlabel(next((c.x_label for c in own if c.x_label), what.x))
        axes.set_ylabel(next((c.y_label for c in own if c.y_label), what.y))
        axes.grid(alpha=0.25)
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    each = 0.7 + 0.065 * max(map(len, handles), default=0)  # inches that the longest label takes
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center",
        ncols=max(1, int(wide / each)), frameon=False,
    )  # fmt: skip
    most = min(75 * columns, 4 * letters // 5)  # its letters are larger
    lines = [f"{what.title} (NOT PRIVATE)", what.paper]
    if 0 < len(result.users) <= most and result.users not in panels:
        lines.append(result.users)
    figure.suptitle("\n".join(textwrap.fill(line, most) for line in lines))


def _draw_curve(axes: Any, c: Any, k: int, shown: Any) -> Any:
    if not shown.any():
        return None
    few = len(c.x) <= 30 or c.style == " "  # without a line only markers show it
    plain = c.style.strip() and not c.marker  # asked for as a plain line
    marker = "" if plain else c.marker or ("os^DvPX*"[k % 8] if few else "")
    line = c.style or ("-" if marker else ("-", "--", "-.", ":")[k % 4])
    return axes.errorbar(
        c.x[shown], c.y[shown], yerr=None if c.yerr is None else c.yerr[shown], label=c.label,
        color=COLOURS[k % len(COLOURS)], marker=marker or None, linestyle=line, markersize=4,
        lw=1.3, capsize=2,
    )  # fmt: skip


# -- all of them -----------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Reproduction(Shown):
    """Every experiment, reproduced; or why it was not: a missing file in words, or an error."""

    kind: ClassVar[str] = REPRODUCTION

    every: Mapping[str, Reproduced | Exception | str]

    @property
    def done(self) -> dict[str, Reproduced]:
        """Those that were measured."""
        return {name: x for name, x in self.every.items() if isinstance(x, Reproduced)}

    @property
    def title(self) -> str:
        return f"The papers measured again (fedhist {fedhist.__version__})"

    def tables(self) -> Sequence[Table]:
        rows: list[Sequence[object]] = []
        for name, x in self.every.items():
            if isinstance(x, Reproduced):
                verdicts = [c.verdict for c in x.result.checks]
                counts = (verdicts.count(verdict) for verdict in (PASS, FAIL, ""))
                rows.append((name, x.result.what.paper, *counts, ""))
            else:
                why = f"{type(x).__name__}: {x}" if isinstance(x, Exception) else x
                rows.append((name, "", None, None, None, why))
        columns = ("Experiment", "Paper", *numeric((PASS, FAIL, "not judged")), "not run")
        overview = Table.of(columns, rows)
        each = (replace(t, title=name) for name, x in self.done.items() for t in x.tables())
        return [overview, *each]

    def sections(self) -> Sequence[tuple[str, Sequence[str]]]:
        return [(f"{n}: {t}", lines) for n, x in self.done.items() for t, lines in x.sections()]

    def write(self, folder: Path) -> None:
        """Write a folder for each experiment as well."""
        super().write(folder)
        for name, x in self.done.items():
            x.save(folder / name)


def reproduce_all(
    *, quick: bool = False, seed: int = 0, report: Callable[[str], None] = lambda name: None
) -> Reproduction:
    """Run all experiments; an error in one does not stop the others.

    ``report`` is called with the name of each before it runs.
    """
    every: dict[str, Reproduced | Exception | str] = {}
    for name in names():
        report(name)
        what = experiment(name)
        if not what.without_file:
            every[name] = f"needs the file of {', '.join(what.populations)}: give it with --data"
            continue
        try:
            request = what.request(population=what.without_file[0], seed=seed, quick=quick)
            result = what.run(request)
            if quick:
                result.unjudge()
        except (FedhistError, ValueError, ArithmeticError, MemoryError) as e:
            every[name] = e
        else:
            every[name] = Reproduced(result)
    return Reproduction(every)
