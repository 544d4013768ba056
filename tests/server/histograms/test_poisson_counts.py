"""Poisson counts: exact sensitivities and privacy on tiny cases, error, choice of C, edges."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import poisson

from clients.histograms.contributions import NormHistogram
from fedhist.users.keys import Keys
from server.clip_choice.rule import LIGHT_DECAY
from server.histograms import poisson_debiasing as debias
from server.histograms.poisson_counts import PoissonCounts
from server.noise import SimulatedNoise
from server.session.session import Session
from tests.running import result as run
from tests.running import table_users

TEA = Keys.of(["tea"])


def users_of(table, keys=None):
    table = np.asarray(table)
    return table_users(table, TEA if keys is None and table.shape[1] == 1 else keys)


def tea(counts, **more):
    """A protocol for one item and its users."""
    users = users_of(np.asarray(counts)[:, None])
    given = {"epsilon": 1.0, "n_users": len(users), "clip": 4, **more}
    return PoissonCounts(TEA, **given), users


def thresholds(protocol, table):
    """Which thresholds are chosen for users of one item, and how often."""
    edges, epsilon = np.array(protocol.edges), protocol.budgets[0]
    above = (table[:, :1] > edges[:-1]).sum(axis=0)  # counts are the last one at most
    low = np.append(above, 0)
    if protocol.choice == "excess":
        logits = -epsilon * np.maximum(low - protocol.level, 0)
        logits = logits - LIGHT_DECAY * np.log(edges)
    else:
        before = np.append(np.inf, above)
        gap = np.where(low > protocol.level, low, np.minimum(before, protocol.level))
        logits = -epsilon / 2 * np.abs(gap - protocol.level)
    return list(zip(map(int, edges), softmax(logits), strict=True))


@pytest.mark.parametrize("clip", [1, 2, 5])
def test_without_noise_the_estimate_inverts_the_mean_exactly(clip):
    """Users whose clipped mean is that of Poisson counts get the rate back."""
    n, rate = 10**6, 1.7
    sizes = np.rint(n * poisson.pmf(np.arange(40), rate)).astype(int)
    sizes[1] += n - sizes.sum()
    protocol, users = tea(np.repeat(np.arange(40), sizes), clip=clip, epsilon=math.inf)
    protocol = replace(protocol, guarded=clip > 1)  # at C = 1 the slope is below a quarter
    assert run(protocol, users).value[0] / n == pytest.approx(rate, rel=1e-5)


@pytest.mark.parametrize("debiased", [True, False])
def test_all_zero_users(debiased):
    protocol, users = tea([0] * 50, debias=debiased)
    for seed in range(20):
        estimate = run(protocol, users, seed=seed)
        assert estimate.value[0] >= 0
        assert np.isfinite(estimate.stderr).all()
    noiseless = run(replace(protocol, epsilon=math.inf), users)
    assert noiseless.value.tolist() == [0.0]
    assert not noiseless.warnings


def test_a_total_near_the_clip_is_left_as_it_is_with_a_warning():
    """The inverse would be 20 times the number of users, times 20 C + 50."""
    for epsilon, clip in ((math.inf, 4), (50.0, None)):
        protocol, users = tea([100] * 20, epsilon=epsilon, clip=clip, clip_max=4)
        estimate = run(protocol, users)
        assert estimate.value[0] == pytest.approx(80, abs=3)
        assert estimate.stderr[0] < 1
        plain = run(replace(protocol, debias=False), users)
        assert plain.value[0] == estimate.value[0]
        assert len(plain.warnings) < len(estimate.warnings)


@pytest.mark.parametrize("count", [3, 9, 10, 15])
def test_constant_users_are_released_as_they_are(count):
    """Debiased = raw: no Poisson counts stay below a threshold that hardly anybody exceeds.

    Larger thresholds, which are unlikely, explain them: by 3 % at most, and by less than a third
    of a percent on average over the exact law.
    """
    protocol, _ = tea([count] * 300, clip=None)
    table, total = np.full((300, 1), float(count)), np.array([300.0 * count])
    law = [(c, p) for c, p in thresholds(protocol, table) if c >= count]
    raised = {
        c: debias.debiased(total, 300, c, protocol.most_rate(c))[0][0] / total[0] - 1
        for c, _ in law
    }
    assert sum(p for _, p in law) > 0.999
    assert sum(p * raised[c] for c, p in law) < 0.0034
    assert 0 <= min(raised.values()) <= max(raised.values()) < 0.03
    clip = max(law, key=lambda pair: pair[1])[0]
    given = replace(protocol, clip=clip, epsilon=protocol.budgets[1])
    assert protocol.most_rate(clip) < given.most_rate(clip) == debias.steepest_rate(clip)


def test_another_number_of_users_than_declared_fails_before_the_release():
    protocol, users = tea([1] * 30)
    for n in (29, 31):
        estimate = run(replace(protocol, n_users=n), users)
        assert estimate.status == "failed"
        assert str(n) in estimate.reason
        assert estimate.ledger.spent(0.0).epsilon == 0
    chosen = run(replace(protocol, n_users=29, clip=None), users)
    assert chosen.status == "failed"
    assert chosen.ledger.spent(0.0).epsilon == pytest.approx(0.25)


def test_edges_are_integers_up_to_clip_max():
    for most in (1, 2, 7, 64, 1000, 1024):
        protocol = PoissonCounts(TEA, 1.0, n_users=5, clip_max=most)
        edges = protocol.edges
        assert edges[0] == 1
        assert edges[-1] == most
        assert all(float(e).is_integer() for e in edges)
        assert all(b > a for a, b in itertools.pairwise(edges))
        ratios = np.divide(edges[1:], edges[:-1])
        assert (np.log2(ratios[np.array(edges[:-1]) > 16]) < 0.3).all()


def test_the_choice_follows_its_law():
    """The mechanism draws by the exact probabilities, which are those that are written here."""
    rng = np.random.default_rng(4)
    way = {"clip": None, "epsilon": 1.04, "epsilon_choice": 0.04, "clip_max": 256}
    protocol, users = tea(rng.geometric(1 / 30, 900), **way)
    table = users.counts.count.astype(float)[:, None]
    expected = dict(thresholds(protocol, table))
    above = [(table > c).sum() for c in protocol.edges]
    assert protocol.rank == pytest.approx(1.0)
    beyond = np.maximum(np.array([*above[:-1], 0]) - protocol.rank, 0.0)
    assert beyond[0] > 800
    raw = np.exp(-0.04 * beyond) / np.array(protocol.edges) ** 3
    np.testing.assert_allclose(list(expected.values()), raw / raw.sum(), rtol=1e-9)
    drawn = []
    source = SimulatedNoise(1, 0)
    source.exponential = lambda logits: drawn.append(logits) or 0
    run(protocol, users, noise=lambda i: source)
    np.testing.assert_allclose(softmax(drawn[0]), raw / raw.sum(), rtol=1e-9)


def test_the_choice_asks_for_the_counts_of_the_item_alone():
    protocol, _ = tea([1, 2], clip=None)
    session = Session(protocol, lambda i: SimulatedNoise(1, i))
    assert session.query == NormHistogram(TEA, protocol.edges, 1)
    assert protocol.max_rounds == 2
    assert replace(protocol, epsilon=math.inf).max_rounds == 1


def test_of_many_users_the_choice_gets_what_sees_one_in_200_of_them():
    """Who have fifty times as much: with half of the budget the others' clip is taken instead."""
    protocol = PoissonCounts(TEA, 4.0, n_users=20_000)
    assert PoissonCounts(TEA, 4.0, n_users=1000).budgets == (1.0, 3.0)
    assert protocol.budgets[0] == pytest.approx(0.163, abs=1e-3)
    counts = np.repeat([2, 100], [19_900, 100])
    recorded = sum(p for c, p in thresholds(protocol, counts[:, None]) if c >= 50)
    half = replace(protocol, epsilon_choice=protocol.budgets[0] / 2)
    assert recorded > 0.9
    assert sum(p for c, p in thresholds(half, counts[:, None]) if c >= 50) < 0.5


def test_resolve_fills_what_is_public():
    _, users = tea([1, 2, 0])
    result, not_private = PoissonCounts.resolve({"epsilon": 1.0}, users, TEA)
    assert (result["n_users"], result["domain"], not_private) == (3, TEA, [])
    result, _ = PoissonCounts.resolve({"domain": ["x"], "n_users": 7}, users, TEA)
    assert (result["n_users"], list(result["domain"])) == (7, ["x"])
