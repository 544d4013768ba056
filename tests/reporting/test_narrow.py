"""Tables on terminals of any width, and of none."""

from __future__ import annotations

import io
import os

import pytest
from rich.console import Console

from fedhist.base.text import NARROWEST
from simulations.cli.terminal import settle_width
from simulations.reporting.table import Table, print_facts, print_table


@pytest.mark.parametrize("width", [1, NARROWEST - 1, 80])
def test_a_table_has_all_its_cells(width: int) -> None:
    file = io.StringIO()
    console = Console(file=file, width=width)
    table = Table.of(["item", "estimate of it", "standard error"], [["a long name", 1.25, 2.0]])
    print_table(console, table)
    print_facts(console, [("status", "ok")])
    words = file.getvalue().split()
    assert {"item", "long", "name", "1.25", "2", "status", "ok"} <= set(words)


def test_what_a_stream_cannot_write_is_written_in_ascii() -> None:
    assert "1 ± 2 · 3… é".encode("ascii", "fedhist.plain") == b"1 +- 2 * 3... ?"


@pytest.mark.parametrize(("given", "settled"), [("7", str(NARROWEST)), ("133", "133"), ("0", None)])
def test_columns_is_a_width_that_tables_have(
    given: str, settled: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", given)
    settle_width(os.environ)
    assert os.environ.get("COLUMNS") == settled
