"""Aggregation: how many nodes must be in a sum, in exact decimals."""

from __future__ import annotations

from decimal import Decimal

import pytest

from fedhist.privacy.aggregation import Aggregation


@pytest.mark.parametrize("hundredths", range(50))
def test_margins_are_the_decimals_that_are_written(hundredths: int) -> None:
    """In floating point 0.29 * 100 is 28.999999999999996."""
    tau = float(f"0.{hundredths:02d}")
    for parties in (1, 7, 10, 99, 100, 1000, 12_345):
        lost = int(Decimal(f"0.{hundredths:02d}") * parties)
        result = Aggregation(parties, tau, 0.0)
        assert (result.quorum, result.honest) == (parties - lost, parties - lost)
        assert Aggregation(parties, 0.0, tau).honest == parties - lost
        assert Aggregation(parties, 0.0, tau).quorum == parties


def test_the_honest_are_what_neither_margin_takes() -> None:
    assert Aggregation(100).honest == 80
    assert Aggregation(15).honest == 13  # 1.5 of each: at most one node
    assert Aggregation(100, 0.29, 0.21).honest == 50
    with pytest.raises(ValueError, match=r"29%.*22%.*only 49 .*at least half"):
        Aggregation(100, 0.29, 0.22)
