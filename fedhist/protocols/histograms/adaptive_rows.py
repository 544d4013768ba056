"""Results rows of ``adaptive-histogram``: predictions against runs."""

from __future__ import annotations

from fedhist.model.results import ResultsRow, within
from fedhist.protocols.histograms.bounded_histogram import SHOPPERS


def rows() -> tuple[ResultsRow, ...]:
    """Predictions for rules by the exponential mechanism, whose law is known."""
    base = {"epsilon": 1.1, "delta": 1e-6}
    laplace = {"epsilon": 1.1, "adjacency": "replace-user", "discrete": True}
    many = {**SHOPPERS, "n_users": 8000, "d": 500, "seed": 2025}
    few = {**SHOPPERS, "n_users": 1000, "d": 100}
    edge = "EDGE n=1000 d=100 eps=1.1 (M below the choice)"
    sizes = {"kind": "zipf", "mean_items": 3, "tail": 3.0, "seed": 3}
    five, thirty, hundred = (
        {**sizes, "n_users": n, "d": d} for n, d in ((300, 5), (1500, 30), (3000, 100))
    )
    sure, part, whole = ({"epsilon": e, "delta": 1e-6} for e in (3.3, 0.7, 1.0))
    return (
        ResultsRow("Pareto 3 n=300 d=5 eps=3.3", sure, five, 1000, within(0.05)),
        ResultsRow("Pareto 3 n=1500 d=30 eps=.7", part, thirty, 600, within(0.05)),
        ResultsRow("Pareto 3 n=3000 d=100 eps=1", whole, hundred, 400, within(0.05)),
        ResultsRow("n=8000 d=500 eps=1.1 Gaussian", base, many, 600, within(0.02)),
        ResultsRow("n=3000 d=200 eps=1.1 replace, discrete", laplace, SHOPPERS, 600, within(0.02)),
        ResultsRow(edge, {**base, "clip_max": 64.0}, few, 1000, within(0.02)),
    )
