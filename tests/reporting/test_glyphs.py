"""Names in any script: no figure warns of a glyph that is missing (warnings are errors here)."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from simulations.reporting.glyphs import make_legible
from simulations.reporting.pictures import picture

FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
NOBODY = "\U0002a6d6"
"""An ideograph that fonts rarely have."""


def drawn(name: str) -> Figure:
    figure = Figure(figsize=(3, 2))
    axes = figure.subplots()
    axes.barh([0, 1], [1, 2], label=name)
    axes.set_yticks([0, 1], [name, "tea"])
    axes.set_title(f"of {name}")
    axes.legend()
    return figure


def words(figure: Figure) -> list[str]:
    axes = figure.axes[0]
    legend = axes.get_legend()
    assert legend is not None
    ticks = [t.get_text() for t in axes.get_yticklabels()]
    return [*ticks, axes.get_title("center"), legend.get_texts()[0].get_text()]


def test_letters_that_no_font_has_are_escaped(tmp_path: Path) -> None:
    with picture(tmp_path / "a.png", 3, 2) as figure:
        figure.subplots().set_yticks([0], [NOBODY])
    figure = drawn(f"お {NOBODY} maté")
    make_legible(figure, files=[])
    figure.savefig(tmp_path / "b.png")
    escaped = "\\u304a \\U0002a6d6 maté"
    assert words(figure) == [escaped, "tea", f"of {escaped}", escaped]


def test_letters_that_another_font_has_are_drawn_in_it(tmp_path: Path) -> None:
    stix = str(FONTS / "STIXGeneral.ttf")
    usual = set(get_font(findfont(FontProperties())).get_charmap())
    letter = chr(min(c for c in set(get_font(stix).get_charmap()) - usual if c > 0x2000))
    figure = drawn(f"{letter}{NOBODY}")
    make_legible(figure, files=[str(FONTS / "cmr10.ttf"), stix])
    figure.savefig(tmp_path / "a.png")
    assert words(figure)[0] == f"{letter}\\U0002a6d6"
    assert "STIXGeneral" in figure.axes[0].get_yticklabels()[0].get_fontfamily()


@pytest.mark.parametrize("name", ["tea", "maté", "ε ≤ 1"])
def test_usual_letters_are_left_alone(name: str) -> None:
    figure = drawn(name)
    before = figure.axes[0].title.get_fontfamily()
    make_legible(figure, files=[])
    assert words(figure)[0] == name
    assert figure.axes[0].title.get_fontfamily() == before
