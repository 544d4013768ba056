"""Levels of trust in comparisons and plans: who stands where, what must be believed, in figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedhist.privacy.guarantee import Trust
from simulations.studies.compared import Compared, run_study
from simulations.studies.contenders import Ready, set_up
from simulations.studies.levels import levels_of, premise_of
from simulations.studies.losses import restated
from simulations.studies.study import Comparison, load_study

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
    return run_study(load_study(path, overrides))


def comparison_of(path: Path, *overrides: str) -> Comparison:
    return load_study(path, overrides).points[0][1]


def ready_of(path: Path, *overrides: str) -> Ready:
    return set_up(comparison_of(path, *overrides))


def text_of(found: Compared) -> str:
    return found.written("txt").decode()


def test_rows_stand_on_their_levels(tmp_path: Path) -> None:
    """One users, one truth, one loss; ranks are among the rows of a level, the ladder's order."""
    found = compared(written(tmp_path, '["local", "central"]'))
    assert [(r.level, r.rank, r.title, r.label) for r in found.lines] == [
        ("central", 1, "sums", "sums, central"),
        ("local", 1, "oracle", "oracle, local"),
    ]
    assert {r.loss_name for r in found.records} == {"l1"}
    assert {r.guarantee["adjacency"] for r in found.records} == {"replace-user"}
    first, last = found.lines
    assert first.mean is not None
    assert last.mean is not None
    times = dict(zip(found.table["protocol"], found.table["times"], strict=True))
    assert times["sums"] == 1
    assert times["oracle"] == pytest.approx(last.mean / first.mean)
    assert [r.believed.short for r in found.lines if r.believed] == [("the server",), ("nobody",)]


def test_all_four_levels(tmp_path: Path) -> None:
    """Every level has a row, under one budget; a report of a larger epsilon is what hides."""
    found = compared(written(tmp_path))
    assert [(r.level, r.rank) for r in found.lines] == [(t.value, 1) for t in Trust]
    assert not found.about["unreached"]
    shuffled = found.lines[2]
    assert shuffled.believed is not None
    assert {(r.guarantee["epsilon"], r.guarantee["delta"]) for r in shuffled.records} == {
        (1.0, 1e-6)
    }
    first, second = shuffled.believed.short
    assert first == "a shuffler, 1,800 users"  # of 2,000, a tenth of whom may stay away
    assert float(second.removeprefix("else ").removesuffix("-DP")) > 2
    text = " ".join(text_of(found).split())
    assert "C, A, S, L: central, aggregate, shuffle, local trust." in text
    fewer = ready_of(written(tmp_path), "protocol.tau=0.4")
    least = [c for c in fewer.contenders if c.level is Trust.SHUFFLE]
    assert premise_of(least[0].protocol).short[0] == "a shuffler, 1,200 users"


def test_one_adjacency_and_known_levels(tmp_path: Path) -> None:
    for trust, told in (
        ('["centrla"]', "compare.trust must be a list of levels of trust .*'central'"),
        ('"everybody"', "got 'everybody'"),
        ("[]", "got an empty one"),
        ("[3]", "got 3"),
    ):
        with pytest.raises(ValueError, match=told):
            load_study(written(tmp_path, trust))
    with pytest.raises(ValueError, match=r"compare.adjacency must be 'replace-user', got 'zero"):
        load_study(written(tmp_path), ["compare.adjacency=zero-out-user"])
    with pytest.raises(ValueError, match=r"trust of sums: 'local' is not among compare.trust"):
        load_study(written(tmp_path, '["central"]', ', trust = "local"'))
    with pytest.raises(ValueError, match=r"sums: it runs under central or aggregate trust, not lo"):
        load_study(written(tmp_path, central=', trust = ["central", "local"]'))
    with pytest.raises(ValueError, match=r"trust of oracle must be a list .* got 'loca'"):
        load_study(written(tmp_path, local=', trust = ["loca"]'))


def test_nothing_on_the_levels(tmp_path: Path) -> None:
    path = written(tmp_path, '["shuffle"]')
    path.write_text(
        path.read_text().replace('{ name = "frequency-oracle", label = "oracle" },', "")
    )
    with pytest.raises(ValueError, match=r"shuffle: none of these protocols has users randomize"):
        ready_of(path)


def test_a_row_may_name_its_levels(tmp_path: Path) -> None:
    path = written(tmp_path, '["central", "local"]', ', trust = ["central"]', ', trust = "local"')
    comparison = comparison_of(path)
    assert [(e.label, e.level) for e in comparison.entries] == [
        ("sums, central", Trust.CENTRAL),
        ("oracle, local", Trust.LOCAL),
    ]


def test_levels_are_read_in_the_order_of_the_ladder() -> None:
    assert levels_of(["local", "central", "local"], "x") == (Trust.CENTRAL, Trust.LOCAL)
    assert levels_of("shuffle", "x") == (Trust.SHUFFLE,)
    assert levels_of(Trust.AGGREGATE, "x") == (Trust.AGGREGATE,)


def test_without_levels_nothing_is_said_of_them(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace(f"trust = {ALL}\n", ""))
    found = compared(path)
    assert {r.level for r in found.lines} == {""}
    assert "must be believed" not in text_of(found)
    assert "C, L: central, local trust." in " ".join(text_of(found).split())


def test_losses_that_follow_from_others() -> None:
    """E|X| of a normal X of variance 4 is 2 sqrt(2 / pi), for each of 25 entries of variance 4."""
    assert restated(100.0, "squared l2", "l1", 25, "items") == pytest.approx(25 * 1.5957691216)
    assert restated(4.0, "squared l2", "l1", 1, "coordinates") == pytest.approx(1.5957691216)
    assert restated(4.0, "squared l2", "l1", 2, "coordinates") is None
    assert restated(4.0, "linf", "l1", 1, "items") is None


HISTOGRAMS = """
[run]
runtime = "inline"
seed = 3
nodes = 10

[compare]
epsilon = 1.0
delta = 1e-6
seeds = 4
trust = ["central", "aggregate", "local"]
protocols = [
    { name = "bounded-histogram", clip = 3, delta = 0, label = "clipped" },
    { name = "unbounded-histogram", clip = 3 },
]

[protocol]
tau_d = 0.2

[population]
kind = "zipf"
n_users = 400
d = 3
mean_items = 3
tail = inf
seed = 1
"""


def test_what_must_be_believed(tmp_path: Path) -> None:
    """Of 10 nodes 2 drop out and 1 colludes: 7 are certain; a level without rows says why."""
    path = tmp_path / "ladder.toml"
    path.write_text(HISTOGRAMS)
    found = compared(path)
    rows = {(r.level, r.title): r for r in found.lines}
    row = rows["aggregate", "clipped"]
    assert row.believed is not None
    assert row.believed.short == ("7 of 10 nodes", "tau = 0.2 + 0.1")
    assert {r.trust for r in row.records} == {"aggregate"}
    why = "none of these protocols has users randomize a report"
    assert found.about["unreached"] == {"local": why}
    text = " ".join(text_of(found).split())
    assert "local: not reached; none of these protocols" in text
    assert "unbounded-histogram, aggregate: unbounded-histogram does not run under" in text
    saved = {r["label"]: r for r in found.document()["lines"]}
    assert saved["clipped, aggregate"]["level"] == "aggregate"
    assert saved["clipped, aggregate"]["believed"]["short"][0] == "7 of 10 nodes"


def test_the_figure_draws_what_the_table_says(tmp_path: Path) -> None:
    """Marks stand at the rows' means, in the column of their level, and nothing else does."""
    path = tmp_path / "ladder.toml"
    path.write_text(HISTOGRAMS)
    found = compared(path)
    (axes,) = found.figure().axes
    marks = [(x, y) for c in axes.containers for x, y in zip(*c.lines[0].get_data(), strict=True)]
    assert sorted(y for _, y in marks) == sorted(r.mean for r in found.lines if r.mean is not None)
    columns = [found.about["levels"][round(x)] for x, _ in marks]
    assert sorted(columns, key=[t.value for t in Trust].index) == [r.level for r in found.lines]
    names = [t.get_text().partition("\n")[0] for t in axes.get_xticklabels()]
    assert names == ["CENTRAL", "AGGREGATE", "LOCAL"]
    written = [t.get_text() for t in axes.texts]
    assert "not reached" in written
    assert axes.get_yscale() == "log"


def test_bad_premises_are_named(tmp_path: Path) -> None:
    path = tmp_path / "ladder.toml"
    path.write_text(HISTOGRAMS)
    with pytest.raises(ValueError, match=r"tau_d must lie in \[0, 0.5\), got 0.5"):
        compared(path, "protocol.tau_d=0.5")
    with pytest.raises(ValueError, match=r"tau_c must be a number, got 'few'"):
        compared(path, "protocol.tau_c=few")
    with pytest.raises(ValueError, match=r"parameter 'tau_d'"):
        compared(path, 'compare.trust=["central"]')


def test_a_sweep_with_trust_as_an_axis(tmp_path: Path) -> None:
    """It is an axis like others: a level that the protocol has not is an error of its cells."""
    path = tmp_path / "sweep.toml"
    head, _, population = HISTOGRAMS.partition("[compare]")
    people = population[population.index("[population]") :]
    body = '{}[sweep]\n"protocol.trust" = {}\n[protocol]\nname = "bounded-histogram"\n{}'
    path.write_text(body.format(head, '["central", "aggregate"]', f"clip = 3\n{people}"))
    found = run_study(load_study(path, ["protocol.epsilon=1.0"]))
    assert [(r.status, r.trust) for r in found.records] == [("ok", "central"), ("ok", "aggregate")]
    path.write_text(body.format(head, '["central", "local"]', f"clip = 3\n{people}"))
    found = run_study(load_study(path, ["protocol.epsilon=1.0"]))
    assert [r.status for r in found.records] == ["ok", "error"]
    assert "central" in found.records[1].reason
