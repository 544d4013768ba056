"""``fedhist new``: the files that it writes work, and their own tests pass."""

from __future__ import annotations

import importlib.util
import math
import re
from pathlib import Path

import numpy as np
import pytest

import fedhist as fh
from fedhist.model.registry import load_plugin, protocols
from simulations.cli.new import KINDS, protocol_files
from simulations.runs.config import load_config, prepare
from simulations.studies.compared import run_study
from simulations.studies.study import load_study


@pytest.fixture(scope="module", params=KINDS)
def name(request: pytest.FixtureRequest) -> str:
    return f"skeleton-of-{request.param}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> Path:
    place = tmp_path_factory.mktemp("new")
    for file, text in protocol_files(name, name.rpartition("-")[2]).items():
        (place / file).write_text(text, encoding="utf-8")
    load_plugin(place / f"{name.replace('-', '_')}.py")
    return place


def test_no_word_of_the_template_is_left(folder: Path) -> None:
    for file in folder.glob("*.*"):
        assert not re.search("NAME|CLASS|FILE", file.read_text(encoding="utf-8").split("-->")[0])
        assert max(map(len, file.read_text(encoding="utf-8").splitlines())) <= 100


def test_its_own_tests_pass(folder: Path) -> None:
    (path,) = folder.glob("test_*.py")
    spec = importlib.util.spec_from_file_location(f"{path.stem}_run", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = [f for result, f in vars(module).items() if result.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()


def test_its_study_is_run(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (file,) = folder.glob("*.toml")
    assert prepare(load_config(file.name)).protocol.name == name
    result = run_study(load_study(file.name, ["compare.seeds=1", "population.n_users=200"]))
    assert [(x.rank, x.setting["protocol.epsilon"]) for x in result.lines] == [
        (1, 0.5), (1, 1), (1, 2)
    ]  # fmt: skip
    for line in result.lines:
        assert line.mean is not None
        assert line.records[0].predicted_kind == "exact"


def test_its_epsilon_is_decided(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the file's own settings; the error is the root of its closed form over the truth."""
    monkeypatch.chdir(folder)
    (file,) = folder.glob("*.toml")
    asked = {
        "target": protocols()[name].target,
        "error": "10%",
        "trust": "local",
        "effort": "quick",
    }
    protocol = fh.decide(file.name, **asked).best("local")
    users = prepare(load_config(file.name)).plan.users
    expected = protocol.error(users).expected
    error = math.sqrt(expected) / float(np.linalg.norm(protocol.truth(users)))
    assert 0.08 < error < 0.105


@pytest.mark.parametrize(
    "name", ["Holders", "../x", "mean", "lambda", "fedhist", "numpy", "json", "simulations"]
)
def test_names_that_cannot_be(name: str) -> None:
    """No protocol or word of Python; nor a package, which the file would be imported for."""
    with pytest.raises(ValueError, match=re.escape(name)):
        protocol_files(name)
