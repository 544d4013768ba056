"""Who writes a protocol sees where it broke: file, line, message, in studies and commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commands import Command

from fedhist.model import registry
from fedhist.model.registry import load_plugin
from simulations.studies.compared import run_study
from simulations.studies.study import load_study

PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
import fedhist as fh
from fedhist.protocols import BoundedHistogram

@fh.register_protocol
@dataclass(frozen=True)
class Broken(BoundedHistogram):
    name: ClassVar[str] = "test-broken"
    where: str = "rounds"

    def __post_init__(self):
        super().__post_init__()
        if self.where == "settings":
            raise ValueError("where must be elsewhere")
        if self.where == "building":
            np.ones(2) + np.ones(3)

    def rounds(self, server):
        estimate = yield from super().rounds(server)
        if self.where == "rounds":
            estimate.value + np.ones(2)
        return estimate

    def truth_of(self, facts):
        return {}["nothing"] if self.where == "truth" else super().truth_of(facts)
"""
STUDY = """
[run]
runtime = "inline"
plugins = ["{plugin}"]
seed = 1
[protocol]
name = "test-broken"
epsilon = 1.0
clip = 5.0
where = "{where}"
[population]
kind = "zipf"
n_users = 60
d = 5
mean_items = 4
[sweep]
"protocol.where" = ["{where}", "nowhere"]
"""


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(PLUGIN)
    load_plugin(path)
    yield path
    registry._protocols.pop("test-broken", None)


def written(plugin: Path, where: str) -> Path:
    path = plugin.with_suffix(".toml")
    path.write_text(STUDY.format(plugin=plugin, where=where))
    return path


def test_a_study_keeps_the_error_and_shows_it(plugin: Path, fedhist: Command) -> None:
    folder = plugin.with_name("out")
    answer = fedhist("compare", written(plugin, "rounds"), "--out", folder)
    assert answer.status == 1
    for text in (answer.out, fedhist("show", folder).out):
        assert "(mine.py, line 24, in rounds)" in " ".join(text.split())
        assert "Traceback" not in text
    shown = fedhist("show", folder, "--debug").out
    assert "Traceback" in shown
    assert "estimate.value + np.ones(2)" in shown


@pytest.mark.parametrize(
    ("where", "line", "name"),
    [("rounds", 24, "rounds"), ("building", 19, "__post_init__"), ("truth", 28, "truth_of")],
)
def test_a_run_names_the_authors_line(
    plugin: Path, fedhist: Command, where: str, line: int, name: str
) -> None:
    answer = fedhist("run", written(plugin, where), "--out", "x")
    assert answer.status == 1
    assert f"(mine.py, line {line}, in {name})" in " ".join(answer.err.split())
    assert "Traceback" not in answer.err
    whole = fedhist("run", plugin.with_suffix(".toml"), "--out", "x", "--debug")
    assert "Traceback" in whole.err


def test_a_comparison_leaves_out_what_breaks(plugin: Path) -> None:
    text = written(plugin, "building").read_text().partition("[protocol]")
    path = plugin.with_suffix(".toml")
    people = text[2][text[2].index("[population]") : text[2].index("[sweep]")]
    head = '[compare]\ntarget = "histogram"\nepsilon = 1.0\ndelta = 1e-6\nseeds = 1\n'
    common = '[protocol]\nclip = 5.0\nwhere = "building"\n'
    path.write_text(text[0] + head + common + people)
    result = run_study(load_study(path))
    left = dict(result.about["left_out"])
    assert "(mine.py, line 19, in __post_init__)" in left["test-broken"]
    assert "bounded-histogram" in {x.label for x in result.lines}


@pytest.mark.parametrize("first", ["import mine", "load_plugin('mine.py')"])
def test_a_plugin_that_is_imported_and_listed_is_loaded_once(plugin: Path, first: str) -> None:
    """Whichever comes first."""
    text = f"""
import sys
from fedhist.model.registry import load_plugin, protocol_class
sys.path.insert(0, "")
{first}
import mine
load_plugin("mine.py")
assert protocol_class("test-broken") is mine.Broken
"""
    subprocess.run([sys.executable, "-c", text], cwd=plugin.parent, check=True)
