"""Expected error over unknown keys: closed forms against sums, integrals and enumeration."""

import itertools
import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import hypergeom

from fedhist.protocols.histograms.unbounded_theory import (
    KeyRelease,
    alg3_expected,
    clipped_moments,
    expected_loss,
    in_byte_order,
    item_totals,
)
from fedhist.users.batch import Users
from fedhist.users.keys import Keys

CASES = list(itertools.product([0.4, 3.0, 20.0], [-4.0, 1.0, 5.0, 40.0], [0, 1, 4, 60], [0, 3, 70]))


def occurring(users):
    """Keys that occur, in byte order, and their totals."""
    total = item_totals(users)
    found = in_byte_order(users.vocabulary, total)
    return Keys.of([users.vocabulary[int(j)] for j in found]), total[found]


@pytest.mark.parametrize("raw", [False, True])
def test_expected_error_of_a_key_with_integer_noise(raw):
    z = np.arange(-3000, 3001)
    for b, t, kept, more in CASES:
        truth = kept + more
        p = np.tanh(0.5 / b) * np.exp(-np.abs(z) / b)
        y = kept + z
        slow = (p * np.where(y >= t, np.abs(y - truth), truth)).sum()
        if kept == 0 and not raw:
            slow = truth
        law = KeyRelease(b, t, True, raw)
        got = alg3_expected(np.array([float(kept)]), np.array([float(truth)]), law)
        assert got[0] == pytest.approx(slow, rel=1e-9, abs=1e-12)
        assert law.std == pytest.approx(math.sqrt((p * z**2).sum()), rel=1e-9)


def integral(f, low, high, kinks):
    cuts = sorted({low, *(c for c in kinks if low < c < high), high})
    return sum(quad(f, x, y, limit=200)[0] for x, y in itertools.pairwise(cuts))


def test_expected_error_of_a_key_with_real_noise():
    for b, t, kept, more in CASES:
        t, truth = t + 0.3, kept + more

        def density(y, b=b, kept=kept):
            return math.exp(-abs(y - kept) / b) / (2 * b)

        far = max(t, truth) + 60 * b
        kinks = kept, truth
        released = integral(lambda y, n=truth, f=density: abs(y - n) * f(y), t, far, kinks)
        hidden = truth * integral(density, min(t, kept) - 60 * b, t, kinks)
        expected = released + hidden if kept else truth
        law = KeyRelease(b, t, discrete=False)
        got = alg3_expected(np.array([float(kept)]), np.array([float(truth)]), law)
        assert got[0] == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert KeyRelease(3.0, 1.0, discrete=False).std == pytest.approx(3 * math.sqrt(2))


def test_extreme_scales_neither_overflow_nor_lose_the_limit():
    kept, truth = np.array([5.0, 1e6, 0.0]), np.array([7.0, 1e6, 3.0])
    for discrete in (True, False):
        tiny = alg3_expected(kept, truth, KeyRelease(1e-4, 2.0, discrete))
        np.testing.assert_allclose(tiny, [2.0, 0.0, 3.0], atol=1e-3)
        np.testing.assert_allclose(
            alg3_expected(kept, truth, KeyRelease(0.0, 6.0, discrete)), [7.0, 0.0, 3.0]
        )


def population(n=40, seed=0, most=6):
    rng = np.random.default_rng(seed)
    names = ["b", "a", "é", "", "z\0"]
    return Users.from_records(
        {
            f"u{u}": {k: int(c) for k, c in zip(names, rng.integers(0, most, 5), strict=True) if c}
            for u in range(n)
        }
    )


def test_what_occurs_is_named_in_byte_order():
    users = Users.from_records({"x": {"b": 2, "é": 1}, "y": {"b": 3}, "z": {}})
    keys, total = occurring(users.slice(0, 3))
    assert list(keys) == ["b", "é"]
    assert total.tolist() == [5.0, 1.0]
    some = Users.from_counts(
        np.arange(1, dtype=np.uint64), [0], [1], [4], Keys.of(["never", "now"])
    )
    assert list(occurring(some)[0]) == ["now"]


def moments(users, clip):
    """Mean and variance of what is kept of the items that occur, in byte order."""
    at = users.vocabulary.positions(occurring(users)[0])
    mean, variance = clipped_moments(users, [2, clip])
    return mean[1][at], variance[1][at]


@pytest.mark.parametrize("clip", [1, 3, 9, 100])
def test_moments_of_what_is_kept(clip):
    users = population()
    keys, _ = occurring(users)
    v = users.counts
    mean, variance = np.zeros(len(keys)), np.zeros(len(keys))
    for a, b in itertools.pairwise(v.indptr):
        m = int(v.count[a:b].sum())
        for j, c in zip(v.item[a:b], v.count[a:b], strict=True):
            at = keys.position(v.vocabulary[int(j)])
            x = np.arange(int(c) + 1)
            p = hypergeom.pmf(x, m, int(c), min(m, clip))
            mean[at] += p @ x
            variance[at] += p @ x**2 - (p @ x) ** 2
    got = moments(users, clip)
    np.testing.assert_allclose(got[0], mean, rtol=1e-9)
    np.testing.assert_allclose(got[1], variance, rtol=1e-9, atol=1e-9)
    if clip == 100:
        assert not got[1].any()


@pytest.mark.parametrize(
    ("clip", "b", "t"), [(2, 2.0, 15.0), (3, 3.0, 30.0), (4, 8.0, 60.0), (4, 0.5, 25.0)]
)
def test_expected_loss_against_the_exact_law_of_what_is_kept(clip, b, t):
    """Convolve the users' hypergeometric laws: the normal approximation is within 0.3 %."""
    users = population(n=25, seed=4)
    keys, truth = occurring(users)
    v = users.counts
    laws = [np.ones(1) for _ in keys]
    for a, e in itertools.pairwise(v.indptr):
        m = int(v.count[a:e].sum())
        for j, c in zip(v.item[a:e], v.count[a:e], strict=True):
            at = keys.position(v.vocabulary[int(j)])
            p = hypergeom.pmf(np.arange(int(c) + 1), m, int(c), min(m, clip))
            laws[at] = np.convolve(laws[at], p)
    law = KeyRelease(b, t)
    exact = 0.0
    for p, n in zip(laws, truth, strict=True):
        kept = np.arange(len(p), dtype=np.float64)
        exact += p @ alg3_expected(kept, np.full(len(p), n), law)
    got = expected_loss(truth, *moments(users, clip), law)
    assert got == pytest.approx(exact, rel=3e-3)
    whole = expected_loss(truth, *moments(users, 1000), law)
    assert whole == pytest.approx(alg3_expected(truth, truth, law).sum(), rel=1e-12)
