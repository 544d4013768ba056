"""Adaptive histogram: budgets, closeness to the best clip, edges."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fedhist.privacy.guarantee import Adjacency, Trust, gaussian_multiplier
from fedhist.privacy.noise_law import expected_l1
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.clip_choice import rule
from server.clip_choice.by_paper import RULES
from server.histograms.adaptive_histogram import (
    CHOICE_SHARE,
    AdaptiveHistogram,
    threshold_rule,
)
from server.histograms.bounded_histogram import BoundedHistogram
from server.noise import SimulatedNoise
from server.printed.histograms import PRINTED_RULES
from simulations.experiments.norm_index import NormIndex
from tests.running import result as run
from tests.running import secure, table_users
from tests.server.histograms.best_clip import best_clip

ZERO, REPLACE, ADD = "zero-out-user", "replace-user", "add-remove-user"
INF = math.inf


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


# -- the budget ------------------------------------------------------------------------------------


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
            with pytest.raises(ValueError, match="set n_users"):
                AdaptiveHistogram(Keys.range(8), 2.0, **given)
            return
    p = AdaptiveHistogram(Keys.range(8), 2.0, **given)
    estimate = run(p, users)
    assert estimate.status == "ok"
    spent = estimate.ledger.spent()
    assert spent.basic_epsilon == pytest.approx(2.0, rel=1e-9)
    assert spent.basic_delta == pytest.approx(p.delta, rel=1e-9)
    assert p.guarantee.epsilon == 2.0
    assert (p.guarantee.trust, p.guarantee.adjacency) == (Trust.CENTRAL, Adjacency(adjacency))
    assert p.clip_min <= estimate.public["clip"] <= p.task.c_max
    assert ("n_users" in estimate.public) == (adjacency != ADD)
    assert p.shares.release_epsilon == pytest.approx(2.0 * (1 - CHOICE_SHARE))


def test_delta_is_split_only_where_the_choice_needs_one():
    base = AdaptiveHistogram(Keys.range(3), 1.0, 1e-6)
    assert (base.shares.choice_delta, base.shares.release_delta) == (0.0, 1e-6)
    descent = replace(base, threshold="dp-sgd")
    assert (descent.shares.choice_delta, descent.shares.release_delta) == (5e-7, 5e-7)
    assert replace(descent, epsilon_choice=0.25).shares.release_epsilon == 0.75


def test_without_noise_every_part_is_without():
    p = AdaptiveHistogram(Keys.range(3), INF, 1e-6, epsilon_choice=0.1)
    shares = p.shares
    assert shares.choice_epsilon == shares.release_epsilon == INF
    assert p.task.mass == 0
    assert not p.guarantee.private


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive, got 0"),
        ({"epsilon": math.nan}, "epsilon must be a number, got nan"),
        ({"delta": 1.0}, "delta must lie in"),
        ({"epsilon_choice": 0.0}, "epsilon_choice must be positive, got 0"),
        ({"epsilon_choice": 1.0}, "epsilon_choice = 1.0 leaves nothing of epsilon = 1.0"),
        ({"threshold": "dp-sgd", "delta": 0.0}, "'dp-sgd' needs delta > 0, got 0"),
        ({"threshold": "em-quantile"}, 'is gone: write threshold = "em-slope", or'),
        ({"threshold": "dp-sgd-paper", "delta": 0.0}, "'dp-sgd-paper' needs delta > 0, got 0"),
        ({"threshold": "huang-quantile"}, 'is gone: write threshold = "adaptive-quantile"'),
        ({"threshold": "dp-sgd-paper"}, "set n_users"),
        ({"threshold": "em-slop"}, "unknown threshold rule 'em-slop'; did you mean 'em-slope'"),
        ({"noise": "none"}, "noise must be one of auto, laplace, gaussian, got 'none'"),
        ({"noise": "gaussian", "delta": 0.0}, "Gaussian noise needs delta > 0, got 0"),
        ({"clip_min": 0.0}, "got 0.0 and 1000.0"),
        ({"clip_min": 5.0, "clip_max": 4.0}, "got 5.0 and 4.0"),
        ({"clip_max": INF}, "got 1.0 and inf"),
        ({"sparsity": 0}, r"sparsity must lie in \[1, 3\], got 0"),
        ({"sparsity": 4}, r"sparsity must lie in \[1, 3\], got 4"),
        ({"n_users": 0}, "n_users must be a positive integer, got 0"),
        ({"n_users": 5, "adjacency": "add-remove-user"}, "keeps the number of users private"),
        ({"steps": 0}, "steps must be a positive integer, got 0"),
        ({"adjacency": "neighbours"}, "neighbours"),
        ({"domain": ["a", "b"]}, "domain must be non-empty Keys"),
        ({"domain": Keys.of([])}, "domain must be non-empty Keys"),
    ],
)
def test_bad_parameters_are_refused(parts, message):
    base = {"domain": Keys.range(3), "epsilon": 1.0, "delta": 1e-6}
    with pytest.raises(ValueError, match=message):
        AdaptiveHistogram(**(base | parts))


# -- what the choice is given ----------------------------------------------------------------------


@pytest.mark.parametrize(("adjacency", "d", "k1", "k2"), [(ZERO, 9, 1, 1), (REPLACE, 9, 2, 2**0.5)])
def test_mass_is_the_noise_of_the_release(adjacency, d, k1, k2):
    """M = d k2 sigma sqrt(2 / pi) for a Gaussian, d k1 / epsilon for Laplace noise."""
    p = AdaptiveHistogram(
        Keys.range(d), 1.1, 1e-6, epsilon_choice=0.1, noise="gaussian", adjacency=adjacency
    )
    sigma = gaussian_multiplier(1.0, 1e-6)
    assert p.task.mass == pytest.approx(d * k2 * sigma * math.sqrt(2 / math.pi), rel=1e-6)
    laplace = replace(p, delta=0.0, noise="auto")
    assert laplace.task.mass == pytest.approx(d * k1, rel=1e-6)
    assert (laplace.norm, laplace.task.radius) == (1, 1.0)
    on_grid = replace(laplace, discrete=True)
    assert on_grid.task.mass == pytest.approx(d * k1, rel=1e-5)
    assert replace(p, discrete=True).task.mass == pytest.approx(p.task.mass, rel=1e-6)
    one = replace(p, domain=Keys.range(1))
    assert one.task.mass == pytest.approx(sigma * math.sqrt(2 / math.pi), rel=1e-6)


def test_radius_is_the_root_of_the_sparsity():
    p = AdaptiveHistogram(Keys.range(1000), 1.1, 1e-6)
    assert p.task.radius == 10.0
    assert replace(p, sparsity=1000).task.radius == math.sqrt(1000)
    assert replace(p, domain=Keys.range(4), noise="gaussian").task.radius == 1.0


def test_figures_of_the_paper():
    """Release at epsilon = 1 and delta = 1 / 1.2e6 with d = 1000: sigma 4.262, M 3401."""
    p = AdaptiveHistogram(Keys.range(1000), 1.1, 1 / 1.2e6, epsilon_choice=0.1)
    assert p.task.mass == pytest.approx(3401, abs=1)
    assert len(p.task.grid) == 41


def test_release_is_the_bounded_histogram():
    """With the choice out of the way (one threshold) both protocols draw the same noise."""
    users = heavy_users(50, 6)
    p = AdaptiveHistogram(Keys.range(6), 1.1, 1e-6, noise="gaussian", clip_min=7.0, clip_max=7.0)
    fixed = BoundedHistogram(p.domain, p.shares.release_epsilon, 7.0, 1e-6)
    second = lambda i: SimulatedNoise(3, i + 1)  # noqa: E731
    assert run(p, users, seed=3).value.tolist() == run(fixed, users, noise=second).value.tolist()


# -- the error -------------------------------------------------------------------------------------


def mixture(p, users):
    """The expected error over the exact law of the choice, which shares no code with a run."""
    law = NormIndex(users, p.domain).law(p.task)
    likely = np.flatnonzero(law > 1e-9)
    release = lambda c: replace(p.release_at(float(c)), nonneg=p.nonneg)  # noqa: E731
    return sum(law[i] * release(p.task.grid[i]).error(users).expected for i in likely)


@pytest.mark.parametrize("parts", [{}, {"delta": 0.0}, {"noise": "gaussian", "discrete": True}])
def test_runs_lose_what_the_law_of_the_choice_says(parts):
    """Mean of 300 runs within 4.5 standard errors: false alarm below 1e-5 for each of three."""
    users = heavy_users(300, 12, mean=30)
    base = AdaptiveHistogram(users.vocabulary, 2.0, 1e-4, clip_max=64.0, sparsity=3)
    p = replace(base, **parts)
    truth, expected = p.truth(users), mixture(p, users)
    losses = np.array([p.loss(run(p, users, seed).value, truth) for seed in range(300)])
    standard_error = losses.std(ddof=1) / math.sqrt(300)
    assert standard_error < 0.1 * expected
    assert abs(losses.mean() - expected) < 4.5 * standard_error


@pytest.mark.parametrize(
    ("n", "d", "delta", "most"),
    [(20000, 1000, 1e-6, 1.05), (20000, 100, 1e-6, 1.15), (5000, 200, 0.0, 1.15)],
)
def test_choice_costs_little(n, d, delta, most):
    """Expected error over that of the best threshold at the budget of the release; no chance."""
    users = heavy_users(n, d)
    noise = "gaussian" if delta else "auto"
    p = AdaptiveHistogram(users.vocabulary, 1.1, delta, epsilon_choice=0.1, noise=noise)
    best = best_clip(users, p.domain, p.norm, p.at(1.0, p.norm).noise, nonneg=True, per_octave=8)[1]
    assert mixture(p, users) < most * best


def test_identical_users_cost_little_with_intervals():
    users = users_of([[30 if j == i % 50 else 0 for j in range(50)] for i in range(4000)], 50)
    p = AdaptiveHistogram(users.vocabulary, 1.1, 1e-6, noise="gaussian")
    least = expected_l1(p.at(30.0, 2).noise, np.zeros(50), p.truth(users))
    assert mixture(p, users) < 1.25 * least


SETTINGS = [(300, 5), (1000, 30), (3000, 100), (3000, 300)]


def regret(share, decay, monkeypatch):
    """Geometric mean of the error over that of the best clip, over SETTINGS and budgets."""
    monkeypatch.setattr(rule, "LIGHT_DECAY", decay)
    logs = []
    for n, d in SETTINGS:
        users = heavy_users(n, d)
        for epsilon in (0.5, 2.0):
            p = AdaptiveHistogram(users.vocabulary, epsilon, epsilon_choice=share * epsilon)
            unit = replace(p, epsilon_choice=1e-9 * epsilon).at(1.0, 1).noise
            best = best_clip(users, p.domain, 1, unit, nonneg=True, per_octave=4)[1]
            logs.append(math.log(mixture(p, users) / best))
    return math.exp(np.mean(logs))


def test_the_share_and_the_decay_are_near_the_best(monkeypatch):
    """Of what is spent on the choice, and of how fast weights fall: exact, on fixed users."""
    decay = rule.LIGHT_DECAY
    ours = regret(CHOICE_SHARE, decay, monkeypatch)
    assert ours < min(regret(s, decay, monkeypatch) for s in (0.03, 0.35))
    assert ours < min(regret(CHOICE_SHARE, x, monkeypatch) for x in (1.0, 12.0))


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
    users = users_of(np.eye(100, dtype=int)[np.arange(3000) % 100], 100)
    estimate = run(p, users)
    assert estimate.ledger.spent().basic_delta == 0.0
    gaussian = replace(p, noise="gaussian")
    loss = p.loss(estimate.value, p.truth(users))
    assert loss < 0.5 * p.loss(run(gaussian, users).value, p.truth(users))
    rows = np.array([[1, 1, 1, 0], [2, 0, 0, 0], [3, 1, 0, 0], [0, 0, 0, 1]])
    l1, l2 = rows.sum(axis=1), np.linalg.norm(rows, axis=1)
    assert (l1 <= l2**2 * (1 + 1e-9)).all()


# -- edges -----------------------------------------------------------------------------------------

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
    assert estimate.status == "ok"
    assert np.isfinite(estimate.value).all()
    assert (estimate.value >= 0).all()
    assert math.isfinite(p.error(users).expected)
    assert p.clip_min <= estimate.public["clip"] <= p.clip_max


def test_everything_outside_the_domain():
    users = Users.from_records({"u": {"rye": 3}, "v": {"oat": 1, "rye": 2}})
    p = AdaptiveHistogram(Keys.of(["tea"]), 5.0)
    estimate = run(p, users)
    assert estimate.value.shape == (1,)
    assert p.truth(users).tolist() == [0.0]
    quiet = run(replace(p, epsilon=INF), users)
    assert quiet.value.tolist() == [0.0]
    assert "lower end" in quiet.warnings[-1]


def test_one_item_and_unicode():
    users = Users.from_records({f"ü{i}": {"🫖": 1 + i % 7, "茶": 1} for i in range(3000)})
    p = AdaptiveHistogram(Keys.of(["🫖"]), 3.0, clip_max=64.0)
    estimate = run(p, users)
    assert list(estimate.keys) == ["🫖"]
    assert estimate.value[0] == pytest.approx(p.truth(users)[0], rel=0.1)


def test_warns_where_the_choice_is_noise():
    users = heavy_users(100, 20)
    p = AdaptiveHistogram(
        users.vocabulary, 1.0, 1e-6, epsilon_choice=0.1, noise="gaussian", sparsity=20
    )
    estimate = run(p, users)
    assert "finds levels from" in estimate.warnings[0]
    assert "sparsity" in estimate.warnings[0]
    easy = AdaptiveHistogram(Keys.range(500), 1.0, 1e-6, sparsity=1)
    assert not any("finds levels" in w for w in run(easy, users).warnings)


def test_secure_noise_needs_integers():
    users = heavy_users(60, 4)
    p = AdaptiveHistogram(users.vocabulary, 2.0, 1e-5)
    refused = run(p, users, noise=secure)
    assert refused.status == "refused"
    assert "discrete = true" in refused.reason
    assert refused.ledger.entries == ()
    for more in ({}, {"delta": 0.0}):
        q = replace(p, discrete=True, **more)
        estimate = run(q, users, noise=secure)
        assert estimate.status == "ok"
        step = estimate.public["clip"] / 2**20
        assert estimate.value / step == pytest.approx(np.rint(estimate.value / step), abs=1e-3)


def test_resolve_takes_the_public_domain():
    users = heavy_users(5, 3)
    found, not_private = AdaptiveHistogram.resolve({"epsilon": 1.0}, users, users.vocabulary)
    assert found["domain"] == users.vocabulary
    assert not_private == []
    found, _ = AdaptiveHistogram.resolve({"epsilon": 1.0, "domain": ["a", "b"]}, users, None)
    assert list(found["domain"]) == ["a", "b"]
    with pytest.raises(ValueError, match="domain"):
        AdaptiveHistogram.resolve({"epsilon": 1.0}, users, None)
