"""Draws images/layers.svg from the import contracts of pyproject.toml: ``make docs`` runs it.

A row is a layer; a package with a contract of its own shows its rooms, the others what they hold.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "images" / "layers.svg"
FILLS = ("#e8eaf6", "#e0f2f1", "#fff3e0", "#fafafa")
WIDTH, EDGE, GAP, LINE = 900, 20, 4, 25
FOUND = "Everything imports what is below it, and nothing beside or above it."


def picture() -> str:
    """Draw every layer, the highest first."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    whole, *others = [c for c in contracts["contracts"] if c["type"] == "layers"]
    rooms = {name: c["layers"] for c in others for name in c["containers"]}
    drawn, y = list[str](), EDGE
    for i, layer in enumerate(whole["layers"]):
        names = layer.split(" | ")
        inner = [list(lines(name, rooms)) for name in names]
        height = 32 + (LINE + 5) * max(map(len, inner))
        for (x, width), name, folders in zip(
            columns(EDGE, WIDTH - EDGE, names), names, inner, strict=True
        ):
            drawn.append(box(x, y, width, height, FILLS[min(i, len(FILLS) - 1)]))
            drawn.append(text(x + 10, y + 20, name, 14, "start", "bold"))
            if len(names) == 1:
                drawn.append(text(x + width - 10, y + 20, said(name), 12, "end"))
            for row, words in enumerate(folders):
                for (a, wide), word in zip(
                    columns(x + 12, x + width - 12, words), words, strict=True
                ):
                    top = y + 32 + row * (LINE + 5)
                    drawn.append(box(a, top, wide, LINE, "#ffffff"))
                    drawn.append(text(a + wide / 2, top + 17, word, 11.5, "middle"))
        y += height + 8
    drawn.append(text(WIDTH / 2, y + 12, FOUND, 12, "middle"))
    size = f'viewBox="0 0 {WIDTH} {y + EDGE + 8}" font-family="DejaVu Sans, Verdana, sans-serif"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="Layers">'
    return "\n".join([head, box(0, 0, WIDTH, y + EDGE + 8, "#ffffff"), *drawn, "</svg>", ""])


def lines(name: str, rooms: dict[str, list[str]]) -> Iterator[list[str]]:
    """Say what stands in a package's box: its rooms by layer, or the packages and files in it."""
    if name in rooms:
        yield from (row.split(" | ") for row in rooms[name])
    elif "." not in name:
        here = (p for p in (ROOT / name).iterdir() if not p.name.startswith("_"))
        names = [n for _, n in sorted((p.suffix == "", p.stem) for p in here)]
        yield from (names[i : i + 4] for i in range(0, len(names), 4))


def said(name: str) -> str:
    """Return the first line of a package's docstring."""
    code = (ROOT / name.replace(".", "/") / "__init__.py").read_text()
    return (ast.get_docstring(ast.parse(code)) or "").partition("\n")[0].rstrip(".")


def columns(a: float, b: float, names: list[str]) -> Iterator[tuple[float, float]]:
    """Cut a width into as many columns as there are names: where each begins, and its width."""
    width = (b - a - GAP * (len(names) - 1)) / len(names)
    return ((a + i * (width + GAP), width) for i in range(len(names)))


def box(x: float, y: float, width: float, height: float, fill: str) -> str:
    """Draw a box."""
    at = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"'
    return f'<rect {at} rx="4" fill="{fill}" stroke="#b0bec5"/>'


def text(x: float, y: float, words: str, size: float, anchor: str, weight: str = "normal") -> str:
    """Write a line."""
    style = f'font-size="{size:g}" font-weight="{weight}" text-anchor="{anchor}"'
    return f'<text x="{x:g}" y="{y:g}" {style} fill="#263238">{escape(words)}</text>'


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
