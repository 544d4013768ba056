"""The page of a study: a sweep or a comparison."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import fedhist
from fedhist.model.prediction import LowerBound
from simulations.reporting.json_files import canonical, flat
from simulations.reporting.numbers import shown
from simulations.reporting.page import Block, Facts, Items, Page, Picture, Section, Text
from simulations.reporting.table import BAD, Marked, Table, numeric
from simulations.runs.results import NOT_PRIVATE
from simulations.studies.records.scale import percent, relative
from simulations.studies.records.settings_table import WORSE, legend
from simulations.studies.records.summary import CHECKS, Group, unit_of
from simulations.studies.report.adversaries import attack_blocks, bias_plot
from simulations.studies.report.data import Study
from simulations.studies.report.maps import winner_maps
from simulations.studies.report.plots import MOST_SETTINGS, error_plot, ranking_plot
from simulations.studies.report.study import (
    SAMPLES,
    View,
    axis_name,
    is_share,
    short,
    view_of,
)
from simulations.studies.report.words import (
    EVALUATION,
    MOST_ROWS,
    facts,
    guarantee_table,
    not_private_of_study,
)

MOST_NAMED = 3
"""Populations that the page is headed with."""


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
    lines = (
        *found.notes,
        *_facts(found),
        *notes,
        *left,
        *_left_out(found),
        *_bounds(found),
        *reasons,
    )
    blocks: tuple[Block, ...] = (*overview, *((Items(lines),) if lines else ()))
    if found.figure:
        plots = [*plots, Picture(found.figure, "Static figure")]
    sections = (
        Section("Overview", blocks),
        Section("Which mechanism wins", (*_promises(found, view), *maps) if maps else ()),
        Section("Errors", tuple(plots)),
        Section("Results", (_points(view, found.loss, found.comparison or {}),)),
        Section("Adversaries", attack_blocks(found.records)),
        Section("Privacy ledger", guarantee_table(found.records)),
        Section("What was not private", not_private_of_study(found.records)),
        Section("Configuration", _common(found)),
    )
    versions = found.records[0].versions
    return Page(
        f"{kind} {found.name}", subtitle, EVALUATION, sections, footer({"versions": versions})
    )


def _facts(found: Study) -> list[str]:
    """Say what matters about the users of a comparison."""
    told = (found.comparison or {}).get(NOT_PRIVATE, {}).get("facts", [])
    return [f"{NOT_PRIVATE}: {fact}" for fact in told]


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
            spent = {r.epsilon for r in p.records if r.epsilon is not None}
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
    lines = [f"errors are about the truth {summary['truth']!r}"] if "truth" in summary else []
    lines += [
        f"{row['label']} estimates another truth, {shown(row['truth_off'], 3)} from this one"
        for row in summary.get("rows", [])
        if "truth_off" in row
    ]
    lines += [f"{x['label']} is left out: {x['reason']}" for x in summary.get("left_out", [])]
    sampling = summary.get("reference", {}).get("sampling_error")
    if sampling is not None:
        lines.append(
            f"the truth is the users' own; its sampling error about the population behind them is "
            f"{shown(sampling)}, in the same loss"
        )
    for row in summary.get("rows", []):
        lines += [f"{row['label']} is not ranked: {flag}" for flag in row.get("flags", [])]
    return tuple(dict.fromkeys(lines))  # a row of several shares says the same in each


def _at_least(row: Mapping[str, Any]) -> str:
    """Write the largest lower bound of a row of a comparison; empty if none is known."""
    best = max(row.get("at_least", []), key=lambda b: float(b["value"]), default=None)
    return "" if best is None else str(_bound(best))


def _bound(record: Mapping[str, Any]) -> LowerBound:
    return LowerBound(record["loss"], float(record["value"]), record["source"])


def _bounds(found: Study) -> tuple[str, ...]:
    """Say what the lower bounds are."""
    rows = (found.comparison or {}).get("rows", [])
    told = dict.fromkeys(_bound(b).words for r in rows for b in r.get("at_least", []))
    return tuple(f"at least: {words}" for words in told)


def _points(view: View, loss: str, summary: Mapping[str, Any]) -> Table:
    points = view.points
    ratio = any(p.predicted is not None for p in points)
    biased = any(p.bias is not None for p in points)
    sized = any(p.relative is not None for p in points)
    items = any(_item(p, "recall") is not None for p in points)
    many = len({p.loss_name for p in points if p.loss_name}) > 1
    least = {str(r["label"]): _at_least(r) for r in summary.get("rows", [])}
    bounded = any(least.values())
    header = (
        "mechanism",
        *numeric(map(short, view.axes)),
        *numeric([f"error ({loss})" if loss else "error", "± 95 %"]),
        *(numeric(["relative"], write=percent) if sized else ()),
        *(numeric(["per item", "largest found"]) if items else ()),
        *(numeric(["theory", "ratio"]) if ratio else ()),
        *(numeric(["at least"]) if bounded else ()),
        *(numeric(["bias"]) if biased else ()),
        *(["loss"] if many else ()),
        "runs",
        *numeric(["rounds", "bytes per user", "seconds"]),
    )
    if not view.axes:  # a comparison: the best first
        points = tuple(sorted(points, key=lambda p: math.inf if p.mean is None else p.mean))
    rows: list[Sequence[Any]] = []
    if not view.axes:
        rows += _trivial(summary, loss)
    for p in points[:MOST_ROWS]:
        records, half = p.records, p.half_width
        told = Marked(p.mean, BAD * bool(p.worse), "{}" + WORSE * bool(p.worse))
        rows.append(
            (
                p.series,
                *(p.at[a] for a in view.axes),
                None if p.mean is None else told,
                None if half is None else f"{half:.2g}",
                *((p.relative,) if sized else ()),
                *((shown(_item(p, "per item"), 3), percent(_item(p, "recall"))) if items else ()),
                *((p.predicted, _ratio(p)) if ratio else ()),
                *((least.get(p.series, ""),) if bounded else ()),
                *((shown(p.bias, 3),) if biased else ()),
                *((p.loss_name,) if many else ()),
                ", ".join(f"{n} {s}" for s, n in sorted(p.statuses.items())),
                max(r.rounds for r in records),
                next((r.bytes_per_user for r in records if r.bytes_per_user), None),
                shown(sum(r.seconds for r in records) / len(records), 3),
            )
        )
    first = f"The first {MOST_ROWS:,} of {len(points):,} settings, means over the seeds."
    whole = f"Means over the seeds; {len(points):,} settings."
    title = first if len(points) > MOST_ROWS else whole
    return Table.of(header, rows, title=title, notes=_legend(points[:MOST_ROWS]))


def _trivial(summary: Mapping[str, Any], loss: str) -> list[Sequence[Any]]:
    """List the answers that nobody is asked for: the truth, and those without any data."""
    size = summary.get("reference", {}).get("size")
    found = sorted(summary.get("trivial", {}).items(), key=lambda x: x[1])
    return [(name, error, "", relative(error, size, loss)) for name, error in found]


def _item(point: Group, name: str) -> float | None:
    found = [r.items[name] for r in point.records if name in r.items]
    return sum(found) / len(found) if found else None


def _ratio(point: Group) -> Marked:
    far = point.far_off
    return Marked(shown(point.ratio, 3), BAD * far, "{}" + "!" * far)


def _legend(points: Sequence[Group]) -> list[str]:
    """Explain shares and marks."""
    return [*legend(points), *_of_items(points)]


def _of_items(points: Sequence[Group]) -> list[str]:
    k = next((int(x) for p in points if (x := _item(p, "k"))), 0)
    told = f"per item: mean error; largest found: share of the {k} largest items that are found."
    return [told] if k else []


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
        blocks.append(Table.of(("mechanism", "parameter", "value"), rows, folded=title))
    return tuple(blocks)


def footer(config: Mapping[str, Any]) -> str:
    """Say what made the page and what made its results."""
    versions: Mapping[str, Any] = config.get("versions", {})
    written = versions.get("fedhist", "")
    made = f"Made by fedhist {fedhist.__version__}"
    return f"{made} from results of fedhist {written}." if written else f"{made}."
