"""Settings at which the predictions of quantiles are held against runs."""

from __future__ import annotations

from typing import Any

from fedhist.model.results import ResultsRow, within


def central_rows() -> tuple[ResultsRow, ...]:
    """Return the rows of ``quantiles``."""
    some = {"kind": "gaussian", "n_users": 2000, "samples_per_user": 20, "mean": 0.237}
    base = {"epsilon": 1.0, "low": -1.0, "high": 1.0, "levels": (0.25, 0.5, 0.75)}
    one, few = {**base, "levels": (0.5,)}, {**some, "n_users": 245}
    means = {**base, "delta": 1e-6, "of": "user-means", "adjacency": "zero-out-user"}

    def page(n: int, K: int, epsilon: float, J: int) -> ResultsRow:
        """Return a setting of one number a user, in the middles of the bins."""
        low = -0.005 * K - 0.005
        span = {"low": low, "high": low + 0.01 * K}
        alone = {"kind": "gaussian", "samples_per_user": 1, "mean": 0.0, "spread": 0.001 * K}
        given = {**base, **span, "epsilon": epsilon, "delta": 1e-6, "n_bins": K}
        label = f"n={n} K={K} eps={epsilon:g} delta=1e-6, {J} levels"
        people = {**alone, **span, "n_users": n, "decimals": 2}
        return ResultsRow(label, {**given, "levels": even_levels(J)}, people, 300, within(0.15))

    many = {**base, "levels": even_levels(31)}
    return (
        ResultsRow("n=2000 eps=1 median", one, some, 400, within(0.1)),
        ResultsRow("n=2000 eps=1 quartiles of means", means, some, 400, (0.85, 1.1)),
        page(2000, 256, 1.0, 3),
        page(2000, 256, 1.0, 9),
        page(2000, 256, 1.0, 31),
        page(10_000, 1024, 0.5, 9),
        ResultsRow("n=2000 eps=1 delta=0, 31 levels", many, some, 300, within(0.15)),
        ResultsRow("EDGE n=245 eps=1 quartiles", base, few, 400, (0.85, 1.1)),
    )


def local_rows() -> tuple[ResultsRow, ...]:
    """Return the rows of ``local-quantiles``."""
    base = {"epsilon": 1.0, "low": -1.0, "high": 1.0}
    some = {"kind": "gaussian", "samples_per_user": 10, "mean": 0.1, "spread": 0.2}

    def row(
        label: str, n: int, J: int, epsilon: float = 1.0, people: object = None, **more: Any
    ) -> ResultsRow:
        given = {**base, "epsilon": epsilon, "levels": even_levels(J), **more}
        users = {**some, "n_users": n, **(people if isinstance(people, dict) else {})}
        return ResultsRow(label, given, users, 100, within(0.15), anew=True)

    alone = {"samples_per_user": 1}
    return (
        row("n=20000 eps=1 median by search", 20_000, 1, kind="search"),
        row("n=20000 eps=1 median of means by search", 20_000, 1, kind="search", of="user-means"),
        row("n=20000 eps=1, 9 levels by votes", 20_000, 9, kind="votes"),
        row("n=20000 eps=1, 9 levels of one number each", 20_000, 9, 1.0, alone, kind="votes"),
        row("n=5000 eps=4, 31 levels", 5000, 31, 4.0),
        row("EDGE n=1000 eps=1 median", 1000, 1),
    )


def even_levels(count: int) -> tuple[float, ...]:
    """Return so many levels at equal distances.

    >>> even_levels(3)
    (0.25, 0.5, 0.75)
    """
    return tuple(j / (count + 1) for j in range(1, count + 1))
