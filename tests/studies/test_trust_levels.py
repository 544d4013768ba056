"""Levels of trust in comparisons and plans: who stands where, what must be believed, in figures."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from fedhist.privacy.guarantee import Trust
from simulations.studies.compare.config import load_comparison
from simulations.studies.compare.run import Compared, run_comparison
from simulations.studies.compare.setup import set_up
from simulations.studies.compare.tables import least_error, print_comparison, times
from simulations.studies.plan.planner import plan, plan_levels
from simulations.studies.plan.template import template_of
from simulations.studies.records.levels import levels_of
from simulations.studies.records.metrics import restated

FILE = """
[run]
runtime = "inline"
seed = 3
nodes = 10

[compare]
epsilon = 1.0
delta = 1e-6
seeds = 4
trust = {trust}
protocols = [
    {{ name = "distribution", mechanism = "laplace", delta = 0, label = "sums"{central} }},
    {{ name = "frequency-oracle", label = "oracle"{local} }},
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
ALL = '["central", "aggregate", "shuffle", "local"]'


def written(folder: Path, trust: str = ALL, central: str = "", local: str = "") -> Path:
    path = folder / "ladder.toml"
    path.write_text(FILE.format(trust=trust, central=central, local=local))
    return path


def compared(path: Path, *overrides: str) -> Compared:
    return run_comparison(set_up(load_comparison(path, overrides)), workers=0)


def text_of(found: Compared) -> str:
    console = Console(file=io.StringIO(), width=80, highlight=False)
    print_comparison(console, found)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_rows_stand_on_their_levels(tmp_path: Path) -> None:
    """One users, one truth, one loss; ranks are among the rows of a level, the ladder's order."""
    found = compared(written(tmp_path, '["local", "central"]'))
    assert [(r.level, r.rank, r.title, r.label) for r in found.rows] == [
        (Trust.CENTRAL, 1, "sums", "sums, central"),
        (Trust.LOCAL, 1, "oracle", "oracle, local"),
    ]
    assert {r.loss_name for r in found.records} == {"l1"}
    assert {r.adjacency for r in found.records} == {"replace-user"}
    first, last = found.rows
    least = least_error(found, None)
    assert least == first.mean
    assert first.mean is not None
    assert last.mean is not None
    assert times(first, least) == "1.00"
    assert float(times(last, least)) == pytest.approx(last.mean / first.mean, rel=0.06)
    assert [r.believed.short for r in found.rows if r.believed] == [("the server",), ("nobody",)]


def test_one_adjacency_and_known_levels(tmp_path: Path) -> None:
    for trust, told in (
        ('["centrla"]', "compare.trust must be a list of levels of trust .*'central'"),
        ('"everybody"', "got 'everybody'"),
        ("[]", "got an empty one"),
        ("[3]", "got 3"),
    ):
        with pytest.raises(ValueError, match=told):
            load_comparison(written(tmp_path, trust))
    with pytest.raises(ValueError, match=r"compare.adjacency must be 'replace-user', got 'zero"):
        load_comparison(written(tmp_path), ["compare.adjacency=zero-out-user"])
    with pytest.raises(ValueError, match=r"trust of sums: 'local' is not among compare.trust"):
        load_comparison(written(tmp_path, '["central"]', ', trust = "local"'))
    with pytest.raises(ValueError, match=r"trust of oracle must be a list .* got 'loca'"):
        load_comparison(written(tmp_path, local=', trust = ["loca"]'))


def test_a_row_may_name_its_levels(tmp_path: Path) -> None:
    path = written(tmp_path, '["central", "local"]', ', trust = ["central"]', ', trust = "local"')
    comparison = load_comparison(path)
    assert [(e.label, e.level) for e in comparison.entries] == [
        ("sums, central", Trust.CENTRAL),
        ("oracle, local", Trust.LOCAL),
    ]
    assert comparison.to_dict()["compare"]["trust"] == ["central", "local"]


def test_levels_are_read_in_the_order_of_the_ladder() -> None:
    assert levels_of(["local", "central", "local"], "x") == (Trust.CENTRAL, Trust.LOCAL)
    assert levels_of("shuffle", "x") == (Trust.SHUFFLE,)
    assert levels_of(Trust.AGGREGATE, "x") == (Trust.AGGREGATE,)


def test_without_levels_nothing_is_said_of_them(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace(f"trust = {ALL}\n", ""))
    found = compared(path)
    assert {r.level for r in found.rows} == {None}
    assert "must be believed" not in text_of(found)
    assert "C, L: central, local trust. bytes" in " ".join(text_of(found).split())


def test_a_plan_of_levels_is_that_of_each() -> None:
    """Solved under each level by the same search; all in the loss of the first protocol."""
    config = template_of("distribution", ["population.mean_items=1", "protocol.samples_per_user=1"])
    names = ["distribution", "frequency-oracle"]
    answers = plan_levels(config, names, (Trust.CENTRAL, Trust.LOCAL), 0.3)
    alone = plan(config, 0.3)
    assert [(a.level, a.label) for a in answers] == [
        (Trust.CENTRAL, "distribution"),
        (Trust.LOCAL, "frequency-oracle"),
    ]
    assert answers[0].x == alone.x
    assert {a.loss for a in answers} == {"l1"}
    assert answers[1].x is not None
    assert alone.x is not None
    assert answers[1].x > alone.x


def test_a_level_without_a_protocol_says_why() -> None:
    answers = plan_levels(template_of("unary"), ["unary-encoding"], (Trust.CENTRAL,), 0.1)
    assert [(a.x, a.reason) for a in answers] == [
        (None, "none of these protocols has a server draw noise")
    ]


def test_losses_that_follow_from_others() -> None:
    """E|X| of a normal X of variance 4 is 2 sqrt(2 / pi), for each of 25 entries of variance 4."""
    assert restated(100.0, "squared l2", "l1", 25, "items") == pytest.approx(25 * 1.5957691216)
    assert restated(4.0, "squared l2", "l1", 1, "coordinates") == pytest.approx(1.5957691216)
    assert restated(4.0, "squared l2", "l1", 2, "coordinates") is None
    assert restated(4.0, "linf", "l1", 1, "items") is None
