"""Comparisons: rankings known in closed form, one truth and one budget, failures that count."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhist.model import registry
from fedhist.model.registry import protocol_class
from fedhist.privacy.guarantee import Adjacency, gaussian_multiplier
from fedhist.users.keys import Keys
from simulations.populations.synthetic import Zipf
from simulations.studies.cells import Record
from simulations.studies.compared import Compared, run_study
from simulations.studies.contenders import Ready, set_up
from simulations.studies.levels import other_adjacency
from simulations.studies.losses import Exact
from simulations.studies.study import load_study
from simulations.studies.summary import Line, ranked

PLUGIN = Path(__file__).with_name("histograms.py")
HEAD = f"""
[run]
runtime = "inline"
seed = 5
plugins = ["{PLUGIN}"]
"""
ZIPF = """
[population]
kind = "zipf"
n_users = 300
d = 40
exponent = 0
mean_items = {items}
tail = {tail}
seed = 3
"""


@pytest.fixture(autouse=True, scope="module")
def _leave_no_plugin() -> Iterator[None]:
    yield
    for name in ("test-moody", "test-shares", "test-stubborn", "test-greedy"):
        registry._protocols.pop(name, None)


def written(folder: Path, compare: str, *, items: float = 60, tail: str = "inf") -> Path:
    path = folder / "mine.toml"
    path.write_text(HEAD + "[compare]\n" + compare + ZIPF.format(items=items, tail=tail))
    return path


def compared(path: Path | str, *overrides: str) -> Compared:
    return run_study(load_study(path, overrides))


def ready_of(path: Path | str, *overrides: str) -> Ready:
    return set_up(load_study(path, overrides).points[0][1])


def shown(found: Compared) -> str:
    return found.written("txt").decode()


def histograms(*rows: str, more: str = "") -> str:
    entries = ",\n".join(f"{{ {row} }}" for row in rows)
    return f"epsilon = 1.0\ndelta = 1e-6\nseeds = 20\n{more}\nprotocols = [\n{entries}]\n"


LAPLACE = 'name = "bounded-histogram", delta = 0, nonneg = false, clip = {}, label = "Laplace"'
GAUSSIAN = 'name = "bounded-histogram", nonneg = false, clip = {}, label = "Gaussian"'


@pytest.mark.parametrize(("items", "l2", "first"), [(60, 20.0, "Gaussian"), (4, 4.0, "Laplace")])
def test_a_ranking_that_is_known(tmp_path: Path, items: int, l2: float, first: str) -> None:
    """Nobody is clipped; under replacement the sensitivities are 2 C in l1 and sqrt(2) C in l2.

    An absolute deviation's standard deviation is less than its mean: of 40 items and 20 seeds,
    the relative standard error is at most 1 / sqrt(800). Five of them: a false alarm in 10^6.
    """
    users = Zipf(n_users=300, d=40, exponent=0, mean_items=items, tail=math.inf, seed=3).load()
    counts = users.users.counts
    owner = np.repeat(np.arange(300), np.diff(counts.indptr))
    assert np.sqrt(np.bincount(owner, counts.count.astype(float) ** 2)).max() <= l2
    rows = histograms(LAPLACE.format(items), GAUSSIAN.format(l2))
    result = compared(written(tmp_path, rows, items=items))
    sigma = math.sqrt(2) * l2 * gaussian_multiplier(1.0, 1e-6)
    expected = {"Laplace": 40 * 2 * items, "Gaussian": 40 * sigma * math.sqrt(2 / math.pi)}
    assert [r.label for r in result.lines] == sorted(expected, key=lambda k: expected[k])
    assert [r.rank for r in result.lines] == [1, 2]
    assert result.lines[0].label == first
    for row in result.lines:
        assert row.mean == pytest.approx(expected[row.label], rel=5 / math.sqrt(800))
        assert row.predicted == pytest.approx(expected[row.label], rel=1e-6)
        assert {(r.guarantee["adjacency"], r.guarantee["epsilon"]) for r in row.records} == {
            ("replace-user", 1.0)
        }


def record(seed: int, loss: float | None, **more: Any) -> Record:
    known = {"label": "x", "status": "failed" if loss is None else "ok", "loss_name": "l1"}
    return Record(f"k{seed}", loss=loss, **(known | more))


def test_the_order_of_rows() -> None:
    def row(label: str, *losses: float | None, flags: tuple[str, ...] = ()) -> Line:
        return Line(label, "x", flags=flags, records=tuple(map(record, range(len(losses)), losses)))

    rows = [
        row("flagged", 0.1, 0.1, flags=("NOT PRIVATE",)),
        row("never", None, None),
        row("sometimes", None, 0.2),
        row("second", 2.0, 2.0),
        row("first", 1.0, 1.5),
        row("not a number", math.nan, 1.0),
    ]
    result = [(r.rank, r.label) for r in ranked(rows)]
    assert result == [
        (1, "first"),
        (2, "second"),
        (3, "not a number"),
        (4, "sometimes"),
        (None, "never"),
        (None, "flagged"),
    ]


def test_failed_runs_are_counted(tmp_path: Path) -> None:
    """Each run fails where its first count is above the true one: with probability 1/2."""
    exact = Zipf(n_users=300, d=40, exponent=0, mean_items=60, tail=math.inf, seed=3).load()
    first = float(exact.users.counts.count[exact.users.counts.item == 0].sum())
    moody = f'name = "test-moody", clip = 1, nonneg = false, delta = 0, most = {first}'
    rows = histograms(
        GAUSSIAN.format(20), moody.replace("clip = 1,", 'clip = 60, label = "moody",')
    )
    result = compared(written(tmp_path, rows))
    good, bad = result.lines
    assert (good.label, bad.label, bad.rank) == ("Gaussian", "moody", 2)
    values = [r.loss for r in bad.records]
    assert 0 < bad.missing["failed"] < 20
    assert bad.missing["failed"] == values.count(None)
    assert bad.mean == pytest.approx(np.mean([x for x in values if x is not None]))
    assert f"{bad.missing['failed']} of 20 runs failed" in " ".join(shown(result).split())
    never = compared(written(tmp_path, rows.replace(str(first), "-1e9")))
    assert (never.lines[-1].rank, never.lines[-1].mean) == (None, None)
    assert never.written("png").startswith(b"\x89PNG")


def test_who_is_flagged_and_who_is_left_out(tmp_path: Path) -> None:
    rows = histograms(
        GAUSSIAN.format(20),
        'name = "test-greedy", clip = 20',
        'name = "test-shares", clip = 20',
        'name = "bounded-histogram", clip = 20, adjacency = "add-remove-user", label = "add"',
        'name = "bounded-histogram", clip = "c-star", label = "C*"',
        'name = "bounded-histogram", clip = 60, epsilon = inf, label = "no noise"',
    )
    result = compared(written(tmp_path, rows), "compare.seeds=2")
    assert {r.label for r in result.lines if r.rank} == {"Gaussian"}
    flags = {r.label: r.flags for r in result.lines}
    assert flags["no noise"] == ("NOT PRIVATE",)
    assert "read the data" in flags["C*"][0]
    left = dict(result.about["left_out"])
    assert left.keys() == {"test-greedy", "test-shares", "add"}
    assert "(2, 1e-06)-DP" in left["test-greedy"]
    assert "add-remove-user" in left["add"]
    assert "differ" in left["test-shares"]
    with pytest.raises(ValueError, match="test-stubborn"):
        ready_of(written(tmp_path, histograms('name = "test-stubborn", clip = 20')))


def test_a_null_safe_protocol_says_the_same_of_adding() -> None:
    """And of emptying; where the number of users is public nothing is said of adding."""
    quantiles, histogram = (protocol_class(n).example() for n in ("quantiles", "bounded-histogram"))
    add_remove, zero_out = Adjacency.ADD_REMOVE_USER, Adjacency.ZERO_OUT_USER
    assert quantiles.guarantee.adjacency is Adjacency.REPLACE_USER
    assert other_adjacency(zero_out, quantiles) == other_adjacency(zero_out, histogram) == ""
    assert "under replace-user, not" in other_adjacency(add_remove, quantiles)
    assert "under zero-out-user, not" in other_adjacency(add_remove, histogram)
    for stated in (quantiles, histogram):
        hidden = replace(stated, adjacency=add_remove.value)
        assert other_adjacency(add_remove, hidden) == other_adjacency(zero_out, hidden) == ""


def test_a_target_takes_all_that_can_be_configured(tmp_path: Path) -> None:
    """Users of equal and of ragged sizes: all of them estimate the average of users."""
    compare = 'target = "distribution"\nepsilon = 4.0\ndelta = 1e-6\nseeds = 1\n'
    given = "[protocol]\nsamples_per_user = 60\n"
    for tail in ("inf", "2.0"):
        ready = ready_of(written(tmp_path, compare + given, tail=tail))
        kept = {c.protocol.name: c.flags for c in ready.contenders}
        left = dict(ready.left_out)
        everybody = {n for n, cls in registry.protocols().items() if cls.target == "distribution"}
        assert kept.keys() | left.keys() == everybody
        assert kept["distribution"] == kept["ragged-distribution"] == ()
    one = 'protocols = [{ name = "ragged-distribution" }]\n'
    ready = ready_of(written(tmp_path, compare + one))  # no samples_per_user
    assert "samples_per_user" in dict(ready.left_out)["distribution"]
    without = written(tmp_path, compare + 'without = ["ragged-distribution"]\n' + given)
    assert "compare.without" in dict(ready_of(without).left_out)["ragged-distribution"]


def test_a_prediction_in_another_loss_is_dropped() -> None:
    losses = {"l1": 3.0, "l2": 2.0, "squared l2": 4.0, "linf": 1.5}
    one = record(0, 4.0, loss_name="mse", losses=losses, predicted=5.0, predicted_kind="exact")
    squared, l1 = one.in_loss("squared l2"), one.in_loss("l1")
    assert (squared.loss, squared.predicted, squared.predicted_kind) == (4.0, 5.0, "exact")
    assert (l1.loss, l1.predicted) == (3.0, None)
    items = replace(one, loss_name="squared l2", target="histogram", more={"entries": 20})
    assert items.in_loss("l1").predicted == pytest.approx(math.sqrt(2 / math.pi * 20 * 5))
    assert (replace(one, losses={}).in_loss("l1").status) == "error"
    assert record(0, None).in_loss("l2").loss is None


def test_truths_are_matched_by_item() -> None:
    a = Exact(np.array([1.0, 2.0, 0.0]), Keys.of(["x", "y", "z"]))
    b = Exact(np.array([2.0, 1.0]), Keys.of(["y", "x"]))
    assert a.same(b)
    assert b.same(a)
    assert not a.same(Exact(np.array([2.0, 1.0, 1e-3]), Keys.of(["y", "x", "w"])))
    assert Exact(np.zeros(2), None).gap(Exact(np.zeros(3), None)) == math.inf
    infinite = Exact(np.array([math.inf]), None)
    assert not infinite.same(infinite)
