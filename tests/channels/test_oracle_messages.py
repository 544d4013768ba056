"""No vote through an oracle takes more from a user, or from a node, than its users can send."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import fedhist as fh
from clients.centred.queries import RadiusVotes
from clients.densities.queries import BinReports
from clients.frequency_oracles.oracle_votes import OracleReports
from clients.records.functionals import BallMean
from fedhist.channels.oracles import SubsetOracle, SymbolOracle


@dataclass(frozen=True)
class Vote:
    name: str
    part: str
    make: Callable[[float, int], fh.LocalQuery]


def radii(epsilon: float, k: int) -> fh.LocalQuery:
    return RadiusVotes(BallMean(1, 1.0), np.zeros(1), np.arange(k - 1.0, 0.0, -1.0), epsilon)


def bins(epsilon: float, k: int) -> fh.LocalQuery:
    return BinReports(k, epsilon)


def items(epsilon: float, k: int) -> fh.LocalQuery:
    kind = "subset" if k > 10 else "krr"
    return OracleReports(fh.Keys.of([f"i{j}" for j in range(k)]), epsilon, kind=kind)


VOTES = [
    Vote("radii", "bin", radii),
    Vote("bins", "bin", bins),
    Vote("items", "report", items),
]
EACH = pytest.mark.parametrize("vote", VOTES, ids=[v.name for v in VOTES])
N = 10
IDS = np.arange(N, dtype=np.uint64)
KINDS = (SymbolOracle, SubsetOracle)


@EACH
@pytest.mark.parametrize("k", [3, 24])
@pytest.mark.parametrize("epsilon", [1.0, 6.0, 700.0, math.inf])
def test_a_report_of_everything_is_refused(vote: Vote, epsilon: float, k: int) -> None:
    if vote.name == "items" and k > 10 and math.isinf(epsilon):
        epsilon = 6.0
    query = vote.make(epsilon, k)
    size = query.channel.size
    assert isinstance(query.channel, KINDS)
    bits = np.full((N, 1), (1 << size) - 1, dtype=np.uint64)
    wrong = [bits, np.full(N, size, dtype=np.uint32), np.zeros(N, dtype=np.uint8)]
    wrong += [np.zeros((N, 1), dtype=np.uint64), np.zeros(N, dtype=np.uint64)]
    for sent in wrong:
        with pytest.raises(fh.WireError):
            query.check(fh.Report(IDS, {vote.part: sent}))


@EACH
@pytest.mark.parametrize("k", [3, 24])
@pytest.mark.parametrize("epsilon", [1.0, 6.0, 700.0])
def test_a_sum_of_everything_is_refused(vote: Vote, epsilon: float, k: int) -> None:
    query = vote.make(epsilon, k)
    for count in (0, N):
        counts = np.full(query.channel.size, count, dtype=np.int64)
        with pytest.raises(fh.WireError, match="adds up to"):
            query.check_summary(fh.Summary(N, {vote.part: counts}))


@EACH
def test_an_epsilon_that_no_words_can_hold_is_refused_at_once(vote: Vote) -> None:
    with pytest.raises(ValueError, match="too small"):
        vote.make(1e-300, 24)
