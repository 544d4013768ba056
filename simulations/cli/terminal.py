"""What commands share: the terminal, progress, exit statuses, and options, each written once.

A command takes ``set_: Set = None`` and so on for those that it has. Those of a file of data go
together: ``data: DataFile = NO_FILE``, of which :func:`spread` makes options.
"""

from __future__ import annotations

import inspect
import io
import os
import shutil
import sys
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import click
import typer
from rich.console import Console
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.models import ArgumentInfo

from fedhist.base.errors import NARROWEST, FedhistError, nearest
from fedhist.base.origin import origin_of

if TYPE_CHECKING:
    from rich.progress import Progress


def settle_width(environ: MutableMapping[str, str]) -> None:
    """Let COLUMNS be a width that tables have; 0, or no number, is an unknown one."""
    given = environ.get("COLUMNS", "")
    if given and not (given.isdecimal() and int(given)):
        del environ["COLUMNS"]
    if shutil.get_terminal_size().columns < NARROWEST:
        environ["COLUMNS"] = str(NARROWEST)


def settle_streams() -> None:
    """Let no letter end a command: a question mark stands for what a stream cannot write."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            utf8 = "utf" in stream.encoding.lower()
            if stream.errors == "strict" or not utf8:
                stream.reconfigure(errors="replace")


settle_width(os.environ)
console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

RUN_ERROR, USAGE_ERROR, NOT_REPRODUCED, INTERRUPTED = 1, 2, 5, 130
"""Exit statuses besides those of an estimate, :data:`fedhist.model.protocol.EXIT_CODES`."""

PRINTED = "fedhist.printed"
"""Key of a command's context: whether it has printed its document."""


GONE = {
    "bench": "python -m simulations.benchmarks",
    "configs": "fedhist list configurations [NAME]",
    "diff": "fedhist show FOLDER, for each of the two",
    "explain": "fedhist list; docs/glossary.md explains words",
    "guard": "fedhist node guard",
    "init": "fedhist decide FILE --user COLUMN --item COLUMN --error 10%",
    "journal": "fedhist node journal",
    "new-protocol": "fedhist new NAME",
    "plan": "fedhist decide FILE --error 10% --theory",
    "profile": "fedhist decide FILE --profile",
    "protocols": "fedhist list protocols [NAME]",
    "report": "fedhist show FOLDER --as html; every folder of results holds report.html",
    "results": "fedhist show FOLDER",
    "runs": "fedhist show FOLDER",
    "shard": "fedhist convert",
    "sweep": "fedhist compare STUDY, which reads the table [sweep] too",
    "validate": "make validate",
}
"""Commands of earlier versions, and what to write."""

_state = {"debug": False}


def debugging() -> bool:
    """Whether the command was given ``--debug``."""
    return _state["debug"]


class Group(TyperGroup):
    """All commands; one that is gone answers with the one to use."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Find a command, or say what took its place."""
        if args and args[0] in GONE:
            ctx.fail(f"{args[0]} is gone: write {GONE[args[0]]}")
        return super().resolve_command(ctx, args)


class Command(TyperCommand):
    """A command whose help has one line per paragraph, and describes every argument.

    Of one with the option ``--json`` (parameter ``json_``) only the document is on stdout.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.help:
            paragraphs = inspect.cleandoc(self.help).split("\n\n")
            self.help = "\n\n".join(p.replace("\n", " ") for p in paragraphs)
        _state["debug"] = False
        told = "Show the whole traceback of an error."
        keep: Any = lambda ctx, param, value: _state.update(debug=bool(value))  # noqa: E731
        self.params.append(
            TyperOption(
                param_decls=["--debug"],
                is_flag=True,
                default=False,
                expose_value=False,
                callback=keep,
                help=told,
            )
        )
        # click 8.5 takes an argument's help for its own, and this typer hands none on
        callback = inspect.unwrap(self.callback) if self.callback else None
        hints = get_type_hints(callback, include_extras=True) if callback else {}
        for p in self.params:
            hint = hints.get(str(p.name))
            if isinstance(p, TyperArgument) and get_origin(hint) is Annotated:
                p.help = next(x.help for x in get_args(hint) if isinstance(x, ArgumentInfo))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; under ``--json`` what it says for people is not printed."""
        if ctx.params.get("json_") is not True:
            return self._run(ctx)
        before, console.quiet = console.quiet, True
        try:
            self._run(ctx)
        finally:
            console.quiet = before
        if not ctx.meta.get(PRINTED):
            raise ValueError("--json prints what was computed, which is nothing: say what to run")
        return None

    def _run(self, ctx: click.Context) -> Any:
        """Run the command; code that it loads must not end Python as if all were well."""
        try:
            return super().invoke(ctx)
        except (SystemExit, GeneratorExit) as e:
            if isinstance(e, Stopped) or origin_of(e) is None:  # as a pipe that closes
                raise
            raise FedhistError(
                f"loaded code ended by {e!r}: a plugin raises an error instead"
            ) from e


def print_json(body: Any) -> None:
    """Print the one document of ``--json`` to stdout."""
    from simulations.reporting.files import json_text

    click.get_current_context().meta[PRINTED] = True
    typer.echo(json_text(body), nl=False)


class Stopped(SystemExit):
    """Ctrl-C where the command itself has said what was kept."""


def progress_bar(of: str = "") -> Progress:
    """Return a bar beside the errors, that nobody sees in a file and that leaves no trace.

    ``of`` names what is counted.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(of))
    return Progress(
        *columns,
        TimeRemainingColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )


# -- options that commands share -------------------------------------------------------------------

Set = Annotated[list[str] | None, typer.Option("--set", help="table.key=VALUE; may be repeated.")]
Data = Annotated[Path | None, typer.Option("--data", help="Your CSV, TSV or Parquet file.")]
User = Annotated[
    str | None, typer.Option("--user", help="Its column of users: name, or number from 0.")
]
Item = Annotated[str | None, typer.Option("--item", help="Its column of items.")]
Count = Annotated[str | None, typer.Option("--count", help="Its column of counts, if any.")]
Value = Annotated[
    str | None, typer.Option("--value", help="Its column of real samples (no --item).")
]
Top = Annotated[
    int | None, typer.Option("--top", help="Domain: its most frequent items (not private).")
]
Plugin = Annotated[
    list[Path] | None, typer.Option("--plugin", help="File with your protocol; may be repeated.")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document, and nothing else, to stdout.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there, whatever wrote it.")]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for the results.")]
Workers = Annotated[
    int | None,
    typer.Option("--workers", min=0, help="Ray tasks at a time; 0: everything in this process."),
]
RayAddress = Annotated[str | None, typer.Option("--ray-address", help="Join this Ray cluster.")]


def place(workers: int | None, address: str | None) -> tuple[int | None, str | None]:
    """Return how many tasks run at a time, 0 in this process, and on which cluster.

    Raises ValueError if a cluster is named, and tasks are to run in this process.
    """
    if workers == 0 and address:
        raise ValueError(
            f"--workers 0 runs in this process, --ray-address {address} on a cluster: leave one out"
        )
    return 0 if workers is None and not address else workers, address or None


@dataclass(frozen=True)
class DataFile:
    """The options of a file of data, in place of the population that a configuration names."""

    path: Data = None
    user: User = None
    item: Item = None
    count: Count = None
    value: Value = None
    top: Top = None

    def overrides(self, plugin: Sequence[Path] | None = None) -> list[str]:
        """Return the overrides that make the file the population and load plugins.

        Raises ValueError for columns without a file, and for a column of items beside one of real
        samples.
        """
        from simulations.config.reading import toml_value

        plugins = [str(p.resolve()) for p in plugin or ()]
        loaded = [f"run.plugins={toml_value(plugins)}"] if plugins else []
        columns = asdict(self)
        given = columns_given(columns.pop("path"), **columns)
        if self.path is None:
            return loaded
        if self.value is not None:
            for name in given.keys() & {"item", "count", "top"}:
                raise ValueError(
                    f"--{name} is of items, --value of real samples: give one of the two"
                )
        kind = "samples" if self.value is not None else "events"
        keys = {"path": str(self.path), **given}
        return [
            "run.nodes=0",  # the configuration's number of nodes belongs to its own population
            f"population.kind={toml_value(kind)}",
            *(f"population.{k}={toml_value(v)}" for k, v in keys.items()),
            *loaded,
        ]


NO_FILE = DataFile()


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command one option for each field of the parameters that are dataclasses."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    shown: list[inspect.Parameter] = []
    for p in inspect.signature(command).parameters.values():
        if p.name not in groups:
            shown.append(p.replace(annotation=hints[p.name]))
            continue
        own = get_type_hints(groups[p.name], include_extras=True)
        of = {f.name: (f.default, own[f.name]) for f in fields(groups[p.name])}
        shown += [p.replace(name=n, default=d, annotation=a) for n, (d, a) in of.items()]

    @wraps(command)
    def run(**given: Any) -> None:
        for name, kind in groups.items():
            given[name] = kind(**{f.name: given.pop(f.name) for f in fields(kind)})  # type: ignore[operator]
        command(**given)

    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return run


def columns_given(data: Path | None, **columns: str | int | None) -> dict[str, str | int]:
    """Return the options about a file that are given; ValueError where the file is not."""
    given = {k: column(v) for k, v in columns.items() if v is not None}
    if data is None and given:
        raise ValueError(f"--{next(iter(given))} describes --data, which is not given")
    return given


def column(name: str | int) -> str | int:
    """Read a column's number; anything else is its name."""
    return int(name) if isinstance(name, str) and name.isdecimal() else name


def dotted(args: list[str], known: Sequence[str]) -> list[str]:
    """Read --table.key VALUE and --table.key=VALUE.

    ``args``: what the command line has beside the options that are known; ``known``: these, for the
    error's nearest one. Raises ValueError for other options.
    """
    out, rest = [], list(args)
    while rest:
        head = rest.pop(0)
        name = head.partition("=")[0]
        if not head.startswith("-"):
            raise ValueError(f"unexpected argument {head!r}; a value belongs to an option")
        if not head.startswith("--") or "." not in name:
            raise ValueError(
                f"unknown option {name!r}{nearest(name, known)} "
                "(fedhist run --help lists them; keys are set as --table.key VALUE)"
            )
        if "=" not in head:
            if not rest:
                raise ValueError(f"{head!r} needs a value")
            head = f"{head}={rest.pop(0)}"
        out.append(head.removeprefix("--"))
    return out
