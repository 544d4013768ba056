"""Law of a privately chosen threshold, and the error of the release: against slow forms."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedhist.protocols.clip_choice.theory import em_probabilities, mixture_l1, tails_of
from fedhist.protocols.histograms.bounded_histogram import BoundedHistogram
from fedhist.protocols.shared.clipped_totals import user_norms
from fedhist.users.batch import Users
from fedhist.users.keys import Keys

DOMAIN = Keys.of(["a", "b", "c", "d"])
RECORDS = {
    "u0": {"a": 3, "b": 4},
    "u1": {},
    "u2": {"a": 1, "b": 1, "c": 1, "d": 1},
    "u3": {"outside": 9},
    "u4": {"a": 2},
    "u5": {"a": 2, "outside": 7},
    "u6": {"c": 300, "d": 400},
}
USERS = Users.from_records(RECORDS)


def slow_tail(edge, norm, radius):
    """One user and one item at a time."""
    total = 0.0
    for record in RECORDS.values():
        counts = [c for item, c in record.items() if item != "outside"]
        l1 = sum(counts)
        size = l1 if norm == 1 else math.sqrt(sum(c * c for c in counts))
        if size > edge:
            total += min(l1 / size, radius) if radius else 1.0
    return total


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("radius", [0.0, 1.0, 1.3, 2.0])
def test_tails_agree_with_a_slow_sum(norm, radius):
    """At norms that occur (2, 5, 500), between them, below all and above all."""
    edges = np.array([0.5, 1.0, 2.0, 2.5, 5.0, 6.9, 7.0, 100.0, 500.0, 700.0])
    tails = tails_of(*user_norms(USERS, DOMAIN), edges, norm, radius)
    slow = [slow_tail(e, norm, radius) for e in edges]
    assert tails == pytest.approx(slow, abs=len(RECORDS) * radius * 2**-20)
    assert (np.diff(tails) <= 0).all()
    if not radius:
        assert tails.tolist() == slow


def test_tails_of_nobody_are_zero():
    assert tails_of(np.zeros(0), np.zeros(0), np.array([1.0, 2.0]), 2, 1.0).tolist() == [0, 0]
    assert tails_of(np.zeros(3), np.zeros(3), np.array([0.0, 2.0]), 2, 1.0).tolist() == [0, 0]


@pytest.mark.parametrize("interval", [False, True])
def test_probabilities_agree_with_the_definition(interval):
    tails, level, sensitivity, epsilon = [9.0, 6.5, 6.5, 1.0, 0.0], 6.0, 1.5, 0.7
    weights = []
    for k, s in enumerate(tails):
        high = s if not interval else tails[k - 1] if k else math.inf
        distance = 0.0 if s <= level <= high else min(abs(s - level), abs(high - level))
        weights.append(math.exp(-epsilon * distance / (2 * sensitivity)))
    p = em_probabilities(np.array(tails), level, sensitivity, epsilon, interval)
    assert p == pytest.approx(np.array(weights) / sum(weights), rel=1e-13)


@pytest.mark.parametrize("interval", [False, True])
def test_probabilities_without_noise_and_far_away(interval):
    tails = np.array([1e9, 5.0, 0.0, 0.0])
    law = em_probabilities(tails, 0.0, 1.0, math.inf, interval)
    assert law.tolist() == [0, 0, 1, 0]
    law = em_probabilities(tails, 0.0, 1.0, 0.5, interval)
    assert np.isfinite(law).all()
    assert law.sum() == pytest.approx(1.0)
    assert law[0] == 0.0


def test_intervals_break_the_tie_above_a_jump():
    """Identical users: every threshold above their norm has the tail 0; the first one is right."""
    tails = np.array([50.0, 50.0, 0.0, 0.0, 0.0])
    plain = em_probabilities(tails, 20.0, 1.0, 1.0)
    by_interval = em_probabilities(tails, 20.0, 1.0, 1.0, interval=True)
    assert plain[2] == plain[3] == plain[4]
    assert by_interval[2] > 0.9999


@pytest.mark.parametrize("nonneg", [True, False])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("grid", [None, 1 / 8])
def test_mixture_is_the_mean_of_the_errors(nonneg, delta, grid):
    """Against the protocol's own prediction at each threshold, which clips in another way."""
    clips, weights = np.array([1.0, 2.0, 2.0, 6.0, 900.0]), np.array([0.1, 0.2, 0.3, 0.25, 0.15])
    at = [BoundedHistogram(DOMAIN, 1.0, c, delta, grid=grid, nonneg=nonneg) for c in clips]
    norm = 2 if delta else 1
    laws = [p.noise for p in at]
    errors = np.array([p.error(USERS).expected for p in at])
    mixed = mixture_l1(USERS, DOMAIN, clips, weights, laws, norm, nonneg)
    assert mixed == pytest.approx((weights @ errors, errors.min()), rel=1e-12)


def test_mixture_leaves_out_what_never_happens():
    p = BoundedHistogram(DOMAIN, 1.0, 2.0)
    laws = [p.noise, replace(p, clip=1e6).noise]
    mixed = mixture_l1(USERS, DOMAIN, np.array([2.0, 1e6]), np.array([1.0, 1e-13]), laws, 1, True)
    assert mixed == pytest.approx((p.error(USERS).expected,) * 2, rel=1e-12)
