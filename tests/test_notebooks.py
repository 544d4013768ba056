"""The notebooks of the documentation run, print what stands in them, and show their values."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from fedhist.model import registry
from fedhist.model.registry import load_builtin

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
RENEW = "make notebooks renews what stands in them"


@pytest.fixture
def namespace(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """A module to run cells in; what they register is forgotten afterwards."""
    load_builtin()
    kept = {name: dict(getattr(registry, name)) for name in ("_protocols", "_queries")}
    module = ModuleType("a_notebook")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    yield vars(module)
    for name, before in kept.items():
        getattr(registry, name).clear()
        getattr(registry, name).update(before)


def run_cell(source: str, namespace: dict[str, Any]) -> tuple[str, Any]:
    """Run a cell; return what it prints, and the value of its last expression."""
    tree, value, out = ast.parse(source), None, StringIO()
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with redirect_stdout(out):
        exec(compile(tree, "cell", "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), namespace)
    return out.getvalue(), value


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    body = json.loads(path.read_text(encoding="utf-8"))
    return [c for c in body["cells"] if c["cell_type"] == kind]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_a_notebook_says_what_its_code_does(path: Path, namespace: dict[str, Any]) -> None:
    for cell in cells(path, "code"):
        printed, value = run_cell("".join(cell["source"]), namespace)
        streams = [o for o in cell["outputs"] if o["output_type"] == "stream"]
        written = "".join("".join(o["text"]) for o in streams)
        assert printed == written, RENEW
        shown = [o["data"] for o in cell["outputs"] if o["output_type"] == "execute_result"]
        assert (value is None) == (not shown), RENEW
        for data in shown:
            for kind in data.keys() & {"text/html", "image/png"}:
                view = {"text/html": "_repr_html_", "image/png": "_repr_png_"}[kind]
                assert getattr(value, view)()


def test_there_are_three_and_they_are_small() -> None:
    assert [p.stem for p in NOTEBOOKS] == ["decide", "own-randomizer", "reproduce-a-figure"]
    for path in NOTEBOOKS:
        assert path.stat().st_size < 250_000
        assert cells(path, "markdown")[0]["source"][0].startswith("# ")
        kinds = {o["output_type"] for c in cells(path, "code") for o in c["outputs"]}
        assert kinds <= {"stream", "execute_result"}
        assert str(Path.home()) not in path.read_text(encoding="utf-8")
