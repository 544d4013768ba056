"""Requests of the least size for every experiment, and their results, which all tests share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from simulations.experiments.experiment import Findings, Request, experiment

SMALL: Mapping[str, Mapping[str, Any]] = {
    "table1": {"clip_step": 50, "readings": {"fitted": {"epsilon": 0.1, "rates": "fitted"}}},
    "user-complexity": {"repeats": 1},
    "phase-transition": {"repeats": 4},
    "local-dimension": {
        "least_runs": 2,
        "coordinates": 8,
        "edge_coordinates": 16,
        "users": 10_240,
    },
    "sparse-selection": {
        "selection_runs": 1,
        "dimensions": [100, 1000],
        "fold_dimensions": [4, 1000],
        "threshold_runs": 1,
    },
    "few-users-error": {"repeats": 2},  # one draw in a hundred fails, as planned
    "cover-rates": {"runs": 2, "n": [80, 140], "sparse_n": [110, 140, 170]},
    "clipping-theorems": {
        "users": 500,
        "items": 50,
        "clips": [1, 16],
        "debiased_clips": [2, 4],
        "runs": 2,
        "runs_users": 1000,
    },
    "erm-rates": {"runs": 1, "few_m": [300, 600], "few_runs": 1},
    "ragged-users": {
        "size_users": 6000,
        "size_runs": 1,
        "m_max": 256,
        "median": 16,
        "dense_medians": [16, 32],
        "sparse_users": 2000,
    },
    "rate-tables": {"box_T": [16, 64], "density_n": 600, "density_T": [16, 32]},
}
"""Settings below those of [quick]: they measure every quantity of the configurations, badly."""


def small(name: str, **changes: Any) -> Request:
    e = experiment(name)
    request = e.request(population=e.without_file[0], quick=True, seed=3)
    return replace(request, settings={**request.settings, **SMALL.get(name, {}), **changes})


@cache
def result_of(name: str) -> Findings:
    return experiment(name).run(small(name))
