"""A decision in the terminal, and its folder: page, picture, tables, study file, plain data."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from simulations.config.named_files import toml_value
from simulations.reporting.export import save_figure, save_table
from simulations.reporting.json_files import write_json
from simulations.reporting.page import Items, Page, Picture, Section, Text
from simulations.reporting.terminal import print_lines, print_table, wrap
from simulations.runs.results import NOT_PRIVATE, git_revision
from simulations.studies.decide import words
from simulations.studies.decide.figure import draw_decision
from simulations.studies.decide.findings import Decided, Finding
from simulations.studies.decide.tables import tables_of
from simulations.studies.records.identity import versions

SCHEMA = 1
WIDTH = 80
PAGE = "index.html"


def print_decision(console: Console, d: Decided) -> None:
    """Print the verdict, its table and what must be known to trust it."""
    width = console.width
    for line in wrap(words.asked(d), width):
        console.print(line, style="bold", markup=False)
    print_lines(console, ["", *wrap(f"In short: {words.in_short(d)}", width), ""])
    for line in words.verdicts(d):
        first, *rest = wrap(line, width - 4)
        print_lines(
            console, [f"  {first}", *(f"    {r}" for r in wrap(" ".join(rest), width - 4) if r)]
        )
    print_lines(console, ["", *(part for t in words.terms(d) for part in wrap(t, width))])
    print_table(console, tables_of(d)[0])
    believed = words.believed(d)
    for line in [*believed, "", *words.notes(d)]:
        first, *rest = wrap(line, width - 2)
        print_lines(console, [first, *(f"  {r}" for r in wrap(" ".join(rest), width - 2) if r)])


def write(d: Decided, folder: Path) -> None:
    """Write everything into a new folder."""
    (folder / PAGE).write_text(page_of(d).to_html(), encoding="utf-8")
    with (folder / "decision.txt").open("w", encoding="utf-8") as f:
        print_decision(Console(file=f, width=WIDTH, highlight=False), d)
    (folder / "study.toml").write_text(study_of(d), encoding="utf-8")
    write_json(folder / "decision.json", summary_of(d))
    save_figure(partial(draw_decision, d), folder / "figure.png", width="page")
    for i, table in enumerate(tables_of(d)):
        save_table(table, folder / f"table{i or ''}.csv")


def page_of(d: Decided) -> Page:
    """Return the page: verdict, picture, tables, and what was not private."""
    first, *others = tables_of(d)
    q = d.settled.question
    return Page(
        words.asked(d),
        d.settled.loaded.title,
        "NOT PRIVATE: errors, theory and settings on this page were computed from the users' data.",
        (
            Section(
                "Verdict",
                (
                    Text(f"In short: {words.in_short(d)}"),
                    Items(tuple(words.verdicts(d))),
                    Text(" ".join(words.terms(d))),
                    Picture(
                        png_of(d),
                        "Error against " + ("users" if q.epsilon and q.error else "epsilon"),
                        folded=False,
                    ),
                    first,
                ),
            ),
            Section("What must be believed", (Items(tuple(words.believed(d))),)),
            Section("What it rests on", tuple(others)),
            Section("To know", (Items(tuple(words.notes(d))),)),
        ),
        f"fedhist {versions().get('fedhist', '')}",
    )


def png_of(d: Decided) -> bytes:
    """Draw the picture as it stands on the page."""
    from simulations.reporting.pictures import drawn

    return drawn(partial(draw_decision, d), 7.0, "png", "fedhist:figure")


def study_of(d: Decided) -> str:
    """Write the question as a study file, by which it can be asked again."""
    lines = [f"# {words.asked(d)}", f"# {words.in_short(d)}"]
    for name, table in d.settled.question.to_dict().items():
        lines += ["", f"[{name}]"]
        lines += [f"{k} = {toml_value(_plain(v))}" for k, v in table.items() if v is not None]
    return "\n".join(lines) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return str(value) if isinstance(value, Path) else value


def summary_of(d: Decided) -> dict[str, Any]:
    """Return a decision as plain data."""
    s = d.settled
    return {
        "schema": SCHEMA,
        "kind": "decision",
        "question": s.question.to_dict(),
        "population": s.loaded.title,
        "n_users": s.ready.n_users,
        "adjacency": s.comparison.adjacency.value,
        "unit": "user",
        "loss": s.measure.loss,
        "error": s.measure.words,
        "verdict": words.in_short(d),
        "sentences": words.verdicts(d),
        "levels": [_level(f, s.question.epsilon is None) for f in d.findings],
        "left_out": [{"protocol": label, "reason": why} for label, why in s.left_out],
        "notes": words.notes(d),
        "versions": versions(),
        "revision": git_revision(),
        NOT_PRIVATE: {"why": "errors, theory and settings are computed from the users' data"},
    }


def _level(f: Finding, solved: bool) -> dict[str, Any]:
    row, protocol = f.row, None
    if f.candidate is not None:
        epsilon = f.trial.x if solved and f.trial is not None else None
        table = dict(f.candidate.table) | ({} if epsilon is None else {"epsilon": epsilon})
        protocol = {k: _plain(v) for k, v in table.items()}
    return {
        "trust": f.level.value,
        "status": f.status,
        "protocol": protocol,
        "x": f.x,
        "by_theory": f.planned,
        "error": None if f.trial is None else f.trial.error,
        "theory": None if f.trial is None or f.trial.ratio is None else f.trial.theory,
        "ratio": None if f.trial is None else f.trial.ratio,
        "reason": f.reason,
        "guarantee": "" if row is None else row.records[0].guarantee,
        "believed": "" if row is None or row.believed is None else row.believed.words,
        "simulated": [
            {
                "x": t.x,
                "protocol": t.candidate.title,
                "settings": dict(t.candidate.chosen),
                "error": t.error,
                "half_width": t.half_width,
                "theory": t.theory if t.ratio is not None else None,
                "runs": t.runs,
                "missing": t.missing,
            }
            for t in f.trials
        ],
    }
