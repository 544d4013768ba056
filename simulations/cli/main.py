"""The command line: ``fedhist run``, ``compare``, ``list``, ``ledger``, ``reproduce`` ..."""

from __future__ import annotations

import atexit
import gc
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import click
import typer

import fedhist
from fedhist.base.errors import FedhistError, PopulationError, nearest, visible
from simulations.cli import terminal
from simulations.cli.audit import audit
from simulations.cli.compare import compare
from simulations.cli.convert import convert
from simulations.cli.decide import decide
from simulations.cli.doctor import doctor
from simulations.cli.lists import list_
from simulations.cli.new import new
from simulations.cli.reproduce import reproduce
from simulations.cli.show import show
from simulations.cli.terminal import (
    NO_FILE,
    DataFile,
    Force,
    Json,
    Plugin,
    RayAddress,
    Set,
    dotted,
    place,
    spread,
)

cli = typer.Typer(
    name="fedhist",
    cls=terminal.Group,
    help="Federated analytics under user-level differential privacy.",
    no_args_is_help=True,
    suggest_commands=False,  # click suggests by itself
    pretty_exceptions_enable=False,
)
node = typer.Typer(help="For the owner of a node: its guard, and journals.", no_args_is_help=True)
cli.add_typer(node, name="node")
ANY_OPTION = {"allow_extra_args": True, "ignore_unknown_options": True}


@cli.callback(invoke_without_command=True)
def top(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Run federated estimators on simulated clients."""
    if version:
        terminal.console.print(f"fedhist {fedhist.__version__}")
        raise typer.Exit


@cli.command(context_settings=ANY_OPTION)
@spread
def run(
    ctx: typer.Context,
    config: Annotated[str, typer.Argument(help="A .toml file or a built-in configuration.")],
    set_: Set = None,
    epsilon: Annotated[float | None, typer.Option(help="Budget of every user.")] = None,
    delta: Annotated[float | None, typer.Option(help="Budget of every user.")] = None,
    trust: Annotated[
        str | None, typer.Option(help="Whom users trust: central, aggregate, shuffle or local.")
    ] = None,
    runtime: Annotated[str | None, typer.Option(help="inline or ray.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Flower nodes.")] = None,
    workers: Annotated[int | None, typer.Option(help="Most Ray tasks at a time.")] = None,
    ray_address: RayAddress = None,
    seed: Annotated[
        int | None, typer.Option(help="Makes the run reproducible; -1 draws one.")
    ] = None,
    noise: Annotated[str | None, typer.Option(help="simulated or secure.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Runs with different seeds.")] = None,
    out: Annotated[str | None, typer.Option(help="Folder for the results.")] = None,
    force: Force = False,
    ledger: Annotated[str | None, typer.Option(help="Ledger file of the data set.")] = None,
    plugin: Plugin = None,
    data: DataFile = NO_FILE,
    json_: Json = False,
) -> None:
    """Run CONFIG, a .toml file or a built-in configuration (see fedhist list).

    Any key of it can be set: --set table.key=VALUE, or --table.key VALUE.

    The estimate is drawn by fedhist show FOLDER --as png > figure.png

    Exit status: 0 ok, 3 refused, 4 failed, 2 wrong usage, 1 the run broke off.
    """
    from fedhist.model.protocol import EXIT_CODES
    from simulations.config.reading import reading, settings_text, toml_value
    from simulations.reporting.table import quiet_flower
    from simulations.runs.booked_run import repeat_job, run_job
    from simulations.runs.config import config_of, parse_tables, prepare
    from simulations.runs.results import (
        RUN,
        Finished,
        check_place,
        folder_for,
        print_job,
        summary_of,
    )

    overrides = data.overrides(plugin)
    place(workers, ray_address)
    plain = {
        "protocol.epsilon": epsilon,
        "protocol.delta": delta,
        "protocol.trust": trust,
        "run.runtime": runtime,
        "run.nodes": nodes,
        "run.workers": workers,
        "run.ray_address": ray_address,
        "run.seed": seed,
        "run.noise": noise,
        "run.repeats": repeats,
        "run.out": out,
        "run.ledger": ledger,
    }
    overrides += [f"{k}={toml_value(v)}" for k, v in plain.items() if v is not None]
    named = [name for p in ctx.command.params for name in p.opts if name.startswith("--")]
    more = [config, *ctx.args] if config.startswith("-") else ctx.args  # an option where it stands
    overrides += [*dotted(more, named), *(set_ or [])]
    quiet_flower()
    text, name = settings_text(config, "configuration")
    with reading(config):
        tables = parse_tables(text, overrides)
    if "release" in tables:
        raise typer.Exit(_run_releases(tables, config, name, force=force, json_=json_))
    with reading(config):
        loaded = config_of(tables, config, name)
    if (address := loaded.run.ray_address) and loaded.run.runtime == "inline":
        raise ValueError(
            f'run.ray_address {address} is a cluster, the runtime "inline" this process: leave the '
            "address out, or give --runtime ray"
        )
    kind = RUN if loaded.repeat is None else "repeat"
    check_place(loaded, kind, force=force)  # before anything is asked and spent
    with reading(config):
        prepared = prepare(loaded)
    if loaded.repeat is not None:
        with terminal.progress_bar("periods") as periods:
            whole = periods.add_task("repeat", total=loaded.repeat.times)
            repeated = repeat_job(prepared, lambda n, of: periods.update(whole, completed=n))
        repeated.print_on(terminal.console)
        folder = folder_for(loaded.name, loaded.run.out)
        repeated.save(folder, force=force)
        terminal.console.print(f"\nwritten to {folder} (NOT PRIVATE)", soft_wrap=True)
        if json_:
            terminal.print_json({**repeated.document(), "folder": str(folder)})
        raise typer.Exit(EXIT_CODES[repeated.status])
    with terminal.progress_bar("users") as bar:
        here = prepared.plan
        task = bar.add_task("round 1", total=1 if here is None else len(here.users))
        at = 0

        def progress(round_index: int, done: int, of: int) -> None:
            nonlocal at
            if round_index != at:
                at = round_index
                bar.reset(task, total=of, description=f"round {at + 1}")
            bar.update(task, completed=done, total=of)

        def show(finished: Finished) -> None:
            bar.stop()
            print_job(terminal.console, finished)

        try:
            finished = run_job(prepared, progress, force=force, show=show)
        except KeyboardInterrupt as e:
            if not (written := getattr(e, "__notes__", [])):
                raise
            terminal.errors.print(f"interrupted; {written[0]}", soft_wrap=True)
            raise terminal.Stopped(terminal.INTERRUPTED) from None
    terminal.console.print(f"written to {finished.folder}", soft_wrap=True)
    if json_:
        terminal.print_json(summary_of(finished))
    raise typer.Exit(EXIT_CODES[finished.outcomes[0].estimate.status])


def _run_releases(
    tables: Mapping[str, Any], source: str, name: str, *, force: bool, json_: bool
) -> int:
    """Run the releases of a file, print and write them; return the exit status."""
    from fedhist.model.protocol import EXIT_CODES
    from simulations.config.reading import reading
    from simulations.reporting.files import NEW, check_folder
    from simulations.runs.released import RELEASES, run_releases
    from simulations.runs.releases import plan_releases
    from simulations.runs.results import folder_for, written_somewhere

    with reading(source):
        planned = plan_releases(tables, source, name)
    check_folder(planned.run.out or NEW, RELEASES, force=force)
    shown = run_releases(planned)
    shown.print_on(terminal.console)
    folder = folder_for(name, planned.run.out)
    written_somewhere(folder, lambda f: shown.save(f, force=force))
    shown.book.check(folder)
    terminal.console.print(f"written to {folder}", soft_wrap=True)
    if json_:
        terminal.print_json(shown.document() | {"folder": str(folder)})
    return EXIT_CODES[shown.status]


@cli.command()
def ledger(
    path: Annotated[Path, typer.Argument(help="Ledger file of a data set.")],
    cap_epsilon: Annotated[float | None, typer.Option(help="Set the cap.")] = None,
    cap_delta: Annotated[float | None, typer.Option(help="Set the cap.")] = None,
    json_: Json = False,
) -> None:
    """Check and show PATH, the ledger of what was released from a data set; set its cap."""
    from simulations.runs.data_ledger import Cap, DataLedger, ledger_document, print_ledger

    book = DataLedger(path)
    if cap_epsilon is not None or cap_delta is not None:
        old, _ = book.read()
        book.set_cap(
            Cap(
                old.epsilon if cap_epsilon is None else cap_epsilon,
                old.delta if cap_delta is None else cap_delta,
            )
        )
    elif not path.exists():
        raise ValueError(f"no such ledger: {path} (--cap-epsilon makes one)")
    print_ledger(terminal.console, book)
    if json_:
        terminal.print_json({"kind": "ledger", "file": str(path), **ledger_document(book)})


@node.command()
def journal(
    folder: Annotated[Path, typer.Argument(help="A run's journal folder.")],
    json_: Json = False,
) -> None:
    """Check FOLDER, a run's journal: that no line is missing, altered or doubled."""
    from server.session.journal import LOG, log_of

    if not (folder / LOG).is_file():
        raise ValueError(f"no journal: {folder} (it has a file {LOG!r})")
    lines = log_of(folder).read()
    released = sum(line.get("kind") == "release" for line in lines)
    ended = any(line.get("kind") == "ended" for line in lines)
    state = "the run has ended" if ended else "the run can go on"
    terminal.console.print(f"{len(lines)} lines, {released} releases; {state}. It is whole.")
    if json_:
        told = {"lines": len(lines), "releases": released, "ended": ended}
        terminal.print_json({"kind": "journal", "folder": str(folder), **told})


@node.command()
def guard(
    folder: Annotated[Path, typer.Argument(help="A node's guard-folder.")],
    counter: Annotated[Path | None, typer.Option(help="The node's guard-counter.")] = None,
    start_counter: Annotated[
        bool, typer.Option("--start-counter", help="Begin to count FOLDER as it is now.")
    ] = False,
    reset: Annotated[
        bool,
        typer.Option("--reset", help="Forget what was answered: every budget is unspent again."),
    ] = False,
) -> None:
    """Check FOLDER, a node's memory of what it has answered and its users have spent."""
    from clients.guard_folder import NODE, FolderStore, GuardDamaged

    said = (folder / NODE).read_text().split() if (folder / NODE).is_file() else []
    if not said or not said[0].isdecimal():
        raise ValueError(f"no guard's folder: {folder} (it has a file {NODE!r} with a number)")
    store = FolderStore(folder, int(said[0]), counter)
    if start_counter:
        with store.locked():
            store.start_counter()
    try:
        answered = store.answered()
    except GuardDamaged as damage:
        if not reset:
            raise
        terminal.console.print(str(damage), markup=False, soft_wrap=True)
        lost = "what was answered before cannot be told"
    else:
        most = sum(a.epsilon for a in answered)
        lost = f"{len(answered)} answers, which cost a user epsilon = {most:g} at most"
        terminal.console.print(
            f"node {said[0]}: {lost}; {store.stored_bytes()} bytes. The folder is whole."
        )
    if reset:
        with store.locked():
            aside = store.reset()
        terminal.console.print(
            f"Reset. Every budget is unspent again ({lost}); the old files are in {aside}.",
            markup=False,
            soft_wrap=True,
        )


cli.command()(reproduce)
cli.command()(audit)


for _other in (convert, compare, decide, show, new, doctor):
    cli.command()(_other)
cli.command(name="list")(list_)
for _registered in (*cli.registered_commands, *node.registered_commands):
    _registered.cls = terminal.Command


def main() -> None:
    """Entry point of the ``fedhist`` command.

    What libraries warn of in their arithmetic is shown where Python is told to (``-W``): it says
    nothing to whoever reads a table. Our own warnings are in the estimates.
    """
    # a tenth of a short command's time would go into looking for cycles in what imports leave
    gc.set_threshold(500_000, 10, 10)
    # nor at the end, for .4 s after numba: the system takes everything back anyway
    atexit.register(gc.freeze)
    terminal.settle_streams()
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.simplefilter("ignore", RuntimeWarning)
            sys.exit(cli(prog_name="fedhist", standalone_mode=False))
    except MemoryError as e:
        what = f"error: too large for this machine: {str(e) or 'out of memory'}"
        for line in (what, *getattr(e, "__notes__", ())):
            terminal.errors.print(line, markup=False, soft_wrap=True)
        sys.exit(terminal.RUN_ERROR)
    except click.exceptions.NoArgsIsHelpError as e:
        e.show()
        sys.exit(e.exit_code)
    except click.UsageError as e:
        sys.exit(_told(ValueError(_usage(e))))
    except Exception as e:
        sys.exit(_told(e))
    except SystemExit as e:
        if e.code == terminal.INTERRUPTED and type(e) is SystemExit:  # Typer's answer to Ctrl-C
            terminal.errors.print("interrupted; nothing was written")
        raise


def _usage(e: click.UsageError) -> str:
    """Say what is wrong with a command's options, as of settings."""
    said, path = e.format_message().removesuffix("."), e.ctx.command_path if e.ctx else "fedhist"
    if isinstance(e, click.NoSuchOption) and e.ctx:
        known = [name for p in e.ctx.command.params for name in p.opts if name.startswith("-")]
        said = f"unknown option {e.option_name!r}{nearest(e.option_name, known)}"
    return f"{said} (see {path} --help)"


def _told(e: Exception) -> int:
    """Print an error and return the exit status: one line for what is wrong with settings and data.

    What broke off inside a protocol is told with its place in the author's file.
    """
    from fedhist.base.origin import in_words, origin_of, whole
    from fedhist.model.protocol import EXIT_CODES
    from simulations.runs.data_ledger import CapExceeded

    at = origin_of(e)
    meant = isinstance(e, ValueError | PopulationError) and (at is None or at.meant)
    usage = meant or isinstance(e, OSError)
    refused = isinstance(e, CapExceeded)
    lines = [str(e) if usage or refused else in_words(e), *getattr(e, "__notes__", ())]
    if terminal.debugging():
        terminal.errors.print(whole(e), markup=False, soft_wrap=True)
    elif not usage and (at is not None or not isinstance(e, FedhistError)):
        lines.append("--debug shows the whole traceback")
    terminal.errors.print("[bold red]refused:[/] " if refused else "[bold red]error:[/] ", end="")
    for line in lines:
        terminal.errors.print(visible(line), markup=False, soft_wrap=True)
    if refused:
        return EXIT_CODES["refused"]
    return terminal.USAGE_ERROR if usage else terminal.RUN_ERROR


if __name__ == "__main__":
    main()
