"""What histograms add up of users: against slow obvious formulas, in blocks too."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from walked_users import Walked

import fedhist as fh
from fedhist.privacy.noise_law import expected_l1
from fedhist.protocols import BoundedHistogram, ItemHistogram, UnboundedHistogram
from server.targets.domains import whole_and_clipped
from tests.running import count_table, table_users

DOMAIN = fh.Keys.of(["f", "b", "a", "elsewhere", "d"])


def random_users(seed: int, n: int = 300) -> fh.Users:
    """Users of a heavy tail of items, some with none, of a vocabulary that is not the domain."""
    rng = np.random.default_rng(seed)
    table = rng.poisson(rng.exponential(1.0, (n, 1)) * [3.0, 0.1, 1.0, 2.0, 0.0, 5.0, 0.4])
    table[rng.random(n) < 0.2] = 0
    table[rng.random(n) < 0.02] *= 100
    return table_users(table, fh.Keys.of("abcdefg"))


def clipped(table: np.ndarray, clip: float, norm: int, grid: float = 0.0) -> np.ndarray:
    size = np.linalg.norm(table, norm, axis=1, keepdims=True)
    kept = table * np.minimum(1.0, clip / np.maximum(size, 1e-300))
    return grid * np.floor(kept / grid * (1 + 2e-15)) if grid else kept


def bounded(p: BoundedHistogram, table: np.ndarray) -> float:
    kept = clipped(table, p.clip, p.norm, p.grid or 0.0).sum(axis=0)
    bias = np.maximum(table.sum(axis=0) - kept, 0.0)
    return expected_l1(p.noise, bias, kept if p.nonneg else None)


def one_record(p: ItemHistogram, table: np.ndarray) -> float:
    return expected_l1(p.noise, 0 * table.sum(axis=0), table.sum(axis=0) if p.nonneg else None)


CASES: list[tuple[fh.Protocol, Callable[..., float]]] = [
    (BoundedHistogram(DOMAIN, 1.0, 7.0, 1e-6), bounded),
    (BoundedHistogram(DOMAIN, 0.5, 9.0, nonneg=False), bounded),
    (BoundedHistogram(DOMAIN, 0.5, 9.0, grid=0.75), bounded),
    (BoundedHistogram(DOMAIN, 1.0, 5.0, 1e-6, grid=0.75, adjacency="replace-user"), bounded),
    (BoundedHistogram(DOMAIN, 1.0, 0.0), bounded),
    (ItemHistogram(DOMAIN, 0.1), one_record),
    (ItemHistogram(DOMAIN, 0.1, nonneg=False), one_record),
]


@pytest.mark.parametrize(("protocol", "slow"), CASES, ids=lambda x: getattr(x, "name", None))
def test_against_all_records_at_once(protocol: fh.Protocol, slow: Callable[..., float]) -> None:
    for users in (random_users(1), random_users(2), random_users(1).slice(0, 0)):
        table = count_table(users, protocol.domain)
        want = slow(protocol, table)
        for known in (fh.measured(protocol, users), fh.measured(protocol, Walked(users, 13))):
            assert np.array_equal(known.truth, table.sum(axis=0))
            told = known.error
            assert told.expected == pytest.approx(want, rel=1e-12, abs=1e-12)
            assert (known.support, known.resolution, known.diagnostics) == (None, 0.0, {})
            assert known.lower_bounds == ()


def test_large_counts_are_added_in_doubles() -> None:
    users = fh.Users.from_records({"ann": {"a": 2**61, "b": 3}, "bob": {"a": 1}})
    whole, kept = whole_and_clipped(users, fh.Keys.of(["a", "b"]), 2.0, 2)
    assert whole.tolist() == [2.0**61, 3.0]
    assert kept.tolist() == pytest.approx([3.0, 2 * 3 / 2**61])


@pytest.mark.parametrize("given", [{"clip": 4}, {"method": "sample", "clip_max": 40}, {}])
def test_keys_against_all_records_at_once(given: dict[str, Any]) -> None:
    """Of a name that nobody has, and of names whose byte order is another one."""
    names = ["tea", "é", "~", "never", "rye", "b", "a\0b"]
    rng = np.random.default_rng(1)
    counts = rng.poisson(rng.exponential(2.0, (200, 1)) * [3.0, 0.1, 1.0, 0.0, 2.0, 5.0, 0.4])
    counts[rng.random(200) < 0.2] = 0
    users, protocol = table_users(counts, fh.Keys.of(names)), UnboundedHistogram(3.0, 1e-3, **given)
    truth = dict(zip(names, counts.sum(axis=0).tolist(), strict=True))
    one = fh.Estimate.ok(np.array([3.0]), keys=fh.Keys.of(["rye"]))
    for known in (fh.measured(protocol, users), fh.measured(protocol, Walked(users, 13))):
        assert list(known.support or ()) == sorted(set(names) - {"never"}, key=str.encode)
        assert known.truth.tolist() == [truth[name] for name in known.support or ()]
        want = counts.sum() - truth["rye"] + abs(3.0 - truth["rye"])
        assert protocol.loss_of(one, Walked(users, 7), known=known) == want
