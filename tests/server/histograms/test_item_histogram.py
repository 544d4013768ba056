"""The baseline that protects one record: its sensitivity, its noise, and what it says of itself."""

from __future__ import annotations

from itertools import product

import numpy as np

from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.histograms.item_histogram import SENSITIVITY, ItemHistogram
from simulations.runs.run import run

DOMAIN = Keys.of(["a", "b"])


def totals_of(query: object, record: tuple[int, ...]) -> np.ndarray:
    names = ("a", "b", "out")
    users = Users.from_records({"u": {n: c for n, c in zip(names, record, strict=True) if c}})
    report = query.answer(users, None)  # type: ignore[attr-defined]
    return np.asarray(query.fold(report).sums["counts"])  # type: ignore[attr-defined]


def test_the_sensitivity_is_two() -> None:
    """All records of at most 3 of each item, and some at the largest count: one is replaced."""
    query = ItemHistogram(DOMAIN, 1.0).query
    records = list(product(range(4), repeat=3)) + [
        tuple(top + d for d in ds)
        for top in (query.clip - 1,)
        for ds in product(range(3), repeat=3)
    ]
    worst = 0
    for record in records:
        for i, j in product(range(3), repeat=2):
            if i == j or not record[i]:
                continue
            other = [c - (k == i) + (k == j) for k, c in enumerate(record)]
            gap = np.abs(totals_of(query, record) - totals_of(query, tuple(other))).sum()
            worst = max(worst, int(gap))
    assert worst == SENSITIVITY == 2


def test_it_promises_nothing_about_a_user() -> None:
    protocol = ItemHistogram(DOMAIN, 1.0)
    guarantee = protocol.guarantee
    assert (guarantee.unit, guarantee.trust) == ("item", Trust.CENTRAL)
    assert guarantee.adjacency is Adjacency.REPLACE_ITEM
    estimate = run(protocol, Users.from_records({"u": {"a": 3}}), seed=0)
    assert any("NOT for a user" in w for w in estimate.warnings)
