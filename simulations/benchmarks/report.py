"""Benchmarks as tables of 80 columns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from simulations.benchmarks.measuring import Result, Row
from simulations.reporting.json_files import json_text
from simulations.reporting.table import Table, numeric
from simulations.reporting.targets import write_target
from simulations.reporting.terminal import print_table

BENCHMARKS = "benchmarks"
"""The kind of file that benchmarks write."""


def print_report(console: Console, result: Result, machine: dict[str, Any]) -> None:
    """Print one benchmark: what was measured, the targets, and the state of the machine."""
    columns = ("measured", *numeric(("median", "min..max", "target"), keep=True), "met")
    notes = [*(f"- {note}" for note in result.notes), _machine_in_words(machine)]
    title = f"{result.name}: {result.setting}"
    table = Table.of(columns, map(_cells, result.rows), title=title, notes=notes)
    print_table(console, table, gap=3)


def _cells(row: Row) -> tuple[str, ...]:
    s = row.spread
    target = ""
    if row.at_least is not None:
        target = f">= {row.at_least:g}"
    elif row.at_most is not None:
        target = f"<= {row.at_most:g}"
    met = {None: "", True: "yes", False: "NO"}[row.met]
    return (
        row.what,
        f"{number(s.median)} {row.unit}",
        f"{number(s.low)}..{number(s.high)}",
        target,
        met,
    )


def number(x: float) -> str:
    """Three digits that count.

    >>> number(1234.5), number(12.345), number(0.012345)
    ('1,234', '12.3', '0.0123')
    """
    return f"{x:,.0f}" if abs(x) >= 1000 else f"{x:#.3g}".rstrip(".")


def _machine_in_words(machine: dict[str, Any]) -> str:
    versions = ", ".join(f"{k} {v}" for k, v in machine["versions"].items())
    return (
        f"machine: {machine['cpus']} CPUs ({machine['cpu']}), load average "
        f"{machine['load_before']:.2f} before and {machine['load_after']:.2f} after; {versions}; "
        "one BLAS thread per process"
    )


def save_results(
    path: Path, done: Sequence[tuple[Result, dict[str, Any]]], *, force: bool = False
) -> None:
    """Write the figures of finished benchmarks; an older file of benchmarks is replaced whole."""
    write_target(path, json_text(plain_results(done)), BENCHMARKS, force=force)


def plain_results(done: Sequence[tuple[Result, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the figures of finished benchmarks as plain data."""
    return [result.to_json() | {"machine": machine} for result, machine in done]
