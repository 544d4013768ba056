"""What an audit leaves: a table of 80 columns, a figure of curves, JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from fedhist.base.files import whole_file
from simulations.audit.bounds import claimed_delta
from simulations.audit.finding import Finding
from simulations.reporting.json_files import plain, write_json
from simulations.reporting.pictures import BLUE, ORANGE, drawn
from simulations.reporting.table import (
    BAD,
    Marked,
    Table,
    numeric,
    print_lines,
    print_table,
    worded,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 3
FILES = ("findings.json", "curves.png")
ADVICE = "round towards 1/2 to remove it"
DOUBLES = 1e-12
"""Excess up to which a law's author has computed with doubles rather than made a mistake."""


def print_findings(console: Console, findings: Sequence[Finding], alpha: float) -> None:
    """Print the table, every violation with its witness, and what the words mean."""
    print_table(console, findings_table(findings))
    for f in findings:
        if f.violated and f.witness is not None:
            console.print(f"VIOLATION {f.subject} ({f.kind})", style="bold red", markup=False)
            print_lines(console, [f"  {line}" for line in witness_lines(f)])
        elif f.rounded:
            print_lines(console, [f"{f.subject} ({f.kind}): consistent ({rounding_in_words(f)})"])
    print_lines(console, summary(findings, alpha))


def findings_table(findings: Sequence[Finding]) -> Table:
    """Return a line per check: its claim, what is certified at least, the verdict."""
    rows = []
    for f in findings:
        claim = worded(f.epsilon, f"{f.epsilon:g}" + (f", {f.delta:g}" if f.delta else ""))
        fine = f"consistent (rounding {f.excess:.1g})" if f.rounded else "consistent"
        verdict = Marked("VIOLATION", BAD) if f.violated else fine
        rows.append((f.subject, f.kind, claim, f.certified, verdict))
    columns = ("what", "how", *numeric(("claimed", "at least"), write=_number), "verdict")
    return Table.of(columns, rows)


def summary(findings: Sequence[Finding], alpha: float) -> list[str]:
    """Say what the words of the table mean, and what was drawn."""
    sampled = sum(f.confidence < 1 for f in findings)
    draws, seconds = sum(f.draws for f in findings), sum(f.seconds for f in findings)
    kernel = sum(f.kernel_seconds for f in findings)
    lines = [
        '"at least" is a lower bound of epsilon at the claimed delta: enumerated where the check '
        f"is exact, else certified with an error probability of {alpha:g} for each check, hence at "
        f'most {sampled * alpha:.2g} for these {len(findings)}. "consistent" says that no '
        "violation was found."
    ]
    if draws and kernel > 0:
        times = sum(f.drawing_seconds for f in findings) / kernel
        lines.append(
            f"{draws:,} answers drawn, at {times:.1f} times the client kernels' own time; "
            f"{seconds:.0f} s in all"
        )
    return lines


def witness_lines(finding: Finding) -> list[str]:
    """Say what shows a violation: the inputs, the event, the counts."""
    w = finding.witness
    if w is None:
        return []
    lines = [f"more likely under  {w.inputs[0]}", f"less likely under  {w.inputs[1]}"]
    lines.append(f"event              {w.event}")
    if w.draws != (0, 0):
        counts = " and ".join(f"{h:,} of {n:,}" for h, n in zip(w.hits, w.draws, strict=True))
        lines.append(f"counts             {counts}")
    claim = f"({finding.epsilon:g}, {finding.delta:g})"
    sure = "" if finding.confidence == 1 else f", error probability {1 - finding.confidence:.1g}"
    lines.append(f"epsilon            at least {_number(finding.certified)}{sure}; claimed {claim}")
    lines.append(f"excess             {_excess_in_words(finding)}")
    return lines


def rounding_in_words(finding: Finding) -> str:
    """Say by how much rounding brings a law past its claim, and how to remove it."""
    return f"rounding {finding.excess:.1g}; {ADVICE}"


def _excess_in_words(finding: Finding) -> str:
    """Say how far what was found lies beyond the claim."""
    beyond = finding.excess
    if math.isinf(finding.certified):
        return "no epsilon holds"
    if not beyond:
        return f"{_number(finding.certified - finding.epsilon)} of epsilon"
    if beyond < DOUBLES:
        return f"{beyond:.1g} of e^epsilon, the size of doubles' rounding: {ADVICE}"
    return f"{_number(finding.certified - finding.epsilon)} of epsilon, {beyond:.2g} of e^epsilon"


def write_findings(folder: Path, findings: Sequence[Finding], alpha: float) -> None:
    """Write the JSON and the figure into a folder."""
    write_json(folder / FILES[0], summary_of(findings, alpha))
    draw_curves(folder / FILES[1], findings)


def summary_of(findings: Sequence[Finding], alpha: float) -> dict[str, Any]:
    """Return what was found as plain data."""
    return {"alpha": alpha, "findings": [plain(asdict(f)) for f in findings]}


def draw_curves(path: Path, findings: Sequence[Finding]) -> None:
    """Draw the curves to a PNG file; nothing where no finding has one."""
    if any(f.curve for f in findings):
        whole_file(path, drawn(lambda figure: draw_on(figure, findings), 9, "png"))


def draw_on(figure: Figure, findings: Sequence[Finding]) -> None:
    """Draw, for every finding with a curve, the largest delta claimed and the least certified."""
    shown = [f for f in findings if f.curve]
    columns = max(1, min(COLUMNS, int(figure.get_figwidth() / 2.3)))
    rows = math.ceil(len(shown) / columns)
    figure.set_figheight(0.5 + 2.3 * rows)
    axes = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for unused in axes[len(shown) :]:
        unused.set_axis_off()
    for panel, f in zip(axes, shown, strict=False):
        x, y = np.array(f.curve).T
        fine = np.linspace(0, x[-1], 200)
        claim = claimed_delta(fine, f.epsilon, f.delta)
        panel.plot(fine, claim, color=BLUE, label="claimed: at most")
        label = "enumerated" if f.kind == "exact" else "certified: at least"
        style = "--" if f.kind == "exact" else "o"
        panel.plot(x, y, style, color=ORANGE, markersize=3, linewidth=1, label=label)
        panel.set_title(f"{f.subject}\n{f.kind}: {f.verdict}", loc="left", fontsize=7)
        panel.set_xlabel("epsilon")
        panel.set_ylabel("delta")
        panel.legend(frameon=False, fontsize=6)


def _number(x: float) -> str:
    return "infinity" if math.isinf(x) else f"{x:.4g}"
