"""Configurations for the tests of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import PLUGIN, SMALL, Command

# endings.py is a plugin, which collecting would register twice; and of the files named conftest.py
# only one can be collected for its docstrings
collect_ignore = ["endings.py", "conftest.py"]


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(SMALL, encoding="utf-8")
    return path


@pytest.fixture
def run(fedhist: Command, small: Path) -> Command:
    return lambda *arguments: fedhist("run", small, "--plugin", PLUGIN, *arguments)
