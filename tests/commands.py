"""What tests that call the command line share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

PLUGIN = Path(__file__).with_name("cli") / "endings.py"
SMALL = """
[run]
runtime = "inline"
nodes = 3
seed = 1

[protocol]
name = "test-ending"
epsilon = 1.0
delta = 1e-6
clip = 5.0

[population]
kind = "zipf"
n_users = 60
d = 12
mean_items = 5
"""


class Answer(NamedTuple):
    """What a command said and how it ended."""

    status: int
    out: str
    err: str


Command = Callable[..., Answer]
