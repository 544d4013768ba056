"""Laws of the Curator's noise, both grades.

Chi-squared and Kolmogorov-Smirnov tests. Simulated draws have fixed seeds; secure ones cannot, so
every test here rejects at p < 1e-9: with about 30 such tests a run fails by chance once in 3e7.
"""

import math
from dataclasses import replace
from fractions import Fraction
from importlib import metadata

import numpy as np
import pytest
from scipy import stats

from fedhist.model.registry import protocol_class
from fedhist.privacy.noise_law import exact_noise, opendp
from fedhist.protocols import BoundedHistogram
from server.noise import AGAINST_US, SecureNoise, SimulatedNoise, noise_source
from server.session.curator import NoiseSource
from tests.running import p_value, result, secure

ALARM = 1e-9
GRADES = {"simulated": lambda: SimulatedNoise(11, 3), "secure": SecureNoise}
grades = pytest.mark.parametrize("make", GRADES.values(), ids=GRADES)


def chi2_p(draws, pmf, span):
    """p-value of integer draws against a pmf on -span..span."""
    p = pmf(np.arange(-span, span + 1))
    result = np.bincount(np.clip(draws.ravel(), -span, span) + span, minlength=2 * span + 1)
    return p_value(result, p / p.sum() * draws.size)


@grades
@pytest.mark.parametrize("scale", [0.05, 0.4, 1.0, 7.3, 60.0])
def test_discrete_laplace_law(make, scale):
    draws = make().discrete_laplace((100, 200), scale)
    assert draws.dtype == np.int64
    assert draws.shape == (100, 200)
    if scale < 0.1:  # P(not 0) = 4e-9 per draw: 8e-5 for one non-zero, 1e-12 for three
        assert np.count_nonzero(draws) < 3
        return
    span = math.ceil(40 * scale)
    assert chi2_p(draws, lambda k: np.exp(-np.abs(k) / scale), span) > ALARM


@grades
@pytest.mark.parametrize("std", [0.1, 0.5, 1.0, 2.0, 3.7, 40.0])
def test_discrete_gaussian_law(make, std):
    n = 20_000 if make is SecureNoise else 200_000
    draws = make().discrete_gaussian((n,), std)
    assert draws.dtype == np.int64
    if std < 0.2:  # P(not 0) = 2 e^-50
        assert not draws.any()
        return
    span = math.ceil(12 * std)
    assert chi2_p(draws, lambda k: np.exp(-0.5 * (k / std) ** 2), span) > ALARM


@grades
@pytest.mark.parametrize("scale", [2.0**33, 2.0**50])
def test_wide_integer_noise_does_not_saturate(make, scale):
    """Against the continuous laws, from which they differ by 1 / scale (KS)."""
    noise = make()
    a = noise.discrete_laplace((4000,), scale) / scale
    b = noise.discrete_gaussian((4000,), scale) / scale
    assert stats.kstest(a, stats.laplace.cdf).pvalue > ALARM
    assert stats.kstest(b, stats.norm.cdf).pvalue > ALARM


@grades
@pytest.mark.parametrize("logits", [[0.0, 0.5, 1.3, -2.0], [700.0, 699.0, -math.inf, 700.5], [3.0]])
def test_exponential_law(make, logits):
    x, n = np.array(logits), 1000
    p = np.exp(x - x.max())
    p /= p.sum()
    sources = [SecureNoise() if make is SecureNoise else SimulatedNoise(2, i) for i in range(n)]
    got = np.bincount([source.exponential(x) for source in sources], minlength=len(x))
    possible = p > 0
    assert not got[~possible].any()
    if possible.sum() > 1:
        assert stats.chisquare(got[possible], n * p[possible]).pvalue > ALARM


@grades
def test_one_good_candidate_of_many_is_chosen_as_often_as_its_logit_says(make):
    """Half of the draws; .66 at 1.2 times the epsilon, which few candidates would not tell."""
    logits, n = np.array([math.log(30), *[0.0] * 30]), 1000
    sources = [SecureNoise() if make is SecureNoise else SimulatedNoise(2, i) for i in range(n)]
    first = sum(source.exponential(logits) == 0 for source in sources)
    assert stats.binomtest(first, n, 0.5).pvalue > ALARM


def test_simulated_real_valued_laws():
    noise = SimulatedNoise(5, 0)
    assert stats.kstest(noise.laplace((20_000,), 3.0) / 3.0, stats.laplace.cdf).pvalue > ALARM
    assert stats.kstest(noise.gaussian((20_000,), 3.0) / 3.0, stats.norm.cdf).pvalue > ALARM


def test_secure_noise_refuses_real_values_and_names_the_way_out():
    with pytest.raises(ValueError, match="use discrete_laplace"):
        SecureNoise().laplace((2,), 1.0)
    with pytest.raises(ValueError, match="use discrete_gaussian"):
        SecureNoise().gaussian((2,), 1.0)


def test_simulated_draws_depend_on_seed_and_index_alone():
    draw = lambda seed, index: SimulatedNoise(seed, index).discrete_gaussian((8,), 100.0)  # noqa: E731
    assert (draw(1, 2) == draw(1, 2)).all()
    streams = {draw(s, i).tobytes() for s in range(20) for i in range(20)}
    assert len(streams) == 400
    assert (SecureNoise().discrete_gaussian((8,), 100.0) != draw(1, 2)).any()


def test_two_budgets_under_one_seed_share_no_noise():
    """Else the difference of two releases would have none; an epsilon sweep makes such pairs."""
    one = BoundedHistogram.example()
    half = replace(one, epsilon=0.5)
    draws = [noise_source("simulated", 1, p)(0).laplace((4,), 1.0) for p in (one, half, one)]
    assert not np.intersect1d(draws[0], draws[1]).size
    np.testing.assert_array_equal(draws[0], draws[2])
    assert noise_source("secure", 1, one)(0).grade == "secure"


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 7.3])
def test_the_rounding_of_secure_logits_never_passes_epsilon(epsilon: float) -> None:
    """In fractions: what a user changes in the difference of any two logits."""
    rng, sensitivity = np.random.default_rng(8), 3.0
    weigh = epsilon / (2 * sensitivity)
    for scale in (10, 10**6, 3 << 28):
        scores = rng.integers(-scale, 1, 40).astype(np.float64)
        for _ in range(20):
            moved = scores + rng.choice([-sensitivity, sensitivity], 40)
            drawn = [
                [Fraction(x) for x in (s - s.max()) * weigh * (1 - AGAINST_US)]
                for s in (scores, moved)
            ]
            change = [b - a for a, b in zip(*drawn, strict=True)]
            assert max(change) - min(change) <= Fraction(epsilon)


@pytest.mark.parametrize(
    ("name", "real", "whole"),
    [
        ("bounded-histogram", {"grid": None}, {"grid": 1 / 64}),
        ("adaptive-histogram", {"discrete": False}, {"discrete": True}),
        ("poisson-counts", {"discrete": False}, {"discrete": True}),
        ("unbounded-histogram", {"discrete": False}, {"discrete": True}),
        ("central-density", {"discrete": False}, {"discrete": True, "delta": 0.0}),
        ("user-level-erm", {"discrete": False}, {"discrete": True}),
    ],
)
def test_secure_noise_is_for_integers(name, real, whole):
    """What would draw real numbers refuses, before anything is spent."""
    protocol = protocol_class(name).example()
    users = protocol.example_users()
    refused = result(replace(protocol, **real), users, noise=secure)
    assert refused.status == "refused"
    assert refused.ledger.entries == ()
    assert result(replace(protocol, **whole), users, noise=secure).status == "ok"


@grades
def test_no_noise_and_what_is_refused(make):
    """Whatever the data: the number of entries may be private, as of a histogram's keys."""
    noise = make()
    assert isinstance(noise, NoiseSource)
    assert noise.grade in ("simulated", "secure")
    for draw in (noise.discrete_laplace, noise.discrete_gaussian):
        assert draw((3,), 0.0).tolist() == [0, 0, 0]
        assert draw((0,), 1.0).shape == (0,)
        assert draw((), 5.0).shape == ()
        for bad in (-1.0, math.inf, math.nan, 2.0**51):
            for shape in ((0,), (1,)):
                with pytest.raises(ValueError, match="scale"):
                    draw(shape, bad)
    for logits in ([math.nan, 0.0], [math.inf], [-math.inf], [], [[0.0]]):
        with pytest.raises(ValueError, match="logits"):
            noise.exponential(np.array(logits))


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.5, 3.0, 10.0, 100.0])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_a_million_exact_draws_have_the_stated_law(kind, scale):
    """A bias of OpenDP before 0.14.2 showed at such numbers. False alarm: 1e-9 each."""
    draws = exact_noise(kind, (1_000_000,), scale)
    if kind == "laplace":
        p = chi2_p(draws, lambda k: np.exp(-np.abs(k) / scale), math.ceil(40 * scale))
    else:
        p = chi2_p(draws, lambda k: np.exp(-(k**2) / (2 * scale**2)), math.ceil(12 * scale))
    assert p > ALARM


@pytest.mark.parametrize("version", ["0.13.0", "0.14.1"])
def test_an_opendp_of_a_biased_law_is_refused(monkeypatch, version):
    monkeypatch.setattr(metadata, "version", lambda name: version)
    opendp.cache_clear()
    with pytest.raises(ValueError, match=version):
        SecureNoise().discrete_laplace((1,), 1.0)
