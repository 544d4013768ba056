"""Laws of every experiment, each measured once at the least size; the list is the catalogue."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_requests import result_of, small

from simulations.experiments.experiment import experiment, names

READ_FILES = ("figure1", "figure2", "figure3", "figure5", "figure6", "table1", "table2")
ROUGH = ("sparse-selection", "density-error", "local-distribution-error")
"""So small that a crossing may not be found."""
LOCAL = ("phase-transition", "local-dimension", *ROUGH)


@pytest.mark.parametrize("name", names())
def test_it_measures_and_draws(name: str) -> None:
    """Something finite, that can be drawn; it says what is private and which path it took."""
    result, notes = result_of(name), " ".join(result_of(name).notes)
    assert result.checks
    assert result.curves
    assert name in ROUGH or all(math.isfinite(c.ours) for c in result.checks)
    assert name in ("figure3", "figure4", "table1") or "NOT PRIVATE" in notes
    assert result.paper in experiment(name).paper
    if name in LOCAL:
        assert "aggregate path" in notes or "clients = aggregate" in notes
        assert (result.log, result.undrawn) == ("xy", ())
        assert experiment(name).paper.endswith(result.paper)


@pytest.mark.parametrize(
    "name", [n for n in names() if n not in ("figure3", "figure6", "refusal-map", "table1")]
)
def test_no_expected_value_is_overlooked(name: str) -> None:
    """Every [values] row names a quantity that is measured; a misspelt one would never fail."""
    measured = {(c.setting, c.quantity) for c in result_of(name).checks if c.claim}
    settings = {setting for setting, _ in measured}
    wanted = [({v.setting} if v.setting != "*" else settings, v) for v in small(name).values]
    assert measured == {(s, v.quantity) for some, v in wanted for s in some}


def test_no_expected_value_of_figure_6_is_overlooked() -> None:
    """Its settings are named by d; the quantities are those of any d."""
    request = small("figure6")
    wanted = experiment("figure6").settings["d"]
    assert {v.setting for v in request.values} == {f"d = {d:,}" for d in wanted}
    measured = {c.quantity for c in result_of("figure6").checks}
    assert {v.quantity for v in request.values} <= measured


FEW: dict[str, dict[str, Any]] = {
    "few-users-error": {
        "repeats": 1, "dimensions": [16, 32], "n_users": [80], "corrupted": [0.0], "far": [9.0],
        "dimension": 16, "robust_users": 700, "ball_users": 80,
    },
    "user-complexity": {
        "repeats": 1, "regimes": {"dense": {"k": 4, "alpha": 0.1, "m": [4, 8]}},
    },
    **{n: {} for n in names() if n.startswith(("figure", "table1"))},
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


@pytest.mark.parametrize("name", [n for n in names() if n not in (*READ_FILES, "figure4")])
def test_a_file_is_refused(name: str, tmp_path: Path) -> None:
    """Where none is read."""
    with pytest.raises(ValueError, match="reads no --data"):
        experiment(name).request(data=tmp_path)


@pytest.mark.parametrize(
    ("name", "changes", "why"),
    [
        ("figure1", {"points": 0}, "points must be a positive integer, got 0"),
        ("figure1", {"points": -3}, "points must be a positive integer, got -3"),
        ("figure2", {"epsilon": math.inf}, "epsilon must be positive and finite, got inf"),
        ("figure2", {"d": ["a"]}, "d must be a positive integer, got 'a'"),
        ("figure2", {"d": []}, r"d must be a list of at least one, got \[\]"),
        ("figure2", {"whole_runs": -1}, "whole_runs must be a non-negative integer, got -1"),
        ("figure5", {"fixed_clip_max": 0.0}, "fixed_clip_max must be positive and finite, got 0.0"),
        (
            "figure6",
            {"epsilon_choice": math.nan},
            "epsilon_choice must be positive and finite, got nan",
        ),
        ("figure4", {"alphas": []}, r"alphas must be a list of at least one, got \[\]"),
        ("figure4", {"populations": 0}, "populations must be a positive integer, got 0"),
        ("table2", {"runs": 0}, "runs must be a positive integer, got 0"),
        ("table1", {"d": []}, r"d must be a list of at least one, got \[\]"),
        (
            "table1",
            {"epsilon_fitted": math.inf},
            "epsilon_fitted must be positive and finite, got inf",
        ),
        ("table1", {"repeats": 0}, "repeats must be a positive integer"),
        ("table1", {"clip_step": 2000}, "clip_step must be at most clip_max"),
        ("table1", {"readings": ["guessed"]}, "readings must be"),
        ("table1", {"d": [0]}, "d must be a positive integer"),
        ("figure3", {"fewer": 0}, "fewer must be a positive integer, got 0"),
        ("few-users-error", {"repeats": 0}, "repeats must be positive, got 0"),
        ("user-complexity", {"repeats": 0}, "repeats must be positive, got 0"),
        ("user-complexity", {"measured": ["kss"]}, "no mechanism 'kss'; did you mean 'ks'"),
        ("refusal-map", {"maps": []}, "at least one map"),
        ("phase-transition", {"repeats": 1}, "repeats must be an integer of at least 2, got 1"),
        ("phase-transition", {"spread": 1.5}, "spread must be at most 1, got 1.5"),
        ("phase-transition", {"epsilon": math.inf}, "epsilon must be positive and finite"),
        ("local-dimension", {"least_runs": 1}, "least_runs must be an integer of at least 2"),
        ("local-dimension", {"spread": 2.0}, "spread must be at most 1, got 2"),
        ("local-dimension", {"dimensions": []}, "dimensions must be a list of at least one"),
        ("density-error", {"energy": 9.0}, "density positive, got 9"),
        *((name, {"epsilon": 0.0}, "epsilon must be positive") for name in ROUGH),
    ],
)
def test_settings_that_measure_nothing_are_refused(
    name: str, changes: dict[str, Any], why: str
) -> None:
    """With the value, before a number is computed."""
    with pytest.raises(ValueError, match=why):
        experiment(name).run(small(name, **changes))
