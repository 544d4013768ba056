"""Results rows of distributions under local privacy."""

from __future__ import annotations

import math
from typing import Any

from fedhist.model.results import ResultsRow, within

MUST_REACH: tuple[tuple[float, int, int, float, float, float, str], ...] = (
    # l1, n, k, epsilon, T, exponent of Zipf, users
    (0.089, 20_000, 37, 3.0, 1, 1.0, "alike"),
    (0.090, 20_000, 37, 3.0, 4, 1.0, "alike"),
    (0.069, 20_000, 37, 3.0, 16, 1.0, "alike"),
    (0.033, 20_000, 37, 3.0, 64, 1.0, "alike"),
    (0.46, 20_000, 100, 1.0, 16, 1.0, "alike"),
    (0.206, 20_000, 100, 1.0, 256, 1.0, "alike"),
    (0.153, 6_000, 37, 1.5, 50, 1.3, "alike"),
    (0.110, 20_000, 20, 1.5, 50, 1.0, "dirichlet"),
)
PREDICTED = (
    # n, k, epsilon, T
    (4_000, 16, 2.0, 30.0),
    (20_000, 50, 1.0, 100.0),
    (2_000, 37, 4.0, 4.0),
)


def rows() -> tuple[ResultsRow, ...]:
    """Errors that must be reached, predictions of the stages, and of the folds."""
    projected = "n=32000 k=16 T=1000 eps=1, folds, projected"
    return (
        *(_reached(*line) for line in MUST_REACH),
        *(_predicted(*line) for line in PREDICTED),
        _folds("n=16000 k=8 T=100 eps=1, folds", (16_000, 8, 100), 60, 0.6, False),
        _folds(projected, (32_000, 16, 1000), 30, 0.5, True),
        _folds("EDGE n=3500 k=8 T=100 eps=1, folds", (3500, 8, 100), 200, 0.4, True),
    )


def _zipf(n: int, k: int, T: float, exponent: float = 1.0, users: str = "alike") -> dict[str, Any]:
    people = {"kind": "zipf", "n_users": n, "d": k, "exponent": exponent, "users": users}
    return people | {"mean_items": T, "tail": math.inf}


def _reached(
    l1: float, n: int, k: int, epsilon: float, T: float, exponent: float, users: str
) -> ResultsRow:
    label = f"n={n} k={k} T={T:g} eps={epsilon:g} Zipf({exponent:g}) {users}, at most {l1:g}"
    given = {"epsilon": epsilon, "samples_per_user": T}
    people = _zipf(n, k, T, exponent, users)
    return ResultsRow(label, given, people, 20, (0.5, 1.15), anew=True, expected=l1)


def _predicted(n: int, k: int, epsilon: float, T: float) -> ResultsRow:
    given = {"epsilon": epsilon, "samples_per_user": T}
    label = f"n={n} k={k} T={T:g} eps={epsilon:g}"
    return ResultsRow(label, given, _zipf(n, k, T), 30, within(0.15), anew=True)


def _folds(
    label: str, size: tuple[int, int, int], repeats: int, least: float, project: bool
) -> ResultsRow:
    n, k, T = size
    people = {"kind": "items", "n_users": n, "d": k, "items": T}
    given = {"epsilon": 1.0, "samples_per_user": T, "project": project, "method": "folds"}
    return ResultsRow(label, given, people, repeats, (least, 1.1), anew=True)
