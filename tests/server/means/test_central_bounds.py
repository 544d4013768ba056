"""Bounds for a trusted server, against the best of all private mechanisms by linear programs."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.stats import binom

from server.targets import lower_bounds as bounds
from server.targets.lower_bounds import Sizes, coin_bound, kept_apart


def best_mechanism(n: int, d: float, epsilon: float, delta: float, power: int) -> float:
    """Least average risk about the users' own average, of n users of one item +-1, mean +-d."""
    x = np.arange(n + 1)
    out = np.linspace(-1, 1, 4 * n + 1)
    weight = (binom.pmf(x, n, (1 + d) / 2) + binom.pmf(x, n, (1 - d) / 2)) / 2
    cost = weight[:, None] * np.abs(out[None] - (2 * x / n - 1)[:, None]) ** power
    k = len(out)
    size = (n + 1) * k
    pairs = [(a, b) for a in x for b in (a - 1, a + 1) if 0 <= b <= n]
    # M(a, o) - e^eps M(b, o) <= z(a, b, o), and the z of a pair add up to delta at most
    n_z = len(pairs) * k if delta else 0
    rows, limits = [], []
    for at, (a, b) in enumerate(pairs):
        for o in range(k):
            row = np.zeros(size + n_z)
            row[a * k + o], row[b * k + o] = 1.0, -math.exp(epsilon)
            if delta:
                row[size + at * k + o] = -1.0
            rows.append(row)
            limits.append(0.0)
        if delta:
            row = np.zeros(size + n_z)
            row[size + at * k : size + (at + 1) * k] = 1.0
            rows.append(row)
            limits.append(delta)
    sums = np.zeros((n + 1, size + n_z))
    for a in x:
        sums[a, a * k : (a + 1) * k] = 1.0
    result = linprog(
        np.append(cost.ravel(), np.zeros(n_z)), np.array(rows), limits, sums, np.ones(n + 1)
    )
    assert result.status == 0
    return float(result.fun)


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.4, 0.0), (1.0, 0.0), (1.0, 0.03), (2.5, 0.1)])
def test_no_mechanism_is_better(
    monkeypatch: pytest.MonkeyPatch, epsilon: float, delta: float, power: int
) -> None:
    """The bound at each D is below the best mechanism's average risk, and near it at small eps."""
    n, nearest = 5, math.inf
    for d in (0.05, 0.2, 0.5, 0.9):
        monkeypatch.setattr(bounds, "DISTANCES", np.array([d]))
        one = Sizes(np.ones(1), np.array([float(n)]))
        bound = coin_bound(one, epsilon, delta, power=power)
        best = best_mechanism(n, d, epsilon, delta, power)
        assert bound <= best + 1e-9
        nearest = min(nearest, best / max(bound, 1e-300))
    assert epsilon > 0.5 or nearest < (3 if power == 1 else 6)


def test_overlap_is_that_of_group_privacy() -> None:
    """(e^E - 1 + 2 Delta) / (e^E + 1) apart, with Delta = delta (1 + e^eps + ... ), is attained."""
    eps, delta = 0.3, 1e-3
    for g in (1, 2, 5):
        step = delta * sum(math.exp(i * eps) for i in range(g))
        e = math.exp(g * eps)
        q = (1 - step) / (e + 1)
        p = e * q + step  # the ends of what is allowed
        assert 1 - q == pytest.approx(e * (1 - p) + step)
        assert kept_apart(eps, delta, np.array([g]))[0] == pytest.approx(1 - (p - q))
    assert kept_apart(1.0, 1e-6, np.array([30.0]))[0] == 0.0  # delta has told everything
    assert kept_apart(800.0, 0.0, np.array([1.0]))[0] < 1e-300


def test_bounds_move_as_they_should() -> None:
    """About .56 over n epsilon for one item each; less with more items, less with delta."""
    one = Sizes(np.ones(1), np.array([1e6]))
    value = 1e6 * coin_bound(one, 1.0, 0.0, power=1)
    # D (1 - T(1 + n D)) at n D = x: 2 x / (e^(1 + x) + 1)
    x = np.linspace(0.01, 10, 10_000)
    assert value == pytest.approx((2 * x / (np.exp(1 + x) + 1)).max(), rel=0.01)
    small = coin_bound(one, 0.01, 0.0, power=1) * 1e4
    assert small == pytest.approx(0.5569, rel=0.02)
    many = coin_bound(Sizes(np.array([400.0]), one.users), 0.01, 0.0, power=1) * 1e4
    # t = D sqrt(2 T / pi): the average moves that much less for each user who differs
    assert many == pytest.approx(small * math.sqrt(math.pi / 800), rel=0.03)
    assert coin_bound(one, 1.0, 1e-3, power=1) < coin_bound(one, 1.0, 0.0, power=1)
    assert coin_bound(one, 1.0, 0.0, steps=2) < coin_bound(one, 1.0, 0.0)
    assert coin_bound(one, math.inf, 0.0) == 0.0
    ragged = Sizes(np.arange(1.0, 200.0), np.full(199, 50.0))
    rounded = bounds.grouped(ragged)
    assert rounded.n == ragged.n
    assert len(rounded.items) <= 24
    assert rounded.average_share <= ragged.average_share  # rounded up
    with pytest.raises(ValueError, match="one pair"):
        coin_bound(one, 1.0, 0.0, power=2, pairs=3)


def test_pairs_of_symbols() -> None:
    """One item each among 2 j symbols: t = D / j, hence j times the bound of one pair."""
    one = Sizes(np.ones(1), np.array([1e6]))
    whole = coin_bound(one, 0.01, 0.0, power=1)
    assert coin_bound(one, 0.01, 0.0, power=1, pairs=50) == pytest.approx(50 * whole, rel=0.03)
    # two records of three items, enumerated
    p = np.array([1.5, 0.5, 1.0, 1.0]) / 4
    q = np.array([0.5, 1.5, 1.0, 1.0]) / 4
    of: dict[tuple[int, int], list[float]] = {}
    for draw in product(range(4), repeat=3):
        key = draw.count(0), draw.count(1)
        mass = of.setdefault(key, [0.0, 0.0])
        mass[0] += math.prod(p[i] for i in draw)
        mass[1] += math.prod(q[i] for i in draw)
    tv = sum(abs(a - b) for a, b in of.values()) / 2
    assert bounds._apart(3.0, np.array([0.5]), 2)[0] == pytest.approx(tv, abs=1e-9)
