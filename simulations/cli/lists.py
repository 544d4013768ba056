"""The command ``fedhist list``: what there is to choose from, and one of it whole."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedhist.base.errors import nearest
from simulations.cli import terminal
from simulations.cli.terminal import Json, Plugin

if TYPE_CHECKING:
    from fedhist.model.protocol import Protocol
    from simulations.reporting.table import Table


def list_(
    kind: Annotated[
        str | None,
        typer.Argument(help="protocols, populations, configurations, studies or experiments."),
    ] = None,
    name: Annotated[str | None, typer.Argument(help="Show one whole.")] = None,
    plugin: Plugin = None,
    json_: Json = False,
) -> None:
    """List what there is of a KIND, or show NAME whole: its parameters, or a file's text.

    A configuration and a study are files to start your own from.
    """
    from fedhist.model.registry import load_builtin, load_plugin
    from simulations.reporting.table import frame, print_table

    load_builtin()
    for file in plugin or []:
        load_plugin(file)
    if kind is None:
        for one, (table, _) in KINDS.items():
            names = [str(row[0]) for row in table().rows if row]
            terminal.console.print(f"{one} ({len(names)}):", style="bold")
            words = textwrap.fill(", ".join(names), 78, break_on_hyphens=False)
            terminal.console.print(textwrap.indent(words, "  "), markup=False)
        terminal.console.print("fedhist list KIND says more; fedhist list KIND NAME shows one.")
        if json_:
            every = {k: [str(r[0]) for r in table().rows if r] for k, (table, _) in KINDS.items()}
            terminal.print_json({"kind": "list", **every})
        return
    if kind not in KINDS:
        raise ValueError(f"there are no {kind!r}{nearest(kind, KINDS)}")
    table, whole = KINDS[kind]
    if name is None:
        print_table(terminal.console, table())
    else:
        whole(name)
    if json_:
        rows = frame(table()).to_dicts()
        key = next(iter(rows[0]))
        rows = [row for row in rows if name in (None, row[key])]
        terminal.print_json({"kind": kind, "rows": rows})


def protocols_table() -> Table:
    """Return a line for each registered protocol."""
    from fedhist.model.registry import protocols
    from simulations.reporting.table import Table
    from simulations.studies.levels import possible_levels

    rows = []
    for name, cls in sorted(protocols().items()):
        g = cls.example().guarantee
        delta = f", {g.delta:g}" if g.delta else ""
        words = f"({g.epsilon:g}{delta}), {g.adjacency.value}"
        trust = ", ".join(t.value for t in possible_levels(cls))
        rows.append((name, cls.target, trust, words, cls.paper))
    columns = (_names("protocol"), "target", "trust", "guarantee of its example", "paper")
    notes = ("fedhist list protocols NAME shows the parameters.",)
    return Table.of(columns, rows, notes=notes)


def show_protocol(name: str) -> None:
    """Show one protocol: its docstring, parameters and defaults."""
    from fedhist.model.registry import protocol_class

    cls = protocol_class(name)
    g = cls.example().guarantee
    notes = [f"Guarantee of its example: {g}", f"Adjacency: {g.adjacency.in_words}."]
    notes.append(f"Attacker: {g.telling} (50% is a coin).")
    kind, names = starts_of(cls)
    notes.append(f"To start from: fedhist list {kind} {' or '.join(names)}")
    show_class(f"{name}  ({cls.paper})", [cls], notes)


def show_class(title: str, documented: Sequence[type[Any]], notes: Sequence[str] = ()) -> None:
    """Show the docstrings of a class and its bases, and the fields of the first."""
    from simulations.reporting.table import Table, print_table

    console = terminal.console
    console.print(title, style="bold", markup=False)
    for one in documented:
        text, _, _ = (inspect.getdoc(one) or "").partition("\nExamples\n")
        for line in unwrapped(plain_text(text.rstrip())).split("\n"):
            indent = " " * (len(line) - len(line.lstrip()))
            console.out(textwrap.fill(line, console.width, subsequent_indent=indent))
    rows = []
    for f in fields(documented[0]):
        kind = f.type.__name__ if isinstance(f.type, type) else str(f.type)
        rows.append((f.name, kind, "required" if f.default is MISSING else repr(f.default)))
    print_table(console, Table.of((_names("parameter"), "type", "default"), rows, notes=notes))


ELSEWHERE = {
    "remote": "Users whose data only Flower's nodes have; it has no settings.",
    "table": "A file of several columns, for the tables [[release]]: path and user name it.",
}
"""Kinds that a configuration names, and that make no users by themselves."""


def populations_table() -> Table:
    """Return a line for each kind of population that a configuration can name."""
    from simulations.populations import KINDS as POPULATIONS
    from simulations.reporting.table import Table

    named = (kind for kind in POPULATIONS if kind != "memory")
    rows = [(k, plain_text(inspect.getdoc(POPULATIONS[k]) or "").partition("\n")[0]) for k in named]
    rows += list(ELSEWHERE.items())
    notes = ("fedhist list populations NAME shows the parameters.",)
    return Table.of((_names("population"), "what users hold"), rows, notes=notes)


def show_population(name: str) -> None:
    """Show one kind of population: its parameters and defaults, those of its bases too."""
    from simulations.populations import KINDS as POPULATIONS

    if name in ELSEWHERE:
        terminal.console.print(f"{name}\n{ELSEWHERE[name]}", markup=False)
        return
    if name not in POPULATIONS:
        raise ValueError(f"no population kind {name!r}{nearest(name, {*POPULATIONS, *ELSEWHERE})}")
    cls, *bases = POPULATIONS[name].__mro__
    show_class(name, [cls, *(b for b in bases if "Parameters\n" in (inspect.getdoc(b) or ""))])


def starts_of(cls: type[Protocol]) -> tuple[str, list[str]]:
    """Name configurations of a protocol, or else the studies that it takes part in."""
    from simulations.config.reading import builtin_names
    from simulations.runs.config import configs_of

    if configurations := configs_of(cls.name):
        return "configurations", configurations
    words = f'"{cls.name}"', f'target = "{cls.target}"'
    named = builtin_names("studies")
    return "studies", [n for n in named if any(w in study_file(n) for w in words)]


def plain_text(text: str) -> str:
    """Turn the marks of a docstring into plain text, for a terminal.

    >>> plain_text(":func:`~fedhist.model.truths.l1` of ``value`` [1]_")
    'l1 of value [1]'
    """
    text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", text)
    text = re.sub(r"^(\s*)\.\. \[", r"\1[", text, flags=re.MULTILINE)
    return re.sub(r"\[(\w+)\]_", r"[\1]", text).replace("`", "")


def unwrapped(text: str) -> str:
    r"""Join the lines of each paragraph of a docstring: long lines and what follows them.

    >>> unwrapped(f"n : int\n    {'a' * 70}\n    b\nd : int").count("\n")
    2
    """
    joined = re.sub(r"(?m)^(( *)\S.{60,})\n\2(?=\S)", r"\1 ", text)
    return text if joined == text else unwrapped(joined)


def configurations_table() -> Table:
    """Return a line for each built-in configuration."""
    from simulations.config.reading import builtin_names
    from simulations.reporting.table import Table
    from simulations.runs.config import load_config, missing_keys

    rows = []
    for config in map(load_config, builtin_names()):
        kind = config.population["kind"]
        source = f"{kind}, from your file" if "path" in missing_keys(config) else kind
        rows.append((config.name, config.protocol["name"], source, config.run.runtime))
    notes = ("fedhist run NAME runs one; fedhist list configurations NAME shows its file.",)
    columns = (_names("configuration"), "protocol", "population", "runtime")
    return Table.of(columns, rows, notes=notes)


def show_configuration(name: str) -> None:
    """Show the file of a built-in configuration."""
    from simulations.config.reading import settings_text

    terminal.console.out(settings_text(name, "configuration")[0], end="")


def studies_table() -> Table:
    """Return a line for each built-in study, and for each question of decide."""
    from simulations.config.reading import builtin_names, tables_of
    from simulations.reporting.table import Table

    rows = []
    for command, folder in (("compare", "studies"), ("decide", "decisions")):
        for name in builtin_names(folder):
            text = study_file(name)
            tables = tables_of(text)
            said = re.match(r"(?:# .*\n)+", text)
            words = " ".join(said[0].replace("# ", "").split()) if said else ""
            kind = tables.get("population", {}).get("kind", "")
            rows.append((name, command, kind, words.partition(". ")[0].rstrip(".")))
    notes = (
        "fedhist compare NAME or fedhist decide NAME runs one; fedhist list studies NAME shows its "
        "file.",
    )
    return Table.of((_names("study"), "command", "population", "what it asks"), rows, notes=notes)


def study_file(name: str) -> str:
    """Return the text of a built-in study."""
    from simulations.config.reading import builtin_names, settings_text

    known = {n: folder for folder in ("studies", "decisions") for n in builtin_names(folder)}
    if name not in known:
        raise ValueError(f"unknown study {name!r}{nearest(name, known)}")
    return settings_text(name, "study", known[name])[0]


def show_study(name: str) -> None:
    """Show the file of a built-in study."""
    terminal.console.out(study_file(name), end="")


def experiments_table() -> Table:
    """Return a line for each experiment, with what it can run on."""
    from simulations.experiments.experiment import experiment, names
    from simulations.reporting.table import Table

    rows = []
    for e in map(experiment, names()):
        free = e.without_file
        populations = ", ".join(p if p in free else f"{p}*" for p in e.populations)
        rows.append((e.name, e.paper, e.title, populations))
    notes = ("*: needs a file. fedhist reproduce NAME [--population NAME] [--data FILE]",)
    return Table.of((_names("name"), "paper", "title", "populations"), rows, notes=notes)


def show_experiment(name: str) -> None:
    """Show what an experiment measures: its populations and settings."""
    from simulations.experiments.experiment import experiment
    from simulations.reporting.table import print_facts

    e = experiment(name)
    facts: dict[str, Any] = {"paper": e.paper, "title": e.title}
    facts |= {f"population {k}": ", ".join(f"{a} = {b}" for a, b in v.items())
              for k, v in e.populations.items()}  # fmt: skip
    print_facts(terminal.console, [(k, str(v)) for k, v in facts.items()])


KINDS: Mapping[str, tuple[Callable[[], Table], Callable[[str], None]]] = {
    "protocols": (protocols_table, show_protocol),
    "populations": (populations_table, show_population),
    "configurations": (configurations_table, show_configuration),
    "studies": (studies_table, show_study),
    "experiments": (experiments_table, show_experiment),
}


def _names(name: str) -> Any:
    """Make a column of names that do not break."""
    from simulations.reporting.table import Column

    return Column(name, keep=True)
