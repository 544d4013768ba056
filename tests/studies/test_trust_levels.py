"""Levels of trust in comparisons and plans: who stands where, what must be believed, in figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedhist.privacy.guarantee import Trust
from simulations.studies.compared import run_study
from simulations.studies.contenders import Ready, set_up
from simulations.studies.levels import premise_of
from simulations.studies.losses import restated
from simulations.studies.study import load_study

FILE = """
[run]
runtime = "inline"
seed = 3
nodes = 10

[compare]
epsilon = 1.0
delta = 1e-6
seeds = 4
trust = ["local", "central", "aggregate", "shuffle"]
protocols = [
    { name = "distribution", mechanism = "laplace", delta = 0, label = "sums" },
    { name = "frequency-oracle", label = "oracle" },
]

[protocol]
samples_per_user = 1

[population]
kind = "zipf"
n_users = 2000
d = 5
mean_items = 1
tail = inf
seed = 1
"""
ALL = '["local", "central", "aggregate", "shuffle"]'


def written(folder: Path, *changes: str) -> Path:
    text = FILE
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    path = folder / "ladder.toml"
    path.write_text(text)
    return path


def ready_of(path: Path, *overrides: str) -> Ready:
    return set_up(load_study(path, overrides).points[0][1])


def test_all_four_levels(tmp_path: Path) -> None:
    result = run_study(load_study(written(tmp_path)))
    assert [(r.level, r.rank) for r in result.lines] == [(t.value, 1) for t in Trust]
    assert not result.about["unreached"]
    assert {(r.loss_name, r.guarantee["adjacency"]) for r in result.records} == {
        ("l1", "replace-user")
    }
    means = [r.mean or 0.0 for r in result.lines]
    assert result.table["times"].drop_nulls().to_list()[-1] == pytest.approx(means[-1] / means[0])
    shuffled = result.lines[2]
    assert {(r.guarantee["epsilon"], r.guarantee["delta"]) for r in shuffled.records} == {
        (1.0, 1e-6)
    }
    first, second = shuffled.believed.short
    assert first == "a shuffler, 1,800 users"  # of 2,000, a tenth of whom may stay away
    assert float(second.removeprefix("else ").removesuffix("-DP")) > 2
    fewer = ready_of(written(tmp_path), "protocol.tau=0.4")
    least = [c for c in fewer.contenders if c.level is Trust.SHUFFLE]
    assert premise_of(least[0].protocol).short[0] == "a shuffler, 1,200 users"


def test_losses_that_follow_from_others() -> None:
    """E|X| of a normal X of variance 4 is 2 sqrt(2 / pi), for each of 25 entries of variance 4."""
    assert restated(100.0, "squared l2", "l1", 25, "items") == pytest.approx(25 * 1.5957691216)
    assert restated(4.0, "squared l2", "l1", 1, "coordinates") == pytest.approx(1.5957691216)
    assert restated(4.0, "squared l2", "l1", 2, "coordinates") is None
    assert restated(4.0, "linf", "l1", 1, "items") is None


def test_what_must_be_believed(tmp_path: Path) -> None:
    """Of 10 nodes 2 drop out and 1 colludes: 7 are certain; a level without rows says why."""
    others = (', "shuffle"', "", "samples_per_user = 1", "tau_d = 0.2\nclip = 3")
    sums = ('"distribution", mechanism = "laplace"', '"bounded-histogram"', '"sums"', '"clipped"')
    oracle = ('"frequency-oracle", label = "oracle"', '"unbounded-histogram"')
    result = run_study(load_study(written(tmp_path, *others, *sums, *oracle)))
    rows = {(r.level, r.title): r for r in result.lines}
    row = rows["aggregate", "clipped"]
    assert row.believed.short == ("7 of 10 nodes", "tau = 0.2 + 0.1")
    assert {r.trust for r in row.records} == {"aggregate"}
    why = "none of these protocols has users randomize a report"
    assert result.about["unreached"] == {"local": why}
    assert "unbounded-histogram, aggregate" in dict(result.about["left_out"])
    saved = {r["label"]: r for r in result.document()["lines"]}
    assert saved["clipped, aggregate"]["level"] == "aggregate"
    assert saved["clipped, aggregate"]["believed"]["short"][0] == "7 of 10 nodes"


@pytest.mark.parametrize(
    ("change", "overrides", "named"),
    [
        ((ALL, '["centrla"]'), (), "centrla"),
        ((ALL, "[]"), (), "compare.trust"),
        ((ALL, "[3]"), (), "3"),
        ((ALL, '["shuffle"]', "frequency-oracle", "local-distribution"), (), "shuffle"),
        ((), ("compare.adjacency=zero-out-user",), "zero-out-user"),
        ((ALL, '["central"]', '"sums"', '"sums", trust = "local"'), (), "local"),
        (('"sums"', '"sums", trust = ["central", "local"]'), (), "sums"),
        (('"oracle"', '"oracle", trust = ["loca"]'), (), "'loca'"),
        ((), ("protocol.tau_d=0.5",), "tau_d"),
        ((), ("protocol.tau_c=few",), "tau_c"),
        ((ALL, '["central"]'), ("protocol.tau_d=0.1",), "tau_d"),
    ],
)
def test_levels_that_cannot_be_meant(
    tmp_path: Path, change: tuple[str, ...], overrides: tuple[str, ...], named: str
) -> None:
    with pytest.raises(ValueError, match=named):
        ready_of(written(tmp_path, *change), *overrides)
