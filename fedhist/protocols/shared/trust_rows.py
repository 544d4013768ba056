"""Results rows of the levels of trust: a task at three settings, central and aggregate.

The expected side is what a prototype measured that shares no code with this one, at N = 100 nodes
of which a fifth may drop out or collude, with its own standard error; bands are three standard
errors of both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedhist.model.results import ResultsRow
from fedhist.privacy.aggregation import Aggregation

NODES = 100
SETTINGS = ((20, 20_000, 1.0), (20, 2000, 2.0), (100, 100_000, 0.5))
"""k, n, epsilon; delta = 1e-6, replacement."""

Figures = tuple[tuple[float, float], tuple[float, float]]
"""Central and aggregate: the error, and its standard error in per cent."""


def rows(
    how: Mapping[str, Any],
    figures: tuple[Figures, Figures, Figures],
    runs: tuple[int, int, int],
    spread: float,
) -> tuple[ResultsRow, ...]:
    """Make the six rows of a task.

    Parameters
    ----------
    how : mapping
        Two functions of (k, n, epsilon): "protocol" and "population"; and "times", which turns the
        figures into the protocol's loss.
    figures : for each setting
    runs : for each setting
    spread : float
        Std of the loss of one run, in shares of its mean.
    """
    found = []
    for setting, both, times in zip(SETTINGS, figures, runs, strict=True):
        k, n, epsilon = setting
        for level, (error, percent) in zip(("central", "aggregate"), both, strict=True):
            given = {"epsilon": epsilon, "delta": 1e-6, **how["protocol"](*setting)}
            if level == "aggregate":
                given["trust"] = Aggregation(NODES)
            width = 3 * math.hypot(how["power"] * percent / 100, spread / math.sqrt(times))
            found.append(
                ResultsRow(
                    f"k={k} n={n} eps={epsilon:g} {level} trust, {NODES} nodes",
                    given,
                    how["population"](*setting),
                    times,
                    (1 - width, 1 + width),
                    expected=how["loss"](error, n),
                )
            )
    return tuple(found)


def distribution_rows() -> tuple[ResultsRow, ...]:
    """One Zipf item each, projected."""
    return rows(
        {
            "protocol": lambda k, n, e: {"samples_per_user": 1, "mechanism": "laplace"},
            "population": lambda k, n, e: {"kind": "items", "n_users": n, "d": k, "items": 1},
            "loss": lambda error, n: error,
            "power": 1,
        },
        (
            ((0.00196, 1.6), (0.00222, 1.4)),
            ((0.00913, 1.9), (0.0105, 1.8)),
            ((0.00392, 1.4), (0.00457, 1.1)),
        ),
        (200, 200, 80),
        0.22,
    )


def histogram_rows() -> tuple[ResultsRow, ...]:
    """Ten distinct ones of 100 Zipf items each; the figures are shares of all counts."""
    clip = math.sqrt(10)
    return rows(
        {
            "protocol": lambda k, n, e: {
                "clip": clip,
                "adjacency": "replace-user",
                "grid": clip / (1 << 20),
            },
            "population": lambda k, n, e: {"kind": "distinct", "n_users": n, "d": 100, "items": 10},
            "loss": lambda error, n: 10 * n * error,
            "power": 1,
        },
        (
            ((0.00763, 1.0), (0.00856, 1.1)),
            ((0.0408, 1.0), (0.0452, 1.0)),
            ((0.00288, 1.6), (0.00326, 1.5)),
        ),
        (50, 50, 20),
        0.08,
    )


def mean_rows() -> tuple[ResultsRow, ...]:
    """One number of a Beta(2, 5) each. The figures are absolute errors b, the loss is 2 b^2."""
    return rows(
        {
            "protocol": lambda k, n, e: {"low": 0.0, "high": 1.0, "discrete": True},
            "population": lambda k, n, e: {
                "kind": "density",
                "n_users": n,
                "samples_per_user": 1,
                "density": "beta",
            },
            "loss": lambda error, n: 2 * error**2,
            "power": 2,
        },
        (
            ((4.99e-5, 5.0), (5.73e-5, 4.9)),
            ((2.32e-4, 4.7), (2.89e-4, 4.8)),
            ((1.92e-5, 7.8), (2.32e-5, 7.8)),
        ),
        (400, 400, 160),
        2.24,
    )
