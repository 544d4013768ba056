"""What histograms over unknown keys add up of users: against obvious formulas, in blocks too."""

from __future__ import annotations

import math

import numpy as np
import pytest
from walked_users import Walked

from fedhist.model.evaluation import Facts, measured
from fedhist.model.protocol import Estimate
from fedhist.protocols import UnboundedHistogram
from fedhist.users import key_sample
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from tests.running import table_users

NAMES = ["tea", "é", "~", "never", "rye", "b", "a\0b"]


def random_users(seed: int, n: int = 200) -> tuple[Users, np.ndarray]:
    """Users of a heavy tail, some without items, and their counts by name in byte order."""
    rng = np.random.default_rng(seed)
    table = rng.poisson(rng.exponential(2.0, (n, 1)) * [3.0, 0.1, 1.0, 0.0, 2.0, 5.0, 0.4])
    table[rng.random(n) < 0.2] = 0
    users = table_users(table, Keys.of(NAMES))
    order = sorted((j for j in range(7) if table[:, j].any()), key=lambda j: NAMES[j].encode())
    return users, table[:, order].astype(float)


def ways(protocol: UnboundedHistogram, users: Users) -> list[Facts]:
    return [measured(protocol, users), measured(protocol, Walked(users, 13))]


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
    one = Estimate.ok(np.array([3.0]), keys=Keys.of(["rye"]))
    for known in ways(protocol, users):
        assert list(known.support or ()) == sorted(set(NAMES) - {"never"}, key=str.encode)
        assert known.truth.tolist() == table.sum(axis=0).tolist()
        at = list(known.support or ()).index("rye")
        want = table.sum() - table[:, at].sum() + abs(3.0 - table[:, at].sum())
        assert protocol.loss_of(one, Walked(users, 7), known=known) == want


def many_keys(n: int = 200, d: int = 60) -> tuple[Users, np.ndarray, list[str]]:
    """Users of sixty items, whose names are in byte order."""
    rng = np.random.default_rng(3)
    table = rng.poisson(rng.exponential(1.0, (n, 1)) * rng.exponential(0.5, d))
    table[:, 11] = 0
    names = sorted((f"item {'é' * (j % 3)}{j}" for j in range(d)), key=str.encode)
    return table_users(table, Keys.of(names)), table.astype(float), names


@pytest.mark.parametrize("protocol", CASES)
def test_of_too_many_keys_a_sample_is_told_apart(
    protocol: UnboundedHistogram, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a hash of the key alone: exactly, whatever the blocks; sums over all are scaled."""
    users, table, names = many_keys()
    whole = measured(protocol, users)
    keys = whole.support
    monkeypatch.setattr(key_sample, "MOST_TOLD_APART", 60)
    assert measured(protocol, users).one_in == 1
    monkeypatch.setattr(key_sample, "MOST_TOLD_APART", 59)
    monkeypatch.setattr(key_sample, "ONE_IN", 4)
    held = table.sum(axis=0)
    mine = np.array([bool(key_sample.in_sample(Keys.of([x]), 4)[0]) for x in names]) & (held > 0)
    assert 5 < mine.sum() < 25
    everything = Estimate.ok(held[held > 0] + 2.0, keys=keys)
    for known in ways(protocol, users):
        assert (known.one_in, known.diagnostics) == (4, {"items sampled 1 in": 4.0})
        assert list(known.support or ()) == [x for x, a in zip(names, mine, strict=True) if a]
        assert known.truth.tolist() == held[mine].tolist()
        assert protocol.loss_of(everything, users, known=known) == 4 * 2.0 * mine.sum()


def test_a_key_that_nobody_has_is_an_error_in_the_sample_too() -> None:
    keys = Keys.of(["a", "b"])
    share = next(n for n in range(2, 99) if key_sample.in_sample(keys, n).tolist() == [True, False])
    one = Estimate.ok(np.array([1.0, 2.0]), keys=keys)
    assert one.over(Keys.of(["a", "c"]), share).value == pytest.approx([1.0, 0.0])
    with pytest.raises(ValueError, match="'a' is not among"):
        one.over(Keys.of(["c"]), share)
