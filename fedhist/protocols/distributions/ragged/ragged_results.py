"""Results rows of distributions from users with different numbers of samples."""

from __future__ import annotations

from typing import Any

from fedhist.model.results import ResultsRow, within

SHOPPERS = {"kind": "shoppers", "n_users": 4000, "d": 50, "mean_items": 12, "exponent": 0.5}
BASE = {"epsilon": 2.0, "delta": 1e-6, "m_max": 128}

MUST_REACH: tuple[tuple[float, str, str], ...] = (
    # l1, mechanism, users; n = 4000, k = 30, Pareto sizes of median 7, epsilon 1
    (0.0147, "frequencies", "alike"),
    (0.0153, "frequencies", "dirichlet"),
    (0.018, "centred", "alike"),
    (0.017, "centred", "dirichlet"),
)


def rows() -> tuple[ResultsRow, ...]:
    """Errors that must be reached, predictions of averages, and of Appendix E."""
    many = {**SHOPPERS, "n_users": 20_000, "d": 10, "mean_items": 100}
    few = {**SHOPPERS, "n_users": 500, "d": 20}
    presence = {**BASE, "mechanism": "presence"}
    select = {**BASE, "m_max": 1000, "mechanism": "ks"}
    edge = {**BASE, "adjacency": "add-remove-user", "mechanism": "presence"}
    return (
        *(_reached(*line) for line in MUST_REACH),
        _average("n=6000 k=12 m=148 eps=.7 auto", "alike", 40),
        _average("n=6000 k=12 m=148 eps=.7 Dirichlet(20) auto", "dirichlet", 40),
        _pareto("EDGE n=300 k=30 eps=1 frequencies, projected", "frequencies", 300),
        ResultsRow("n=4000 k=50 mean m=12 eps=2 presence", presence, SHOPPERS, 100, within(0.1)),
        ResultsRow("n=20000 k=10 mean m=100 eps=2 ks", select, many, 100, within(0.2)),
        ResultsRow("EDGE n=500 k=20 mean m=12 eps=2, n private", edge, few, 200, within(0.15)),
    )


def _sizes(n: int, users: str, **more: Any) -> dict[str, Any]:
    people = {"kind": "zipf", "n_users": n, "d": 30, "mean_items": 23.6, "tail": 1.2}
    return people | {"users": users, "concentration": 20.0, "exponent": 1.0} | more


def _reached(l1: float, mechanism: str, users: str) -> ResultsRow:
    words = f"n=4000 k=30 Pareto sizes eps=1 {users}, {mechanism}, at most {l1:g}"
    given = {"epsilon": 1.0, "delta": 1e-6, "mechanism": mechanism}
    return ResultsRow(words, given, _sizes(4000, users), 40, (0.5, 1.15), expected=l1)


def _average(words: str, users: str, repeats: int) -> ResultsRow:
    people = _sizes(6000, users, d=12, mean_items=148, tail=3.0)
    given = {"epsilon": 0.7, "delta": 1e-5, "m_max": 4096}
    return ResultsRow(words, given, people, repeats, within(0.15))


def _pareto(words: str, mechanism: str, n: int) -> ResultsRow:
    given = {"epsilon": 1.0, "delta": 1e-6, "mechanism": mechanism}
    return ResultsRow(words, given, _sizes(n, "alike"), 100, within(0.1))
