"""The map of local protocols: its cells, its populations, and what it makes of losses.

Averages over users are compared with a band of six standard errors or more: a false alarm has
probability below 2e-9 each. The seeds are fixed.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small_requests import result_of, small

from fedhist.model.protocol import Estimate
from fedhist.protocols.means.mean import Mean
from fedhist.users.batch import Users
from simulations.experiments.heat_maps import write_maps
from simulations.experiments.local_regret import AREA, SIZES, USERS, LocalCell, cells_of, run
from simulations.experiments.regret import measure, protocols_of, square
from simulations.experiments.regret_axes import Axis
from simulations.experiments.regret_cells import Measured
from simulations.populations.synthetic import numbered_items
from tests.protocols.running import count_table

N, T, EPSILON = [1000, 5000], [1, 4, 30, 0], [0.5, 1.0, 2.0, 4.0, 8.0]


def test_a_fraction_of_the_cells_has_every_value_about_equally_often() -> None:
    cells = cells_of("mean-l2", N, T, EPSILON, 120)
    assert len(set(cells)) == 120
    for values in (
        Counter(c.n for c in cells),
        Counter(c.T for c in cells),
        Counter(c.epsilon for c in cells),
        Counter(c.users for c in cells),
        Counter(c.size for c in cells),
    ):
        assert min(values.values()) > 0.75 * 120 / len(values)
    whole = cells_of("mean", N, T, EPSILON, 10**6)
    assert len(set(whole)) == len(N) * len(T) * len(EPSILON) * len(USERS)
    assert {c.T for c in cells_of("oracle", N, T, EPSILON, 10)} == {1}


def test_ragged_users_are_planned_with_their_harmonic_mean() -> None:
    cell = LocalCell("mean", 40_000, 0, 1.0, "alike", 1)
    sizes = cell.sizes(np.random.default_rng(0))
    assert (sizes.min(), sizes.max()) == (1, 100)
    one = 1 / sizes
    expected = 1 / cell.planned_samples
    assert one.mean() == pytest.approx(expected, abs=6 * one.std() / 200)


def average(cell: LocalCell, users: Users) -> np.ndarray:
    """Average over users of their own means, shares, or shares of cells."""
    if users.items is not None:
        counts = count_table(users, numbered_items(cell.size))
        return (counts / counts.sum(axis=1, keepdims=True)).mean(axis=0)
    if cell.target != "density":
        return users.reals.values.mean(axis=0)
    x = users.reals
    weight = 1 / np.repeat(np.diff(x.indptr), np.diff(x.indptr)) / len(users)
    return np.histogram(x.values[:, 0], np.arange(17) / 16, weights=weight)[0]


@pytest.mark.parametrize("users", USERS)
@pytest.mark.parametrize("target", SIZES)
def test_populations_have_the_truth_on_average(target: str, users: str) -> None:
    cell = LocalCell(target, 4000, 0, 1.0, users, SIZES[target][0], ragged=12)
    people, truth = cell.draw(np.random.default_rng(7))
    assert len(people) == 4000
    if target == "density":
        truth = truth.reshape(16, -1).mean(axis=1) / 16
    # every coordinate of a user has a standard deviation of at most 1
    spread = 1.0 if people.items is None and target != "density" else 0.5
    assert average(cell, people) == pytest.approx(truth, abs=6 * spread / math.sqrt(4000))
    again, _ = cell.draw(np.random.default_rng(7))
    assert np.array_equal(people.ids, again.ids)
    trivial = cell.trivial(cell.draw(np.random.default_rng(7))[1])
    assert 0 < trivial < 2


def found(default: list[float], other: list[float], **facts: float | bool) -> Measured:
    cell = LocalCell("mean", 1000, 30, 1.0, "alike", 1)
    given: dict[str, float | bool] = {
        "predicted": 1.0,
        "flagged": False,
        "trivial": 10.0,
        "refused": 0,
        "close": False,
    }
    given["stated"] = facts.get("predicted", 1.0)
    losses = {"default": np.array(default), "other": np.array(other)}
    return Measured(cell, losses, losses["default"], **(given | facts))  # type: ignore[arg-type]


def test_regret_and_its_error() -> None:
    m = found([2.0, 4.0], [1.0, 2.0])
    assert (m.best, m.regret, m.stderr, m.least) == ("other", 2.0, 0.0, 2.0)  # paired runs
    m = found([2.0, 4.0], [2.0, 1.0])
    assert m.regret == pytest.approx(2.0)
    assert m.stderr == pytest.approx(2 * abs(4 / 3 - 1 / 1.5 - (2 / 3 - 2 / 1.5)) / 2)
    assert m.least == 1.0
    m = found([1.0, 1.1], [2.0, 2.0])
    assert (m.best, m.regret, m.stderr) == ("default", 1.0, 0.0)


@pytest.mark.parametrize(
    ("facts", "off", "worse"),
    [
        ({"predicted": 1.9}, False, False),
        ({"predicted": 1.0}, True, False),
        ({"predicted": 3.0}, True, False),
        ({"predicted": 1.0, "flagged": True}, False, False),
        ({"predicted": math.nan, "trivial": 1.9}, False, True),
        ({"predicted": 1.9, "trivial": 0.5}, False, False),
        ({"predicted": 1.0, "trivial": 0.5}, True, True),
        ({"predicted": 1.9, "trivial": 0.5, "stated": 1.0}, False, True),
    ],
)
def test_predictions_and_the_trivial_answer(
    facts: dict[str, float], off: bool, worse: bool
) -> None:
    m = found([2.0, 2.01, 1.99], [1.0, 1.0, 1.0], **facts)
    assert (m.mispredicted, m.worse_than_trivial) == (off, worse)


@pytest.mark.parametrize(
    ("stated", "unseen", "low"), [(1.0, 0.0, True), (1.8, 0.0, False), (1.0, 1.0, False)]
)
def test_stated_errors_hold_with_what_unseen_users_add(
    stated: float, unseen: float, low: bool
) -> None:
    errors = np.array([[2.0, stated, unseen], [2.02, stated, unseen], [1.98, stated, unseen]])
    m = replace(found([2.0, 2.0], [1.0, 1.0]), errors=errors)
    assert m.stated_ratio == pytest.approx(2 / stated)
    assert m.understated == low
    assert not found([2.0, 2.0], [1.0, 1.0]).understated


def test_methods_get_what_is_public() -> None:
    cell = LocalCell("mean", 1000, 30, 1.0, "alike", 1)
    methods = {"default": {"protocol": "mean"}, "wide": {"protocol": "mean", "mean_scale": 0.3}}
    built = protocols_of(cell, {**methods, "wrong": {"protocol": "mean", "mean_scale": -1.0}})
    assert built["default"] == Mean(1.0, 1000, 30.0, -1.0, 1.0)
    assert list(built) == ["default", "wide"]
    with pytest.raises(ValueError, match="need a 'default'"):
        protocols_of(cell, {"wide": methods["wide"]})
    density = LocalCell("density", 1000, 30, 1.0, "alike", 1)
    assert protocols_of(density, {"default": {"protocol": "density"}})


def test_a_refusal_counts_as_the_trivial_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = Estimate.refused("too few")
    monkeypatch.setattr("simulations.experiments.regret.one_run", lambda *_: refusal)
    cell = LocalCell("mean", 40, 300, 0.5, "alike", 1)
    m = measure(small("local-regret"), cell, {"default": {"protocol": "mean"}}, AREA)
    assert m.refused == 2
    assert m.losses["default"].mean() == pytest.approx(m.trivial)
    assert math.isnan(m.predicted)


def test_a_square_shows_the_largest() -> None:
    one, two = found([2.0, 2.0], [1.0, 1.0]), found([1.0, 1.0], [2.0, 2.0])
    axes: tuple[Axis, Axis] = (("T", lambda c: (c.T, str(c.T))), ("n", lambda c: (c.n, "n")))
    shown = square([two, one], *axes)
    assert (shown.columns, shown.rows, shown.words) == (["30"], ["n"], [["other"]])
    assert shown.values.tolist() == [[2.0]]
    said = found([2.0, 2.0], [1.0, 1.0], close=True)
    assert square([said, one, two], *axes).words == [["other *"]]
    assert (said.row["close call"], one.row["close call"]) == (1.0, 0.0)


def test_maps_are_files(tmp_path: Path) -> None:
    result = result_of("local-regret")
    write_maps(result.maps, tmp_path)
    for target in SIZES:
        table = pl.read_csv(tmp_path / f"map-{target}.csv")
        assert len(table) == 1
        assert table["regret"][0] >= 1
        assert (tmp_path / f"map-{target}.png").stat().st_size > 5000


def test_unknown_targets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"targets must be among mean, .*, got 'median'"):
        run(small("local-regret", targets=["median"]))
