from __future__ import annotations

import math

import numpy as np
import pytest

from fedhist.channels.catalogue import scalar_channel
from server.means.sparse_rule import AMPLITUDES, VOTE_SHARES, SparseSetting, sparse_rule
from server.means.support import VoteLaw, keep_largest, vote_threshold


def setting(d: int, s: int, n: int, T: float, epsilon: float = 1.0) -> SparseSetting:
    law = VoteLaw(scalar_channel("onebit", epsilon), 1)
    kind = scalar_channel("auto", epsilon).kind
    return SparseSetting(n, T**-0.5, d, s, 1.0, epsilon, kind, law)


@pytest.mark.parametrize("votes", [3, 12, 24])
def test_lead_of_a_signal_by_simulation(votes: int) -> None:
    """Scores of 60,000 users with Gaussian means: a signal's average report times its sign.

    Within 6 standard errors, and 5 percent for the random number of votes beyond the threshold:
    false alarm 1e-8.
    """
    rng = np.random.default_rng(1)
    d, s, n, b = 40, 3, 60_000, 0.35
    rule = setting(d, s, n, 12)
    means = rule.mean_scale * rng.normal(size=(n, d))
    means[:, :s] += b
    size = np.abs(means)
    size[size < vote_threshold(rule.mean_scale, d, votes)] = 0
    least = np.sort(size, axis=1)[:, -votes]
    voted = np.where((size >= least[:, None]) & (size > 0), np.sign(means), 0)
    v = rng.choice([-1, 1], (n, d))
    total = (v * voted).sum(axis=1)
    vote = np.where(total == 0, rng.choice([-1, 1], n), np.sign(total))
    z = np.where(rng.random(n) < 1 / (1 + math.e), -vote, vote)
    score = (v * z[:, None]).mean(axis=0)
    expected = float(rule.lead(np.array([b]), votes)[0])
    assert np.abs(score[:s] - expected).max() < 0.05 * expected + 6 / math.sqrt(n)
    assert np.abs(score[s:]).max() < 6 / math.sqrt(n)  # votes of noise cancel


def test_error_of_selection_by_simulation() -> None:
    """Scores drawn around their leads, the s largest refined: within 10 percent of 40,000 draws.

    The standard error is 3 percent at most.
    """
    rng = np.random.default_rng(2)
    d, s, n, votes = 40, 3, 40_000, 12
    rule = setting(d, s, n, 12)
    refined = rule._plan(n / 2 / s).risk
    for b in (0.12, 0.17, 0.25):
        lead = float(rule.lead(np.array([b]), votes)[0]) * math.sqrt(n / 2)
        z = rng.normal(size=(40_000, d))
        z[:, :s] += lead
        least = np.partition(np.abs(z), -s, axis=1)[:, -s]
        hits = (np.abs(z[:, :s]) >= np.maximum(least, 3.0)[:, None]).sum(axis=1)
        measured = (hits * refined + (s - hits) * b**2).mean()
        predicted = float(rule.select(np.array([b]), votes, 0.5)[0])
        assert predicted == pytest.approx(measured, rel=0.10)


def test_error_of_thresholding_by_simulation() -> None:
    """Gaussian estimates, hard threshold, the s largest: within 12 percent of 4,000 draws.

    Signals and noise compete for s places, which the formula counts on average only.
    """
    rng = np.random.default_rng(3)
    d, s, n = 64, 4, 64_000
    rule = setting(d, s, n, 10)
    plan = rule._plan(n / d)
    sd, wrong = math.sqrt(plan.variance), 0.33 * d * plan.failure
    assert wrong < 0.002
    for b in (0.1, 0.2, 0.5):
        theta = np.zeros(d)
        theta[:s] = b
        x = theta + sd * rng.normal(size=(4000, d))
        found = np.array([keep_largest(row, np.full(d, sd), s) for row in x])
        measured = np.square(found - theta).sum(axis=1).mean()
        predicted = float(rule.threshold(np.array([b]))[0])
        assert predicted - wrong == pytest.approx(measured, rel=0.12)


def test_regret_by_hand() -> None:
    """Mean log ratios over the grid, and the choice of the least of them."""
    rule = setting(32, 8, 60_000, 20, 2.0)
    b = rule.amplitudes()
    assert b.shape == (AMPLITUDES,)
    assert (b[0], b[-1]) == (pytest.approx(1 / (8 * math.sqrt(20))), 1.0)
    assert np.diff(np.log(b)) == pytest.approx(np.log(b[1] / b[0]))
    rows = {(0, 0.0): rule.threshold(b)}
    rows |= {(w, p): rule.select(b, w, p) for w in (8, 16, 32) for p in VOTE_SHARES}
    least = np.min([*rows.values(), 8 * b**2], axis=0)
    choices = rule.choices()
    assert [(c.votes, c.share) for c in choices] == list(rows)
    for choice, error in zip(choices, rows.values(), strict=True):
        assert choice.regret == pytest.approx(math.exp(np.log(error / least).mean()))
        assert choice.worst == pytest.approx((error / least).max())
    assert sparse_rule(rule) == min(choices, key=lambda c: c.regret)


def test_the_rule_and_declared_signals() -> None:
    """Signed votes win nearly everywhere; a strong signal needs few voters, and few votes."""
    for T in (20, 200, 2000):
        wide = sparse_rule(setting(1000, 4, 8000, T))
        assert (wide.method, wide.votes) == ("select", 4)
    weak = sparse_rule(setting(64, 4, 64_000, 10))
    assert (weak.method, weak.votes) == ("select", 64)
    assert not weak.close
    strong = sparse_rule(setting(64, 4, 64_000, 10), min_signal=0.5)
    assert (strong.method, strong.share) == ("select", 0.15)
    assert strong.regret < 1.1
    assert sparse_rule(setting(64, 4, 64_000, 10), "threshold").votes == 0
    assert sparse_rule(setting(64, 4, 64_000, 10), max_votes=7).votes in (0, 7)
    assert not sparse_rule(setting(10**6, 4, 100, 200)).useful  # neither is better than 0


def test_a_close_call_says_so() -> None:
    """Where another choice may be more than twice as good; a declared signal settles it."""
    close = sparse_rule(setting(32, 8, 60_000, 20, 2.0))
    assert close.close
    assert close.worst > 2
    assert not sparse_rule(setting(32, 8, 60_000, 20, 2.0), min_signal=0.3).close
