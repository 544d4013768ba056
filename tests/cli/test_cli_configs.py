"""Every configuration that comes with fedhist loads, and runs where its data are."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from commands import Command

from fedhist.model.registry import load_builtin, own_protocols, protocol_class
from simulations.cli.lists import starts_of
from simulations.config.reading import builtin_names
from simulations.runs.config import (
    configs_of,
    load_config,
    missing_keys,
    population_spec,
    prepare,
)

DATA = os.environ.get("FEDHIST_DATA", "")
real_data = pytest.mark.skipif(not DATA, reason="FEDHIST_DATA names no folder of real data")


@pytest.mark.parametrize("name", builtin_names())
def test_built_in_configurations_load(name: str, tmp_path: Path) -> None:
    config = load_config(name)
    if missing_keys(config):
        with pytest.raises(ValueError, match=r"needs path: give --set population\.path=FILE"):
            population_spec(config)
        config = load_config(name, [f"population.path={tmp_path / 'absent.tsv'}"])
        assert population_spec(config).kind == config.population["kind"]
    else:
        prepared = prepare(config)
        assert prepared.not_private == ()
        assert prepared.config.run.nodes <= len(prepared.plan.users)


def test_every_protocol_has_a_file_to_start_from() -> None:
    """A configuration, or a study that names it or its target."""
    load_builtin()
    for cls in own_protocols().values():
        kind, names = starts_of(cls)
        assert names, cls.name
        assert (kind == "configurations") is (names == configs_of(cls.name))
    assert starts_of(protocol_class("central-mean")) == ("studies", ["mean", "sparse-mean"])


@real_data
def test_lastfm(fedhist: Command) -> None:
    """One user per node; the l1 error is near the formula (its std over runs is 5%; seed fixed)."""
    path = Path(DATA) / "lastfm_user_artists.tsv"
    answer = fedhist(
        "run", "lastfm", "--population.path", path, "--runtime", "inline", "--out", "a"
    )
    assert answer.status == 0, answer.err
    assert "1,892 replies" in answer.out
    assert "100 most frequent items" in answer.out
    secret = json.loads(Path("a/metrics.json").read_text())["NOT PRIVATE"]
    assert secret["measured"] == pytest.approx(secret["predicted"], rel=0.15)  # 3 std
