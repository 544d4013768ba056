"""The command ``fedhist new``."""

from __future__ import annotations

import keyword
import re
import sys
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from fedhist.base.checks import check_choice
from fedhist.base.files import whole_file
from simulations.cli import terminal
from simulations.cli.terminal import Force

KINDS = ("items", "samples")
FILES = {"protocol": "{}.py", "test_protocol": "test_{}.py", "study": "{}.toml"}
OURS = ("fedhist", "clients", "server", "simulations")
FORM = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def new(
    name: Annotated[str, typer.Argument(help="Its name: small letters, digits and hyphens.")],
    of: Annotated[str, typer.Option(help="What users hold: items or samples.")] = "items",
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path(),
    force: Force = False,
) -> None:
    """Write a protocol to change into your own: it runs, is audited, and its tests pass.

    Three files: the plugin, its tests for pytest, and a study file.
    """
    from simulations.reporting.files import check_file

    texts = protocol_files(name, of)
    if out.exists() and not out.is_dir():
        raise ValueError(f"{out} is a file: name a folder by --out")
    places = {file: check_file(out / file, force=force) for file in texts}
    out.mkdir(parents=True, exist_ok=True)
    for file, text in texts.items():
        whole_file(places[file], text)
        terminal.console.print(f"written: {out / file}", soft_wrap=True, markup=False)
    plugin, test, study = (out / file for file in texts)
    for line in (
        f"fedhist run {study}",
        f"fedhist compare {study}",
        f"fedhist audit {name} --plugin {plugin}",
        f"python -m pytest {test}",
    ):
        terminal.console.print(f"  {line}", soft_wrap=True, markup=False)


def protocol_files(name: str, of: str = "items") -> dict[str, str]:
    """Return the text of every file, by its name.

    ``name``: of the protocol, as in a configuration: "my-count"; ``of``: what its users hold.
    Raises ValueError for a name that no protocol may have, or that one has.

    >>> list(protocol_files("an-example"))
    ['an_example.py', 'test_an_example.py', 'an_example.toml']
    """
    check_choice("--of", of, KINDS)
    if not FORM.fullmatch(name):
        raise ValueError(
            f"a protocol's name has small letters and digits, with hyphens between: got {name!r}"
        )
    from importlib.metadata import packages_distributions

    from fedhist.model.registry import load_builtin, protocols

    load_builtin()
    if name in protocols():
        raise ValueError(f"there is a protocol {name!r} already: choose another name")
    stem = name.replace("-", "_")
    if stem in {*OURS, *keyword.kwlist, *sys.stdlib_module_names, *packages_distributions()}:
        raise ValueError(f"{stem!r} is a word or a package of Python: choose another name")
    words = {"NAME": name, "CLASS": name.title().replace("-", ""), "FILE": stem}
    place = resources.files("simulations.studies").joinpath("skeleton", of)
    out = {}
    for source, target in FILES.items():
        file = next(f for f in place.iterdir() if f.name.startswith(f"{source}."))
        text = file.read_text(encoding="utf-8")
        out[target.format(stem)] = re.sub("|".join(words), lambda m: words[m.group()], text)
    return out
