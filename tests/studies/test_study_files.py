"""What a study file stands for: cells of a grid, rows of a comparison, and errors of one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from noted_study import BASE

from fedhist.base.errors import PopulationError
from fedhist.privacy.guarantee import Adjacency
from simulations.config.reading import STUDIES, builtin_names
from simulations.runs.config import load_config, parse_tables
from simulations.studies.cells import Cell
from simulations.studies.compared import plan_of
from simulations.studies.contenders import set_up
from simulations.studies.runner import run_cell
from simulations.studies.study import FOLDER, load_study

COMPARE = """
[run]
seed = 5

[compare]
epsilon = 1.0
delta = 1e-6
seeds = 20
protocols = [
    { name = "bounded-histogram", delta = 0, clip = 60, label = "Laplace" },
    { name = "bounded-histogram", clip = 20, label = "Gaussian" },
]

[population]
kind = "zipf"
n_users = 60
d = 5
mean_items = 4
seed = 2
"""

Write = Callable[[str], Path]


def cells_of(path: Path, *overrides: str) -> list[Cell]:
    return plan_of(load_study(path, overrides))[2]


def values(cells: list[Cell], *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(c, k.split(".")[0]).get(k.split(".")[1]) for k in keys) for c in cells]


def test_all_combinations(write: Write) -> None:
    cells = cells_of(
        write('[sweep]\nprotocol.epsilon = [0.5, 1]\n"population.n_users" = [60, 70]\nseeds = 2\n')
    )
    assert sorted(values(cells, "population.n_users", "protocol.epsilon", "run.seed")) == [
        (n, epsilon, seed) for n in (60, 70) for epsilon in (0.5, 1) for seed in (0, 1)
    ]
    assert len({c.key for c in cells}) == 8


def test_lines_are_settings_without_seeds(write: Write) -> None:
    """Populations of other seeds are runs of one line; an axis of one value is none."""
    text = '[sweep]\nseeds = 2\n"population.seed" = [1, 2]\n'
    text += '"population.d" = [5, 6]\n"protocol.clip" = [1]\n'
    about, lines, cells = plan_of(load_study(write(text)))
    assert set(values(cells, "population.d", "protocol.clip")) == {(5, 1), (6, 1)}
    assert [len(x.keys) for x in lines] == [4, 4]
    assert about["axes"] == ["population.d"]


def test_rows_of_a_sweep_are_labelled(write: Write) -> None:
    rows = "[{ clip = 1 }, { clip = 2, delta = 0 }, { label = 'mine' }]"
    lines = plan_of(load_study(write(f"[sweep]\nprotocols = {rows}\n")))[1]
    assert [x.label for x in lines] == ["test-noted clip=1", "test-noted clip=2 delta=0", "mine"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"\[sweep\]"),
        ("[sweep]\nseed = 3\n", "'seed'"),
        ("[sweep]\nzip = []\n", "'zip'; it is gone"),
        ("[compare]\nfractions = [0.1]\n", "'fractions'; it is gone"),
        ('[sweep]\n"run.workers" = [1]\n', "run.workers"),
        ("[sweep]\nprotocol.epsilon = 1\n", "protocol.epsilon"),
        ("[sweep]\nseeds = 0\n", "sweep.seeds"),
        ("[sweep]\nseeds = [1, -1]\n", "sweep.seeds"),
        ('[sweep]\nseeds = 2\n"run.seed" = [1]\n', "run.seed"),
        ('[sweep]\nprotocols = ["mean"]\n', "sweep.protocols"),
        ("[sweep]\nprotocols = [{ clip = 1 }, { clip = 1 }]\n", "two rows"),
        ("[sweep]\nprotocol.clip = [1, 2]\nprotocol.epsilon = [1, -1]\n", "-1"),
        ("[sweep]\nprotocols = [{ delta = 2.0 }]\n", "test-noted: protocol.delta"),
        ("[budget]\n[sweep]\n", "'budget'"),
        ("[sweep]\nrun.repeats = [2]\n", "run.repeats"),
        ("[sweep\n", "TOML"),
        (f"[sweep]\nprotocol.clip = {list(range(1, 1002))}\nseeds = 1000\n", "1,001,000 cells"),
    ],
)
def test_grids_that_cannot_be_meant(write: Write, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cells_of(write(text))


def test_more_users_than_cells_may_hold_are_refused_before_any(write: Write) -> None:
    with pytest.raises(PopulationError, match="20,000,000"):
        cells_of(write("[sweep]\npopulation.n_users = [60, 20_000_000]\n"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seeds = 20", "seeds = 0"), "compare.seeds"),
        (("seeds = 20", 'adjacency = "replace"'), "compare.adjacency"),
        (("seeds = 20", 'loss = "l3"'), "compare.loss"),
        (("seeds = 20", 'target = "mean"'), "'histogram'"),
        (("seeds = 20", 'without = ["mean"]'), "without"),
        (("[population]", "[protocol]\nclap = 3\n[population]"), "'clap'"),
        (("[population]", "[protocol]\nepsilon = 3\n[population]"), "epsilon"),
        (("seed = 5", "seed = 5\nrepeats = 3"), "seeds"),
        (("[compare]", "[compared]"), "'compared'"),
        (("[population]", "[sweep]\nprotocols = [{}]\n[population]"), "protocols"),
        (("[population]", '[sweep]\n"run.seed" = [1]\n[population]'), "compare.seeds"),
    ],
)
def test_comparisons_that_cannot_be_meant(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    assert change[0] in COMPARE
    path = tmp_path / "mine.toml"
    path.write_text(COMPARE.replace(*change, 1))
    with pytest.raises(ValueError, match=message):
        plan_of(load_study(path))


@pytest.mark.parametrize("epsilon", ["0", "-5", "nan"])
def test_a_budget_that_an_axis_replaces_is_checked(tmp_path: Path, epsilon: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(COMPARE + "[sweep]\nprotocol.epsilon = [0.5, 2]\n")
    with pytest.raises(ValueError, match=f"compare.epsilon must be .* got {epsilon}"):
        load_study(path, [f"compare.epsilon={epsilon}"])


def test_a_grid_of_comparisons(tmp_path: Path) -> None:
    """The axis protocol.epsilon is the common budget; lines of one point are ranked together."""
    path = tmp_path / "mine.toml"
    axes = '[sweep]\n"protocol.epsilon" = [0.5, 2]\n"population.n_users" = [50, 60]\nseeds = 3\n'
    path.write_text(COMPARE.replace("[population]", axes + "[population]"))
    about, lines, cells = plan_of(load_study(path))
    assert about["axes"] == ["protocol.epsilon", "population.n_users"]
    assert [(x.label, *x.setting.values()) for x in lines] == [
        (label, e, n) for e in (0.5, 2) for n in (50, 60) for label in ("Laplace", "Gaussian")
    ]
    assert values(cells[::6], "protocol.epsilon", "population.n_users", "run.seed") == [
        (e, n, 5) for e in (0.5, 2) for n in (50, 60)
    ]
    assert len(cells) == 24


def test_one_file_for_several_commands(tmp_path: Path) -> None:
    """Target, budget and adjacency are those of the protocol that the file runs."""
    path = tmp_path / "study.toml"
    text = BASE.replace("clip = 5.0", 'clip = 5.0\nadjacency = "zero-out-user"')
    path.write_text(text + "[compare]\nseeds = 2\n")
    assert load_config(path).protocol["epsilon"] == 1.0
    ((_, result),) = load_study(path).points
    assert (result.target, result.epsilon, result.delta) == ("histogram", 1.0, 1e-6)
    assert result.adjacency is Adjacency.ZERO_OUT_USER
    assert (result.common, result.seeds) == ({"clip": 5.0}, 2)
    assert "test-noted" in {c.protocol.name for c in set_up(result).contenders}
    ((_, own),) = load_study(path, ["compare.epsilon=2", 'compare.target="mean"']).points
    assert (own.target, own.epsilon, own.common) == ("mean", 2.0, {})
    for name in STUDIES:
        part = "" if name == "compare" else f"[{name}]\n"
        path.write_text(text + "[compare]\nseeds = 2\n" + part)
        assert name in parse_tables(path.read_text())
        assert load_config(path).name == "study"


@pytest.mark.parametrize("name", builtin_names(FOLDER))
def test_built_in_studies_can_be_run(name: str) -> None:
    """Every row that a file names takes part, at fewer users; and its first cell ends well."""
    small = [] if name in ("clip", "corrupted") else ["population.n_users=300"]
    study = load_study(name, small)
    _, lines, cells = plan_of(study)
    for _, comparison in study.points:
        named = {e.label for e in comparison.entries if e.named}
        assert named <= {x.label for x in lines}
    assert len(cells) >= 10
    assert run_cell(cells[0]).status == "ok"
