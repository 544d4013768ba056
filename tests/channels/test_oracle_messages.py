"""No vote through an oracle takes more from a user, or from a node, than its users can send."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import fedhist as fh
from clients.centred.queries import RadiusVotes
from clients.densities.queries import BinReports
from clients.frequency_oracles.oracle_votes import OracleReports
from clients.records.functionals import BallMean

Make = Callable[[float, int], fh.LocalQuery]
VOTES: list[tuple[str, Make]] = [
    ("bin", lambda e, k: RadiusVotes(BallMean(1, 1.0), np.zeros(1), np.arange(k - 1.0, 0, -1), e)),
    ("bin", lambda e, k: BinReports(k, e)),
    ("report", lambda e, k: OracleReports(fh.Keys.range(k), e, kind="subset" if k > 10 else "krr")),
]
N = 10
IDS = np.arange(N, dtype=np.uint64)


@pytest.mark.parametrize(("part", "make"), VOTES, ids=["radii", "bins", "items"])
@pytest.mark.parametrize("k", [3, 24])
@pytest.mark.parametrize("epsilon", [1.0, 6.0, 700.0])
def test_reports_and_sums_of_everything_are_refused(
    part: str, make: Make, epsilon: float, k: int
) -> None:
    query = make(epsilon, k)
    size = query.channel.size
    bits = np.full((N, 1), (1 << size) - 1, dtype=np.uint64)
    wrong = [bits, np.full(N, size, dtype=np.uint32), np.zeros(N, dtype=np.uint8)]
    wrong += [np.zeros((N, 1), dtype=np.uint64), np.zeros(N, dtype=np.uint64)]
    for sent in wrong:
        with pytest.raises(fh.WireError):
            query.check(fh.Report(IDS, {part: sent}))
    for count in (0, N):
        counts = np.full(size, count, dtype=np.int64)
        with pytest.raises(fh.WireError, match="adds up to"):
            query.check_summary(fh.Summary(N, {part: counts}))
    with pytest.raises(ValueError, match="too small"):
        make(1e-300, 24)
