"""The command line, called in this process as its entry point calls it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from commands import PLUGIN, SMALL, Answer, Command
from rich.console import Console

from simulations.cli import main as cli
from simulations.cli import terminal

# endings.py is a plugin, which collecting would register twice; and of the files named conftest.py
# only one can be collected for its docstrings
collect_ignore = ["endings.py", "conftest.py"]


@pytest.fixture
def fedhist(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """Run ``fedhist ARGUMENTS`` in an empty folder, 80 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(terminal, "console", Console(width=80, highlight=False))
    monkeypatch.setattr(terminal, "errors", Console(width=80, highlight=False, stderr=True))

    def command(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["fedhist", *map(str, arguments)])
        capsys.readouterr()
        code: object = 0
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
        out, err = capsys.readouterr()
        return Answer(code if isinstance(code, int) else int(code is not None), out, err)

    return command


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A configuration of 60 users, for the protocol of the plugin."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path


@pytest.fixture
def run(fedhist: Command, small: Path) -> Command:
    """Run ``fedhist run small.toml --plugin endings.py ARGUMENTS``."""
    return lambda *arguments: fedhist("run", small, "--plugin", PLUGIN, *arguments)
