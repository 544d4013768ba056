"""Aggregation: how many nodes must be in a sum, in exact decimals."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest

from fedhist.privacy.aggregation import Aggregation
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust


@pytest.mark.parametrize("hundredths", range(50))
def test_margins_are_the_decimals_that_are_written(hundredths: int) -> None:
    """In floating point 0.29 * 100 is 28.999999999999996."""
    tau = float(f"0.{hundredths:02d}")
    for parties in (1, 7, 10, 99, 100, 1000, 12_345):
        lost = int(Decimal(f"0.{hundredths:02d}") * parties)
        found = Aggregation(parties, tau, 0.0)
        assert (found.quorum, found.honest) == (parties - lost, parties - lost)
        assert Aggregation(parties, 0.0, tau).honest == parties - lost
        assert Aggregation(parties, 0.0, tau).quorum == parties


def test_the_honest_are_what_neither_margin_takes() -> None:
    assert Aggregation(100).honest == 80
    assert Aggregation(15).honest == 13  # 1.5 of each: at most one node
    assert Aggregation(100, 0.29, 0.21).honest == 50
    with pytest.raises(ValueError, match=r"29%.*22%.*only 49 .*at least half"):
        Aggregation(100, 0.29, 0.22)


@pytest.mark.parametrize("name", ["tau_d", "tau_c"])
@pytest.mark.parametrize("bad", [-0.1, 0.5, 0.7, math.nan, math.inf])
def test_margins_lie_below_a_half(name: str, bad: float) -> None:
    with pytest.raises(ValueError, match=rf"{name} must lie in \[0, 0.5\), got {bad}"):
        Aggregation(100, **{name: bad})


@pytest.mark.parametrize("bad", [0, -3, 2.5, True])
def test_parties_are_counted(bad: int) -> None:
    with pytest.raises(ValueError, match="parties must be a positive integer"):
        Aggregation(bad)


def test_a_guarantee_states_its_premise() -> None:
    stated = Guarantee(
        1.0,
        1e-6,
        Trust.AGGREGATE,
        Adjacency.REPLACE_USER,
        premise=str(Aggregation(100)),
    )
    assert str(stated) == (
        "(1, 1e-06)-DP per user, aggregate trust (at most 10% of 100 nodes drop out, 10% collude), "
        "replace-user"
    )


def test_levels_of_trust_are_in_order() -> None:
    assert [t.value for t in sorted(Trust, key=lambda t: t.rank)] == [
        *("central", "aggregate", "shuffle", "local")
    ]
