"""How heavy the packages are, and which files of mechanisms the default of each target passes.

``python docs/weight.py [ROOT]`` counts the tree at ROOT: a line of code holds a token outside
docstrings, comments and imports. ``--write`` runs the defaults and writes the files whose functions
they call into docs/where-things-are.md: those of the rooms, ``clients/*/`` and ``server/*/`` among
them; what lies beside the rooms is the core, which all share. ``--constants`` lists names in
capitals; ``--entered run quickstart --runtime inline`` the files whose functions a command calls.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
LIBRARY = ("fedhist", "clients", "server")
PAGE = ROOT / "docs" / "where-things-are.md"
MARKS = ("<!-- weight.py: begin -->\n", "<!-- weight.py: end -->\n")
ROOMS = ("clients/", "server/")
DEFAULTS = {
    "histogram": "adaptive-histogram",
    "histogram, local": "local-histogram",
    "distribution": "distribution",
    "distribution, local": "local-distribution",
    "distribution, ragged": "ragged-distribution",
    "mean, local": "mean",
    "mean, central": "central-mean",
    "mean in a ball": "mean-l2",
    "sparse mean": "sparse-mean",
    "density": "density",
    "quantiles": "quantiles",
    "few users": "few-users-mean",
}
BLANK = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def code_lines(text: str) -> int:
    """Count the lines of code."""
    left_out, code = set[int](), set[int]()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom) or (
            isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        ):
            left_out |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in BLANK and token.string:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - left_out)


def print_weight(root: Path) -> None:
    """Print files, lines in all and lines of code by package."""
    sums = dict[str, list[int]]()
    for package in (*LIBRARY, "simulations", "tests"):
        texts = [f.read_text(encoding="utf-8") for f in sorted((root / package).rglob("*.py"))]
        lines = sum(len(text.splitlines()) for text in texts)
        sums[package] = [len(texts), lines, sum(map(code_lines, texts))]
    sums[" + ".join(LIBRARY)] = [
        sum(column) for column in zip(*(sums[p] for p in LIBRARY), strict=True)
    ]
    print(f"{'':26}{'files':>8}{'lines':>8}{'code':>8}")
    for package, numbers in sums.items():
        print(f"{package:26}" + "".join(f"{n:8,}" for n in numbers))


def constants(file: Path) -> Iterator[tuple[str, str]]:
    """Walk a file's names in capitals at module level, and what they are."""
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) and node.value else targets
        for target in targets:
            value = node.value  # type: ignore[attr-defined]
            several = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
            pairs = zip(target.elts, value.elts, strict=True) if several else [(target, value)]
            for name, given in pairs:
                if isinstance(name, ast.Name) and re.fullmatch(r"_?[A-Z][A-Z0-9_]+", name.id):
                    yield name.id, ast.unparse(given)


def print_constants(root: Path) -> None:
    """Print the constants of each room, and the names that have several values."""
    rooms, values = defaultdict[str, list[str]](list), defaultdict[str, dict[str, list[str]]](dict)
    for package in LIBRARY:
        for file in sorted((root / package).rglob("*.py")):
            for name, value in constants(file):
                place = file.relative_to(root)
                rooms[str(place.parent)].append(f"{place.stem}.{name}")
                values[name.strip("_")].setdefault(value, []).append(str(place))
    for room, names in rooms.items():
        print(f"{len(names):4} {room}: {', '.join(names)}")
    print(f"{sum(map(len, rooms.values())):4} in all; of one name and different values:")
    for name, places in sorted(values.items()):
        if len(places) > 1:
            print(
                f"     {name}: "
                + "; ".join(f"{v[:40]} ({', '.join(f)})" for v, f in places.items())
            )


def entered(of: Callable[[], object]) -> set[str]:
    """Call something; return the files of the tree whose functions were called."""
    files = set[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # no body of a class
            files.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        of()
    finally:
        sys.setprofile(None)
    mine = (f.removeprefix(f"{ROOT}/") for f in files if f.startswith(f"{ROOT}/"))
    return {f for f in mine if f.startswith((*(f"{p}/" for p in LIBRARY), "simulations/"))}


def passed(name: str) -> list[str]:
    """Run a protocol's example; return the files of rooms whose functions it called."""
    import fedhist as fh
    from fedhist.model.registry import protocol_class

    example, users = protocol_class(name).example(), protocol_class(name).example_users()
    files = entered(lambda: fh.run(example, users, seed=1))
    return sorted(f for f in files if f.startswith(ROOMS) and f.count("/") > 1)


def family_of(name: str) -> str:
    """Return the room of a protocol: "means"."""
    from fedhist.model.registry import protocol_class

    return protocol_class(name).__module__.split(".")[1]


def print_entered(words: list[str]) -> None:
    """Run a command of ``fedhist`` and print the files that it enters, by room."""
    from simulations.cli.main import cli

    files = entered(lambda: cli(words, standalone_mode=False))
    rooms = Counter(str(Path(f).parent) for f in files)
    for room, n in sorted(rooms.items()):
        print(f"{n:4} {room}")
    print(f"{len(files):4} files are entered by fedhist {' '.join(words)}")


def main() -> None:
    """Print the weight, or write the table of files."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--entered", nargs=argparse.REMAINDER, metavar="COMMAND")
    parser.add_argument("root", nargs="?", type=Path, default=ROOT)
    given = parser.parse_args()
    if given.entered:
        print_entered(given.entered)
        return
    (print_constants if given.constants else print_weight)(given.root)
    if given.write:
        table = "| Target | Default | Files of all rooms | Of its family |\n|---|---|---|---|\n"
        for target, name in DEFAULTS.items():
            files, family = passed(name), family_of(name)
            own = [f"`{f}`" for f in files if family in Path(f).parts]
            table += f"| {target} | `{name}` | {len(files)} | {', '.join(own)} |\n"
            print(f"{len(own):3} {len(files):3} {name}")
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
        after = rest.partition(MARKS[1])[2]
        PAGE.write_text(before + MARKS[0] + table + MARKS[1] + after, encoding="utf-8")


if __name__ == "__main__":
    main()
