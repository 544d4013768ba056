"""Results rows of ``distribution``: errors that "auto" must reach, predictions of mechanisms."""

from __future__ import annotations

import math
from typing import Any

from fedhist.model.results import ResultsRow, within
from fedhist.protocols.shared import trust_rows

MUST_REACH: tuple[tuple[float, float, int], ...] = (
    # l1, concentration of the users' own distributions, setting
    (0.00074, math.inf, 0),
    (0.00069, 2000, 0),
    (0.00103, 200, 0),
    (0.0020, 20, 0),
    (0.0022, 2, 0),
    (0.0068, math.inf, 1),
    (0.017, 200, 1),
    (0.034, 20, 1),
    (0.042, 2, 1),
    (0.0023, math.inf, 2),
    (0.0058, 50, 2),
    (0.0095, 5, 2),
)
SETTINGS: tuple[tuple[int, int, int, float, float, float], ...] = (
    # k, m, n, exponent of Zipf, epsilon, delta
    (20, 200, 20_000, 1.0, 1.0, 1e-6),
    (50, 1000, 3000, 0.0, 1.0, 1e-6),
    (60, 300, 6000, 2.0, 2.0, 1e-7),
)


def rows() -> tuple[ResultsRow, ...]:
    """Errors that "auto" must reach and predicts, and predictions of single mechanisms."""
    reached = tuple(_reached(*line) for line in MUST_REACH)
    predicted = tuple(_predicted(c, at) for _, c, at in MUST_REACH if (c, at) in PREDICTED)
    return (*_mechanisms(), *reached, *predicted, *trust_rows.distribution_rows())


PREDICTED = ((200, 0), (math.inf, 1), (50, 2))


def _auto(concentration: float, at: int) -> tuple[str, dict[str, Any], dict[str, Any]]:
    k, m, n, exponent, epsilon, delta = SETTINGS[at]
    people: dict[str, Any] = {"kind": "zipf", "n_users": n, "d": k, "exponent": exponent}
    people |= {"mean_items": m, "tail": math.inf}
    alike = math.isinf(concentration)
    if not alike:
        people |= {"users": "dirichlet", "concentration": concentration}
    users = "alike" if alike else f"Dirichlet({concentration:g})"
    label = f"k={k} m={m} n={n} eps={epsilon:g} Zipf({exponent:g}) {users}"
    return label, {"epsilon": epsilon, "delta": delta, "samples_per_user": m}, people


def _reached(l1: float, concentration: float, at: int) -> ResultsRow:
    label, given, people = _auto(concentration, at)
    words = f"{label}, at most {l1:g}"
    return ResultsRow(words, given, people, 60, (0.5, 1.15), expected=l1)


def _predicted(concentration: float, at: int) -> ResultsRow:
    label, given, people = _auto(concentration, at)
    return ResultsRow(label, given, people, 60, within(0.15))


def _mechanisms() -> tuple[ResultsRow, ...]:
    some, wide = (100, 10, 2000), (1500, 8, 5000)
    label = "k=100 m=10 n=2000 eps=4 one item"
    edge = "EDGE k=50 m=8 n=40 eps=1 presence (noise beyond the users)"
    near = "k=20 m=300 n=300 eps=1 KS, 1.6 floors"
    rare, bare, many = (
        f"{size} {how}, projected"
        for size, how in (
            ("k=200 m=20 n=6000 eps=1", "Laplace"),
            ("EDGE k=50 m=20 n=100 eps=.1", "Laplace"),
            ("k=1500 m=8 n=5000 eps=.5", "presence"),
        )
    )
    noisy, half = {"epsilon": 0.1, "project": True}, {"epsilon": 0.5, "project": True}
    return (
        _row("k=100 m=10 n=2000 eps=1 Laplace", "laplace", some, 300, 0.01),
        _row(label, "one-item", some, 300, 0.01, epsilon=4.0),
        _row("k=400 m=20 n=3000 eps=1 presence", "presence", (400, 20, 3000), 300, 0.02),
        _row("k=20 m=300 n=2000 eps=1 KS scores", "ks", (20, 300, 2000), 100, 0.1),
        _row(near, "ks", (20, 300, 300), 400, 0.1),
        _row(edge, "presence", (50, 8, 40), 600, 0.02),
        _row(rare, "laplace", (200, 20, 6000), 100, 0.1, project=True),
        _row(bare, "laplace", (50, 20, 100), 300, 0.1, **noisy),
        _row(many, "presence", wide, 30, 0.1, **half),
        _row("k=50 m=300 n=6000 eps=1 centred", "centred", (50, 300, 6000), 100, 0.1),
    )


def _row(
    label: str, how: str, size: tuple[int, int, int], times: int, width: float, **more: Any
) -> ResultsRow:
    k, m, n = size
    people = {"kind": "items", "n_users": n, "d": k, "items": m, "seed": 2020}
    given = {"samples_per_user": m, "mechanism": how, "project": how in ("ks", "centred")}
    parameters = {"epsilon": 1.0, "delta": 1e-6, **given, **more}
    people["exponent"] = {100: 1.0, 200: 2.0}.get(k, 0.5)
    return ResultsRow(label, parameters, people, times, within(width))
