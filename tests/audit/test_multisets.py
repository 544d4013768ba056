"""What a server can tell from shuffled reports, against slow sums over all of their orders."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from fedhist.base.arrays import Floats
from fedhist.privacy.shuffling import Hiding
from fedhist.protocols import FrequencyOracle, ItemHistogram
from simulations.audit.finding import Case, Settings, exit_status
from tests.audit.trust.levels import shuffled
from tests.audit.trust.multisets import (
    _epsilon_of_counts,
    _hockey_stick,
    audit_counts,
    audit_shuffle,
    unproved,
)


def krr(k: int, local: float) -> Floats:
    rows = np.full((k, k), 1 / (math.exp(local) + k - 1))
    np.fill_diagonal(rows, math.exp(local) / (math.exp(local) + k - 1))
    return rows


def hadamard(size: int, local: float) -> Floats:
    x = np.arange(size)
    even = np.array([[(a & b).bit_count() % 2 == 0 for b in x.tolist()] for a in x.tolist()])
    high = 2 / size / (1 + math.exp(-local))
    return np.where(even, high, 2 / size - high)[1:]


def test_counts_against_their_definition() -> None:
    """The least epsilon that keeps delta, from the law of a binomial and one more."""
    n, q, p0, p1, delta = 6, 0.2, 0.7, 0.2, 0.01
    epsilon = _epsilon_of_counts(n, q, p0, p1, delta)
    laws = []
    for p in (p0, p1):
        law = np.zeros(n + 1)
        for seen in product((0, 1), repeat=n):
            chances = [
                (p if i == 0 else q) if y else 1 - (p if i == 0 else q) for i, y in enumerate(seen)
            ]
            law[sum(seen)] += math.prod(chances)
        laws.append(law)
    both = [_hockey_stick(*pair, epsilon) for pair in (laws, laws[::-1])]
    assert max(both) == pytest.approx(delta, rel=1e-6)


def test_the_size_of_the_fold_counts() -> None:
    """The epsilon of 20,000 users, in folds of 1,000."""
    rows = krr(20, 6.16)
    claim = (1.0, 1e-6)
    assert not audit_counts(rows, 20_000, Case("all", claim, Settings(), "exact")).violated
    assert audit_counts(rows, 1_000, Case("a fold", claim, Settings(), "exact")).violated


@pytest.mark.parametrize(
    ("rows", "holds"),
    [(krr(3, 1.0), True), (hadamard(4, 1.0), True), (hadamard(8, 1.0), False)],
    ids=["3-RR", "Hadamard 4", "Hadamard 8"],
)
def test_bound_c_by_the_matrix(rows: Floats, *, holds: bool) -> None:
    """(e^epsilon0 + 1) R(x) >= R(x0) + R(x1), or not."""
    assert (not unproved(rows, 1.0, Hiding(mixes=True))) == holds


def test_bound_b_by_the_matrix() -> None:
    """A total variation that nobody has told the accountant of."""
    far = float(np.abs(np.subtract(*krr(3, 1.0)[:2])).sum()) / 2
    assert not unproved(krr(3, 1.0), 1.0, Hiding(distances=(far,)))
    assert unproved(krr(3, 1.0), 1.0, Hiding(distances=(far / 2,)))


def test_a_correct_protocol_is_not_flagged() -> None:
    """By any check; some protocols have no such level."""
    level = shuffled(FrequencyOracle.example())
    assert level is not None
    found = list(audit_shuffle(level, Settings()))
    assert len(found) == 3
    assert exit_status(found) == 0
    assert shuffled(ItemHistogram.example()) is None
