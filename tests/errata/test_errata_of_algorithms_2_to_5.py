"""Algorithms 2 to 5 as printed against what they promise, and ours beside them: exact evaluations.

Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram estimation
under user-level privacy", ICML 2023. The companion of ``test_errata_of_liu2023.py``.
"""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from running import table_users

from clients.bounding.size_curves import size_curves
from clients.histograms.key_queries import RandomClip
from fedhist.privacy.guarantee import Adjacency
from fedhist.protocols import PoissonCounts, UnboundedHistogram
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.histograms.bound_choice import BoundTask
from simulations.experiments.unbounded_domain import choice_of, expected_errors
from simulations.runtimes.inline import InlinePopulation

ZERO, REPLACE = Adjacency.ZERO_OUT_USER, Adjacency.REPLACE_USER


# -- erratum 4: Algorithm 2 ------------------------------------------------------------------------


def minimiser(norms, slopes, radius, mass, strength):
    """argmin over C >= 0 of G_R(C) + (strength / 2) C^2, by bisection on its slope."""
    low, high = 0.0, 1e4
    for _ in range(200):
        c = (low + high) / 2
        below = mass + strength * c < np.minimum(slopes, radius)[norms > c].sum()
        low, high = (c, high) if below else (low, c)
    return high


def test_output_perturbation_needs_a_quarter_of_the_printed_noise():
    """Over all small neighbours the minimiser moves by R / Lambda at most, and that is attained."""
    radius, mass, strength = 2.0, 3.0, 0.05
    kinds = [(0.0, 0.0), (1.0, 1.0), (40.0, 2.0), (40.0, 3.5), (90.0, 2.0), (500.0, 2.0)]
    worst = 0.0
    for base in itertools.combinations_with_replacement(kinds[1:], 3):
        where = [
            minimiser(*np.array([*base, one]).T, radius, mass, strength) for one in kinds
        ]  # zeroed out is the first kind; replaced by any other
        worst = max(worst, max(where) - min(where))
    exact = radius / strength
    assert worst <= exact * (1 + 1e-9)
    assert worst > 0.999 * exact
    printed = 4 * radius / strength  # 4 sqrt(s) / (lambda n) with Lambda = n lambda
    assert worst / printed == pytest.approx(0.25, abs=1e-3)


def test_the_strength_of_output_perturbation_takes_the_choice_s_own_budget():
    """lambda with epsilon' minimises the bound; with the printed epsilon it does not."""
    n, radius, c_m, budget, release = 1e5, 10.0, 1000.0, 0.1, 1.0

    def excess(strength):
        """Bias of the regularization plus Lipschitz constant n R times the mean |noise|."""
        return strength * c_m**2 / 2 + n * radius * radius / (strength * budget)

    ours = radius * math.sqrt(2 * n / budget) / c_m
    printed = radius * math.sqrt(2 * n / release) / c_m
    grid = ours * np.geomspace(0.05, 20, 4001)
    assert excess(ours) == pytest.approx(min(excess(x) for x in grid), rel=1e-6)
    assert excess(printed) > 1.7 * excess(ours)


# -- erratum 5: Algorithm 3's support --------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "n_secrets"), [(0.1, 100_000), (1.0, 100_000)])
def test_noise_on_the_raw_support_betrays_a_user_of_many_items(epsilon, n_secrets):
    """The chance that SOME item appears that the user alone has, and that clipping took away.

    Without the user none can appear, so this chance is a lower bound on delta.
    """
    clip, delta = 10, 1e-6
    printed = UnboundedHistogram(epsilon=epsilon, delta=delta, clip=clip, mode="paper")
    law = printed.release_at(clip)
    each = 0.5 * math.exp(-law.threshold / law.scale)  # P(0 + Laplace >= t)
    result = -math.expm1((n_secrets - clip) * math.log1p(-each))
    assert result == pytest.approx(n_secrets * delta * math.exp(-epsilon) / clip, rel=0.01)
    assert result > 3000 * delta
    assert not printed.guarantee.private
    assert printed.claimed.delta == delta


def test_only_sent_items_get_noise():
    """The supports that the two versions work on, from the real client half."""
    secrets = {f"secret-{i}": 1 for i in range(500)}
    users = Users.from_records({"a": secrets, "b": {"tea": 3}})

    def support(query):
        return InlinePopulation([users], 1).ask(query, 0).keyed["counts"]

    raw, sent = support(RandomClip(10, raw_support=True)), support(RandomClip(10))
    assert len(raw.keys) == 501
    assert (raw.values == 0).sum() == 490
    assert len(sent.keys) == 11
    assert sent.values.min() == 1


def test_what_a_user_s_own_items_leak_when_only_sent_items_get_noise():
    """At most delta for every way to spread C tokens, whatever the number of items: exactly."""
    clip, delta = 10, 1e-6
    for discrete, adjacency in itertools.product((True, False), (ZERO, REPLACE)):
        base = UnboundedHistogram(1.0, delta, clip=clip, adjacency=adjacency.value)
        ours = replace(base, discrete=discrete)
        law = ours.release_at(clip)
        alpha = math.exp(-1 / law.scale)

        def at_least(gap, discrete=law.discrete, alpha=alpha, scale=law.scale):
            if discrete:
                return alpha ** math.ceil(gap) / (1 + alpha)
            return 0.5 * math.exp(-gap / scale)

        worst = 0.0
        for items in range(1, clip + 1):  # as even as can be, and one with all the rest
            even = [clip // items + (k < clip % items) for k in range(items)]
            uneven = [clip - items + 1] + [1] * (items - 1)
            for split in (even, uneven):
                stays = sum(math.log1p(-at_least(law.threshold - c)) for c in split)
                worst = max(worst, -math.expm1(stays))
        assert worst <= delta
        assert worst > 0.89 * delta


# -- erratum 6: Algorithm 4's sensitivity ----------------------------------------------------------


def union_at(users, task):
    _, shares, n, sizes = size_curves(users.counts, task.grid)
    return task.scores(n, sizes, shares)


def test_the_score_of_algorithm_4_moves_by_two_c_m_minus_c():
    """Below the paper's 5 C_m / 2 (and its 3 C_m in Corollary 5.3); attained."""
    grid, c_m = (1, 2, 4), 4
    task = BoundTask(grid, 1.0, 1.0, 0.1, ZERO, printed=c_m)
    rows = list(itertools.product(range(7), repeat=2))
    base = [(9, 0), (9, 0)]
    v = np.array([union_at(table_users([*base, r]), task) for r in rows])
    change = np.abs(v - v[0])  # the first row is empty: zeroed out, added or removed
    exact = 2 * c_m - np.array(grid)
    assert (change.max(axis=0) <= exact + 1e-6).all()
    assert change.max(axis=0) == pytest.approx(exact)
    assert exact.max() < 2.5 * c_m < 3 * c_m
    spread = (v[:, None] - v[None]).max(axis=2) - (v[:, None] - v[None]).min(axis=2)
    ours = replace(task, printed=None)
    assert spread.max() <= replace(ours, adjacency=REPLACE).range + 1e-6
    assert spread[0].max() <= ours.range + 1e-6


def test_the_printed_mechanism_spends_two_fifths_of_its_epsilon():
    epsilon, laws = 1.0, {}
    for printed in (None, 5):
        task = BoundTask((1, 3, 5), epsilon, 1.0, 0.1, ZERO, printed)
        rows = itertools.product(range(7), repeat=2)
        laws[printed] = [choice_of(task, table_users([(9, 0)] * 2 + [r])) for r in rows]
    worst = {k: max(np.abs(np.log(p / v[0])).max() for p in v) for k, v in laws.items()}
    assert worst[None] <= epsilon + 1e-6
    assert worst[5] <= 0.4 * epsilon + 1e-6
    assert task.range == 25.0  # twice 5 C_m / 2


# -- Theorem 5.2: the score is not quite an upper bound --------------------------------------------


def test_the_upper_bound_of_theorem_5_2_leaves_out_rare_items_released_by_chance():
    """One user, one token, C = 1, epsilon = 1, delta = 1/8: the bound is 1, the loss 1.173.

    The proof shows W <= 4 N where it states W <= 2 N: at the threshold, which delta makes rare.
    """
    epsilon, delta, clip = 1.0, 1 / 8, 1
    law = UnboundedHistogram(epsilon, delta, clip=clip, mode="paper").release_at(clip)
    one = np.ones(1)
    loss = float(expected_errors(one, one, law.scale, law.threshold).sum())
    assert loss == pytest.approx(7 / 8 + (1 + math.log(4)) / 8, rel=1e-12)
    task = BoundTask((clip,), 1.0, epsilon, delta, ZERO, printed=clip)
    bound = union_at(table_users([(1,)]), task)[0]
    assert bound == pytest.approx(1.0)
    assert loss > 1.17 * bound


# -- erratum 8: the noise in Algorithm 5 -----------------------------------------------------------


@pytest.mark.parametrize("discrete", [False, True])
def test_the_noise_of_algorithm_5_has_twice_the_printed_variance(discrete):
    """E Z^2 of Lap(C / n epsilon) is 2 C^2 / (n epsilon)^2; (16) to (22) print half of it."""
    n, clip, epsilon = 1000, 40, 0.5
    protocol = PoissonCounts(Keys.of(["tea"]), epsilon, n_users=n, clip=clip, discrete=discrete)
    variance = (protocol.law(clip).std / n) ** 2
    printed = clip**2 / (n**2 * epsilon**2)
    assert variance == pytest.approx(2 * printed, rel=1e-3)
