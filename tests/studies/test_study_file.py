"""One file holds the parts of several studies, and each command reads its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedhist.privacy.guarantee import Adjacency
from simulations.config.parts import STUDIES
from simulations.runs.config import load_config, parse_tables
from simulations.studies.compare.config import load_comparison
from simulations.studies.compare.setup import set_up
from simulations.studies.sweep.config import load_sweep

STUDY = """
[run]
runtime = "inline"
seed = 3

[protocol]
name = "bounded-histogram"
epsilon = 2.0
delta = 1e-6
clip = 20.0
adjacency = "zero-out-user"

[population]
kind = "zipf"
n_users = 300
d = 8
mean_items = 5

[compare]
seeds = 2

[sweep]
"protocol.epsilon" = [1.0, 4.0]

[decide]
target = "histogram"
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "study.toml"
    path.write_text(STUDY, encoding="utf-8")
    return path


def test_each_command_reads_its_own_part(study: Path) -> None:
    assert load_config(study).protocol["epsilon"] == 2.0
    assert [c.protocol["epsilon"] for c in load_sweep(study).cells] == [1.0, 4.0]


def test_a_comparison_takes_target_and_budget_of_the_protocol_that_is_run(study: Path) -> None:
    found = load_comparison(study)
    assert (found.target, found.epsilon, found.delta) == ("histogram", 2.0, 1e-6)
    assert found.adjacency is Adjacency.ZERO_OUT_USER
    assert found.common == {"clip": 20.0}
    assert found.seeds == (3, 4)
    rows = {c.protocol.name for c in set_up(found).contenders}
    assert "bounded-histogram" in rows
    own = load_comparison(study, ["compare.epsilon=1", 'compare.target="mean"'])
    assert (own.target, own.epsilon, own.common) == ("mean", 1.0, {})


def test_without_a_name_the_budget_stands_in_compare_alone(study: Path) -> None:
    study.write_text(STUDY.replace('name = "bounded-histogram"\n', ""), encoding="utf-8")
    with pytest.raises(ValueError, match=r"protocol\.epsilon stands in \[compare\]"):
        load_comparison(study)


@pytest.mark.parametrize("load", [load_config, load_comparison, load_sweep])
def test_a_table_of_nobody_names_the_nearest(study: Path, load: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=r"unknown table 'comapre'; did you mean 'compare'\?"):
        load(str(study), ["comapre.seeds=1"])


def test_every_study_is_a_table_that_others_leave(study: Path) -> None:
    for name in STUDIES:
        tables = parse_tables(STUDY)
        assert isinstance(tables[name], dict)
        study.write_text(STUDY + f"\n[{name}.more]\n", encoding="utf-8")
        assert load_config(study).name == "study"
