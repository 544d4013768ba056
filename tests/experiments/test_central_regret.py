"""The map of central protocols: its cells know the truth of their own users.

Truths are compared with what protocols compute by other code; sizes with their law within six
standard errors (a false alarm has probability below 2e-9 each). The seeds are fixed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from small_requests import result_of, small

from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.registry import parameters, protocol_class
from simulations.experiments.central_regret import (
    AREA,
    HIDDEN,
    RAGGED,
    SIZES,
    USERS,
    CentralCell,
    cells_of,
    pareto_sizes,
    run,
)
from simulations.experiments.heat_maps import write_maps
from simulations.experiments.regret import AGAIN, measure


def default_of(cell: CentralCell) -> Protocol:
    """The default of the configuration at a cell."""
    how = dict(small("central-regret").settings["methods"][cell.target]["default"])
    cls = protocol_class(str(how.pop("protocol")))
    names = set(parameters(cls)) - set(cell.not_meant)
    return cls(**{k: v for k, v in cell.public.items() if k in names}, **how)


def cell_of(target: str, users: str, n: int = 400) -> CentralCell:
    hidden = HIDDEN.get(target, ("replace-user",))[0]
    return CentralCell(target, n, 12, 2.0, 1e-6, users, SIZES[target][0], hidden)


TARGETS = sorted(small("central-regret").settings["methods"])


@pytest.mark.parametrize("users", USERS)
@pytest.mark.parametrize("target", TARGETS)
def test_cells_know_the_truth_of_their_users(target: str, users: str) -> None:
    cell = cell_of(target, users)
    people, truth = cell.draw(np.random.default_rng(5))
    assert len(people) == cell.n
    protocol = default_of(cell)
    value = np.linspace(0.1, 0.3, cell.size)
    if target == "quantiles":
        assert cell.loss(value, truth) == pytest.approx(
            protocol.loss_of(Estimate.ok(value), people), abs=1e-12
        )
    else:
        keys = protocol.support(people)
        if keys is None:
            own = protocol.truth(people)
        else:
            own = Estimate.ok(protocol.truth(people), keys=keys).over(cell.public["domain"]).value
        assert truth == pytest.approx(own, abs=1e-9)
        assert cell.loss(truth, truth) == 0
    assert 0 < cell.trivial(truth) < 2500  # 50 squared for means far from the middle
    again, same = cell.draw(np.random.default_rng(5))
    assert np.array_equal(people.ids, again.ids)
    assert np.array_equal(truth, same)


def test_pareto_sizes_have_their_median() -> None:
    x = pareto_sizes(np.random.default_rng(1), 40_000, 100)
    below = (x < 100).mean()
    assert below == pytest.approx(0.5, abs=6 * 0.5 / 200 + 0.01)  # a size is rounded
    assert (x > 400).mean() == pytest.approx(0.5 * 4**-1.2, abs=6 * 0.3 / 200 + 0.001)
    assert x.max() <= 20_000


def test_users_who_hold_more_have_another_taste() -> None:
    cell = cell_of("ragged-distribution", "tied", n=3000)
    people, truth = cell.draw(np.random.default_rng(2))
    pooled = np.bincount(people.counts.item, people.counts.count, cell.size)
    assert np.abs(pooled / pooled.sum() - truth).sum() > 0.2


def test_cells_are_those_that_exist() -> None:
    request = small("central-regret", n=[300, 100_000], m=[1, 1000], cells=10**6, delta=[1e-6])
    for target in TARGETS:
        cells = cells_of(target, request)
        assert cells
        assert all(c.n * c.m <= 4_000_000 for c in cells)
        assert {c.users for c in cells} == set(USERS)
        assert all(("samples_per_user" in c.not_meant) == (target in RAGGED) for c in cells)
        assert len({str(c) for c in cells}) == len(cells)


def test_maps_are_files(tmp_path: Path) -> None:
    result = result_of("central-regret")
    write_maps(result.maps, tmp_path)
    for target in TARGETS:
        table = pl.read_csv(tmp_path / f"map-{target}.csv")
        assert table["regret"].min() >= 1
        assert all(math.isfinite(x) for x in table["default loss"])


def test_unknown_targets_are_refused() -> None:
    with pytest.raises(ValueError, match=r"targets must be among .*, got 'median'"):
        run(small("central-regret", targets=["median"]))


def test_a_prediction_that_looks_wrong_is_judged_by_more_runs() -> None:
    """One run in twelve clips the outliers away, and is most of the mean: few runs miss it."""
    request = small("central-regret")
    methods = {"default": request.settings["methods"]["mean"]["default"]}
    cell = CentralCell("mean", 2000, 100, 1.0, 1e-6, "outliers", 1, "replace-user")
    settings = request.settings | {"repeats": 4, "most_repeats": 40}
    found = measure(replace(request, seed=4, settings=settings), cell, methods, AREA)
    assert len(found.losses["default"]) == 4  # without another method the regret is known
    assert len(found.own) == AGAIN * 40
    assert not found.mispredicted
    first = replace(found, own=found.losses["default"])
    assert first.mispredicted
    assert first.ratio < 0.25  # .21: what four runs find
