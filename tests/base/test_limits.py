"""Numbers that doubles cannot reckon with are refused by name, before anything is spent."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fedhist
from fedhist.protocols import BoundedHistogram, FrequencyOracle, ItemHistogram, Mean
from fedhist.users.keys import Keys

TEA = Keys.of(["tea", "rye"])


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: BoundedHistogram(TEA, clip=1e308, epsilon=1.0, delta=1e-6), "clip"),
        (lambda: BoundedHistogram(TEA, clip=1e-320, epsilon=1.0, delta=1e-6), "clip"),
        (lambda: BoundedHistogram(TEA, clip=1.0, epsilon=1.0, delta=1e-320), "delta"),
        (lambda: Mean(1.0, 3000, 4, low=-1e154, high=1e154), "high - low"),
        (lambda: Mean(1.0, 3000, 4, low=0.0, high=1e-300), "high - low"),
    ],
)
def test_by_name(make: Callable[[], object], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must"):
        make()


@pytest.mark.parametrize("epsilon", [650.0, 710.0, 1400.0, 1e4])
def test_a_huge_epsilon_is_as_good_as_none(epsilon: float) -> None:
    users = fedhist.Users.from_records({f"u{i}": {"tea": 1} for i in range(200)})
    estimate = fedhist.run(FrequencyOracle(domain=TEA, epsilon=epsilon), users, seed=1)
    np.testing.assert_allclose(estimate.value, [1, 0], atol=1e-9)


def test_counts_beyond_the_limit_are_cut_and_that_is_said() -> None:
    users = fedhist.Users.from_records({f"u{i}": {"tea": 2**31} for i in range(3)})
    protocol = ItemHistogram(TEA, epsilon=1.0)
    estimate = fedhist.run(protocol, users, seed=1)
    assert estimate.value[0] == pytest.approx(3 * 2**30, abs=100)
    assert any("2^30" in w for w in estimate.warnings)
    assert list(protocol.diagnostics(users).values()) == [3 * 2**30]
