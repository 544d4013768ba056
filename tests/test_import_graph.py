"""No circle of files is left that a reader would have to hold in the head at once."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("fedhist", "clients", "server", "simulations")


def module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


# What cannot live below what it speaks of: the importing file, what it imports, and why.
TYPED = {
    ("fedhist.users.shards", "fedhist.users.batch"): "users are a shard, and its blocks are users",
}


def imports(tree: ast.Module, known: set[str], public: bool) -> set[str]:
    """Modules of ours that a file imports: at its top, inside a function, or for its types.

    A package's list of public names is left out: they are imported when they are asked for.
    """
    listed = {
        id(inner)
        for node in ast.walk(tree)
        if public and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in listed:
            continue
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{a.name}" for a in node.names}
            found |= (names & known) or {node.module}
    return found & known


def test_no_circle_of_files() -> None:
    files = {module(f): f for p in PACKAGES for f in (ROOT / p).rglob("*.py")}
    assert len(files) > 300
    graph = {
        name: imports(
            ast.parse(f.read_text()),
            set(files),
            f.name in ("__init__.py", "protocols.py", "testing.py"),
        )
        for name, f in files.items()
    }
    for name, typed in TYPED:
        graph[name].remove(typed)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        raise AssertionError(" -> ".join(e.args[1])) from None
