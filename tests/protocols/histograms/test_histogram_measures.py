"""What histograms add up of users: against slow obvious formulas, in any slices and blocks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from walked_users import Walked

from fedhist.model.measures import Measured, measured
from fedhist.model.protocol import Protocol
from fedhist.model.query import Summary
from fedhist.privacy.noise_law import NoiseLaw, excess, expected_l1
from fedhist.protocols import (
    AdaptiveHistogram,
    BoundedHistogram,
    ItemHistogram,
    LocalHistogram,
    PoissonCounts,
)
from fedhist.protocols.clip_choice import theory
from fedhist.protocols.clip_choice.by_exponential import law_of, slope_aim
from fedhist.protocols.clip_choice.two_norms import norm_law
from fedhist.protocols.histograms import poisson_debiasing as debias
from fedhist.protocols.shared.clipped_totals import whole_and_kept
from fedhist.protocols.shared.contributions import decay_of, small_first
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids

DOMAIN = Keys.of(["f", "b", "a", "elsewhere", "d"])


def random_users(seed: int, n: int = 300) -> Users:
    """Users of a heavy tail of items, some with none, of a vocabulary that is not the domain."""
    rng = np.random.default_rng(seed)
    table = rng.poisson(rng.exponential(1.0, (n, 1)) * [3.0, 0.1, 1.0, 2.0, 0.0, 5.0, 0.4])
    table[rng.random(n) < 0.2] = 0
    table[rng.random(n) < 0.02] *= 100
    user, item = np.nonzero(table)
    vocabulary = Keys.of(["a", "b", "c", "d", "e", "f", "g"])
    return Users.from_counts(user_ids(Keys.range(n)), user, item, table[user, item], vocabulary)


def table_of(users: Users, domain: Keys) -> np.ndarray:
    """Every user's counts of the domain: (n, d)."""
    out = np.zeros((len(users), len(domain)))
    v = users.counts
    for u in range(len(users)):
        for k in range(v.indptr[u], v.indptr[u + 1]):
            name = v.vocabulary[int(v.item[k])]
            if name in set(domain):
                out[u, domain.position(name)] += int(v.count[k])
    return out


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


def padded(p: LocalHistogram, table: np.ndarray) -> float:
    """A normal law with the exact mean and variance of each total."""
    a, b = p.query.channel.noise
    share = table / np.maximum(table.sum(axis=1, keepdims=True), p.clip)
    first, second = share.sum(axis=0), np.square(share).sum(axis=0)
    std = np.maximum(p.clip * np.sqrt(np.maximum(len(table) * a + b * first - second, 0)), 1e-9)
    bias = np.maximum(table.sum(axis=0) - p.clip * first, 0.0)
    unit = NoiseLaw("gaussian", 1.0)
    error = bias + 2 * std * excess(unit, bias / std)
    return float((error - p.nonneg * std * excess(unit, p.clip * first / std)).sum())


def poisson(p: PoissonCounts, table: np.ndarray) -> float:
    truth = table.sum(axis=0)

    def at(clip: int) -> float:
        kept, law = np.minimum(table, clip).sum(axis=0), p.law(clip)
        if not p.debias:
            return expected_l1(law, truth - kept, kept)
        most = p.most_rate(clip)
        return sum(
            debias.expected_error(law, k, t, p.n_users, clip, most)
            for k, t in zip(kept, truth, strict=True)
        )

    if p.clip is not None or math.isinf(p.epsilon):
        return at(p.clip or p.clip_max)
    edges = np.array(p.edges)
    above = (table > edges).sum(axis=0).astype(float)
    first = small_first(edges, decay_of(p.n_users, p.budgets[0]))
    law = theory.excess_probabilities(above, p.rank, 1.0, p.budgets[0], first)
    return sum(q * at(int(c)) for c, q in zip(edges, law, strict=True) if q)


def adaptive(p: AdaptiveHistogram, table: np.ndarray) -> float:
    """Mix the exact errors over the law of the choice."""
    l1, l2 = np.linalg.norm(table, 1, axis=1), np.linalg.norm(table, 2, axis=1)

    def tails(norm: int) -> np.ndarray:
        task = p.task_in(norm)
        radius, size = slope_aim(task).radius, l1 if norm == 1 else l2
        slope = np.divide(l1, size, out=np.zeros_like(size), where=size > 0)
        one = np.floor(np.minimum(slope / radius, 1) * 2**20) * radius / 2**20 if radius else 1.0
        return np.array([np.sum(np.where(size > c, one, 0.0)) for c in task.grid])

    tasks = [p.task_in(norm) for norm in p.norms]
    if len(tasks) == 2:
        laws = norm_law(tasks[0], tasks[1], (tails(1), tails(2)))
    else:
        laws = (law_of(slope_aim(tasks[0]), tasks[0], tails(p.norm)),)  # type: ignore[assignment]
    error = 0.0
    for task, law in zip(tasks, laws, strict=True):
        for clip, chance in zip(task.grid, law, strict=True):
            if chance > 1e-12:
                r = replace(p.at(float(clip), task.norm), nonneg=p.nonneg)
                error += chance * bounded(r, table)
    return error


CASES: list[tuple[Protocol, Callable[..., float]]] = [
    (BoundedHistogram(DOMAIN, 1.0, 7.0, 1e-6), bounded),
    (BoundedHistogram(DOMAIN, 0.5, 9.0, nonneg=False), bounded),
    (BoundedHistogram(DOMAIN, 0.5, 9.0, grid=0.75), bounded),
    (BoundedHistogram(DOMAIN, 1.0, 5.0, 1e-6, grid=0.75, adjacency="replace-user"), bounded),
    (BoundedHistogram(DOMAIN, 1.0, 0.0), bounded),
    (ItemHistogram(DOMAIN, 0.1), one_record),
    (ItemHistogram(DOMAIN, 0.1, nonneg=False), one_record),
    (LocalHistogram(DOMAIN, 1.0, 4), padded),
    (LocalHistogram(DOMAIN, 2.0, 30, nonneg=False, oracle="unary"), padded),
    (PoissonCounts(DOMAIN, 1.0, 300, clip=3), poisson),
    (PoissonCounts(DOMAIN, 1.0, 300, clip=3, debias=False, delta=1e-6), poisson),
    (PoissonCounts(Keys.of(["f"]), 1.0, 300), poisson),
    (PoissonCounts(Keys.of(["f"]), 4.0, 300, clip_max=50, discrete=True), poisson),
    (PoissonCounts(Keys.of(["f"]), math.inf, 300), poisson),
    (AdaptiveHistogram(DOMAIN, 1.0, 1e-6, n_users=300), adaptive),
    (AdaptiveHistogram(DOMAIN, 1.0, n_users=300, nonneg=False), adaptive),
    (AdaptiveHistogram(DOMAIN, 2.0, 1e-6, noise="gaussian", discrete=True), adaptive),
]


def ways(protocol: Protocol, users: Users) -> Iterator[Measured]:
    """Measure over all users, 3 and 7 unequal slices, and tiny blocks."""
    yield measured(protocol, users)
    measure = protocol.measure()
    assert measure is not None
    rng = np.random.default_rng(len(users))
    for n in (3, 7):
        edges = [0, *np.sort(rng.integers(0, len(users) + 1, n - 1)), len(users)]
        parts = [measure.of(users.slice(a, b)) for a, b in pairwise(edges)]
        yield measured(protocol, users, Summary.merge(parts))
    yield measured(protocol, Walked(users, 13))


@pytest.mark.parametrize(("protocol", "slow"), CASES, ids=lambda x: getattr(x, "name", None))
def test_against_all_records_at_once(protocol: Protocol, slow: Callable[..., float]) -> None:
    for users in (random_users(1), random_users(2), random_users(1).slice(0, 0)):
        table = table_of(users, protocol.domain)  # type: ignore[attr-defined]
        want = slow(protocol, table)
        for known in ways(protocol, users):
            assert np.array_equal(known.truth, table.sum(axis=0))
            assert known.error.expected == pytest.approx(want, rel=1e-12, abs=1e-12)
            assert (known.support, known.resolution, known.diagnostics) == (None, 0.0, {})
            assert known.lower_bounds == ()


def test_of_a_million_users_some_stand_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules whose law is not known are run on users' norms: 4,000 of 20,000 here, to 5 %."""
    users = random_users(3, 20_000)
    p = AdaptiveHistogram(users.vocabulary, 1.0, 1e-6, threshold="slope-curve", n_users=20_000)
    whole = measured(p, users).error
    monkeypatch.setattr("fedhist.protocols.clip_choice.measured.norm_index.MOST_ROWS", 4000)
    some = measured(p, Walked(users, 3000)).error
    assert "sampled: " in some.source
    assert "sampled: " not in whole.source
    assert some.expected == pytest.approx(whole.expected, rel=0.05)


def test_large_counts_are_added_in_doubles() -> None:
    users = Users.from_records({"ann": {"a": 2**61, "b": 3}, "bob": {"a": 1}})
    whole, kept = whole_and_kept(users, Keys.of(["a", "b"]), 2.0, 2)
    assert whole.tolist() == [2.0**61, 3.0]
    assert kept.tolist() == pytest.approx([3.0, 2 * 3 / 2**61])
