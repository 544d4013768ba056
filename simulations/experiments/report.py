"""What an experiment leaves behind: a table in the terminal, and a folder with its figure."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from rich.console import Console
from rich.markup import escape

import fedhist
from simulations.experiments.base import FAIL, PASS, Check, Request, Result
from simulations.experiments.catalogue import Experiment
from simulations.reporting.json_files import write_json
from simulations.reporting.numbers import number
from simulations.reporting.pictures import COLOURS, letters_across, picture
from simulations.reporting.table import BAD, GOOD, HEADING, Marked, Table, markdown, numeric
from simulations.reporting.targets import check_folder, whole_folder
from simulations.reporting.terminal import print_lines, print_table
from simulations.runs.results import git_revision

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXPERIMENT = "experiment"
"""The kind of folder that an experiment writes."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":")
"""Of curves without markers: they are told apart without colour."""
MANY_PANELS = 8
"""Above so many panels they stand in threes: Table 1 has three readings of each row."""
MOST_MARKED = 30
"""Points of a curve up to which each has its marker."""


def print_result(console: Console, result: Result) -> None:
    """Print the table of checks, then notes and what is not judged."""
    console.print(f"[bold]{escape(result.title)}[/] ({escape(result.paper)})")
    if result.population:
        print_lines(console, [result.population])
    if result.checks:
        print_table(console, _table(result))
    print_lines(console, [*claims(result), *causes(result)])
    print_lines(console, [f"note: {line}" for line in (*result.notes, *result.undrawn)])
    print_lines(console, [f"not judged: {line}" for line in result.not_judged])


def claims(result: Result) -> list[str]:
    """Say of each of the paper's claims in how many lines it holds."""
    found: dict[str, list[bool]] = {}
    for c in result.checks:
        if c.claim and c.judged:
            found.setdefault(c.claim, []).append(c.verdict != FAIL)
    lines = []
    for claim, held in found.items():
        count = f" ({sum(held)} of {len(held)})" if len(held) > 1 else ""
        lines.append(f"{PASS if all(held) else FAIL}: {claim}{count}")
    return lines


def causes(result: Result) -> list[str]:
    """Group the failures by what is known of their cause."""
    found: dict[str, list[Check]] = {}
    for c in result.failures:
        found.setdefault(c.cause or "unknown", []).append(c)
    lines = []
    for cause, checks in found.items():
        where = f"{checks[0].setting}, {checks[0].quantity}"
        more = f" and {len(checks) - 1} more" if len(checks) > 1 else ""
        lines.append(f"FAIL {where}{more}: cause: {cause}")
    return lines


def _table(result: Result) -> Table:
    """Lay out the checks below their settings: narrow enough for 80 columns."""
    printed = any(c.paper is not None for c in result.checks)
    rows: list[Sequence[object]] = []
    setting = ""
    for c in result.checks:
        if c.setting != setting:
            setting = c.setting
            rows.append([Marked(setting, HEADING)])
        _, quantity, paper, ours, difference, interval, verdict = cells(c)
        mark = Marked(verdict, BAD if verdict == FAIL else GOOD)
        numbers = (paper, ours, difference, interval) if printed else (ours, interval)
        rows.append((f"  {quantity}", *numbers, mark))
    names = ("paper", "ours", "diff.", "allowed") if printed else ("ours", "allowed")
    columns = ("", *numeric(names, keep=True), "verdict")
    return Table.of(columns, rows, title="NOT PRIVATE")


def cells(check: Check) -> tuple[str, ...]:
    """Write a check: setting, quantity, the paper's value, ours, difference, tolerance, verdict."""
    return (
        check.setting,
        check.quantity,
        "" if check.paper is None else number(check.paper),
        measured(check),
        "" if check.difference is None else f"{check.difference:+.2g}",
        allowed(check),
        check.verdict if check.judged else "",
    )


def measured(check: Check) -> str:
    """Write what was measured, with its standard error where that shows in four digits."""
    seen = check.stderr is not None and check.stderr > 5e-4 * abs(check.ours)
    return number(check.ours) + (f" ± {check.stderr:.1g}" if seen else "")


def allowed(check: Check) -> str:
    """Write the tolerance as an interval or a bound."""
    if not check.judged:
        return ""
    if math.isinf(check.high):
        return f">= {number(check.low, 3)}"
    if math.isinf(check.low):
        return f"<= {number(check.high, 3)}"
    return f"{number(check.low, 3)} to {number(check.high, 3)}"


def folder_of(
    what: Experiment, request: Request, out: str | Path | None, *, force: bool = False
) -> Path:
    """Name the folder of results; ValueError if something else has its place, or nothing can."""
    name = request.population
    usual = str(what.populations.get(name, {}).get("kind", name))
    kind = str(request.parameters.get("kind", name))
    if kind != usual:  # another kind was asked for under this name: not the name's own results
        name = kind
    target = Path(out or Path("results") / f"{what.name}-{name}")
    return check_folder(target, EXPERIMENT, force=force)


def write_result(
    what: Experiment, request: Request, result: Result, target: Path, *, force: bool = False
) -> None:
    """Write the folder: config.json, table.csv, curves.csv, report.md, figure.png, maps; whole."""
    with whole_folder(target, EXPERIMENT, force=force) as part:
        write_parts(what, request, result, part)


def write_parts(what: Experiment, request: Request, result: Result, folder: Path) -> None:
    """Write the files of an experiment's folder."""
    said = describe(what, request) | {"figure": axes_of(result)}
    write_json(folder / "config.json", said)
    table_frame(result).write_csv(folder / "table.csv")
    (folder / "report.md").write_text(report_text(what, request, result), encoding="utf-8")
    if result.curves:
        curve_frame(result).write_csv(folder / "curves.csv")
        draw(result, folder / "figure.png")


def summary_of(what: Experiment, request: Request, result: Result) -> dict[str, Any]:
    """Return what was asked and found as plain data."""
    curves = curve_frame(result).to_dicts() if result.curves else []
    checks = table_frame(result).to_dicts()
    return {"kind": "experiment", **describe(what, request), "checks": checks, "curves": curves}


def describe(what: Experiment, request: Request) -> dict[str, Any]:
    """Return what was asked, with version and revision."""
    return {
        "experiment": what.name,
        "paper": what.paper,
        "population": {"name": request.population, **request.parameters},
        "data": None if request.data is None else request.data.name,
        "settings": dict(request.settings),
        "tolerance": dict(request.tolerances),
        "seed": request.seed,
        "quick": request.quick,
        "fedhist": fedhist.__version__,
        "revision": git_revision(),
    }


def axes_of(result: Result) -> dict[str, Any]:
    """Return what the curves are drawn on: titles, logarithmic axes, and which are plain lines."""
    own = {c.panel: c.y_label for c in result.curves if c.y_label}
    lines = {c.label for c in result.curves if c.style.strip() and not c.marker}
    return {
        "x": result.x_label,
        "y": result.y_label,
        "log": result.log,
        "panels": own,
        "lines": sorted(lines),
    }


def table_frame(result: Result) -> pl.DataFrame:
    """Return the checks as a table."""
    columns = ("setting", "quantity", "paper", "ours", "stderr", "difference", "low", "high",
               "verdict", "claim", "cause")  # fmt: skip
    rows = [{n: getattr(c, n) for n in columns} for c in result.checks]
    for row, check in zip(rows, result.checks, strict=True):
        row["verdict"] = check.verdict if check.judged else ""
    numeric = {"paper", "ours", "stderr", "difference", "low", "high"}
    schema = {n: pl.Float64() if n in numeric else pl.String() for n in columns}
    return pl.DataFrame(rows, schema=schema)


def curve_frame(result: Result) -> pl.DataFrame:
    """Return the points of all curves as a table."""
    parts = [
        pl.DataFrame(
            {
                "panel": [c.panel] * len(c.x),
                "label": [c.label] * len(c.x),
                "x": np.asarray(c.x, dtype=np.float64),
                "y": np.asarray(c.y, dtype=np.float64),
                "stderr": np.full(len(c.x), np.nan) if c.yerr is None else np.asarray(c.yerr),
            }
        )
        for c in result.curves
    ]
    return pl.concat(parts)


def report_text(what: Experiment, request: Request, result: Result) -> str:
    """Write the report as Markdown."""
    lines = [f"# {result.title} ({result.paper})", "", what.paper + ".", ""]
    lines += [f"Population: {result.population or request.population}. Seed {request.seed}.", ""]
    if result.checks:
        names = numeric(("paper", "ours (NOT PRIVATE)", "difference"))
        columns = ("setting", "quantity", *names, "allowed", "verdict", "claim")
        rows = [(*cells(c), c.claim) for c in result.checks]
        lines.append(markdown(Table.of(columns, rows)))
    if result.failures:
        lines += ["", "## Failures", ""]
        lines += [f"- {line.removeprefix('FAIL ')}" for line in causes(result)]
    told = (*result.notes, *result.undrawn)
    for title, notes in (("Notes", told), ("Not judged", result.not_judged)):
        if notes:
            lines += ["", f"## {title}", "", *(f"- {n}" for n in notes)]
    return "\n".join(lines) + "\n"


def draw(result: Result, path: Path) -> None:
    """Draw the curves to a PNG file, one axes per panel, one legend for all."""
    n = len({c.panel for c in result.curves})
    columns = 3 if n > MANY_PANELS else min(n, 2)
    with picture(path, 4.8 * columns + 1.2, 1.0) as figure:
        draw_on(figure, result)


def draw_on(figure: Figure, result: Result) -> None:
    """Draw as :func:`draw` on a figure of any width, whose height is set."""
    panels = list(dict.fromkeys(c.panel for c in result.curves))
    labels = list(dict.fromkeys(c.label for c in result.curves))
    wide = figure.get_figwidth()
    columns = max(1, min(len(panels), 3 if len(panels) > MANY_PANELS else 2, int(wide / 2.9)))
    rows = math.ceil(len(panels) / columns)
    figure.set_figheight(0.9 + rows * min(3.6, 0.75 * wide / columns))
    grid = np.atleast_1d(figure.subplots(rows, columns, squeeze=False).ravel())
    letters = letters_across(wide)
    for axes, panel in zip(grid, panels, strict=False):
        _draw_panel(axes, result, panel, labels, min(64, letters // columns))
    for axes in grid[len(panels) :]:
        axes.set_axis_off()
    found = {
        label: handle
        for axes in grid[: len(panels)]
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    each = 0.7 + 0.065 * max(map(len, found), default=0)  # inches that the longest label takes
    figure.legend(
        found.values(),
        found.keys(),
        loc="outside lower center",
        ncols=max(1, int(wide / each)),
        frameon=False,
    )
    most = min(75 * columns, letters)
    title = textwrap.fill(f"{result.paper}: {result.title} (NOT PRIVATE)", most)
    if 0 < len(result.population) <= most and result.population not in panels:
        title += f"\n{result.population}"
    figure.suptitle(title)


def _draw_panel(axes: Any, result: Result, panel: str, labels: list[str], letters: int) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    for c in result.curves:
        if c.panel != panel:
            continue
        seen = c.drawn(result.log)
        if not seen.any():
            continue
        k = labels.index(c.label)
        few = len(c.x) <= MOST_MARKED or c.style == " "  # without a line only markers show it
        marker = c.marker or (MARKERS[k % len(MARKERS)] if few else "")
        if c.style.strip() and not c.marker:
            marker = ""  # asked for as a plain line
        line = c.style or ("-" if marker else LINES[k % len(LINES)])
        axes.errorbar(
            c.x[seen], c.y[seen], yerr=None if c.yerr is None else c.yerr[seen],
            label=c.label, color=COLOURS[k % len(COLOURS)],
            marker=marker or None, linestyle=line, markersize=4, lw=1.3, capsize=2,
        )  # fmt: skip
    own = [c for c in result.curves if c.panel == panel]
    for letter in next((c.log for c in own if c.log is not None), result.log):
        getattr(axes, f"set_{letter}scale")("log")
        axis = getattr(axes, f"{letter}axis")
        low, high = axis.get_view_interval()
        ratio = high / max(low, 1e-300)
        if ratio < 1e4:  # too few powers of ten to read the axis by
            thin = (1.0, 2.0, 5.0) if ratio < 500 else (1.0, 3.0)
            steps = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if ratio < 5 else thin
            axis.set_major_locator(MaxNLocator(5) if ratio < 2 else LogLocator(subs=steps))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_formatter(NullFormatter())
    axes.set_title(textwrap.fill(panel, letters), loc="left")
    axes.set_xlabel(next((c.x_label for c in own if c.x_label), result.x_label))
    axes.set_ylabel(next((c.y_label for c in own if c.y_label), result.y_label))
    axes.grid(alpha=0.25)
