"""The benchmark of populations, small. Nothing here judges a time."""

from __future__ import annotations

from simulations.benchmarks import populations, running


def test_every_kind_is_timed() -> None:
    assert "populations" in running.NAMES
    result = populations.measure(quick=True)
    assert len(result.rows) == len(populations.MADE)
    assert all(row.spread.low >= 0 for row in result.rows)
    assert "2,000 users" in result.setting
