"""The explicit bounds against exact enumeration: every channel, every estimator, tiny n."""

import math
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from server.targets import lower_bounds as bounds
from server.targets.lower_bounds import Sizes, TwoPoints, coins, two_point_bound


def channels(n_inputs: int, epsilon: float, seed: int) -> list[np.ndarray]:
    """Channels (inputs, outputs) whose ratios are at most e^epsilon: random, and extremal."""
    rng = np.random.default_rng(seed)
    e, out = math.exp(epsilon), []
    for _ in range(40):
        # two factors e^(epsilon / 2): of the entries, and of the sums that they are divided by
        q = np.exp(rng.uniform(0, epsilon / 2, (n_inputs, rng.integers(2, 6))))
        out.append(q / q.sum(axis=1, keepdims=True))
    krr = np.ones((n_inputs, n_inputs)) + (e - 1) * np.eye(n_inputs)
    out.append(krr / krr.sum(axis=1, keepdims=True))
    for half in range(1, n_inputs):  # randomized response about which side a record is on
        side = np.where(np.arange(n_inputs)[:, None] >= half, [[1.0, e]], [[e, 1.0]])
        out.append(side / (1 + e))
    for q in out:
        assert (q.max(axis=0) <= q.min(axis=0) * e * (1 + 1e-12)).all()
    return out


def kl(p: np.ndarray, q: np.ndarray) -> float:
    return float((p * np.log(p / q)).sum())


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_information_of_a_message_on_many_channels(epsilon: float) -> None:
    """KL of the messages is below all three bounds, and randomized response comes near."""
    most = 0.0
    for T, d in product((1, 2, 5), (0.05, 0.3, 0.8)):
        plus, minus = (binom.pmf(np.arange(T + 1), T, (1 + s * d) / 2) for s in (1, -1))
        distance = bounds.binomial_distance(T, np.array([d]))
        assert distance[0] == pytest.approx(np.abs(plus - minus).sum() / 2, rel=1e-12)
        divergence = coins(np.array([d])).divergence * T
        assert divergence[0] == pytest.approx(kl(plus, minus), rel=1e-9)
        allowed = float(bounds.information(epsilon, distance, divergence)[0])
        for q in channels(T + 1, epsilon, T):
            result = kl(plus @ q, minus @ q)
            assert result <= allowed * (1 + 1e-9)
            most = max(most, result / allowed)
    assert most > 0.6


@pytest.mark.parametrize("epsilon", [0.2, 3.0])
@pytest.mark.parametrize("T", [1, 2])
def test_no_estimator_beats_the_bound(T: int, epsilon: float) -> None:
    """The Bayes risks of +-D by enumeration of 3 users' records and messages."""
    n = 3
    sizes = Sizes(np.array([float(T)]), np.array([float(n)]))
    x = 2 * np.arange(T + 1) / T - 1
    for d in (0.1, 0.4, 0.9):
        points = coins(np.array([d]))
        bound = two_point_bound(sizes, epsilon, points)
        law = [binom.pmf(np.arange(T + 1), T, (1 + s * d) / 2) for s in (1, -1)]
        some = channels(T + 1, epsilon, 4)[-8:]
        for first, later in product(some, repeat=2):
            averages, masses = [], []  # of each transcript: records' averages with their weights
            for records in product(range(T + 1), repeat=n):
                prior = sum(0.5 * math.prod(p[r] for r in records) for p in law)
                averages.append(float(np.mean(x[list(records)])))
                row = []
                outputs = [range(first.shape[1])] + [range(later.shape[1])] * (n - 1)
                for z in product(*outputs):
                    # the later channel's outputs are relabelled by the first message
                    weight = first[records[0], z[0]]
                    for k in range(1, n):
                        weight *= later[records[k], (z[k] + z[0]) % later.shape[1]]
                    row.append(prior * weight)
                masses.append(row)
            mass, average = np.array(masses), np.array(averages)
            mean = average @ mass / mass.sum(axis=0)
            risk = float((mass * np.square(average[:, None] - mean)).sum())
            assert risk >= bound * (1 - 1e-9)


def test_overlap_is_below_that_of_any_two_laws() -> None:
    rng = np.random.default_rng(1)
    p, q = rng.dirichlet(np.ones(5), (2, 200))
    for a, b in zip(p, q, strict=True):
        assert bounds.overlap(np.array([kl(a, b)]))[0] <= np.minimum(a, b).sum() + 1e-12
    assert bounds.overlap(np.array([0.0, 800.0])).tolist() == [1.0, pytest.approx(0, abs=1e-300)]


def test_waves_by_quadrature() -> None:
    points = bounds.waves(0.5)
    x = (np.arange(40_000) + 0.5) / 40_000
    d = points.distance[-1]
    assert d == pytest.approx(0.5)
    up, down = (1 + s * d * math.sqrt(2) * np.cos(2 * np.pi * x) for s in (1, -1))
    assert points.divergence[-1] == pytest.approx((up * np.log(up / down)).mean(), rel=1e-6)
    assert points.distance_of(1)[-1] == pytest.approx(np.abs(up - down).mean() / 2, rel=1e-5)
    assert points.distance_of(1e6)[-1] == 1.0
    assert points.variance[-1] == pytest.approx((up * 2 * np.cos(2 * np.pi * x) ** 2).mean() - d**2)


def test_packings() -> None:
    """On an interval a packing at distance delta has 1 / delta points at least: Fano by hand."""
    n, epsilon = 20, 0.5
    known = n * epsilon * math.tanh(epsilon / 2) + math.log(2)
    deltas = np.geomspace(1e-9, 0.9, 20_000)
    by_hand = ((deltas / 2) ** 2 * (1 - known / np.log(1 / deltas))).max()
    assert bounds.packing_bound(n, epsilon, [1.0], box=True) == pytest.approx(by_hand, rel=0.02)
    assert bounds.packing_bound(n, math.inf, [1.0]) == 0.0
    # more users, less; a larger set, more; a longer ellipsoid at least what its first axes say
    assert bounds.packing_bound(40, 0.5, [1.0]) < bounds.packing_bound(20, 0.5, [1.0])
    assert bounds.packing_bound(200, 0.5, [1.0] * 8) > bounds.packing_bound(200, 0.5, [1.0] * 2)
    long = [0.5**j for j in range(30)]
    assert bounds.packing_bound(99, 0.5, long) >= bounds.packing_bound(99, 0.5, long[:3])


def test_ragged_sizes_and_no_noise() -> None:
    """Bounds fall with users, samples and epsilon; without noise only sampling is left."""
    even, ragged = (
        Sizes(np.array([10.0]), np.array([100.0])),
        Sizes(np.array([1.0, 10.0, 50.0]), np.array([20.0, 60.0, 20.0])),
    )
    assert ragged.n == 100
    assert ragged.average_share == pytest.approx((20 + 6 + 0.4) / 1e4)
    points: TwoPoints = coins()
    assert two_point_bound(ragged, 0.3, points) > 0
    falling = [two_point_bound(even, e, points) for e in (0.1, 0.3, 1.0, 3.0)]
    assert falling == sorted(falling, reverse=True)
    assert two_point_bound(even, math.inf, points) == 0.0
