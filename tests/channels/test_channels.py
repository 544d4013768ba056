from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import chisquare
from vote_laws import scalar_probabilities

import fedhist as fh
from fedhist.channels import scalar
from fedhist.channels.bits import vote_totals
from fedhist.channels.sphere import MAX_DIMENSION, SphereChannel
from fedhist.protocols import Mean
from fedhist.users.streams import integer_threshold
from simulations.runs.options import Options
from simulations.runs.run import execute

EPSILONS = [1e-9, 1e-3, 0.1, 0.3, 1.0, 2.0, 4.0, 10.0, 37.7]


def log_odds(threshold: int) -> Decimal:
    return (Decimal(2**64 - threshold) / Decimal(threshold)).ln()


@pytest.mark.parametrize("ones", [1, 2, 3])
@pytest.mark.parametrize("epsilon", [*EPSILONS, 80.0, 800.0, 1e4])
def test_unary_odds_never_exceed_epsilon_in_exact_arithmetic(epsilon: float, ones: int) -> None:
    with localcontext() as context:
        context.prec = 60
        worst = 2 * ones * log_odds(fh.UnaryChannel(epsilon, ones).flip_threshold)
        assert worst <= Decimal(epsilon)
        if epsilon / (2 * ones) < 43:  # beyond, 2^-64 is the least flip probability
            assert worst >= Decimal("0.99") * Decimal(epsilon)


def e_to(epsilon: float, bits: int = 100) -> int:
    with localcontext() as context:
        context.prec = 120
        return int(Decimal(epsilon).exp() * 2**bits)


def extremes(channel: scalar.ScalarChannel) -> tuple[np.ndarray, np.ndarray]:
    x = channel.inputs()
    most = np.zeros(len(channel.alphabet()), dtype=np.uint64)
    least = np.full_like(most, 2**64 - 1)
    for first in range(0, len(x), 16):
        weights = channel.weights(x[first : first + 16])
        most = np.maximum(most, weights.max(axis=0))
        least = np.minimum(least, weights.min(axis=0))
    return most, least


@pytest.mark.parametrize("kind", list(scalar.CHANNELS))
@pytest.mark.parametrize("epsilon", [1e-4, 1e-3, 0.03, 0.1, 1.0, 3.0, 8.0, 20.0, 50.0, 1e4])
def test_the_ratio_never_exceeds_e_to_epsilon_in_exact_arithmetic(
    kind: str, epsilon: float
) -> None:
    most, least = extremes(fh.scalar_channel(kind, epsilon))
    assert least.min() > 0
    # weights are below 2^64, so that beyond epsilon = 45 any ratio is allowed
    limit = e_to(min(epsilon, 45.0))
    pairs = zip(most.tolist(), least.tolist(), strict=True)
    assert all(p << 100 <= limit * q for p, q in pairs)
    if epsilon <= 30:  # nor is the budget wasted; beyond, 2^-64 is the least probability
        worst = np.log(most.astype(float)) - np.log(least.astype(float))
        assert worst.max() >= (1 - 2.0**-11) * epsilon


@pytest.mark.parametrize("kind", list(scalar.CHANNELS))
@pytest.mark.parametrize("epsilon", [1e-4, 0.1, 0.5, 1.0, 4.0, 20.0, 1e300])
def test_laws_sum_to_one_and_means_are_linear_exactly(kind: str, epsilon: float) -> None:
    channel = fh.scalar_channel(kind, epsilon)
    z, top = channel.alphabet().tolist(), channel.steps
    means = {}
    for x in {-top, -(top // 3), 0, top - 1, top} & {*channel.inputs().tolist()}:
        weights = channel.weights([x])[0].tolist()
        assert sum(weights) == 2**64
        assert max(z) == -min(z) == channel.bound
        means[x] = sum(a * w for a, w in zip(z, weights, strict=True))
    assert all(mean * top == x * means[top] for x, mean in means.items())
    # the one bit's gain is that of its budget: it lies, by its margin, a little more
    rel = 1e-9 if kind == "onebit" else 1e-14
    assert means[top] / 2**64 == pytest.approx(channel.gain, rel=rel)
    assert means[top] > 0


@pytest.mark.parametrize("epsilon", [1e-4, 0.2, 1.0, 7.0, 50.0])
def test_laplace_weights_are_clamped_noise(epsilon: float) -> None:
    channel = scalar.LaplaceChannel(epsilon)
    h, most = channel.table.tolist(), channel.most
    assert sum(h) == 2**63
    assert channel.table.nbytes < 5e6
    for x in {0, 1, channel.steps, -channel.steps}:
        want = [0] * (2 * most + 1)
        for k, w in enumerate(h):
            want[min(x + k, most) + most] += w
            want[max(x - k, -most) + most] += w
        assert channel.weights([x])[0].tolist() == want


@pytest.mark.parametrize("epsilon", [1e-4, 0.01, 0.5, 1.0, 4.0])
def test_laplace_noise_has_the_law_of_the_specification(epsilon: float) -> None:
    channel = scalar.LaplaceChannel(epsilon)
    r, k = epsilon / (2 * channel.steps), np.arange(channel.reach)
    p = channel.table[: channel.reach] * 2.0**-63
    p[1:] /= 2  # of one side
    near = k * r < 10  # further out shows what pays for the rounding to integers
    assert np.abs(p[near] / (np.tanh(r / 2) * np.exp(-r * k[near])) - 1).max() < 3e-3
    assert channel.table[channel.reach :].sum() * 2.0**-63 < 2.0**-19


@pytest.mark.parametrize("kind", list(scalar.CHANNELS))
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 4.0, 12.0, 30.0])
def test_moments_agree_with_the_law(kind: str, epsilon: float) -> None:
    channel = fh.scalar_channel(kind, epsilon)
    u = np.array([-1.0, -0.3, 0.0, 1e-4, 0.5, 0.7001, 1.0])
    z, law = channel.alphabet(), scalar_probabilities(channel, u)
    assert law.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
    mean = law @ z
    assert mean == pytest.approx(channel.gain * u, abs=1e-12 * channel.bound)
    variance = (law * (z - mean[:, None]) ** 2).sum(axis=1) / channel.gain**2
    assert channel.variance(u) == pytest.approx(variance, rel=1e-6)


def test_a_report_fits_its_type_at_both_ends() -> None:
    edge = scalar.LaplaceChannel(0.0012111906233494764)
    assert (edge.most, edge.dtype) == (2**15, np.int32)  # int16 holds the negative end alone
    budgets = np.geomspace(1e-4, 1e3, 200)
    channels = [fh.scalar_channel(k, float(e)) for k in scalar.CHANNELS for e in budgets]
    assert all(c.bound <= np.iinfo(c.dtype).max for c in channels)


def test_a_channel_takes_its_own_reports_only() -> None:
    for kind in scalar.CHANNELS:
        channel = fh.scalar_channel(kind, 1.0)
        assert channel.sum_dtype == np.int64
        most = int(channel.bound)
        good = np.array([-most, most, 1], dtype=channel.dtype)
        channel.check("reports", good, 3)
        wider = good.astype(np.int64)
        over = (wider + 1).astype(channel.dtype)
        for bad in (wider, over, good[:2], good[:, None], good.astype(np.float64)):
            with pytest.raises(fh.WireError, match="'reports'"):
                channel.check("reports", bad, 3)
    with pytest.raises(fh.WireError, match="holds 0"):
        scalar.OneBitChannel(1.0).check("reports", np.array([1, 0], dtype=np.int8), 2)
    exact = scalar.LaplaceChannel(math.inf)
    assert exact.sum_dtype == np.float64
    exact.check("reports", np.array([0.25, -1.0]), 2)
    for wrong in (np.nan, 1.5):
        with pytest.raises(fh.WireError, match="'reports'"):
            exact.check("reports", np.array([0.25, wrong]), 2)


@pytest.mark.parametrize("kind", list(scalar.CHANNELS))
def test_sums_are_drawn_with_the_exact_law(kind: str) -> None:
    """Chi-squared test of the sum of three reports; fails by chance with probability 1e-6."""
    channel = fh.scalar_channel(kind, 20.0 if kind == "laplace" else 2.0)
    u, n, most = np.array([-0.3, 0.9999, 0.2]), 30_000, int(channel.bound)
    law = np.ones(1)
    for p in scalar_probabilities(channel, u):
        full = np.zeros(2 * most + 1)
        full[channel.alphabet() + most] = p
        law = np.convolve(law, full)
    fold = np.tile(np.arange(n), 3)
    sums = channel.sum_law_by(np.repeat(u, n), fold, n, np.random.default_rng(0))
    assert sums.dtype == np.int64
    counts = np.bincount(sums + 3 * most, minlength=len(law))
    assert counts[law == 0].sum() == 0
    cells = np.unique(np.searchsorted(np.cumsum(law), np.linspace(0, 1, 31)[:-1], side="right"))
    cells[0] = 0
    result, expected = (np.add.reduceat(a, cells) for a in (counts, law * n))
    assert chisquare(result, expected / expected.sum() * n).pvalue > 1e-6


@pytest.mark.parametrize(
    ("epsilon", "laplace", "onebit", "piecewise"),
    [(0.5, 8, 4.17, 4.64), (1, 2, 1.17, 1.02), (2, 0.5, 0.43, 0.20), (4, 0.125, 0.27, 0.031)],
)
def test_planning_variances(
    epsilon: float, laplace: float, onebit: float, piecewise: float
) -> None:
    result = [fh.scalar_channel(kind, epsilon).v for kind in ("laplace", "onebit", "piecewise")]
    assert result == pytest.approx([laplace, onebit, piecewise], rel=0.02)


def test_unary_debias_and_tau() -> None:
    channel = fh.UnaryChannel(1.3, ones=3)
    assert channel.tau == pytest.approx(1 - 2 * channel.flip, abs=1e-14)
    n = 1000
    true = np.array([0.0, 0.25, 1.0])
    expected = n * (channel.flip + true * (1 - 2 * channel.flip))
    assert channel.debias(expected, n) == pytest.approx(true, abs=1e-12)


def test_bad_parameters() -> None:
    for kind, epsilon in (("laplace", 0.99e-4), ("piecewise", 0.99e-4), ("laplace", math.nan)):
        with pytest.raises(ValueError, match=r"0\.0001|nan"):
            fh.scalar_channel(kind, epsilon)
    with pytest.raises(ValueError, match="inf"):
        fh.scalar_channel("laplace", math.inf).weights([0])
    with pytest.raises(ValueError, match="'gauss'"):
        fh.scalar_channel("gauss", 1.0)


def test_the_kind_of_least_variance() -> None:
    best = {1e-3: "onebit", 0.6: "onebit", 0.8: "piecewise", 5.0: "piecewise", math.inf: "laplace"}
    assert {e: scalar.best_kind(e) for e in best} == best


@pytest.mark.parametrize("d", [1, 2, 3, 5, 63, 64, 65, 1000, MAX_DIMENSION])
def test_the_constant_of_the_sphere(d: int) -> None:
    """c_d against the gamma function; lgamma itself loses digits for the largest d."""
    log = gammaln(d / 2) - gammaln((d + 1) / 2) - math.log(math.pi) / 2
    result = SphereChannel(d, 1.0, 1.0).mean_height
    assert result == pytest.approx(math.exp(log), rel=1e-13 * max(1, d) if d > 100 else 1e-13)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 0.5, 1.0, 2.0, 5.0, 20.0])
def test_the_odds_never_exceed_epsilon(epsilon: float) -> None:
    """In exact arithmetic: (1 - f) / f with f = t / 2^64; and they are nearly attained."""
    t = SphereChannel(4, 1.0, epsilon).flip_threshold
    odds = Fraction((1 << 64) - t, t)
    log = math.log(odds)
    # e^epsilon by its Taylor series, from below, in fractions
    exact = term = Fraction(1)
    for k in range(1, 120):
        term = term * Fraction(epsilon) / k
        exact += term
    assert odds <= exact
    assert log == pytest.approx(epsilon, rel=1e-9)


def test_vote_totals_have_the_exact_law() -> None:
    """Enumerated for two ones among three users; chi-squared false alarm 1e-6."""
    flip, draws = 0.3, 40_000
    p = float(integer_threshold(flip)) / 2**64
    law = np.zeros(4)
    for bits in itertools.product((0, 1), repeat=3):
        chance = [(1 - p if b else p) for b in bits[:2]] + [p if bits[2] else 1 - p]
        law[sum(bits)] += np.prod(chance)
    counts = np.full(draws, 2, dtype=np.int64)
    result = np.bincount(vote_totals(counts, 3, flip, np.random.default_rng(5)), minlength=4)
    chi = ((result - draws * law) ** 2 / (draws * law)).sum()
    assert chi < 30.7  # 1 - 1e-6 quantile of three degrees of freedom


def test_nobody_in_the_cohort_of_the_vote() -> None:
    """A vote that nobody heard is a failure, with nodes that have users and in aggregate too."""
    protocol, users = Mean.example(), Mean.example_users()
    asked = next(protocol.rounds(None))
    deaf = users.take(np.flatnonzero(~asked.cohort.contains(users.ids)))
    for clients in ("per-user", "aggregate"):
        result = execute(protocol, deaf, Options(seed=1, clients=clients, nodes=3)).estimate
        assert (result.status, result.reason) == ("failed", "nobody voted")
