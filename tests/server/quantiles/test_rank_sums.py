"""Ranks and quantiles from sums over blocks, against those of all numbers sorted at once."""

import numpy as np
import pytest

from fedhist.base.arrays import Array, Floats
from fedhist.model.evaluation import measured
from fedhist.model.protocol import Estimate
from fedhist.users.batch import Users
from server.quantiles.local_quantiles import LocalQuantiles
from server.quantiles.quantiles import Quantiles
from tests.running import Cut

LEVELS = (0.02, 0.25, 0.5, 0.9)


def people(n: int, seed: int) -> Users:
    """Users who differ, some of whom hold nothing, no numbers, or numbers far out."""
    rng = np.random.default_rng(seed)
    indptr = np.concatenate(([0], np.cumsum(rng.integers(0, 7, n))))
    values = np.round(rng.normal(0.4, 0.4, indptr[-1]), 2 if seed % 2 else 9)
    for odd in (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, -5e-324):
        values[rng.integers(0, len(values), 3)] = odd
    return Users.from_samples(np.sort(rng.integers(0, 1 << 60, n)), indptr, values, unusable=True)


def ranked(protocol: Quantiles | LocalQuantiles, users: Users) -> tuple[Floats, Floats, Array]:
    """All numbers in their order, the share of users up to each, and whose they are."""
    owner, x = protocol.grid.points(users)
    order = np.argsort(x, kind="stable")
    upto = np.cumsum(1.0 / np.bincount(owner)[owner[order]])
    return x[order], upto / upto[-1], owner[order]


@pytest.mark.parametrize("of", ["samples", "user-means"])
@pytest.mark.parametrize("seed", [1, 2])
def test_blocks_say_what_all_users_say(of: str, seed: int) -> None:
    """Truth and ranks of every bin, whatever the blocks."""
    users = people(400, seed)
    protocol = LocalQuantiles(3.0, LEVELS, -0.5, 1.0, n_users=400, n_bins=16, of=of)
    x, upto, owner = ranked(protocol, users)
    truth = x[np.searchsorted(upto, np.array(LEVELS) - 1e-12)]
    n = len(np.unique(owner))
    mids = protocol.grid.midpoints
    first = [upto[x < mid - 1.5e-9].max(initial=0.0) for mid in mids]
    last = [upto[x <= mid + 1.5e-9].max(initial=0.0) for mid in mids]
    errors = [[max(0.0, a - q, q - b) for a, b in zip(first, last, strict=True)] for q in LEVELS]
    for shard in (users, Cut(users, (100, 230)), Cut(users, (3, 9, 9, 50, 399)),
                  Cut(users, tuple(range(7, 400, 7)))):  # fmt: skip
        facts = measured(protocol, shard)
        assert facts.truth.tolist() == truth.tolist()
        assert facts.diagnostics == {"unusable records": 400 - n}
        for k, mid in enumerate(mids):
            result = protocol.rank_errors(np.full(len(LEVELS), mid), facts)
            assert result == pytest.approx([row[k] for row in errors], rel=1e-12, abs=1e-14)
        edges = np.linspace(-0.5, 1.0, 17)
        ends = [upto[x < e].max(initial=0.0) for e in edges[1:-1]]
        most = np.diff([0.0, *ends, 1.0]).max()
        assert protocol.largest_bin(facts) == pytest.approx(most, rel=1e-12)


def test_the_loss_of_any_value() -> None:
    """Of middles of bins from the first pass, of other numbers by another one."""
    users = people(300, 2)
    protocol = Quantiles(3.0, (0.25, 0.5), -0.5, 1.0, n_users=300, n_bins=16)
    x, upto, _ = ranked(protocol, users)
    known = measured(protocol, Cut(users, (77,)))
    for value in (protocol.grid.midpoints[[4, 9]], np.array([0.1234, float(x[150])])):
        first = [upto[x < v - 1.5e-9].max(initial=0.0) for v in value]
        last = [upto[x <= v + 1.5e-9].max(initial=0.0) for v in value]
        worst = max(
            max(a - q, q - b, 0.0) for q, a, b in zip((0.25, 0.5), first, last, strict=True)
        )
        result = Estimate.ok(value)
        assert protocol.loss_of(result, users, known=known) == pytest.approx(worst, rel=1e-12)
        assert protocol.loss_of(result, users) == pytest.approx(worst, rel=1e-12)


def test_one_number_is_every_quantile() -> None:
    users = Users.from_samples(np.arange(9), np.arange(10), np.full(9, 0.3))
    protocol = Quantiles(3.0, (0.01, 0.99), 0.0, 1.0, n_users=9, n_bins=4)
    assert measured(protocol, users).truth.tolist() == [0.3, 0.3]
