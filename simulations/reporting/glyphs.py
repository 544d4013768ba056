"""Names in figures as they are: no formula between dollars, and every letter has a glyph.

Letters that the usual font has not are from another installed font, else escapes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ticker import Formatter

FORMULA = r"\mathdefault"
"""What matplotlib's own labels of axes hold."""


def make_legible(figure: Figure, files: Iterable[str] | None = None) -> None:
    r"""Let every letter of a figure have a glyph: names of items may be in any script.

    What the usual font has not is drawn in an installed font that has it, and where none has as an
    escape such as ``\u304a``. Without such letters nothing is looked for. Dollars are letters, too:
    only the numbers of axes are formulas.

    Parameters
    ----------
    figure : matplotlib Figure
        Drawn on, not yet written.
    files : iterable of str, optional
        Files of fonts to look through; by default all that are installed.
    """
    from matplotlib.font_manager import FontProperties, findfont, get_font
    from matplotlib.text import Text
    from matplotlib.ticker import FuncFormatter

    axes = [a for panel in figure.get_axes() for a in (panel.xaxis, panel.yaxis)]
    ticks = [(a, _letters_of(a)) for a in axes]
    texts = figure.findobj(Text)
    for text in texts:
        if "$" in text.get_text() and FORMULA not in text.get_text():
            text.set_parse_math(False)
    letters = {c for t in texts for c in t.get_text()}.union(*(found for _, found in ticks))
    missing = {c for c in letters if not c.isascii()}
    if not missing:
        return
    missing -= {chr(c) for c in _letters(findfont(FontProperties()))}
    if not missing:
        return
    families = list(FontProperties().get_family())
    for file in _installed() if files is None else files:
        here = {c for c in missing if ord(c) in _letters(file)}
        if here:
            families.append(get_font(file).family_name)
            missing -= here
        if not missing:
            break
    escapes = {ord(c): ascii(c)[1:-1] for c in missing}
    for text in texts:
        text.set_fontfamily(families)
        text.set_text(text.get_text().translate(escapes))
    for axis, found in ticks:
        axis.set_tick_params(labelfontfamily=families)
        if found & missing:  # labels are written anew at every draw
            write = partial(_escaped, axis.get_major_formatter(), escapes)
            axis.set_major_formatter(FuncFormatter(write))


def _letters_of(axis: Axis) -> set[str]:
    """Return the letters of an axis' labels; of numbers none, which the usual font has."""
    from matplotlib.ticker import FixedFormatter, LogFormatter, ScalarFormatter, StrMethodFormatter

    formatter = axis.get_major_formatter()
    if isinstance(formatter, ScalarFormatter | LogFormatter | StrMethodFormatter):
        return set()
    if isinstance(formatter, FixedFormatter):
        return set("".join(formatter.seq))
    return {c for label in axis.get_ticklabels() for c in label.get_text()}


def _escaped(usual: Formatter, escapes: dict[int, str], x: float, at: int | None) -> str:
    return usual(x, at).translate(escapes)


@cache
def _letters(file: str) -> frozenset[int]:
    """Which characters a font has; none if it cannot be read."""
    from matplotlib.font_manager import get_font

    try:
        return frozenset(get_font(file).get_charmap())
    except (OSError, RuntimeError):
        return frozenset()


@cache
def _installed() -> tuple[str, ...]:
    """List the files of all upright fonts of usual weight, in the order of their names.

    But not the one that draws a box for whatever it is asked: an escape can be read.
    """
    from matplotlib.font_manager import fontManager

    usual = [f for f in fontManager.ttflist if f.style == "normal" and f.weight == 400]
    usual = [f for f in usual if "LastResort" not in f.name.replace(" ", "")]
    return tuple(dict.fromkeys(f.fname for f in sorted(usual, key=lambda f: f.name)))
