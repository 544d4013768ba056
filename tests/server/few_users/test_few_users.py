"""DP-Estimate-1: its constants, its exact law on the line, its kernel, corrupted users."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import norm

from server.few_users.draws import FIRST_BUCKET, LAST_BUCKET, POINT, BallSampler, reduce_dimension
from server.few_users.plan import (
    Buckets,
    Wishes,
    ball_volume,
    bucket_params,
    choose_branch,
    clip_bias,
    few_n_min,
    finite_volume,
    paper_params,
    part_budget,
    rounds_needed,
)

Law = tuple[NDArray[np.float64], NDArray[np.float64], float, float]


def law(x: NDArray[np.float64], cuts: NDArray[np.float64], b: Buckets, n_rounds: int) -> Law:
    """Mass of every interval between the cuts, w there, P(G1), P(G2); balls of length 1."""
    middle = (cuts[1:] + cuts[:-1]) / 2
    f = (np.abs(middle[:, None] - x) <= 0.5).sum(axis=1)
    w = np.where(f > 0, np.exp(b.epsilon0 * np.minimum(f, b.ceiling)), 0.0)
    top, garbage = math.exp(b.epsilon0 * b.ceiling), math.exp(b.log_garbage)
    # a round: an owner (top / (top + garbage) / n each), a point of its ball, kept or not
    kept = np.where(f > 0, b.accept(np.maximum(f, 1)), 0.0)
    assert (kept <= 0.5 + 1e-12).all()
    density = f / b.n_users * kept * top / (top + garbage)
    mass = density * np.diff(cuts)
    first = b.acceptance * garbage / (top + garbage)
    q = mass.sum() + first
    accepted = n_rounds * q / ((n_rounds - 1) * q + 1)
    return mass / q * accepted, w, first / q * accepted, 1 - accepted


def hockey_stick(p: Law, other: Law, epsilon: float) -> float:
    """Smallest delta at which p is epsilon-close to the other."""
    a = np.concatenate([p[0], p[2:]])
    b = np.concatenate([other[0], other[2:]])
    return float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum())


def neighbours(rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Points in a few clusters of differing width, and the same with one user replaced."""
    n = int(rng.integers(2, 26))
    centres = rng.uniform(-3, 3, rng.integers(1, 4))
    x = rng.choice(centres, n) + rng.uniform(-1, 1, n) * rng.choice([0.0, 0.1, 1.0])
    y = x.copy()
    y[rng.integers(n)] = rng.uniform(-8, 8) if rng.random() < 0.7 else rng.choice(centres)
    return x, y


def cuts_of(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    both = np.concatenate([x, y])
    return np.unique(np.concatenate([both - 0.5, both + 0.5]))


def test_exact_law_is_private_on_random_neighbours() -> None:
    """The hockey-stick at epsilon never passes delta, and it comes close to it."""
    rng = np.random.default_rng(31)
    worst = 0.0
    for _ in range(3000):
        x, y = neighbours(rng)
        epsilon, delta = math.exp(rng.uniform(-2.5, 1.5)), 10 ** rng.uniform(-6, -0.5)
        kappa, n_rounds = rng.uniform(0.51, 0.95), int(10 ** rng.uniform(0, 4))
        b = bucket_params(len(x), epsilon, delta, kappa)
        cuts = cuts_of(x, y)
        p, q = law(x, cuts, b, n_rounds), law(y, cuts, b, n_rounds)
        for one, other in ((p, q), (q, p)):
            assert one[0].sum() + one[2] + one[3] == pytest.approx(1)
            worst = max(worst, hockey_stick(one, other, epsilon) / delta)
    assert worst <= 1 + 1e-9
    assert worst > 0.9


def test_log_ratios_have_bounded_range_off_the_rare_set() -> None:
    """Off {f = 1, f' = 0} and its mirror image log-ratios span at most epsilon: eps^2/8-zCDP."""
    rng = np.random.default_rng(32)
    tight = 0.0
    for _ in range(800):
        x, y = neighbours(rng)
        epsilon, delta = math.exp(rng.uniform(-2, 1)), 10 ** rng.uniform(-6, -1)
        b = bucket_params(len(x), epsilon, delta, 0.6)
        cuts, n_rounds = cuts_of(x, y), int(10 ** rng.uniform(0, 4))
        p, q = law(x, cuts, b, n_rounds), law(y, cuts, b, n_rounds)
        keep = (p[1] > 0) & (q[1] > 0)
        a = np.concatenate([p[0][keep], p[2:]])
        c = np.concatenate([q[0][keep], q[2:]])
        assert 1 - a.sum() <= delta * (1 + 1e-9)
        assert 1 - c.sum() <= delta * (1 + 1e-9)
        logs = np.log(a / c)
        tight = max(tight, np.ptp(logs) / epsilon)
        a, c = a / a.sum(), c / c.sum()
        for order in (1.5, 2.0, 8.0, 64.0):
            renyi = math.log(float((a * (a / c) ** (order - 1)).sum())) / (order - 1)
            assert renyi <= order * epsilon**2 / 8 + 1e-12
    assert 0.9 < tight <= 1 + 1e-9


def test_the_paper_s_constants_spend_twice_as_much() -> None:
    """Proposition 15 is false as stated: n = 20, clusters 13/7 and 12/8, hockey-stick .0109."""
    x, y = np.array([0.0] * 13 + [9.0] * 7), np.array([0.0] * 12 + [9.0] * 8)
    b, cuts = paper_params(20, 1.0, 1e-3), cuts_of(x, y)
    p, q = law(x, cuts, b, 10**9), law(y, cuts, b, 10**9)
    assert hockey_stick(q, p, 1.0) == pytest.approx(0.0109, abs=5e-5)
    assert hockey_stick(q, p, 2.0) == 0.0
    assert b.release.epsilon == 2.0
    assert b.release.delta == pytest.approx(math.e * 1e-3 / 4)


def test_the_paper_s_acceptance_can_exceed_one() -> None:
    with pytest.raises(ValueError, match="1/2"):
        paper_params(20, 0.01, 1e-3)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.4, 0.9), (2.0, 0.05)])
def test_the_sampler_has_the_exact_law(epsilon: float, delta: float) -> None:
    """3,000 draws on the line, chi-square over 6 cells: the chance of passing 25 is 1.4e-4."""
    x = np.array([0.0, 0.1, 0.2, 0.25, 0.3, 2.0, 2.1, 5.0])
    b = bucket_params(8, epsilon, delta, 0.6)
    cuts = np.unique(np.concatenate([x - 0.5, x + 0.5]))
    mass, _, first, last = law(x, cuts, b, 30)
    sampler = BallSampler(x[:, None], 0.5, b, 30)
    rng = np.random.default_rng(34)
    drawn = np.array([sampler.draw(rng) for _ in range(3_000)])
    kind, point = drawn[:, 0], drawn[:, 1]
    at = np.searchsorted(cuts, point[kind == POINT]) - 1
    assert not drawn[kind != POINT, 1].any()
    assert (mass[at] > 0).all()
    edges = [(-0.6, 0.0), (0.0, 0.4), (0.4, 1.5), (1.5, 9.0)]
    middle = (cuts[1:] + cuts[:-1]) / 2
    recorded, expected = [np.sum(kind == FIRST_BUCKET), np.sum(kind == LAST_BUCKET)], [first, last]
    for low, high in edges:
        cells = (middle > low) & (middle < high)
        inside = np.isin(at, np.flatnonzero(cells))
        recorded.append(int(inside.sum()))
        expected.append(float(mass[cells].sum()))
    expected = 3_000 * np.array(expected)
    assert expected.sum() == pytest.approx(3_000)
    assert (expected > 5).all()
    assert float(((np.array(recorded) - expected) ** 2 / expected).sum()) < 25


@pytest.mark.parametrize(("n", "d"), [(7, 3), (5, 40)])
def test_the_kernel_counts_balls(n: int, d: int) -> None:
    """Against a double loop over points in all d coordinates; a far outlier spoils nothing."""
    rng = np.random.default_rng(35)
    rows = rng.standard_normal((n, d)) + 3.0
    rows[0] = 1e9 * rng.standard_normal(d)
    rows[1] = rows[0] + 0.01
    basis, small = reduce_dimension(rows)
    sampler = BallSampler(rows, 1.5 * math.sqrt(d), bucket_params(n, 1.0, 0.1, 0.6), 5)
    k = 400
    owner = rng.integers(0, n, k)
    g, scale = rng.standard_normal((k, small.shape[1])), rng.uniform(0.1, 1.5, k)
    tail = rng.chisquare(d, k) / 4 if basis is not None else np.zeros(k)
    f = sampler._count(small, owner, scale, g, tail)
    for b in range(k):
        p = rows[owner[b]] + scale[b] * (g[b] if basis is None else basis @ g[b])
        near = ((p - rows) ** 2).sum(axis=1) + scale[b] ** 2 * tail[b] <= sampler.radius**2
        assert f[b] == near.sum() + (not near[owner[b]])  # its owner counts anyway
    assert len(np.unique(f)) > 2


def test_in_many_dimensions_the_proposal_is_uniform_in_the_ball() -> None:
    """One point, d = 30 > n: |p - x|^d is uniform, and no direction is preferred.

    600 draws: Kolmogorov-Smirnov beyond 2.2 / sqrt(600) has probability 1.3e-4; the mean direction
    has squared length chi-square with 30 degrees of freedom over 600 (beyond 75: 1e-5).
    """
    d, rng = 30, np.random.default_rng(36)
    x = rng.standard_normal((2, d))
    x[1] = x[0]
    sampler = BallSampler(x, 2.0, bucket_params(2, 30.0, 0.3, 0.6), 50)
    drawn = np.array([sampler.draw(rng) for _ in range(900)])
    points = drawn[drawn[:, 0] == POINT, 1:][:600] - x[0]
    assert len(points) == 600
    length = np.linalg.norm(points, axis=1)
    u = np.sort((length / 2.0) ** d)
    assert np.abs(u - (np.arange(600) + 0.5) / 600).max() < 2.2 / math.sqrt(600)
    direction = points / length[:, None]
    assert d * float((direction.sum(axis=0) ** 2).sum()) / 600 < 75
    step = 2.0 ** (math.floor(math.log2(2.0 / math.sqrt(d))) - 24)
    assert (drawn[:, 1:] / step == np.rint(drawn[:, 1:] / step)).all()  # a public grid


def test_all_rounds_are_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of proposals evaluated is the same whatever the data."""
    n, d, counted = 40, 20, []
    count = BallSampler._count

    def counting(self: BallSampler, points: object, owner: NDArray[np.int64], *a: object) -> object:
        counted.append(len(owner))
        return count(self, points, owner, *a)

    monkeypatch.setattr(BallSampler, "_count", counting)
    monkeypatch.setattr("server.few_users.draws.BATCH_NUMBERS", 20 * 100)
    rng = np.random.default_rng(37)
    together, apart = np.zeros((n, d)), 1e6 * rng.standard_normal((n, d))
    b = bucket_params(n, 4.0, 1e-3, 0.6)
    totals = []
    for rows in (together, apart):
        counted.clear()
        BallSampler(rows, 1.0, b, 3000).draw(np.random.default_rng(38))
        totals.append(list(counted))
    assert totals[0] == totals[1]
    assert len(totals[0]) > 3


def test_printed_numbers_of_the_theory() -> None:
    assert ball_volume(0.5, 0.6) == pytest.approx(0.061, abs=5e-4)
    assert ball_volume(1.0, 0.6) == pytest.approx(0.39, abs=5e-3)
    assert ball_volume(0.35, 0.6) == pytest.approx(0.006, abs=5e-4)
    assert few_n_min(1.0, 1e-6) == 73
    # the prototype's 10907 used a coarser quadrature; the closed form gives 10922
    assert rounds_needed(ball_volume(0.5, 0.6), 0.6, 0.01) == pytest.approx(10907, rel=2e-3)
    assert few_n_min(*part_budget(1.0, 1e-6, 256), failure=0.01 / 256) == pytest.approx(4112, abs=1)


def test_the_volume_s_closed_form_is_its_integral() -> None:
    for lam, kappa, corrupted in ((0.5, 0.6, 0.0), (1.0, 0.7, 0.2), (2.0, 0.51, 0.4)):
        z = norm.ppf(kappa / (1 - corrupted))

        def inside(a: float, lam: float = lam, z: float = z) -> float:
            return norm.pdf(a) * math.exp(-max(0.0, (a + z) / lam + lam**-2))

        expected = quad(inside, -12, 12, points=[-z - 1 / lam], limit=200)[0]
        assert ball_volume(lam, kappa, corrupted) == pytest.approx(expected, rel=1e-7)


def test_finite_users_have_finite_quantiles() -> None:
    assert ball_volume(1.0, 0.51, 0.49) == 0.0
    assert 0.03 < finite_volume(1.0, 0.51, 0.49, 700) < 0.06
    assert finite_volume(0.5, 0.6, 0.0, 100) == ball_volume(0.5, 0.6)
    for lam, low, high in ((1.0, 750, 850), (2.0, 580, 640)):
        assert low < few_n_min(1.0, 1e-6, kappa=0.51, lam=lam, corrupted=0.49) < high


@pytest.mark.parametrize(("corrupted", "n"), [(0.3, 120), (0.49, 800)])
def test_corrupted_users_do_not_win(corrupted: float, n: int) -> None:
    """Corrupted rows sit together on one far point, the worst place; 4 draws per setting.

    The plan promises failure at most 2%: two failures of 4 have probability 1e-3 at 1.5% each.
    """
    d, r = 64, 0.1
    rng = np.random.default_rng(40)
    rows = 0.3 + rng.standard_normal((n, d)) * r / math.sqrt(d)
    bad = math.floor(corrupted * n)
    rows[:bad] = 7.0
    wishes = Wishes(method="ball", corrupted=corrupted, lam=1.0, failure=0.02)
    plan = choose_branch(n, d, r, None, 1.0, 1e-6, wishes)
    assert plan.feasible
    b = bucket_params(n, 1.0, 1e-6, plan.kappa)
    failures = 0
    for _ in range(4):
        drawn = BallSampler(rows, plan.part_radius, b, plan.n_rounds).draw(rng)
        off = float(np.linalg.norm(drawn[1:] - 0.3))
        good = drawn[0] == POINT and abs(off / plan.error - 1) < 0.1
        failures += not good
    assert failures <= 1


def test_constants_refuse_bad_input() -> None:
    for bad, why in (
        ((9, 1.0, 0.0, 0.6), "delta"),
        ((9, math.inf, 1e-6, 0.6), "epsilon"),
        ((9, 1.0, 1e-6, 0.5), r"kappa .* 0\.5"),
    ):
        with pytest.raises(ValueError, match=why):
            bucket_params(*bad)
    b = bucket_params(4, 1.0, 1e-6, 0.6)
    for rows, radius, rounds, why in (
        (np.zeros((4, 0)), 1.0, 5, "d > 0"),
        (np.zeros((3, 2)), 1.0, 5, "3 .* 4"),
        (np.zeros((4, 2)), math.nan, 5, "radius .* nan"),
        (np.zeros((4, 2)), 1.0, 0, "n_rounds .* 0"),
    ):
        with pytest.raises(ValueError, match=why):
            BallSampler(rows, radius, b, rounds)


def test_the_bias_of_the_clip_in_one_dimension_is_that_of_two_tails() -> None:
    """E(Z - 2.6)+ less E(Z - .6)+; by sampling in four dimensions, to a hundredth."""

    def tail(t: float) -> float:
        return float(norm.pdf(t) - t * norm.sf(t))

    assert clip_bias(1) == pytest.approx(tail(0.6) - tail(2.6), rel=1e-3)
    away = np.random.default_rng(1).standard_normal((400_000, 4)) / 2 - 0.5
    beyond = np.maximum(1 - 1.6 / np.linalg.norm(away, axis=1), 0)
    assert clip_bias(4) == pytest.approx(float(np.linalg.norm(beyond @ away)) / 400_000, rel=0.01)
    assert clip_bias(128) == 0.0 < clip_bias(64) < 0.002
