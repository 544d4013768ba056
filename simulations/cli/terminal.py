"""The terminal: where results and errors go, progress, and exit statuses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import click
import typer
from rich.console import Console
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.models import ArgumentInfo

if TYPE_CHECKING:
    from rich.progress import Progress

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
    "explain": "fedhist list; docs/glossary.md and docs/trust.md explain words",
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
            return super().invoke(ctx)
        before, console.quiet = console.quiet, True
        try:
            super().invoke(ctx)
        finally:
            console.quiet = before
        if not ctx.meta.get(PRINTED):
            raise ValueError("--json prints what was computed, which is nothing: say what to run")
        return None


def print_json(body: Any) -> None:
    """Print the one document of ``--json`` to stdout."""
    from simulations.reporting.json_files import json_text

    click.get_current_context().meta[PRINTED] = True
    typer.echo(json_text(body), nl=False)


class Stopped(SystemExit):
    """Ctrl-C where the command itself has said what was kept."""


def progress_bar(of: str = "") -> Progress:
    """Return a bar beside the errors, that nobody sees in a file and that leaves no trace.

    ``of`` names what is counted, if its rate shall be shown.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f} {of}/s")

    counted = f"{{task.completed:,.0f}} of {{task.total:,.0f}} {of}"
    columns: tuple[ProgressColumn, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        *((TextColumn(counted), Rate()) if of else (MofNCompleteColumn(),)),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal)


@contextmanager
def waiting(what: str) -> Iterator[Callable[[str], None]]:
    """Show what is waited for, and since when; yield what tells the step that it is at."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda step: bar.update(task, description=f"{what}: {step}")
