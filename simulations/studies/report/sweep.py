"""The page of a study: a sweep or a comparison."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import fedhist
from simulations.reporting.page import Block, Facts, Items, Page, Picture, Section, Table, Text
from simulations.reporting.plain_data import canonical, flat
from simulations.studies.records.summary import MISSING, shown
from simulations.studies.report.adversaries import attack_blocks, bias_plot
from simulations.studies.report.data import Study
from simulations.studies.report.maps import winner_maps
from simulations.studies.report.plots import MOST_SETTINGS, axis_name, error_plot, ranking_plot
from simulations.studies.report.study import (
    CHECKS,
    SAMPLES,
    View,
    is_share,
    short,
    unit_of,
    view_of,
)
from simulations.studies.report.words import (
    EVALUATION,
    facts,
    guarantee_table,
    not_private_of_study,
)

MOST_NAMED = 3
"""Populations that the page is headed with."""

MOST_ROWS = 500
"""Rows of a table; the study's file has the others."""


def study_page(found: Study) -> Page:
    """Make the page of a sweep or of a comparison."""
    view = view_of(found.records)
    targets = sorted({r.target for r in found.records if r.target})
    y_title = unit_of(found.loss, targets[0] if len(targets) == 1 else "")
    plots, notes = _plots(found, view, y_title)
    maps, left = winner_maps(view) if found.loss else ([], [])
    statuses = Counter(r.status for r in found.records)
    counts = ", ".join(f"{n:,} {s}" for s, n in sorted(statuses.items()))
    kind = "Sweep" if found.comparison is None else "Comparison"
    people = sorted({r.population for r in found.records if r.population})
    more = f" and {len(people) - MOST_NAMED:,} more populations" if len(people) > MOST_NAMED else ""
    subtitle = "; ".join(people[:MOST_NAMED]) + more
    overview = [Facts((("Runs", f"{len(found.records):,}: {counts}"), *_axes(view)))]
    warnings = Counter(f"{r.status}: {r.reason}" for r in found.records if r.reason)
    reasons = tuple(f"{n:,} × {reason}" for reason, n in warnings.most_common(10))
    lines = (*found.notes, *notes, *left, *_left_out(found), *reasons)
    blocks: tuple[Block, ...] = (*overview, *((Items(lines),) if lines else ()))
    if found.figure:
        plots = [*plots, Picture(found.figure, "Static figure")]
    sections = (
        Section("Overview", blocks),
        Section("Which mechanism wins", (*_promises(found, view), *maps) if maps else ()),
        Section("Errors", tuple(plots)),
        Section("Results", (_points(view, found.loss),)),
        Section("Adversaries", attack_blocks(found.records)),
        Section("Privacy ledger", guarantee_table(found.records)),
        Section("What was not private", not_private_of_study(found.records)),
        Section("Configuration", _common(found)),
    )
    versions = found.records[0].versions
    return Page(
        f"{kind} {found.name}", subtitle, EVALUATION, sections, footer({"versions": versions})
    )


def _plots(found: Study, view: View, y_title: str) -> tuple[list[Block], list[str]]:
    """Draw errors against every numeric axis; samples per user against users where both vary."""
    if not found.loss:
        return [], ["losses of different kinds are not drawn on one axis"] if found.notes else []
    if not view.axes:
        ranked = [str(r["label"]) for r in (found.comparison or {}).get("rows", [])]
        return [ranking_plot(view, y_title, "Error of each mechanism", ranked)], []
    wanted = []
    numeric = view.numeric()
    many = next((n for n in numeric if short(n) == "n_users"), "")
    held = next((n for name in SAMPLES for n in numeric if short(n) == name), "")
    if many and held:
        title = "Phase transitions: error against samples per user, for each number of users"
        wanted.append((held, many, title))
    for x in sorted(numeric, key=lambda n: (not is_share(n), n != held, n != many)):
        others = [n for n in view.axes if n != x]
        several = len(view.series) > 1
        by = "" if several or not others else max(others, key=lambda n: len(view.axes[n]))
        if not by or (x, by) != (held, many):
            wanted.append((x, by, f"Error against {_against(x, found)}"))
    biased = [
        w for w in wanted if is_share(w[0]) and any(r.bias is not None for r in found.records)
    ]
    most = MOST_SETTINGS // max(len(wanted) + len(biased), 1)
    plots: list[Block] = []
    for x, by, title in wanted:
        plots.append(error_plot(view, x, by, y_title, title, most))
        if (x, by, title) in biased:
            plots.append(bias_plot(view, x, by, f"Bias against {_against(x, found)}", most))
    return plots, []


def _against(x: str, found: Study) -> str:
    """Name an axis in a title; the checks where they are what tells lines apart."""
    if not is_share(x):
        return axis_name(x)
    both = len({r.cell.get("run", {}).get(short(CHECKS), True) for r in found.records}) > 1
    return "the share that misbehaves" + (", with and without the server's checks" * both)


def _axes(view: View) -> tuple[tuple[str, str], ...]:
    rows = [(k, ", ".join(map(shown, v))) for k, v in view.axes.items()]
    return (("Mechanisms", "; ".join(view.series)), *rows)


def _promises(found: Study, view: View) -> tuple[Block, ...]:
    """Warn where a map sets different promises or budgets against each other."""
    kinds = sorted({f"{r.trust} trust, {r.adjacency}" for r in found.records if r.adjacency})
    budgets: dict[str, set[float]] = {}
    for p in view.points:
        if p.private:
            spent = {r.epsilon for r in p.group.records if r.epsilon is not None}
            budgets.setdefault(canonical(p.at), set()).update(spent)
    lines = []
    if len(kinds) > 1:
        lines.append(
            f"The guarantees differ ({'; '.join(kinds)}): a win may be the weaker promise's."
        )
    if any(len(b) > 1 for b in budgets.values()):
        lines.append("The budgets differ at one setting: a win may be the larger epsilon's.")
    return tuple(map(Text, lines))


def _left_out(found: Study) -> tuple[str, ...]:
    summary = found.comparison or {}
    lines = [f"{x['label']} is left out: {x['reason']}" for x in summary.get("left_out", [])]
    sampling = summary.get("reference", {}).get("sampling_error")
    if sampling is not None:
        lines.append(
            f"the truth is the users' own; its sampling error about the population behind them is "
            f"{shown(sampling)}, in the same loss"
        )
    for row in summary.get("rows", []):
        lines += [f"{row['label']} is not ranked: {flag}" for flag in row.get("flags", [])]
    return tuple(dict.fromkeys(lines))  # a row of several shares says the same in each


def _points(view: View, loss: str) -> Table:
    axes = list(view.axes)
    ratio = any(p.predicted is not None for p in view.points)
    theory = ("theory", "ratio") if ratio else ()
    biased = any(p.group.bias is not None for p in view.points)
    many = len({p.group.loss_name for p in view.points if p.group.loss_name}) > 1
    header = (
        "mechanism", *map(short, axes), f"error ({loss})" if loss else "error", "± 95 %", *theory,
        *(("bias",) if biased else ()), *(("loss",) if many else ()),
        "runs", "rounds", "bytes per user", "seconds",
    )  # fmt: skip
    rows = []
    points = view.points
    if not axes:  # a comparison: the best first
        points = tuple(sorted(points, key=lambda p: math.inf if p.loss is None else p.loss))
    for p in points[:MOST_ROWS]:
        records = p.group.records
        told = (shown(p.predicted), shown(p.group.ratio, 3)) if ratio else ()
        runs = ", ".join(f"{n} {s}" for s, n in sorted(p.group.statuses.items()))
        half = p.half_width
        rows.append(
            (
                p.series, *(shown(p.at[a]) for a in axes), shown(p.loss),
                MISSING if half is None else f"{half:.2g}", *told,
                *((shown(p.group.bias, 3),) if biased else ()),
                *((p.group.loss_name,) if many else ()), runs,
                shown(max(r.rounds for r in records)),
                shown(next((r.bytes_per_user for r in records if r.bytes_per_user), None)),
                shown(sum(r.seconds for r in records) / len(records), 3),
            )
        )  # fmt: skip
    caption = f"Means over the seeds; {len(view.points):,} settings."
    if len(view.points) > MOST_ROWS:
        caption = f"The first {MOST_ROWS:,} of {len(view.points):,} settings, means over the seeds."
    texts = {"mechanism", "runs", "loss"}
    return Table(header, tuple(rows), frozenset(header) - texts, caption)


def _common(found: Study) -> tuple[Block, ...]:
    """Tell the settings that all runs share, and each mechanism's own."""
    keys = [flat(r.cell) for r in found.records]
    shared = {k: v for k, v in keys[0].items() if all(k in f and f[k] == v for f in keys)}
    blocks: list[Block] = [Facts(facts(shared))] if shared else []
    asked = (found.comparison or {}).get("config", {}).get("compare", {})
    told = facts({k: v for k, v in asked.items() if k != "protocols"}, "compare.")
    if told:
        blocks.append(Facts(told))
    seen: dict[str, Mapping[str, Any]] = {}
    for r in found.records:
        if r.parameters:
            seen.setdefault(r.label, r.parameters)
    rows = [(label, k, v) for label, p in seen.items() for k, v in facts(p)]
    title = "Parameters of each mechanism, as resolved in its first run"
    if rows:
        blocks.append(Table(("mechanism", "parameter", "value"), tuple(rows), folded=title))
    return tuple(blocks)


def footer(config: Mapping[str, Any]) -> str:
    """Say what made the page and what made its results."""
    versions: Mapping[str, Any] = config.get("versions", {})
    written = versions.get("fedhist", "")
    made = f"Made by fedhist {fedhist.__version__}"
    return f"{made} from results of fedhist {written}." if written else f"{made}."
