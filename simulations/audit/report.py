"""What an audit leaves: a table of 80 columns, a figure of curves, JSON."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.table import Table

from fedhist.base.files import whole_file
from simulations.audit.bounds import claimed_delta
from simulations.audit.finding import Finding
from simulations.reporting.figures import BLUE, ORANGE
from simulations.reporting.json_files import write_json

COLUMNS = 3
FILES = ("findings.json", "curves.png")


def print_findings(console: Console, findings: Sequence[Finding], alpha: float) -> None:
    """Print the table, every violation with its witness, and what the words mean."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("what", overflow="fold", max_width=30)
    table.add_column("how", no_wrap=True)
    table.add_column("claimed", justify="right")
    table.add_column("at least", justify="right")
    table.add_column("verdict", no_wrap=True)
    for f in findings:
        delta = f", {f.delta:g}" if f.delta else ""
        shown = "[bold red]VIOLATION[/]" if f.violated else "consistent"
        table.add_row(f.subject, f.kind, f"{f.epsilon:g}{delta}", _number(f.certified), shown)
    console.print(table)
    for f in findings:
        if f.violated and f.witness is not None:
            console.print(f"VIOLATION {f.subject} ({f.kind})", style="bold red", markup=False)
            for line in witness_lines(f):
                console.print(f"  {line}", markup=False)
    _print_summary(console, findings, alpha)


def _print_summary(console: Console, findings: Sequence[Finding], alpha: float) -> None:
    sampled = sum(f.confidence < 1 for f in findings)
    draws, seconds = sum(f.draws for f in findings), sum(f.seconds for f in findings)
    kernel = sum(f.kernel_seconds for f in findings)
    console.print(
        '"at least" is a lower bound of epsilon at the claimed delta: enumerated where the check '
        f"is exact, else certified with an error probability of {alpha:g} for each check, hence at "
        f'most {sampled * alpha:.2g} for these {len(findings)}. "consistent" says that no '
        "violation was found.",
        markup=False,
    )
    if draws and kernel > 0:
        times = sum(f.drawing_seconds for f in findings) / kernel
        console.print(
            f"{draws:,} answers drawn, at {times:.1f} times the client kernels' own time; "
            f"{seconds:.0f} s in all",
            markup=False,
        )


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
    return lines


def write_findings(folder: Path, findings: Sequence[Finding], alpha: float) -> None:
    """Write the JSON and the figure."""
    folder.mkdir(parents=True, exist_ok=True)
    body = {"alpha": alpha, "findings": [f.to_json() for f in findings]}
    write_json(folder / FILES[0], body)
    draw_curves(folder / FILES[1], findings)


def draw_curves(path: Path, findings: Sequence[Finding]) -> None:
    """Draw, for every finding with a curve, the largest delta claimed and the least certified."""
    shown = [f for f in findings if f.curve]
    if not shown:
        return
    rows = math.ceil(len(shown) / COLUMNS)
    with mpl.rc_context({"font.size": 8, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(9, 0.5 + 2.3 * rows), layout="constrained")
        axes = figure.subplots(rows, COLUMNS, squeeze=False).reshape(-1)
        for unused in axes[len(shown) :]:
            unused.set_axis_off()
        for panel, f in zip(axes, shown, strict=False):
            x, y = np.array(f.curve).T
            fine = np.linspace(0, x[-1], 200)
            claim = claimed_delta(fine, f.epsilon, f.delta)
            panel.plot(fine, claim, color=BLUE, label="claimed: at most")
            label = "enumerated" if f.kind == "exact" else "certified: at least"
            style = "-" if f.kind == "exact" else "o"
            panel.plot(x, y, style, color=ORANGE, markersize=3, linewidth=1, label=label)
            panel.set_title(f"{f.subject}\n{f.kind}: {f.verdict}", loc="left", fontsize=7)
            panel.set_xlabel("epsilon")
            panel.set_ylabel("delta")
            panel.legend(frameon=False, fontsize=6)
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=130)
    whole_file(path, picture.getvalue())


def _number(x: float) -> str:
    return "infinity" if math.isinf(x) else f"{x:.4g}"
