"""Names in any script: no figure warns of a glyph that is missing (warnings are errors here)."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font

from simulations.reporting.export import save_figure
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


def test_a_font_of_boxes_is_no_font_that_has_a_letter() -> None:
    figure = drawn(NOBODY)
    make_legible(figure)
    assert words(figure)[0] in (NOBODY, "\\U0002a6d6")
    used = figure.axes[0].title.get_fontfamily()
    assert not [name for name in used if "Resort" in name]


def test_names_with_dollars_are_no_formulas(tmp_path: Path) -> None:
    name = r"$\nonsense_1$ for 5 $"

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for k in range(4):
            axes.barh([k], [10**k], label=f"{name}, which is too long to stand beside others, {k}")
        axes.set_yticks(range(4), [name, "a $x$", "one $", r"\$"])
        axes.set_xscale("log")
        axes.set_title(f"of {name} and of others, so that it is wrapped into two lines at least")
        figure.legend(loc="outside lower left", ncols=4)

    save_figure(draw, tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    for said in (name, "a $x$", "one $", r"\$"):
        assert f"<!-- {said}" in text
    assert r"<!-- $\mathdefault{10^{2}}$ -->" in text  # matplotlib's own
