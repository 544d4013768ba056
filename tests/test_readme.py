"""README and docs are true: their commands and Python run in order, and print what they show.

Every page is run in a folder of its own. README's commands are processes, as a reader's are; those
of the docs run in this process, over one Ray, where starting would take longer than running. Blocks
of ``sh`` and ``python`` are run; a block whose first line is a comment with a file name is written
to that file instead. A block of ``text`` that follows one directly is what it prints, up to times
and places; a line "..." stands for any lines.
A marker before a block, such as ``<!-- deploy -->``, excepts it.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXCEPTED = {
    "setup": "installs or runs the whole test suite",
    "data": "needs a file that does not come with fedhist",
    "cluster": "needs a running Ray cluster",
    "deploy": "needs Flower's own processes",
    "again": "runs what other blocks run, with other settings",
    "slow": "takes a minute on an idle machine",
}
BLOCK = re.compile(
    r"^(?:<!-- (?P<marker>[a-z]+) -->\n)?```(?P<language>[a-z]+)\n(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
FILE = re.compile(r"# (?P<name>[\w-]+\.(?:py|toml))\n")
SECONDS, TIME = re.compile(r"\d+\.\d\d s\b"), re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
SEC = re.compile(r"^( *(?:\d+|-)  [CL]  \S.*?) +(?:<\.01|\d+(?:\.\d\d)?)$")
PLACE = re.compile(r"written to /.*/results/")


@dataclass(frozen=True)
class Block:
    """One fenced block: where it starts, what it is, and what it should print."""

    line: int
    language: str
    body: str
    marker: str | None
    output: str | None


def blocks(text: str) -> Iterator[Block]:
    """Read the fenced blocks; the text block right behind one is its output."""
    found = list(BLOCK.finditer(text))
    for here, after in zip(found, [*found[1:], None], strict=False):
        shown = None
        if after is not None and after["language"] == "text":
            shown = after["body"] if not text[here.end() : after.start()].strip() else None
        line = text.count("\n", 0, here.start()) + 1
        yield Block(line, here["language"], here["body"], here["marker"], shown)


def run_shell(body: str, folder: Path) -> str:
    """Run commands as a reader would, with this environment's ``fedhist``; what they print."""
    paths = (str(Path(sys.executable).parent), os.environ["PATH"])
    environment = os.environ | {"PATH": os.pathsep.join(paths), "COLUMNS": "80"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", body],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"exit status {done.returncode}:\n{done.stdout}")
    return done.stdout


@pytest.fixture(scope="module")
def here() -> Iterator[None]:
    """Let commands run in this process, 80 columns wide."""
    from simulations.cli import terminal

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        patch.setattr(terminal, "console", Console(width=80, highlight=False))
        patch.setattr(terminal, "errors", Console(width=80, highlight=False, stderr=True))
        yield


def run_here(body: str, folder: Path) -> str:
    """Run commands in this process, other lines in a shell; what they print."""
    printed = ""
    for line in body.replace("\\\n", "").splitlines():
        name, *arguments = shlex.split(line, comments=True)
        if name != "fedhist":
            printed += run_shell(line, folder)
            continue
        match arguments:
            case [*arguments, "||", "echo", str(otherwise)]:
                status, said = call_fedhist(arguments, folder)
                printed += said + (otherwise.replace("$?", str(status)) + "\n" if status else "")
                continue
            case [*arguments, ">", str(file)]:
                status, said = call_fedhist(arguments, folder)
                (folder / file).write_text(said, encoding="utf-8")
            case _:
                status, said = call_fedhist(arguments, folder)
                printed += said
        if status:
            raise AssertionError(f"exit status {status}:\n{said}")
    return printed


def call_fedhist(arguments: list[str], folder: Path) -> tuple[int, str]:
    """Call the entry point of ``fedhist``; its exit status and what it prints."""
    from simulations.cli import main as cli

    printed, status = io.StringIO(), 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        patch.setattr(sys, "argv", ["fedhist", *arguments])
        try:
            cli.main()
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return status, printed.getvalue()


def run_python(body: str, folder: Path, names: dict[str, Any]) -> str:
    """Run Python in the names of the blocks before it; what it prints."""
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        exec(compile(body, "page.md", "exec"), names)
    return printed.getvalue()


def run_block(
    block: Block, folder: Path, names: dict[str, Any], *, processes: bool = False
) -> str | None:
    """Write the block to its file, or run it; None if there was nothing to run."""
    named = FILE.match(block.body)
    if block.marker is not None:
        return None
    if named is not None:
        (folder / named["name"]).write_text(block.body, encoding="utf-8")
        return None
    if block.language == "sh":
        return (run_shell if processes else run_here)(block.body, folder)
    if block.language == "python":
        return run_python(block.body, folder, names)
    return None


def lines_of(text: str) -> list[str]:
    """Lines without what differs between runs: times, places, empty lines."""
    text = PLACE.sub("written to results/", TIME.sub("TIME", SECONDS.sub("# s", text)))
    return [SEC.sub(r"\1 #", line.rstrip()) for line in text.splitlines() if line.strip()]


def shows(expected: str, printed: str) -> bool:
    """Say whether the output is as expected, where "..." stands for any lines."""
    parts = [r"(?:.*\n)*?" if e == "..." else re.escape(e + "\n") for e in lines_of(expected)]
    return re.fullmatch("".join(parts), "".join(p + "\n" for p in lines_of(printed))) is not None


def test_every_marker_is_known() -> None:
    """A misspelt marker would except a block without a reason."""
    found = [b for page in PAGES for b in blocks(page.read_text(encoding="utf-8"))]
    assert {b.marker for b in found if b.marker is not None} <= EXCEPTED.keys()
    assert len([b for b in found if b.marker is None and b.language in ("sh", "python")]) >= 10
    assert {b.language for b in found} <= {"sh", "python", "text", "toml"}


def test_every_link_leads_somewhere() -> None:
    """Links to files exist, and so do the headings that they name."""
    for page in [*PAGES, *sorted((ROOT / "docs").glob("*/*.md"))]:
        text = page.read_text(encoding="utf-8")
        for target in re.findall(r"\]\((?!https?:)([^)]+)\)", BLOCK.sub("", text)):
            name, _, heading = target.partition("#")
            file = (page.parent / name) if name else page
            assert file.exists(), f"{page.name} links to {target}"
            if heading:
                titles = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE)
                known = {re.sub(r"[^\w\- ]", "", t.lower()).replace(" ", "-") for t in titles}
                assert heading in known, f"{page.name} links to {target}"


def test_output_is_compared() -> None:
    """The comparison of this file notices another number, and skips what may differ."""
    assert shows("a 1\n...\nb 2.00 s\n", "a 1\n\nx\ny\nb 3.14 s  \n")
    assert shows(" 1  C  central  5.0  231  0.01\n", " 1  C  central  5.0  231  <.01 \n")
    assert not shows(" 1  C  central  5.0  231  0.01\n", " 1  C  central  5.1  231  0.01\n")
    assert not shows("a 1\n", "a 2\n")
    assert not shows("a 1\n...\n", "b\na 1\n")


@pytest.mark.readme
@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
@pytest.mark.usefixtures("here", "one_ray")
def test_the_page_runs(page: Path, tmp_path: Path) -> None:
    """Every block that is not excepted runs, and prints what the page shows."""
    names: dict[str, Any] = {}
    for block in blocks(page.read_text(encoding="utf-8")):
        where = f"{page.name}, line {block.line}"
        try:
            printed = run_block(block, tmp_path, names, processes=page.name == "README.md")
        except Exception as error:
            pytest.fail(f"{where}: {error}")
        if printed is not None and block.output is not None:
            assert shows(block.output, printed), f"{where} prints\n{printed}"
