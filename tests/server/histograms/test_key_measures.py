"""What histograms over unknown keys add up of users: against obvious formulas, in blocks too."""

import math

import numpy as np
import pytest
from walked_users import Walked

import fedhist as fh
from fedhist.protocols import UnboundedHistogram
from tests.running import table_users

NAMES = ["tea", "é", "~", "never", "rye", "b", "a\0b"]


def random_users(seed: int, n: int = 200) -> tuple[fh.Users, np.ndarray]:
    """Users of a heavy tail, some without items, and their counts by name in byte order."""
    rng = np.random.default_rng(seed)
    table = rng.poisson(rng.exponential(2.0, (n, 1)) * [3.0, 0.1, 1.0, 0.0, 2.0, 5.0, 0.4])
    table[rng.random(n) < 0.2] = 0
    users = table_users(table, fh.Keys.of(NAMES))
    order = sorted((j for j in range(7) if table[:, j].any()), key=lambda j: NAMES[j].encode())
    return users, table[:, order].astype(float)


def ways(protocol: UnboundedHistogram, users: fh.Users) -> list[fh.Facts]:
    return [fh.measured(protocol, users), fh.measured(protocol, Walked(users, 13))]


CASES = [
    UnboundedHistogram(1.0, 1e-3, clip=4),
    UnboundedHistogram(1.0, 1e-3, clip=2000),
    UnboundedHistogram(2.0, 1e-3, clip=5, discrete=False, adjacency="replace-user"),
    UnboundedHistogram(3.0, 1e-3, method="sample", clip_max=40),
    UnboundedHistogram(3.0, 1e-3, threshold="exact-range", clip_max=40),
    UnboundedHistogram(math.inf, 1e-3, method="sample", clip_max=40),
    UnboundedHistogram(4.0, 1e-3),
]


@pytest.mark.parametrize("protocol", CASES)
def test_against_all_records_at_once(protocol: UnboundedHistogram) -> None:
    users, table = random_users(1)
    one = fh.Estimate.ok(np.array([3.0]), keys=fh.Keys.of(["rye"]))
    for known in ways(protocol, users):
        assert list(known.support or ()) == sorted(set(NAMES) - {"never"}, key=str.encode)
        assert known.truth.tolist() == table.sum(axis=0).tolist()
        at = list(known.support or ()).index("rye")
        want = table.sum() - table[:, at].sum() + abs(3.0 - table[:, at].sum())
        assert protocol.loss_of(one, Walked(users, 7), known=known) == want
