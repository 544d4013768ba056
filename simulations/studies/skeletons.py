"""The files of a new protocol: a plugin that works, its tests, and a study of it."""

from __future__ import annotations

import keyword
import re
import sys
from importlib import resources
from importlib.metadata import packages_distributions

from fedhist.base.checks import check_choice
from fedhist.model.registry import load_builtin, protocols

KINDS = ("items", "samples")
FILES = {"protocol": "{}.py", "test_protocol": "test_{}.py", "study": "{}.toml"}
OURS = ("fedhist", "clients", "server", "simulations")
FORM = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def protocol_files(name: str, of: str = "items") -> dict[str, str]:
    """Return the text of every file, by its name.

    Parameters
    ----------
    name : str
        Of the protocol, as in a configuration: "my-count".
    of : {"items", "samples"}
        What its users hold.

    Raises
    ------
    ValueError
        For a name that no protocol may have, or that one has.

    Examples
    --------
    >>> list(protocol_files("an-example"))
    ['an_example.py', 'test_an_example.py', 'an_example.toml']
    """
    check_choice("--of", of, KINDS)
    if not FORM.fullmatch(name):
        raise ValueError(
            f"a protocol's name has small letters and digits, with hyphens between: got {name!r}"
        )
    load_builtin()
    if name in protocols():
        raise ValueError(f"there is a protocol {name!r} already: choose another name")
    stem = name.replace("-", "_")
    if keyword.iskeyword(stem):
        raise ValueError(f"{name!r} is a word of Python: choose another name")
    if stem in {*OURS, *sys.stdlib_module_names, *packages_distributions()}:
        raise ValueError(
            f"{stem}.py would stand in the way of Python's package {stem!r}: choose another name"
        )
    words = {"NAME": name, "CLASS": name.title().replace("-", ""), "FILE": stem}
    place = resources.files(__package__).joinpath("skeleton", of)
    out = {}
    for source, target in FILES.items():
        file = next(f for f in place.iterdir() if f.name.startswith(f"{source}."))
        text = file.read_text(encoding="utf-8")
        out[target.format(stem)] = re.sub("|".join(words), lambda m: words[m.group()], text)
    return out
