"""What holds of the source itself; `make check` has import-linter check the contracts."""

from __future__ import annotations

import ast
import os
import runpy
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import pytest

import fedhist

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("fedhist", "clients", "server", "simulations")
FILES = sorted(f for package in PACKAGES for f in (ROOT / package).rglob("*.py"))
MOST_LINES = 600
# Constructors of generators and of entropy; everything else in numpy.random is global state.
GENERATORS = {"Generator", "Philox", "PCG64", "SFC64", "SeedSequence", "BitGenerator"}
GENERATORS |= {"default_rng"}


@cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text())


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[str, Any]]:
    for file in FILES:
        for node in ast.walk(tree_of(file)):
            if isinstance(node, kinds):
                yield f"{file}:{getattr(node, 'lineno', 0)}", node


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def test_no_global_randomness() -> None:
    for where, node in nodes(ast.Attribute):
        name = dotted(node)
        if name.startswith(("np.random.", "numpy.random.")):
            assert name.split(".")[2] in GENERATORS, where
    for where, node in nodes(ast.Import):
        assert "random" not in {a.name for a in node.names}, where
    for where, node in nodes(ast.ImportFrom):
        assert node.module != "random", where
        if node.module == "numpy.random":
            assert {a.name for a in node.names} <= GENERATORS, where


def test_no_unseeded_generator_by_accident() -> None:
    """default_rng() without an argument takes system entropy: a run could not be repeated."""
    for where, node in nodes(ast.Call):
        if dotted(node.func).endswith("default_rng"):
            assert node.args or node.keywords, where


def test_files_are_short() -> None:
    lengths = {f: len(f.read_text().splitlines()) for f in FILES}
    assert {f: n for f, n in lengths.items() if n > MOST_LINES} == {}


def test_a_constant_of_one_name_has_one_value() -> None:
    constants = runpy.run_path(str(ROOT / "docs" / "weight.py"))["constants"]
    values = defaultdict[str, set[str]](set)
    for file in FILES:
        if file.relative_to(ROOT).parts[0] in ("fedhist", "clients", "server"):
            for name, value in constants(file):
                values[name.strip("_")].add(value)
    assert {name: them for name, them in values.items() if len(them) > 1} == {}


def test_no_two_test_files_have_one_name() -> None:
    """There are no packages in tests/: pytest would not collect the second of them."""
    names = [f.name for f in Path(__file__).parent.rglob("test_*.py")]
    assert not {n for n in names if names.count(n) > 1}


def test_nothing_is_unpickled_or_evaluated() -> None:
    forbidden = {"pickle.loads", "pickle.load", "eval", "exec", "marshal.loads", "dill.loads"}
    for where, node in nodes(ast.Call):
        assert dotted(node.func) not in forbidden, where
        assert not any(
            k.arg == "allow_pickle" and ast.unparse(k.value) != "False" for k in node.keywords
        ), where


def test_tables_are_read_by_their_names() -> None:
    """A folder may be called "data [2025]": polars takes that for a pattern unless it is told."""
    readers = {"pl.read_csv", "pl.read_parquet", "pl.scan_csv", "pl.scan_parquet"}
    readers |= {"pl.read_parquet_schema"}  # which cannot be told
    calls = [(at, node) for at, node in nodes(ast.Call) if dotted(node.func) in readers]
    assert len(calls) > 2
    globbing = [at for at, node in calls if "glob" not in {k.arg for k in node.keywords}]
    assert not globbing, globbing


def python(code: str, folder: Path, *paths: Path) -> subprocess.CompletedProcess[str]:
    search = os.pathsep.join(map(str, [*paths, ROOT]))
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": search, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("package", "kind"),
    [
        ("server", "{}.py"),
        ("simulations", "{}.py"),
        ("clients", "{}/__init__.py"),
        ("server", "{}/notes.txt"),
    ],
)
def test_somebody_s_file_of_one_of_our_names(package: str, kind: str, tmp_path: Path) -> None:
    """A file ``server.py`` beside a script: fedhist works, and says what is hidden."""
    file = tmp_path / kind.format(package)
    file.parent.mkdir(exist_ok=True)
    file.write_text("")
    code = f"import fedhist as fh; import {package}; print(fh.run.__module__, {package}.__file__)"
    result = python(code, tmp_path, tmp_path)
    assert result.stdout.split() == [
        "simulations.runs.run",
        str(ROOT / package / "__init__.py"),
    ], result.stderr
    hidden = not kind.endswith(".txt")  # a plain folder never hides a package
    assert (str(file) in result.stderr) is hidden
    before = python(f"import {package}, fedhist", tmp_path, tmp_path)
    assert ("ImportError" in before.stderr and str(file) in before.stderr) is hidden
    code = "import fedhist.__main__ as m, sys; sys.argv[1:] = ['--version']; m.main()"
    command = python(code, tmp_path, tmp_path)
    assert fedhist.__version__ in command.stdout, command.stderr


def test_a_node_loads_no_script(tmp_path: Path) -> None:
    """What the owner of a device must trust: run with -s to see how much that is."""
    (tmp_path / "events.csv").write_text("user,item\nann,tea\n")
    code = f"""
import os, sys, clients.app, clients.questions
from clients.owned import owned_node
from clients.node import Node
own = {{"data": "events.csv", "user": "user", "item": "item", "partition-id": 0}}
Node(owned_node({{}}, own | {{"guard-folder": os.path.abspath("guard")}}))
print(*sorted(m for m in sys.modules if m.partition(".")[0] in {PACKAGES}))
"""
    names = python(code, tmp_path).stdout.split()
    files = [f for f in FILES if module_of(f) in names]
    lines = sum(len(f.read_text().splitlines()) for f in files)
    print(f"a node: {len(files)} modules, {lines:,} lines")
    assert {n.partition(".")[0] for n in names} == {"clients", "fedhist"}
    assert "fedhist.protocols" not in names


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


HEAVY = {
    *("dp_accounting", "flwr", "jinja2", "matplotlib", "matplotlib.pyplot", "numba", "opendp"),
    *("pandas", "plotly", "polars", "pyarrow", "ray", "rich", "scipy.optimize", "scipy.stats"),
    "torch",
}
LOADS = "import fedhist.model.registry as r; r.load_builtin()"
BRINGS = [
    ("import fedhist", HEAVY),
    ("import simulations.cli.main", (HEAVY | {"numpy"}) - {"rich"}),
    (LOADS, HEAVY - {"numba"}),
]


@pytest.mark.parametrize(("code", "others"), BRINGS, ids=["core", "commands", "protocols"])
def test_nothing_heavy_is_loaded_before_it_is_needed(
    code: str, others: set[str], tmp_path: Path
) -> None:
    result = python(f"{code}; import sys; print({others} & set(sys.modules))", tmp_path)
    assert result.stdout.strip() == "set()", result.stderr


def test_a_run_brings_what_it_needs(tmp_path: Path) -> None:
    """No other protocol, no adversary, no Flower: an inline run of one protocol."""
    others = HEAVY - {"matplotlib", "numba", "pyarrow", "rich", "scipy.optimize"}
    code = f"""
import sys
from simulations.cli.main import main
small = ["--nodes", "5", "--population.n_users", "50"]
sys.argv = ["fedhist", "run", "quickstart", "--runtime", "inline", *small]
try:
    main()
except SystemExit as end:
    assert end.code == 0, end.code
print({others} & set(sys.modules))
print(sorted(m for m in sys.modules if m.startswith("simulations.adversaries.hostile")))
print(sorted(m for m in sys.modules if m.startswith("server.means.")))
"""
    result = python(code, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-3:] == ["set()", "[]", "[]"]


def test_the_picture_of_the_layers_is_that_of_the_contracts() -> None:
    """Run ``make docs`` after a change of the contracts, or of what lies in clients and server."""
    drawn = runpy.run_path(str(ROOT / "docs" / "layers_picture.py"))
    assert drawn["PICTURE"].read_text(encoding="utf-8") == drawn["picture"]()


# What cannot live below what it speaks of: the importing file, and what it imports.
TYPED = [("fedhist.users.shards", "fedhist.users.batch")]  # its blocks are users


def imports(tree: ast.Module, known: set[str], public: bool) -> set[str]:
    """Modules of ours that a file imports: at its top, inside a function, or for its types."""
    listed = {
        id(inner)
        for node in ast.walk(tree)
        if public and isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    recorded = set()
    for node in ast.walk(tree):
        if id(node) in listed:
            continue
        if isinstance(node, ast.Import):
            recorded |= {a.name for a in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{a.name}" for a in node.names}
            recorded |= (names & known) or {node.module}
    return recorded & known


def test_no_circle_of_files() -> None:
    """A reader would have to hold all of one in the head at once."""
    files = {module_of(f): f for f in FILES}
    public = ("__init__.py", "protocols.py", "testing.py")
    graph = {n: imports(tree_of(f), {*files}, f.name in public) for n, f in files.items()}
    for name, typed in TYPED:
        graph[name].remove(typed)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        raise AssertionError(" -> ".join(e.args[1])) from None
