"""The page of a run, an experiment, a sweep or a comparison: which sections, in which order."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl

from fedhist.model.registry import display_of, load_builtin, protocol_class, protocols
from simulations.reporting.export import ending
from simulations.reporting.json_files import flat
from simulations.reporting.numbers import shown
from simulations.reporting.page import Block, Facts, Items, Page, Picture, Section, Text
from simulations.reporting.table import Column, Table, numeric
from simulations.reporting.targets import add_to_folder, check_file, write_target
from simulations.runs.results import NOT_PRIVATE
from simulations.studies.report.curves import curve_plots, estimate_plot
from simulations.studies.report.data import ExperimentFolder, RunFolder, Study, read_results
from simulations.studies.report.sweep import footer, study_page
from simulations.studies.report.words import (
    EVALUATION,
    MOST_ROWS,
    facts,
    ledger_blocks,
    not_private_of_run,
)

PAGE = "page"
"""The kind of file that a report is."""

TOP = 20
"""Entries of an estimate in its table."""

RELEASE = "The estimate may be published under its guarantee; the evaluation beside it may not."


def page_of(path: Path) -> Page:
    """Make the page of whatever results a path holds.

    Raises
    ------
    ValueError
        If it holds none.
    """
    found = read_results(path)
    match found:
        case RunFolder():
            return _run(found)
        case ExperimentFolder():
            return _experiment(found)
        case Study():
            return study_page(found)


# -- runs ------------------------------------------------------------------------------------------


def _run(found: RunFolder) -> Page:
    config, metrics = found.config, found.metrics
    noise = str(metrics.get("noise", config.get("run", {}).get("noise", "")))
    name = str(config["protocol"]["name"])
    status = str(metrics["status"]) + (f": {metrics['reason']}" if metrics.get("reason") else "")
    sections = (
        Section("Result", _result(found, name, status)),
        Section("Privacy ledger", ledger_blocks(found.ledger, noise)),
        Section("What was not private", not_private_of_run(config, metrics)),
        Section("Configuration", _configuration(config)),
    )
    title = f"{name} on {config['population'].get('kind', 'users')}"
    subtitle = f"Run {found.name}: {status}"
    return Page(title, subtitle, f"{EVALUATION} {RELEASE}", sections, footer(config))


def _result(found: RunFolder, name: str, status: str) -> tuple[Block, ...]:
    secret = found.metrics.get(NOT_PRIVATE, {})
    rows = [("Status", status)]
    if found.metrics.get("estimates"):
        rows.append(("Estimates", str(found.metrics["estimates"])))
    if "measured" in secret:
        error, runs = secret.get("standard error"), secret["repeats"]
        measured = shown(secret["measured"]) + ("" if error is None else f" ± {error:.2g}")
        rows.append((f"Error ({secret['loss']}), NOT PRIVATE", f"{measured} in {runs} run(s)"))
        rows.append(
            ("Theory predicts", f"{shown(secret['predicted'])} ({secret['prediction is']})")
        )
        if secret["predicted"]:
            ratio = secret["measured"] / secret["predicted"]
            rows.append(("Measured over predicted", f"{ratio:.3g}"))
        rows.append(("Theory's source", str(secret["prediction"])))
    rows += [(f"Public: {k}", shown(v, 6)) for k, v in found.metrics.get("public", {}).items()]
    blocks: list[Block] = [Facts(tuple(rows))]
    warnings = tuple(map(str, found.metrics.get("warnings", [])))
    if warnings:
        blocks.append(Items(warnings))
    if found.estimate is not None and len(found.estimate):
        blocks.append(estimate_plot(found.estimate, _label(name), "The released estimate"))
        blocks.append(_estimate_table(found.estimate))
    if found.figure:
        blocks.append(Picture(found.figure, "Static figure, with the truth (NOT PRIVATE)"))
    return tuple(blocks)


def _label(protocol: str) -> str:
    """Say what the values of a registered protocol are; a plugin's is not known here."""
    load_builtin()
    if protocol not in protocols():
        return "estimate"
    cls = protocol_class(protocol)
    return (cls.display or display_of(cls.target)).label or cls.target


def _estimate_table(frame: pl.DataFrame) -> Table:
    top = frame.sort("estimate", descending=True, maintain_order=True).head(TOP)
    found = top.select("key", *(c for c in ("estimate", "stderr") if c in top.columns))
    caption = f"The {len(top)} largest of {len(frame):,}." if len(frame) > len(top) else ""
    columns = (found.columns[0], *numeric(found.columns[1:], write=partial(shown, digits=6)))
    return Table.of(columns, found.cast({"key": pl.String}).rows(), title=caption)


def _configuration(config: Mapping[str, Any]) -> tuple[Block, ...]:
    resolved = config.get("resolved", {}).get("protocol", config.get("protocol", {}))
    rows = (
        *facts(resolved, "protocol."),
        *facts(config.get("population", {}), "population."),
        *facts(config.get("run", {}), "run."),
        *facts(flat({"adversary": config.get("adversary", ())})),
        *facts(config.get("versions", {}), "version of "),
    )
    revision = config.get("revision")
    return (Facts((*rows, *((("revision", str(revision)),) if revision else ()))),)


# -- experiments -----------------------------------------------------------------------------------


def _experiment(found: ExperimentFolder) -> Page:
    config = found.config
    table = found.table
    verdicts = Counter(v for v in table["verdict"].to_list() if v) if len(table) else Counter()
    told = ", ".join(f"{n} {v}" for v, n in sorted(verdicts.items())) or "nothing is judged"
    blocks: list[Block] = [Text(f"Verdicts: {told}.")]
    if len(table):
        blocks.append(_checks(table))
    plots: list[Block] = []
    if found.curves is not None:
        plots += curve_plots(found.curves, config.get("figure", {}))
    if found.figure:
        plots.append(Picture(found.figure, "Static figure"))
    notes = tuple(Section(k, (Items(v),)) for k, v in found.notes.items())
    settings = {k: v for k, v in config.items() if k not in ("fedhist", "revision", "figure")}
    revision = (("revision", str(config["revision"])),) if config.get("revision") else ()
    setting = Section("Configuration", (Facts((*facts(settings), *revision)),))
    warning = EVALUATION + " An experiment compares with the truth and is not private as a whole."
    return Page(
        found.title,
        found.population or str(config.get("paper", "")),
        warning,
        (Section("Verdicts", tuple(blocks)), Section("Figures", tuple(plots)), *notes, setting),
        footer({"versions": {"fedhist": config.get("fedhist", "")}}),
    )


def _checks(table: pl.DataFrame) -> Table:
    numbers = ("paper", "ours", "stderr", "difference", "low", "high")
    names = [c for c in table.columns if any(_cell(v) for v in table[c].to_list())]
    columns = [Column(c, right=c in numbers, write=_cell) for c in names]
    return Table.of(columns, table.select(names).head(MOST_ROWS).rows())


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return shown(value)


def write_report(path: Path, out: Path, *, force: bool = False) -> int:
    """Write the page of some results, whole or not at all; return its size in bytes.

    A page within the folder of the results is a part of it.

    Raises
    ------
    ValueError
        If there are no results, the name has another ending than .html, or something else is there.
    """
    check_file(out, PAGE, force=force)
    ending(out, (".html",))
    text = page_of(path).to_html()
    if out.parent.resolve() == path.resolve():
        add_to_folder(path, out.name, text, PAGE, force=force)
    else:
        write_target(out, text, PAGE, force=force)
    return out.stat().st_size
