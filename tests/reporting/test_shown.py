"""What every study returns: one set of tables, whatever they are shown as."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from simulations.reporting.files import kind_of
from simulations.reporting.numbers import fixed
from simulations.reporting.shown import Kept, NoFigureError, Shown
from simulations.reporting.table import BAD, Column, Marked, Table


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
    with pytest.raises(ValueError, match="'wide'"):
        Drawn().figure("wide")
    with pytest.raises(ValueError, match="no figure"):
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
    with pytest.raises(ValueError, match="no figure"):
        kept.written("svg")
    with pytest.raises(ValueError, match="cannot be read"):
        Kept.open(tmp_path)
