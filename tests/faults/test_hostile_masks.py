"""Nodes that misbehave under masks: they cost their own numbers, or the round, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedhist as fh
from fedhist.protocols import BoundedHistogram
from simulations.adversaries.table import KINDS, Adversary
from simulations.runs.options import Options, Outcome
from simulations.runs.run import execute

SEED, N = 3, 20
USERS = fh.Users.from_records({f"user-{i}": {"tea": 1 + i % 3, "rye": i % 2} for i in range(60)})
PROTOCOL = BoundedHistogram(
    domain=USERS.vocabulary, clip=3.0, epsilon=1.0, grid=0.01, trust=fh.Aggregation(N, 0.2, 0.1)
)


def run(*tables: Adversary, **options: Any) -> Outcome:
    told = Options(seed=SEED, nodes=N, adversaries=tables, aggregation="masked")
    return execute(PROTOCOL, USERS, Options(**(vars(told) | options)))


def value(estimate: fh.Estimate) -> np.ndarray:
    assert estimate.value is not None
    return estimate.value


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_node(kind: str) -> None:
    hostile = run(Adversary(kind, 0.2, level="node"))
    (n,) = (r["replies"] for r in hostile.rounds)
    if kind == "dropout":
        assert N - 4 <= n < N
        assert hostile.adversaries["injected"] == {"dropout (node)": 4}
    else:  # poisoned records, clipped as everybody's are
        assert n == N
        assert hostile.adversaries["injected"] == {kind: 12}
        ideal = run(Adversary(kind, 0.2, level="node"), aggregation="ideal")
        np.testing.assert_array_equal(value(hostile.estimate), value(ideal.estimate))
        assert np.abs(value(hostile.estimate) - value(run().estimate)).max() <= 3.0 * 12


def test_more_than_may_drop_out() -> None:
    with pytest.raises(fh.MissingReplies, match=str(N)):
        run(Adversary("dropout", 0.45, level="node"))
