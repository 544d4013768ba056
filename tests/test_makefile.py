"""What the Makefile installs, with a Python that only writes down what it is asked for."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).resolve().parents[1] / "Makefile"
PYTHON = """#!/bin/sh
echo "$2" >> log
[ "$2" = venv ] || exit 0
mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
[ -e ensurepip ]
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_an_environment_that_was_not_made_to_its_end_is_made_again(tmp_path: Path) -> None:
    shutil.copy(MAKEFILE, tmp_path)
    (tmp_path / "pyproject.toml").touch()
    python = tmp_path / "python3"
    python.write_text(PYTHON, encoding="utf-8")
    python.chmod(0o755)

    def make(*targets: str) -> tuple[int, list[str]]:
        (tmp_path / "log").write_text("", encoding="utf-8")
        ready = [f".venv/.ready{t}" for t in targets]
        command = ["make", "PYTHON=./python3", *ready]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
        return done.returncode, (tmp_path / "log").read_text(encoding="utf-8").split()

    assert make("") == (2, ["venv"])  # as Debian's without python3-venv: bin/python is there
    (tmp_path / "ensurepip").touch()
    assert make("-test") == (0, ["venv", "pip"])
    assert make("", "-test") == (0, [])
