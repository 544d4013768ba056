"""The benchmark of hypothesis selection on tiny sizes. Nothing here judges a time."""

from __future__ import annotations

from simulations.benchmarks import running, selection


def test_it_measures_counts_plans_and_scores() -> None:
    assert "selection" in running.NAMES
    result = selection.measure(quick=True)
    assert all(row.spread.low > 0 for row in result.rows)
    assert [row.at_most for row in result.rows if row.at_most] == [3, 10.0, 10.0]
    assert result.setting.startswith("5,000 users")
    assert all(row.met is None for row in running.without_targets(result).rows)
