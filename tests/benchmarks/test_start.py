"""The benchmark of starting, once and small. Nothing here judges a time."""

from __future__ import annotations

import pytest

from simulations.benchmarks import running, start


def test_whole_processes_against_numpy() -> None:
    assert "start" in running.NAMES
    result = start.measure(quick=True)
    assert all(row.spread.low > 0 for row in result.rows)
    ratios = {row.what: row for row in result.rows if row.at_most}
    assert [row.at_most for row in ratios.values()] == pytest.approx([3, 4, 15])
    numpy, *_ = result.rows
    whole = next(row for row in result.rows if row.what == "quickstart inline: CPU")
    found = ratios["quickstart inline: CPU / import numpy"].spread.median
    assert found == pytest.approx(whole.spread.median / numpy.spread.median)
    assert all(row.met is None for row in running.without_targets(result).rows)


def test_a_process_that_fails_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match=r"python -c 1/0 ended with status 1"):
        start.process(("-c", "1/0"))
