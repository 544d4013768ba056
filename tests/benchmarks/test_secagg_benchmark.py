"""The benchmark of secure aggregation, small. Nothing here judges a time."""

from __future__ import annotations

import numpy as np

from simulations.benchmarks import running, secagg


def test_attempts_in_memory() -> None:
    assert "secagg" in running.NAMES
    result = secagg.measure(quick=True)
    assert all(row.spread.low >= 0 for row in result.rows)
    assert len(result.rows) == 7
    assert all(row.met is None for row in running.without_targets(result).rows)


def test_bytes_are_those_of_the_arrays() -> None:
    """N = 10, one gone: a node's four messages and four answers, by the page's formula."""
    attempt = secagg.Attempt(10, 7)
    n, d = 10, 7
    headers = 8 * (4 + 16 + 16)
    sent = 96 + 50 * (n - 1) + 8 * d + 8 + 17 * n
    received = 16 + 100 * n + (50 * (n - 1) + 4 * n) + 4 * (n - 1)
    assert set(attempt.of_nodes(attempt.bytes)) == {headers + sent + received}


def test_a_message_s_bytes() -> None:
    message = {"session": bytes(16), "node": 3, "check": bytes(16), "a": np.zeros(5, "u4")}
    assert secagg.size(message) == 56
