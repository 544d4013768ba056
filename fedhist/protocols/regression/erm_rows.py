"""Results rows of ``user-level-erm``: predictions against runs."""

from __future__ import annotations

from typing import Any

from fedhist.model.results import ResultsRow, within


def rows() -> tuple[ResultsRow, ...]:
    """Each oracle, and the fewest users with which a run makes sense."""

    def row(label: str, n: int = 2000, **more: Any) -> ResultsRow:
        given = {"epsilon": 1.0, "delta": 1e-6, "dimension": 10, "radius": 3.0, "spread": 0.8}
        given |= {"gradient_bound": 5.0, "smoothness": 1.2, "strong_convexity": 0.8}
        people: dict[str, Any] = {
            "kind": "regression",
            "n_users": n,
            "samples_per_user": 20,
            "noise": 0.5,
        }
        people["dimension"] = 10
        return ResultsRow(label, {**given, "steps": 10, **more}, people, 400, within(0.1))

    fixed = "n=2000 d=10 m=20 eps=1 fixed, discrete"
    average = "n=2000 d=10 m=20 eps=1 tracked, average"
    edge = "EDGE n=400 d=10 m=20 eps=1 (noise as long as r)"
    few: dict[str, Any] = {
        "epsilon": 4.0,
        "delta": 1e-6,
        "dimension": 20,
        "radius": 5.0,
        "spread": 0.3,
    }
    few |= {"gradient_bound": 5.0, "smoothness": 1.1, "strong_convexity": 0.9}
    few |= {"oracle": "few-users", "steps": 3, "step": 0.9}
    people: dict[str, Any] = {
        "kind": "regression",
        "n_users": 80,
        "samples_per_user": 2500,
        "noise": 0.5,
    }
    people |= {"dimension": 20, "theta": 0.7}
    points = "n=80 d=20 m=2500 eps=4 few-users"
    return (
        row("n=2000 d=10 m=20 eps=1 tracked"),
        row(fixed, oracle="fixed", discrete=True),
        row(average, iterate="average", steps=20),
        row(edge, 400),
        ResultsRow(points, few, people, 40, within(0.1), may_fail=True),
    )
