"""What README and the pages of docs print: run again, and written or compared.

``python docs/printed.py`` (a part of ``make docs``) runs the pages and writes what they print now;
``--check`` compares instead. The blocks of ``sh`` and ``python`` of a page run in order, in an
empty folder; a block whose first line is a comment with a file name is written to that file. A
block of ``text`` right behind one is what it prints, and a line "..." stands for lines left out. A
marker before a block, such as ``<!-- deploy -->``, excepts it.

Words and numbers are compared as they are printed, up to blanks: all runs are seeded. What differs
by machine has its tolerance in MACHINE.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

from PIL import Image
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
CONSOLES = ("console", "errors")
HOME = "/home/ann"  # what pages show in place of the folder in which they run
EXCEPTED = {
    "setup": "installs or runs the whole test suite",
    "data": "needs a file that does not come with fedhist",
    "cluster": "needs a running Ray cluster",
    "deploy": "needs Flower's own processes",
    "again": "runs what other blocks run, with other settings",
    "slow": "takes a minute on an idle machine",
}
MACHINE = {
    r"\b\d+\.\d\d(?= s\b)": 120,  # seconds, up to so many more or less
    r"\b\d+\.\d(?= MB\b)": 5,  # a page with the scripts of another version
    r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b": None,  # a date, any
}
FIGURES = {
    "README.md": {"decide.png": "results/decision/figure.png"},
    "decide.md": {"decide-events.png": "results/decision/figure.png"},
    "estimators.md": {"central-local.png": "results/central-local/figure.png"},
    "privacy.md": {"trust.png": "results/trust/figure.png"},
}  # written with the page whose run draws them
BLOCK = re.compile(
    r"(?sm)^(?:<!-- (?P<marker>[a-z]+) -->\n)?```(?P<language>[a-z]+)\n(?P<body>.*?)^```$"
)
FILE = re.compile(r"# (?P<name>[\w-]+\.(?:py|toml))\n")


def same(shown: str, printed: str) -> bool:
    """Say whether two outputs are the same, up to blanks and what differs by machine."""
    for pattern, tolerance in MACHINE.items():
        if tolerance is not None:
            pairs = zip(re.findall(pattern, shown), re.findall(pattern, printed), strict=False)
            if any(abs(float(a) - float(b)) > tolerance for a, b in pairs):
                return False
    return squeezed(masked(shown)) == squeezed(masked(printed))


def masked(text: str) -> str:
    """Return a text without the numbers that differ by machine."""
    return re.sub("|".join(MACHINE), "#", text)


def squeezed(text: str) -> str:
    """Return a text with single blanks and short rules: columns may be wider elsewhere."""
    return re.sub(r"─+", "─", " ".join(text.split()))


def renewed(shown: str, printed: str) -> str:
    """Return what a page should show of what is printed now: all, or the parts that it showed."""
    text = re.sub(r"\n{3,}", "\n\n", re.sub(r" +$", "", printed, flags=re.MULTILINE))
    lines = [line + "\n" for line in text.strip("\n").splitlines()]
    old = {masked(line): line for line in shown.splitlines(keepends=True)}
    lines = [old.get(masked(line), line) for line in lines]  # other times alone are no news
    if not re.search(r"^\.\.\.$", shown, re.MULTILINE):
        return shown if same(shown, "".join(lines)) else "".join(lines)
    alike, parts, start = [re.sub(r"\d", "", squeezed(line)) for line in lines], list[str](), 0
    for k, part in enumerate(re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE)):
        if k and part:  # what is before the first "..." stands at the beginning
            first = re.sub(r"\d", "", squeezed(part.partition("\n")[0]))
            if first not in alike[start:]:
                raise ValueError(f"no line {first!r} (up to digits) is printed now, but\n{printed}")
            start = alike.index(first, start)
        now = "".join(lines[start : start + part.count("\n")])
        parts.append(part if same(part, now) else now)
        start += part.count("\n")
    return "...\n".join(parts)


def outputs(text: str) -> list[str]:
    """Return the outputs that stand in the text of a page."""
    return [after["body"] for _, after in blocks(text) if after is not None]


def blocks(text: str) -> Iterator[tuple[re.Match[str], re.Match[str] | None]]:
    """Read the fenced blocks, each with the output right behind it."""
    matches = list(BLOCK.finditer(text))
    for here, after in zip(matches, [*matches[1:], None], strict=False):
        if here["marker"] is not None and here["marker"] not in EXCEPTED:
            raise ValueError(f"marker {here['marker']!r} is none of {', '.join(EXCEPTED)}")
        if here["marker"] or after is None or text[here.end() : after.start()].strip():
            after = None
        yield here, after if after is not None and after["language"] == "text" else None


def run_page(page: Path, folder: Path) -> str:
    """Run a page in a folder; return its text with what it prints now."""
    from fedhist.model import registry
    from simulations.cli import terminal

    registry.load_builtin()
    before = {name: dict(getattr(registry, name)) for name in ("_protocols", "_queries")}
    consoles: dict[str, Any] = {
        n: Console(width=80, highlight=False, stderr=n == "errors") for n in CONSOLES
    }
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    environment = patch.dict(os.environ, COLUMNS="80", PATH=path)
    text = page.read_text(encoding="utf-8")
    with environment, patch.multiple(terminal, **consoles), contextlib.chdir(folder):
        try:
            return run_blocks(page.name, text)
        finally:  # what a page registers is forgotten
            for name, entries in before.items():
                getattr(registry, name).clear()
                getattr(registry, name).update(entries)


def run_blocks(page: str, text: str) -> str:
    """Run the blocks of a page."""
    parts, end, names = list[str](), 0, dict[str, Any]()
    for block, after in blocks(text):
        where = f"{page}, line {text.count(chr(10), 0, block.start()) + 1}"
        printed = run_block(block, names, where).replace(str(Path.cwd()), HOME)
        if after is not None:
            parts += [text[end : after.start("body")], renewed(after["body"], printed)]
            end = after.end("body")
    return "".join([*parts, text[end:]])


def run_block(block: re.Match[str], names: dict[str, Any], where: str) -> str:
    """Write a block to its file, or run it; return what it prints."""
    if block["marker"] is not None:
        return ""
    if (file := FILE.match(block["body"])) is not None:
        Path(file["name"]).write_text(block["body"], encoding="utf-8")
    elif block["language"] == "sh":
        return "".join(map(run_line, block["body"].replace("\\\n", "").splitlines()))
    elif block["language"] == "python":
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(block["body"], where, "exec"), names)
        return printed.getvalue()
    return ""


def run_line(line: str) -> str:
    """Run ``fedhist`` in this process, where Ray is up; what a shell is needed for, in one."""
    from simulations.cli import main as cli

    words, printed, status = shlex.split(line, comments=True), io.StringIO(), None
    if words[:1] != ["fedhist"] or {">", "|", "||", "&&"} & set(words):
        bash = ["bash", "-euo", "pipefail", "-c", f"exec 2>&1; {line}"]
        return subprocess.run(bash, check=True, text=True, stdout=subprocess.PIPE).stdout
    out, err = contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed)
    with patch.object(sys, "argv", words), out, err:
        try:
            cli.main()
        except SystemExit as ended:
            status = ended.code
    if status:
        raise RuntimeError(f"{line}: exit status {status}:\n{printed.getvalue()}")
    return printed.getvalue()


def run_example(script: Path, picture: Path) -> None:
    """Run a script of the gallery, which draws one picture."""
    subprocess.run([sys.executable, script, picture], check=True, cwd=ROOT)


def main() -> None:
    """Write or compare the pages that are named, or all."""
    from simulations.runtimes.ray_start import start_ray

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    parser.add_argument("pages", nargs="*", type=Path, default=PAGES)
    given, stale = parser.parse_args(), 0
    start_ray(2, None)
    for page in map(Path.resolve, given.pages):
        before = page.read_text(encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            after = run_page(page, Path(folder).resolve())
            if not given.check and before != after:
                page.write_text(after, encoding="utf-8")
                for name, made in FIGURES.get(page.name, {}).items():
                    with Image.open(Path(folder, made)) as figure:
                        picture = figure.convert("RGB").reduce(2).quantize(256)
                        picture.save(ROOT / "docs" / "images" / name, optimize=True)
        for a, b in zip(outputs(before), outputs(after), strict=True):
            if a != b:
                stale += 1
                lines = (a.splitlines(keepends=True), b.splitlines(keepends=True))
                print("".join(difflib.unified_diff(*lines, page.name, "printed now")))
    for script in () if given.check or given.pages != PAGES else EXAMPLES:
        run_example(script, ROOT / "docs" / "images" / f"{script.stem}.png")
    if given.check and stale:
        sys.exit(f"{stale} outputs are not what is printed: make docs writes them")


if __name__ == "__main__":
    main()
