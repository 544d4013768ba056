"""What there is to choose from: protocols, configurations, sweeps, comparisons, experiments."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields

from rich.console import Console
from rich.markup import escape

from fedhist.model.registry import protocol_class, protocols
from simulations.reporting.docstrings import as_plain
from simulations.reporting.table import Column, Table
from simulations.reporting.terminal import print_table
from simulations.runs.config import Config, builtin_configs, configs_of, load_config, missing_keys


def print_protocols(console: Console) -> None:
    """List the registered protocols."""
    rows = []
    for name, cls in sorted(protocols().items()):
        g = cls.example().guarantee
        delta = f", {g.delta:g}" if g.delta else ""
        words = f"({g.epsilon:g}{delta}), {g.adjacency.value}"
        rows.append((name, cls.target, g.trust.value, words, cls.paper))
    columns = (_names("protocol"), "target", "trust", "guarantee of its example", "paper")
    notes = ("fedhist protocols NAME shows the parameters.",)
    print_table(console, Table.of(columns, rows, notes=notes))


def print_protocol(console: Console, name: str) -> None:
    """Show one protocol: its docstring, parameters and defaults."""
    cls = protocol_class(name)
    console.print(f"[bold]{name}[/]  ({escape(cls.paper)})")
    text, _, _ = (inspect.getdoc(cls) or "").partition("\nExamples\n")
    console.print(reflow(as_plain(text.rstrip()), console.width), markup=False)
    rows = []
    for f in fields(cls):  # type: ignore[arg-type]
        kind = f.type.__name__ if isinstance(f.type, type) else str(f.type)
        rows.append((f.name, kind, "required" if f.default is MISSING else repr(f.default)))
    g = cls.example().guarantee
    notes = [f"Guarantee of its example: {g}", f"Adjacency: {g.adjacency.in_words}."]
    start = " or ".join(configs_of(name))
    notes += [f"To start from: fedhist configs {start}"] if start else []
    print_table(console, Table.of((_names("parameter"), "type", "default"), rows, notes=notes))


def reflow(text: str, width: int) -> str:
    """Fill the paragraphs of a docstring anew, keeping indentation, headings and examples."""
    out: list[str] = []
    paragraph: list[str] = []

    def close() -> None:
        if paragraph:
            indent = " " * (len(paragraph[0]) - len(paragraph[0].lstrip()))
            words = " ".join(line.strip() for line in paragraph)
            out.extend(textwrap.wrap(words, width, initial_indent=indent, subsequent_indent=indent))
            paragraph.clear()

    for line in text.split("\n"):
        depth = len(line) - len(line.lstrip())
        alone = not line.strip() or set(line) == {"-"} or ">>>" in line or " : " in line
        if alone or (paragraph and depth != len(paragraph[-1]) - len(paragraph[-1].lstrip())):
            close()
        if alone:
            out.append(line)
        else:
            paragraph.append(line)
    close()
    return "\n".join(out)


def print_configs(console: Console) -> None:
    """List the built-in configurations."""
    rows = []
    for config in _configs():
        kind = config.population["kind"]
        source = f"{kind}, from your file" if "path" in missing_keys(config) else kind
        rows.append((config.name, config.protocol["name"], source, config.run.runtime))
    notes = ("fedhist run NAME runs one; fedhist configs NAME shows its file.",)
    columns = (_names("configuration"), "protocol", "population", "runtime")
    print_table(console, Table.of(columns, rows, notes=notes))


def print_sweeps(console: Console) -> None:
    """List the built-in sweeps."""
    from simulations.studies.sweep.config import builtin_sweeps, load_sweep

    rows = []
    for name in builtin_sweeps():
        cells = load_sweep(name).cells
        names = ", ".join(sorted({str(c.protocol["name"]) for c in cells}))
        kinds = ", ".join(sorted({str(c.population["kind"]) for c in cells}))
        rows.append((name, names, kinds, len(cells)))
    columns = (_names("sweep"), "protocols", "population", Column("cells", right=True))
    notes = ("fedhist sweep NAME runs one; fedhist sweep NAME --show shows its file.",)
    print_table(console, Table.of(columns, rows, notes=notes))


def print_comparisons(console: Console) -> None:
    """List the built-in comparisons."""
    from simulations.studies.compare.config import builtin_comparisons, load_comparison

    rows = []
    for name in builtin_comparisons():
        c = load_comparison(name)
        budget = f"{c.epsilon:g}" if not c.delta else f"({c.epsilon:g}, {c.delta:g})"
        rows.append((name, c.target, str(c.population["kind"]), budget, len(c.seeds)))
    columns = (
        *(_names("comparison"), "target", "population", "budget"),
        Column("seeds", right=True),
    )
    notes = ("fedhist compare NAME runs one; fedhist compare NAME --show shows its file.",)
    print_table(console, Table.of(columns, rows, notes=notes))


def print_decisions(console: Console) -> None:
    """List the built-in questions of fedhist decide, and say how to ask one of a file."""
    from simulations.studies.decide.question import builtin_decisions, load_question

    rows = []
    for name in builtin_decisions():
        q = load_question(name)
        asked = [f"error {q.asked}"] * bool(q.error)
        asked += [f"epsilon {q.epsilon:g}"] if q.epsilon is not None else []
        rows.append((name, q.target, str(q.population["kind"]), ", ".join(asked)))
    columns = (_names("question"), "target", "population", "asked")
    notes = (
        "fedhist decide NAME answers one; fedhist decide NAME --show shows its file.",
        "Of your own: fedhist decide FILE --user COLUMN --item COLUMN --error 10%",
    )
    print_table(console, Table.of(columns, rows, notes=notes))


def print_experiments(console: Console) -> None:
    """List the experiments there are and what each can run on."""
    from simulations.experiments.experiment import experiment, names

    rows = []
    for e in map(experiment, names()):
        free = e.without_file
        populations = ", ".join(p if p in free else f"{p}*" for p in e.populations)
        rows.append((e.name, e.paper, e.title, populations))
    notes = ("*: needs a file. fedhist reproduce NAME [--population NAME] [--data FILE]",)
    columns = (_names("name"), "paper", "title", "populations")
    print_table(console, Table.of(columns, rows, notes=notes))


def _configs() -> Iterator[Config]:
    return map(load_config, builtin_configs())


def _names(name: str) -> Column:
    """Make a column of names that do not break."""
    return Column(name, keep=True)
