"""The benchmark of shuffled runs, small. Nothing here judges a time."""

from __future__ import annotations

from simulations.benchmarks import running, shuffled


def test_both_runs_are_timed() -> None:
    assert "shuffled" in running.NAMES
    result = shuffled.measure(quick=True)
    assert len(result.rows) == 4
    assert all(row.spread.low > 0 for row in result.rows)
    assert "krr" in result.setting
