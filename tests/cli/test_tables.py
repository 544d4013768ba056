"""Tables of 80 columns: nothing is wider, and no word is cut in its middle."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable

import pytest
from rich.console import Console

from fedhist.model.registry import load_builtin
from simulations.cli import lists
from simulations.experiments.experiment import Check, Request, Result, experiment
from simulations.experiments.report import Reproduced
from simulations.reporting.table import print_table

Show = Callable[[Console], object]


def rendered(show: Show, width: int) -> str:
    file = io.StringIO()
    show(Console(file=file, width=width, highlight=False))
    return file.getvalue()


def assert_whole(show: Show) -> str:
    """Check every word at 80 columns: it stands whole in 1,000, or ends at a sign within a name."""
    load_builtin()
    wide, narrow = rendered(show, 1000), rendered(show, 80)
    pieces = set()
    for word in wide.split():
        parts = re.split(r"(?<=[A-Za-z][-_./=])(?=[A-Za-z])", word)
        ends = itertools.combinations(range(len(parts) + 1), 2)
        pieces |= {"".join(parts[i:j]) for i, j in ends}
    cut = {w for w in narrow.split() if not set(w) <= {"─"}} - pieces
    assert not cut, narrow
    assert max(map(len, narrow.splitlines())) <= 80
    return narrow


CHECK = Check(
    setting="n_users = 1,000,000, samples_per_user = 4,096, zero-out-user",
    quantity="replace-user/without-the-publishers-correction, slope",
    ours=12345.678,
    paper=-0.0001234,
    stderr=123.0,
    low=-1.23e-5,
    high=123456.0,
)
RESULT = Result("Means under local privacy", "arXiv 2405.11923", checks=(CHECK,))
REPRODUCED = Reproduced(experiment("figure1"), Request({}, None, "zipf", 1, False), RESULT)


def table(name: str) -> Show:
    return lambda c: print_table(c, lists.KINDS[name][0]())


TABLES: dict[str, Show] = {
    **{name: table(name) for name in lists.KINDS},
    "reproduce": lambda c: REPRODUCED.print_on(c),
}


@pytest.mark.parametrize("table", TABLES)
def test_no_word_is_cut(table: str) -> None:
    assert_whole(TABLES[table])
