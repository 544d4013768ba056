"""One file holds the parts of several studies, and each command reads its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fedhist.privacy.guarantee import Adjacency, Trust
from simulations.config.parts import STUDIES
from simulations.runs.config import load_config, parse_tables
from simulations.studies.compare.config import load_comparison
from simulations.studies.compare.setup import set_up
from simulations.studies.plan.template import PlanTable, load_plan
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

[plan]
error = 0.1
relative = true
trust = ["central"]

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
    config, asked = load_plan(str(study))
    assert config.to_dict() == load_config(study).to_dict()
    assert asked == PlanTable(error=0.1, relative=True, trust=["central"])
    assert asked.levels == (Trust.CENTRAL,)


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
    config, _ = load_plan(str(study), ['plan.protocols=["bounded-histogram"]'])
    assert config.protocol["name"] == "bounded-histogram"


def test_overrides_are_of_a_part_too(study: Path) -> None:
    _, asked = load_plan(str(study), ["plan.solve=epsilon", "plan.trust=all", "plan.seeds=5"])
    assert (asked.solve, asked.levels, asked.seeds) == ("epsilon", tuple(Trust), 5)


@pytest.mark.parametrize("load", [load_config, load_comparison, load_sweep, load_plan])
def test_a_table_of_nobody_names_the_nearest(study: Path, load: Callable[..., object]) -> None:
    with pytest.raises(ValueError, match=r"unknown table 'comapre'; did you mean 'compare'\?"):
        load(str(study), ["comapre.seeds=1"])


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("plan.eror=1", r"unknown key of \[plan\] 'eror'; did you mean 'error'"),
        ("plan.solve=epsilom", "plan.solve must be one of .*did you mean 'epsilon'"),
        ("plan.error=-1", "plan.error must be positive, got -1"),
        ("plan.seeds=1", "plan.seeds must be a number of runs, at least 2, got 1"),
    ],
)
def test_wrong_keys_of_a_plan(study: Path, override: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        load_plan(str(study), [override])


def test_every_study_is_a_table_that_others_leave(study: Path) -> None:
    for name in STUDIES:
        tables = parse_tables(STUDY)
        assert isinstance(tables[name], dict)
        study.write_text(STUDY + f"\n[{name}.more]\n", encoding="utf-8")
        assert load_config(study).name == "study"
