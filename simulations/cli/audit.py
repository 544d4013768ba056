"""``fedhist audit``: whether protocols keep their claims."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simulations.cli import terminal
from simulations.cli.terminal import Force, Json, Out, Plugin

if TYPE_CHECKING:
    from fedhist.model.protocol import Protocol


def audit(
    protocol: Annotated[
        str | None, typer.Argument(help="A protocol, or all; none: the plugin's.")
    ] = None,
    plugin: Plugin = None,
    epsilon: Annotated[float | None, typer.Option(help="Budget to configure and claim.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="parameter=VALUE; may be repeated.")
    ] = None,
    inputs: Annotated[
        Path | None, typer.Option(help="JSON list of the two records to compare.")
    ] = None,
    effort: Annotated[float, typer.Option(help="Multiplies the number of draws.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Makes the audit reproducible.")] = 0,
    out: Out = None,
    json_: Json = False,
    force: Force = False,
) -> None:
    """Test whether PROTOCOL, all of them, or those of a plugin keep their privacy claims.

    Every line says how it was found: exact (the law was enumerated), statistical (a bound certified
    on millions of answers), end to end (whole runs on two neighbouring populations), structural.

    Exit status: 0 consistent with the claim, 1 a violation is proved, 2 wrong usage.
    """
    # imported here: they take a second, and the other commands need none of them
    from simulations.audit.audited import Audited, audit_all
    from simulations.audit.bounds import ALPHA
    from simulations.audit.checks import chosen_protocols
    from simulations.audit.finding import Settings
    from simulations.config.reading import key_value
    from simulations.reporting.files import check_folder

    console = terminal.console
    if out is not None:
        check_folder(out, Audited.kind, force=force)
    changes: dict[str, Any] = {} if epsilon is None else {"epsilon": epsilon}
    for pair in set_ or []:
        key, value = key_value(pair, "parameter=VALUE")
        changes[key] = value
    records = two_records(inputs) if inputs is not None else ()
    settings = Settings(effort=effort, seed=seed, alpha=ALPHA, records=records)
    started = time.perf_counter()

    def announced() -> Iterator[Protocol]:
        for p in chosen_protocols(protocol, plugin or [], changes):
            console.print(f"{p.name}: {p.guarantee}", markup=False, soft_wrap=True)
            if p.claimed != p.guarantee:
                console.print(f"  the paper claims {p.claimed}", markup=False, soft_wrap=True)
            yield p

    audited = audit_all(announced(), settings)
    audited.print_on(console)
    if out is not None:
        audited.save(out.absolute(), force=force)
        console.print(f"written to {out}", soft_wrap=True, markup=False)
    console.print(f"{time.perf_counter() - started:.0f} s", markup=False)
    if json_:
        terminal.print_json(audited.document())
    raise typer.Exit(int(audited.violated))


def two_records(path: Path) -> tuple[Any, ...]:
    """Read the two records of ``--inputs``.

    Raises ValueError if there is no file, or it is no JSON list of two.
    """
    if not path.is_file():
        raise ValueError(f"no such file of two records: {path}")
    form = 'two records, such as [{"tea": 2}, {"rye": 1}], or of samples [[0.5, 1.0], [-1.0]]'
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as e:
        raise ValueError(f"{path} is not JSON ({e}): it holds {form}") from None
    if not isinstance(records, list) or len(records) != 2:
        raise ValueError(f"{path} must hold a list of {form}")
    return tuple(records)
