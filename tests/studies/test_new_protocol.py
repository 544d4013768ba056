"""``fedhist new-protocol``: the files that it writes work, and their own tests pass."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from fedhist.model.registry import load_plugin, protocol_class
from simulations.audit.audited import audit_all
from simulations.audit.bounds import ALPHA
from simulations.audit.finding import Settings
from simulations.runs.config import load_config, prepare
from simulations.studies.start.protocol_files import protocol_files

NAME = "skeleton-of-a-test"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("new")
    for file, text in protocol_files(NAME).items():
        (place / file).write_text(text, encoding="utf-8")
    load_plugin(place / "skeleton_of_a_test.py")
    return place


def test_no_word_of_the_template_is_left(folder: Path) -> None:
    for file in folder.glob("*.*"):
        assert not re.search("NAME|CLASS|FILE", file.read_text(encoding="utf-8").split("-->")[0])
        assert max(map(len, file.read_text(encoding="utf-8").splitlines())) <= 100


def test_its_own_tests_pass(folder: Path) -> None:
    path = folder / "test_skeleton_of_a_test.py"
    spec = importlib.util.spec_from_file_location("skeletons_tests", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    tests = [f for name, f in vars(module).items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()


def test_it_is_audited(folder: Path) -> None:
    found = audit_all([protocol_class(NAME).example()], Settings(0.01, 0, ALPHA, ()))
    assert {f.kind for f in found.findings} >= {"exact", "statistical"}
    assert not found.violated


def test_its_study_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert prepare(load_config("skeleton_of_a_test.toml")).protocol.name == NAME


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Holders", "small letters and digits, with hyphens between: got 'Holders'"),
        ("../x", "small letters"),
        ("mean", "there is a protocol 'mean' already"),
        ("lambda", "a word of Python"),
    ],
)
def test_names_that_cannot_be(name: str, told: str) -> None:
    with pytest.raises(ValueError, match=re.escape(told)):
        protocol_files(name)


@pytest.mark.parametrize("name", ["fedhist", "numpy", "json", "simulations"])
def test_no_file_is_in_the_way_of_a_package(name: str) -> None:
    """Python would import it in place of the package, from any folder that it lies in."""
    with pytest.raises(ValueError, match=rf"^{name}\.py would stand in the way"):
        protocol_files(name)
