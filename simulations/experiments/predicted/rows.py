"""Results rows: what theory predicts and what is measured, on the same settings.

The predicted side shares no code with the estimators: closed forms for the histogram, a
quadrature for the mean. A row passes if the 99% interval of measured / predicted meets a band
that is written here, before anything is measured. NOT PRIVATE: populations are made up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedhist.channels.catalogue import UnaryChannel, scalar_channel
from fedhist.model.losses import SQUARED_L2
from fedhist.model.protocol import Protocol
from fedhist.protocols import (
    AdaptiveHistogram,
    BoundedHistogram,
    Distribution,
    ItemHistogram,
    Mean,
    PoissonCounts,
    RaggedDistribution,
    UnboundedHistogram,
    UserLevelErm,
)
from fedhist.protocols.means.theory import exact_two_stage_mse, one_stage_mse
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.experiments.predicted.few_users import few_users
from simulations.experiments.predicted.local import local
from simulations.experiments.predicted.setting import Setting
from simulations.populations import population
from simulations.runs.run import Options, execute

THETA = 0.237
"""Common mean of the made-up samples."""


def settings(protocol: str | None = None) -> list[Setting]:
    """Return the settings of one protocol, or of all.

    Raises
    ------
    ValueError
        If there is none for a protocol of that name.
    """
    every = [
        *_histograms(),
        *_adaptive(),
        *_poisson(),
        *_unbounded(),
        *_distributions(),
        *_ragged(),
        *_means(),
        *few_users(),
        *local(),
        *_erm(),
    ]
    found = [s for s in every if protocol in (None, s.protocol)]
    if not found:
        names = ", ".join(dict.fromkeys(s.protocol for s in every))
        raise ValueError(f"no results rows for {protocol!r}; there are some for {names}")
    return found


def _histograms() -> Iterator[Setting]:
    rng = np.random.default_rng(2023)
    shoppers = _shoppers(rng, n_users=3000, d=200, mean=20)
    base = BoundedHistogram(shoppers.vocabulary, epsilon=1.0, delta=1e-6, clip=12.0)
    yield _histogram("n=3000 d=200 eps=1 Gaussian C=12", base, shoppers)
    laplace = replace(base, delta=0.0, clip=30.0, adjacency="replace-user", grid=0.125)
    yield _histogram("n=3000 d=200 eps=1 replace, grid", laplace, shoppers)
    few = _shoppers(rng, n_users=250, d=500, mean=20)
    edge = BoundedHistogram(few.vocabulary, epsilon=0.5, clip=5.0)
    yield _histogram("EDGE n=250 d=500 eps=0.5 (C* = 0)", edge, few)
    record = ItemHistogram(shoppers.vocabulary, epsilon=1.0)
    yield _histogram("n=3000 d=200 eps=1 (hides a record, not a user)", record, shoppers)


def _histogram(
    label: str, protocol: Protocol, users: Users, repeats: int = 400, width: float = 0.01
) -> Setting:
    truth = protocol.truth(users)

    def once(seed: int) -> float:
        estimate = execute(protocol, users, Options(seed=seed)).estimate
        return protocol.loss_of(estimate, users, truth)

    def predict() -> float:
        return protocol.error(users).expected

    return Setting(protocol.name, label, "l1", repeats, (1 - width, 1 + width), predict, once)


def _adaptive() -> Iterator[Setting]:
    rng = np.random.default_rng(2025)
    many = _shoppers(rng, n_users=8000, d=500, mean=20)
    base = AdaptiveHistogram(many.vocabulary, epsilon=1.1, delta=1e-6)
    yield _histogram("n=8000 d=500 eps=1.1 Gaussian", base, many, 600, 0.02)
    some = _shoppers(rng, n_users=3000, d=200, mean=20)
    laplace = AdaptiveHistogram(
        some.vocabulary, epsilon=1.1, adjacency="replace-user", discrete=True
    )
    yield _histogram("n=3000 d=200 eps=1.1 replace, discrete", laplace, some, 600, 0.02)
    few = _shoppers(rng, n_users=1000, d=100, mean=20)
    edge = AdaptiveHistogram(few.vocabulary, epsilon=1.1, delta=1e-6, clip_max=64.0)
    yield _histogram("EDGE n=1000 d=100 eps=1.1 (M below the choice)", edge, few, 1000, 0.02)


def _poisson() -> Iterator[Setting]:
    def users_with(rates: list[float], n: int, shape: float) -> Users:
        mixed = rng.gamma(shape, 1 / shape, (n, 1)) * rates
        counts = rng.poisson(mixed)
        user, item = np.nonzero(counts)
        keys = Keys.of([f"word-{j}" for j in range(len(rates))])
        return Users.from_counts(np.arange(n), user, item, counts[user, item], keys)

    rng = np.random.default_rng(2026)
    one = users_with([2.0], 5000, 50.0)
    chosen = PoissonCounts(one.vocabulary, epsilon=1.1, n_users=5000, clip_max=32, discrete=True)
    yield _histogram("n=5000 d=1 eps=1.1 C chosen, discrete", chosen, one, 1500, 0.05)
    five = users_with([0.1, 0.3, 1.0, 2.0, 4.0], 5000, 3.0)
    gaussian = PoissonCounts(five.vocabulary, epsilon=1.0, n_users=5000, clip=2, delta=1e-6)
    yield _histogram("n=5000 d=5 eps=1 Gaussian C=2", gaussian, five, 300, 0.01)
    few = users_with([0.5], 150, 2.0)
    edge = PoissonCounts(few.vocabulary, epsilon=1.1, n_users=150, clip_max=8)
    yield _histogram("EDGE n=150 d=1 eps=1.1 (too few to choose C)", edge, few, 2000, 0.05)


def _unbounded() -> Iterator[Setting]:
    rng = np.random.default_rng(2027)
    many = _shoppers(rng, n_users=6000, d=300, mean=30)
    base = UnboundedHistogram(epsilon=1.0, delta=1e-6, clip=100)
    yield _histogram("n=6000 eps=1 C=100", base, many, 200)
    sampled = replace(base, clip=12, discrete=False, adjacency="replace-user")
    yield _histogram("n=6000 eps=1 C=12 replace, real noise", sampled, many, 200)
    chosen = replace(base, clip=None, epsilon=1.1)
    yield _histogram("n=6000 eps=1.1 C chosen", chosen, many, 400, 0.02)
    few = _shoppers(rng, n_users=60, d=100, mean=30)
    edge = replace(base, clip=4, epsilon=2.0)
    yield _histogram("EDGE n=60 eps=2 C=4 (hardly anything appears)", edge, few, 1000)


def _distributions() -> Iterator[Setting]:
    def users_with(k: int, m: int, n: int, exponent: float) -> Users:
        p = np.arange(1, k + 1) ** -exponent
        counts = rng.multinomial(m, p / p.sum(), n)
        user, item = np.nonzero(counts)
        keys = Keys.of([f"symbol-{j:04d}" for j in range(k)])
        return Users.from_counts(np.arange(n), user, item, counts[user, item], keys)

    def learn(users: Users, m: int, mechanism: str, epsilon: float = 1.0) -> Distribution:
        n, delta = len(users), 1e-6
        return Distribution(
            users.vocabulary, epsilon, m, n, delta, mechanism, project=mechanism == "ks"
        )

    rng = np.random.default_rng(2020)
    some = users_with(100, 10, 2000, 1.0)
    yield _histogram("k=100 m=10 n=2000 eps=1 Laplace", learn(some, 10, "laplace"), some, 300)
    single = learn(some, 10, "one-item", 4.0)
    yield _histogram("k=100 m=10 n=2000 eps=4 one item", single, some, 300)
    many = users_with(400, 20, 3000, 0.5)
    rare = learn(many, 20, "presence")
    yield _histogram("k=400 m=20 n=3000 eps=1 presence", rare, many, 300, 0.02)
    long = users_with(20, 300, 2000, 0.5)
    yield _histogram("k=20 m=300 n=2000 eps=1 KS scores", learn(long, 300, "ks"), long, 100, 0.25)
    fewer = users_with(20, 300, 300, 0.5)
    near = learn(fewer, 300, "ks")
    yield _histogram("k=20 m=300 n=300 eps=1 KS, 1.6 floors", near, fewer, 400, 0.3)
    edge = users_with(50, 8, 40, 0.5)
    label = "EDGE k=50 m=8 n=40 eps=1 presence (noise beyond the users)"
    yield _histogram(label, learn(edge, 8, "presence"), edge, 600, 0.02)


def _ragged() -> Iterator[Setting]:
    def users_with(n: int, d: int, mean: float) -> Users:
        sizes, weights = rng.geometric(1 / mean, n), np.arange(1, d + 1) ** -0.5
        user = np.repeat(np.arange(n), sizes)
        item = rng.choice(d, size=len(user), p=weights / weights.sum())
        keys = Keys.of([f"word-{j:03d}" for j in range(d)])
        return Users.from_counts(np.arange(n), user, item, np.ones(len(user), np.int64), keys)

    # predictions take sampling as normal, and leave out that projection raises rare symbols
    rng = np.random.default_rng(2028)
    some = users_with(4000, 50, 12)
    presence = RaggedDistribution(some.vocabulary, 2.0, 1e-6, 128, 4000, mechanism="presence")
    yield _histogram("n=4000 k=50 mean m=12 eps=2 presence", presence, some, 100, 0.1)
    many = users_with(20_000, 10, 100)
    select = RaggedDistribution(many.vocabulary, 2.0, 1e-6, 1000, 20_000, mechanism="ks")
    yield _histogram("n=20000 k=10 mean m=100 eps=2 ks", select, many, 100, 0.2)
    few = users_with(500, 20, 12)
    edge = RaggedDistribution(few.vocabulary, 2.0, 1e-6, 128, adjacency="add-remove-user")
    yield _histogram("EDGE n=500 k=20 mean m=12 eps=2, n private", edge, few, 200, 0.15)


def _shoppers(rng: np.random.Generator, n_users: int, d: int, mean: float) -> Users:
    """Make users with geometric sizes and Zipf items."""
    sizes = rng.geometric(1 / mean, n_users)
    weights = 1 / np.arange(1, d + 1)
    user = np.repeat(np.arange(n_users), sizes)
    item = rng.choice(d, size=len(user), p=weights / weights.sum())
    keys = Keys.of([f"item-{i:04d}" for i in range(d)])
    return Users.from_counts(np.arange(n_users), user, item, np.ones(len(user), np.int64), keys)


def _means() -> Iterator[Setting]:
    def mean(n: int, t: float, epsilon: float, kind: str) -> Mean:
        return Mean(epsilon, n, t, low=-1.0, high=1.0, kind=kind)

    yield _mean("n=2000 T=1024 eps=1 laplace", mean(2000, 1024, 1.0, "laplace"), 3000, 0.1)
    yield _mean("n=20000 T=100 eps=0.5 onebit", mean(20000, 100, 0.5, "onebit"), 1000, 0.1)
    yield _mean("n=2000 T=1 eps=1 piecewise, one round", mean(2000, 1, 1.0, "piecewise"), 2000, 0.1)
    yield _mean("EDGE n=700 T=1024 eps=1 piecewise", mean(700, 1024, 1.0, "piecewise"), 6000, 0.15)


def _mean(label: str, protocol: Mean, repeats: int, width: float) -> Setting:
    plan, n = protocol.plan, protocol.n_users
    scale = 1 / math.sqrt(protocol.samples_per_user) if plan.n_bins > 1 else 0.3
    report = scalar_channel(protocol.channel_kind, protocol.epsilon)

    def predict() -> float:
        if plan.n_bins == 1:
            return one_stage_mse(
                theta=THETA, mean_scale=scale, low=-1.0, high=1.0, n_report=n, report=report
            )
        return exact_two_stage_mse(
            theta=THETA,
            mean_scale=scale,
            low=-1.0,
            high=1.0,
            n_bins=plan.n_bins,
            n_vote=n * plan.vote_share,
            n_report=n * (1 - plan.vote_share),
            half_width=plan.half_width,
            vote=UnaryChannel(protocol.epsilon),
            report=report,
        ).mse

    def once(seed: int) -> float:
        rng = np.random.default_rng((2024, seed))
        means = np.clip(THETA + scale * rng.standard_normal(n), -1, 1)
        ids = rng.permutation(np.unique(rng.integers(0, 1 << 62, 2 * n)))  # another split
        users = Users.from_samples(ids[:n], np.arange(n + 1), means)
        estimate = execute(protocol, users, Options(seed=seed)).estimate
        if estimate.value is None:
            raise RuntimeError(f"{label}: {estimate.status}: {estimate.reason}")
        return protocol.loss(estimate.value, np.array([THETA]))

    return Setting(protocol.name, label, SQUARED_L2, repeats, (1 - width, 1 + width), predict, once)


def _erm() -> Iterator[Setting]:
    def fit(n: int, **more: Any) -> UserLevelErm:
        shape = {"smoothness": 1.2, "strong_convexity": 0.8, "steps": 10, **more}
        return UserLevelErm(1.0, 1e-6, n, 10, 3.0, 5.0, 0.8, **shape)

    yield _descent("n=2000 d=10 m=20 eps=1 tracked", fit(2000))
    fixed = fit(2000, oracle="fixed", discrete=True)
    yield _descent("n=2000 d=10 m=20 eps=1 fixed, discrete", fixed)
    average = fit(2000, iterate="average", steps=20)
    yield _descent("n=2000 d=10 m=20 eps=1 tracked, average", average)
    # clips follow noisy moves here, of which the prediction knows the mean square only
    yield _descent("EDGE n=400 d=10 m=20 eps=1 (noise as long as r)", fit(400), width=0.25)


def _descent(label: str, protocol: UserLevelErm, width: float = 0.1) -> Setting:
    n, d, repeats = protocol.n_users, protocol.dimension, 400
    spec = population("regression", n_users=n, samples_per_user=20, dimension=d, noise=0.5)
    users = spec.load().users
    best = protocol.truth(users)

    def once(seed: int) -> float:
        estimate = execute(protocol, users, Options(seed=seed)).estimate
        return protocol.loss_of(estimate, users, best)

    def predict() -> float:
        return protocol.error(users).expected

    band = (1 - width, 1 + width)
    return Setting(protocol.name, label, "excess risk", repeats, band, predict, once)
