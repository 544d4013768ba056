"""What a shell offers are the names that there are, without what takes a second to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedhist.model.registry import own_protocols
from simulations.cli import completion
from simulations.config.named_files import builtin_names
from simulations.experiments.experiment import names


def test_protocols_are_those_of_the_registry() -> None:
    assert completion.protocols("") == sorted(own_protocols())


def test_names_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").touch()
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "mine.toml").touch()
    assert completion.configs("mi") == ["mine.toml"]
    assert completion.configs("more/m") == ["more/mine.toml"]
    assert completion.configs("absent/m") == []
    assert completion.studies("") == [*builtin_names("studies"), "mine.toml"]
    (tmp_path / "mine.csv.gz").touch()
    (tmp_path / "mine.PARQUET").touch()
    (tmp_path / "mine.png").touch()
    mine = ["mine.PARQUET", "mine.csv.gz", "mine.toml"]
    assert completion.decisions("") == [*builtin_names("decisions"), *mine]


def test_experiments_are_those_of_the_catalogue() -> None:
    assert completion.experiments("") == ["all", *names()]


def test_nothing_heavy_is_imported() -> None:
    code = "import sys; from simulations.cli import completion as c; c.configs('m'); "
    code += "c.experiments(''); c.decisions(''); "
    code += "print({'numpy', 'polars', 'scipy', 'matplotlib'} & set(sys.modules))"
    command = [sys.executable, "-c", code]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == "set()\n"
