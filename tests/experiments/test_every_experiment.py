"""Laws of every experiment, each measured once at the least size; the list is the catalogue."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from small_requests import result_of, small

from simulations.experiments.experiment import experiment, names

ROUGH = ("sparse-selection",)
"""So small that a crossing may not be found."""
LOCAL = ("phase-transition", "local-dimension", *ROUGH)


@pytest.mark.parametrize("name", names())
def test_it_measures_and_draws(name: str) -> None:
    """Something finite, that can be drawn; it says what is private and which path it took."""
    result, notes = result_of(name), " ".join(result_of(name).notes)
    assert result.checks
    assert result.curves
    assert name in ROUGH or all(math.isfinite(c.ours) for c in result.checks)
    assert "NOT PRIVATE" in notes
    if name in LOCAL:
        assert "aggregate path" in notes or "clients = aggregate" in notes
        assert (result.what.log, result.undrawn) == ("xy", [])


@pytest.mark.parametrize(
    "name", [n for n in names() if n not in ("figure2", "few-users-error", "table1")]
)
def test_no_expected_value_is_overlooked(name: str) -> None:
    """Every [values] row names a quantity that is measured; a misspelt one would never fail."""
    measured = {(c.setting, c.quantity) for c in result_of(name).checks if c.claim}
    settings = {setting for setting, _ in measured}
    wanted = [({v.setting} if v.setting != "*" else settings, v) for v in small(name).values]
    assert measured == {(s, v.quantity) for some, v in wanted for s in some}


@pytest.mark.parametrize("name", ["figure2", "few-users-error"])
def test_no_expected_value_of_named_sizes_is_overlooked(name: str) -> None:
    sized = {"256 blocks: n": "16 blocks: n", "large n, d = 16,384: n": "large n, d = 64: n"}
    measured = {c.quantity for c in result_of(name).checks}
    assert {sized.get(v.quantity, v.quantity) for v in small(name).values} <= measured


FEW: dict[str, dict[str, Any]] = {
    "few-users-error": {
        "repeats": 1, "dimensions": [16, 32], "n_users": [80], "corrupted": [0.0], "far": [9.0],
        "dimension": 16, "robust_users": 700, "ball_users": 80,
    },
    "user-complexity": {
        "repeats": 1, "regimes": {"dense": {"k": 4, "alpha": 0.1, "m": [4, 8]}},
    },
    "figure1": {},
    "figure4": {"alphas": [0.3, 1000.0]},
}  # fmt: skip


@pytest.mark.parametrize("name", FEW)
def test_a_run_is_a_function_of_its_seed(name: str) -> None:
    """Numbers and curves bit for bit; another seed gives others."""
    request = small(name, **FEW[name])
    run = experiment(name).run
    one = run(request) if FEW[name] else result_of(name)
    two, other = run(request), run(replace(request, seed=4))
    assert [c.ours for c in one.checks] == [c.ours for c in two.checks]
    assert all((x.y == y.y).all() for x, y in zip(one.curves, two.curves, strict=True))
    assert [c.ours for c in one.checks] != [c.ours for c in other.checks]


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        ("figure1", "points=0", "points.* 0"),
        ("figure2", "epsilon=inf", "epsilon.* inf"),
        ("table1", "clip_step=2000", "clip_step"),
        ("table1", 'kinds=["guessed"]', "kinds"),
        ("user-complexity", 'mechanisms=["kss"]', "'kss'"),
    ],
)
def test_settings_that_measure_nothing_are_refused(name: str, change: str, why: str) -> None:
    e = experiment(name)
    with pytest.raises(ValueError, match=why):
        e.run(e.request(population=e.without_file[0], quick=True, overrides=[change]))
