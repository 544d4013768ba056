"""Adaptive histogram: budgets, closeness to the best clip, edges."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedhist.privacy.guarantee import gaussian_multiplier
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.clip_choice.by_paper import RULES
from server.histograms.adaptive_histogram import CHOICE_SHARE, AdaptiveHistogram, threshold_rule
from server.printed.histograms import PRINTED_RULES
from tests.running import result as run
from tests.running import table_users

ZERO, REPLACE, ADD = "zero-out-user", "replace-user", "add-remove-user"


def heavy_users(n, d, seed=0, mean=20.0, exponent=1.0):
    """Pareto sizes (tail 2) and Zipf items."""
    rng = np.random.default_rng(seed)
    sizes = ((rng.pareto(2.0, n) + 1) * mean / 2).astype(np.int64) + 1
    p = 1 / np.arange(1, d + 1) ** exponent
    user = np.repeat(np.arange(n), sizes)
    item = rng.choice(d, size=len(user), p=p / p.sum())
    return Users.from_counts(np.arange(n), user, item, np.ones(len(user), int), Keys.range(d))


def users_of(rows, d):
    return table_users(np.array(rows, dtype=np.int64).reshape(-1, d))


def parameters(name):
    """What a rule needs to run at all."""
    delta = 1e-5 if threshold_rule(name).needs_delta else 0.0
    return {"threshold": name, "delta": delta, "n_users": 200, "steps": 5}


@pytest.mark.parametrize("name", ["em-slope", *RULES, *PRINTED_RULES])
@pytest.mark.parametrize("adjacency", [ZERO, REPLACE, ADD])
@pytest.mark.parametrize("more", [{}, {"discrete": True}])
def test_every_rule_spends_the_budget_exactly(name, adjacency, more):
    users = heavy_users(200, 8)
    given = parameters(name) | more | {"adjacency": adjacency}
    if given["delta"]:  # else eight items have Laplace noise, which leaves delta
        given["noise"] = "gaussian"
    if adjacency == ADD:  # where the number of users is private, rules that need it are refused
        given["n_users"] = None
        if name.endswith("-paper"):
            with pytest.raises(ValueError, match="n_users"):
                AdaptiveHistogram(Keys.range(8), 2.0, **given)
            return
    p = AdaptiveHistogram(Keys.range(8), 2.0, **given)
    estimate = run(p, users)
    spent = estimate.ledger.spent()
    assert spent.basic_epsilon == pytest.approx(2.0, rel=1e-9)
    assert spent.basic_delta == pytest.approx(p.delta, rel=1e-9)
    assert p.clip_min <= estimate.public["clip"] <= p.task.c_max
    assert ("n_users" in estimate.public) == (adjacency != ADD)
    assert p.shares.release_epsilon == pytest.approx(2.0 * (1 - CHOICE_SHARE))
    assert replace(p, epsilon_choice=0.25).shares.release_epsilon == 1.75


def test_the_setting_of_the_paper():
    """M = d sigma sqrt(2 / pi), and R = sqrt(d / 10)."""
    paper = AdaptiveHistogram(Keys.range(1000), 1.1, 1 / 1.2e6, epsilon_choice=0.1)
    assert (paper.task.mass, paper.task.radius) == (pytest.approx(3401, abs=1), 10.0)


def test_noise_is_laplace_only_where_that_is_less_however_broad_users_are():
    """sqrt(d) d / epsilon against d sigma sqrt(2 / pi), at the budget of the release."""
    sigma = gaussian_multiplier(0.8, 1e-6)
    least = 0.8 * sigma * math.sqrt(2 / math.pi)
    few, many = math.floor(least**2), math.ceil(least**2)
    assert AdaptiveHistogram(Keys.range(few), 1.0, 1e-6).norm == 1
    assert AdaptiveHistogram(Keys.range(many), 1.0, 1e-6).norm == 2
    assert AdaptiveHistogram(Keys.range(few), 1.0, 1e-6, threshold="dp-sgd").norm == 2


def test_noise_is_laplace_where_that_is_less_within_the_clip_that_was_chosen():
    """An l1 clip of C^2 cuts nobody whom an l2 clip of C leaves whole."""
    p = AdaptiveHistogram(Keys.range(100), 1.0, 1e-6)
    for clip, wide in ((1.0, 1.0), (1.19, 1.0), (2**0.5, 2.0), (1.99, 3.0), (2.0, 4.0)):
        release = p.release_at(clip)
        assert (release.norm, release.clip, release.delta) == (1, wide, 0.0)
        assert release.noise.mean_absolute <= 0.75 * p.at(clip, 2).noise.mean_absolute
    for clip in (0.9, 3.0, 10.0):
        assert p.release_at(clip) == p.at(clip, 2)
    assert replace(p, noise="gaussian").release_at(1.0).norm == 2


EDGES = {
    "nobody": np.zeros((0, 3)),
    "empty users": np.zeros((20, 3)),
    "one user": [[3, 0, 4]],
    "identical users": [[3, 0, 4]] * 50,
    "a huge outlier": [[1, 0, 0]] * 50 + [[10**9, 10**9, 0]],
    "below the lower end": [[1, 0, 0]] * 50,
}


@pytest.mark.parametrize("rows", EDGES.values(), ids=EDGES.keys())
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_odd_populations(rows, delta):
    users = users_of(rows, 3)
    p = AdaptiveHistogram(Keys.range(3), 1.0, delta, clip_min=2.0)
    estimate = run(p, users)
    assert np.isfinite(estimate.value).all()
    assert (estimate.value >= 0).all()
    assert math.isfinite(p.error(users).expected)
    assert p.clip_min <= estimate.public["clip"] <= p.clip_max
