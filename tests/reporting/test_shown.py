"""What every study returns: one set of tables, whatever they are shown as, at any width."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

from fedhist.base.errors import NARROWEST
from simulations.cli.terminal import settle_width
from simulations.reporting.files import kind_of
from simulations.reporting.shown import Kept, NoFigureError, Shown
from simulations.reporting.table import BAD, Column, Marked, Table, fixed, print_facts, print_table


class Small(Shown):
    title = "two <users> & tea"

    def tables(self) -> list[Table]:
        header = ("who", Column("± 95%", right=True, key="half"), Column("n", write=fixed))
        rows = [
            ("ann", Marked(0.25, BAD, "{}*"), np.int64(1200)),
            None,
            ("<b>bob</b>", None, 7),
            ("eve", "-"),
        ]
        return [Table.of(header, rows, notes=["*: exact."]), Table.of(["x"], [(1,)], title="more")]


class Drawn(Small):
    def draw(self, figure: Any) -> None:
        figure.subplots().plot([1, 2])


def test_the_frame_has_plain_numbers() -> None:
    expected = {
        "who": ["ann", "<b>bob</b>", "eve"],
        "half": [0.25, None, None],
        "n": [1200, 7, None],
    }
    assert Small().table.equals(pl.DataFrame(expected))


def test_html_escapes_and_says_what_is_not_private() -> None:
    html = Small()._repr_html_()
    assert "two &lt;users&gt; &amp; tea" in html
    assert "<b>bob" not in html
    assert "0.25*" in html
    assert "1,200" in html
    assert "<strong>NOT PRIVATE:</strong>" in html
    assert html.count("<table>") == 2


def test_a_figure_has_the_width_that_is_asked() -> None:
    assert Drawn().figure().get_size_inches().tolist() == [7.0, 7.0 * 0.62]
    assert Drawn().figure()._repr_png_().startswith(b"\x89PNG")
    assert Drawn().figure("column").get_size_inches()[0] == 3.4
    page = Drawn().written("html").decode()  # in points: for a screen, and for a telephone
    assert re.findall(r'<figure class="(\w+)".*?<svg[^>]* width="(\d+)', page, re.DOTALL) == [
        ("wide", "504"),
        ("narrow", "244"),
    ]
    with pytest.raises(ValueError, match="'wide'"):
        Drawn().figure("wide")
    with pytest.raises(NoFigureError):
        Small().figure()


class Undrawn(Small):
    def draw(self, figure: Any) -> None:
        raise NoFigureError("no line has two points")


def test_without_a_figure_the_rest_is_written(tmp_path: Path) -> None:
    Undrawn().save(tmp_path / "all")
    assert (tmp_path / "all" / "report.html").is_file()
    assert not (tmp_path / "all" / "figure.png").exists()
    with pytest.raises(ValueError, match="no line has two points"):
        Undrawn().written("svg")


class Told(Drawn):
    kind = "told"

    def sections(self) -> list[tuple[str, list[str]]]:
        return [("warnings", ["{odd} names", "are kept"])]


def test_a_folder_is_shown_as_it_was_written(tmp_path: Path) -> None:
    """Numbers as they are, marks, notes, sentences: in every format, but for the figure."""
    Told().save(tmp_path / "out")
    assert kind_of(tmp_path / "out") == "told"
    assert (tmp_path / "out" / "figure.png").is_file()
    kept = Kept.open(tmp_path / "out")
    for kind in ("txt", "md", "tex", "csv"):
        assert kept.written(kind) == Told().written(kind), kind
    assert kept.document() == json.loads((tmp_path / "out" / "result.json").read_text())
    assert kept.table.equals(Told().table)
    with pytest.raises(NoFigureError):
        kept.written("svg")
    with pytest.raises(ValueError, match="cannot be read"):
        Kept.open(tmp_path)


@pytest.mark.parametrize("width", [1, NARROWEST - 1, 80])
def test_a_table_has_all_its_cells(width: int) -> None:
    file = io.StringIO()
    console = Console(file=file, width=width)
    table = Table.of(["item", "estimate of it", "standard error"], [["a long name", 1.25, 2.0]])
    print_table(console, table)
    print_facts(console, [("status", "ok")])
    words = file.getvalue().split()
    assert {"item", "long", "name", "1.25", "2", "status", "ok"} <= set(words)


@pytest.mark.parametrize(("given", "settled"), [("7", str(NARROWEST)), ("133", "133"), ("0", None)])
def test_columns_is_a_width_that_tables_have(
    given: str, settled: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", given)
    settle_width(os.environ)
    assert os.environ.get("COLUMNS") == settled
