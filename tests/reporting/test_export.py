"""Tables and figures as files for a paper."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import matplotlib.figure
import matplotlib.text
import numpy as np
import polars as pl
import pytest

from simulations.reporting.export import (
    FIGURES,
    TABLES,
    chosen,
    ending,
    frame,
    inches,
    latex,
    save_figure,
    save_table,
)
from simulations.reporting.pictures import PAPER, fit
from simulations.reporting.table import HEADING, Column, Marked, Table, numeric
from simulations.reporting.targets import kind_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLE = Table.of(
    ["protocol", *numeric(("l1", "users", "theory")), "", "note"],
    [
        ("a_b & c%", 1234.56789, 1200, Marked(0.5, form="{}*")),
        ("", Marked("10% misbehave", HEADING)),
        None,
        ("x|y", np.float64(0.0012345), np.int64(7), None, "", "#1 ~ {x} \\ ^ $"),
        ("=1+1", 2e-7, 90, Marked(12.25, form="~{}"), "", "a\nb"),
    ],
    title="100% of T_1",
    notes=("errors: NOT PRIVATE",),
)


def test_a_frame_has_the_numbers_as_they_are() -> None:
    found = frame(TABLE)
    assert found.columns == ["protocol", "l1", "users", "theory", "note"]
    assert found["l1"].to_list() == [1234.56789, 0.0012345, 2e-7]
    assert found["users"].dtype == pl.Int64
    assert found["theory"].to_list() == [0.5, None, 12.25]
    twice = frame(Table.of([Column("x"), Column("x"), Column("")], [(1, 2, 3)]))
    assert twice.columns == ["x", "x 2", "column 3"]
    mixed = frame(Table.of(numeric(["x"]), [(1,), ("not reached",), (None,)]))
    assert mixed["x"].to_list() == ["1", "not reached", None]


def test_csv_and_parquet_have_them_too(tmp_path: Path) -> None:
    for name in ("a.csv", "a.parquet"):
        save_table(TABLE, tmp_path / name, columns=["L1", "protocol"], digits=1)
    read = pl.read_csv(tmp_path / "a.csv")
    assert read.columns == ["l1", "protocol"]
    assert read["l1"].to_list() == [1234.56789, 0.0012345, 2e-7]
    assert read["protocol"].to_list()[-1] == "'=1+1"  # a formula to no spreadsheet
    assert pl.read_parquet(tmp_path / "a.parquet")["protocol"].to_list()[-1] == "=1+1"
    save_table(TABLE, tmp_path / "a.parquet")  # which says that it is ours
    with pytest.raises(ValueError, match=r"a \.csv has no place to say who did"):
        save_table(TABLE, tmp_path / "a.csv")
    save_table(TABLE, tmp_path / "a.csv", force=True)


def test_columns_and_digits_are_chosen() -> None:
    found = chosen(TABLE, ["theory", "PROTOCOL", "l1"], 2)
    rows = [[c.text for c in r] for r in found.written() if r is not None]
    assert found.header == ("theory", "protocol", "l1")
    assert rows[0] == ["0.50*", "a_b & c%", "1,235"]
    assert rows[-1] == ["~12", "=1+1", "2e-07"]
    with pytest.raises(ValueError, match=r"no column 'thery'.*'theory'"):
        chosen(TABLE, ["thery"])
    with pytest.raises(ValueError, match="at least 1, got 0"):
        chosen(TABLE, digits=0)


def test_no_name_is_an_option_of_the_row_before() -> None:
    """LaTeX reads a bracket or a star behind the end of a row, or a rule, as part of that."""
    rows = [("[2pt] tea",), ("*rye",), None, ("[x]",), ("a [b]*",)]
    lines = latex(Table.of(["who"], rows)).splitlines()
    named = [line for line in lines if line.endswith("\\\\")][1:]
    assert named == [r"{}[2pt] tea \\", r"{}*rye \\", r"{}[x] \\", r"a [b]* \\"]


def test_latex_is_escaped_and_aligned() -> None:
    lines = latex(TABLE).splitlines()
    assert lines[0] == "% 100% of T_1"
    assert lines[1] == r"\begin{tabular}{lr@{}lr@{}lr@{}ll}"
    assert lines[5].startswith(r"a\_b \& c\% & 1235 & & 1,200 & & 0 & .5* &")
    assert r"\#1 \textasciitilde{} \{x\} \textbackslash{} \textasciicircum{} \$" in lines[8]
    assert r"2 & $\cdot 10^{-7}$" in lines[9]
    assert r"$\sim$12 & .25" in lines[9]
    assert lines[-1] == "% errors: NOT PRIVATE"
    bare = [line for line in lines if not line.startswith("%")]
    for line in bare[3:-2]:
        if not line.startswith("\\"):  # as many cells as columns
            columns = len(re.findall(r"(?<!\\)&", line)) + 1
            assert columns + line.count(r"\multicolumn{2}") == 8


def test_markdown_keeps_its_title_and_notes(tmp_path: Path) -> None:
    save_table(TABLE, tmp_path / "a.md", columns=["protocol", "users"])
    lines = (tmp_path / "a.md").read_text().splitlines()
    assert lines[0] == "**100% of T_1**"
    assert "| x\\|y" in "\n".join(lines)
    assert lines[-2].endswith("NOT PRIVATE")
    assert kind_of(tmp_path / "a.md") == "table"


@pytest.mark.parametrize("name", ["a.txt", "a", "a.html", "a.tex.bak"])
def test_an_unknown_ending_lists_the_known(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"known: \.md, \.tex, \.csv, \.parquet"):
        save_table(TABLE, tmp_path / name)
    with pytest.raises(ValueError, match=r"known: \.svg, \.pdf, \.png"):
        save_figure(_draw, tmp_path / name)
    assert not list(tmp_path.iterdir())
    assert ending("x.PDF", (*FIGURES, *TABLES)) == ".pdf"


def _draw(figure: Figure) -> None:
    axes = figure.subplots()
    axes.plot([1, 2], [3, 4], "o-", label="x")
    axes.set_xlabel("users")
    axes.legend()
    figure.set_figheight(2.0)


@pytest.mark.parametrize("name", ["a.svg", "a.pdf", "a.png"])
def test_figures_are_as_wide_as_a_column_and_the_same_each_time(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    save_figure(_draw, path)
    first = path.read_bytes()
    assert kind_of(path) == "figure"
    save_figure(_draw, path)
    assert path.read_bytes() == first
    if name == "a.svg":
        assert b'width="244.8pt" height="144pt"' in first
    elif name == "a.pdf":
        assert b"[ 0 0 244.8 144 ]" in first
        assert b"/Type3" not in first
    else:
        assert struct.unpack(">II", first[16:24]) == (1020, 600)
    save_figure(_draw, path, width="page")
    assert path.read_bytes() != first


def _crowded(figure: Figure) -> None:
    axes = figure.subplots()
    for i in range(5):
        axes.plot([1, 2], [i, 1], "os^Dv"[i], label=f"a protocol with a long name {i}")
    axes.set_xticks([1, 2])
    axes.set_yticks([1], ["a name of a row that is long"], fontsize=4)
    axes.set_title("a title that is much too long for the width of a column of a paper", loc="left")
    axes.set_xlabel("an axis whose label is longer than there is room for below it", loc="left")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=3)


@pytest.mark.parametrize("width", [3.4, 7.0])
def test_nothing_is_cut_at_the_width_of_a_column(width: float) -> None:
    figure = mpl.figure.Figure(figsize=(width, 2.5), layout="constrained")
    with mpl.rc_context(PAPER):
        _crowded(figure)
        fit(figure)
        figure.draw_without_rendering()
    texts = [t for t in figure.findobj(mpl.text.Text) if t.get_text() and t.get_visible()]
    for text in texts:
        box = text.get_window_extent()
        assert box.x0 >= 0, text
        assert box.x1 <= figure.bbox.width, text
        assert text.get_fontsize() >= 7
    shown = " ".join(t.get_text() for t in texts)
    assert all(f"long name {i}" in shown for i in range(5))


def test_widths() -> None:
    assert (inches("column"), inches(2)) == (3.4, 2.0)
    for wrong in ("narrow", 0.5, float("nan")):
        with pytest.raises(ValueError, match="width must be"):
            inches(wrong)
