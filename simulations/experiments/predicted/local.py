"""Results rows of user-level local privacy: predictions against measured errors, on new users.

The errors of the localize-then-refine family are predicted by the quadrature for every coordinate
where it applies, else by the plan, which is conservative: it counts every failed vote at its bound,
and neither shrinkage nor projection; the bands of such rows begin at a quarter to 0.6. Naive
baselines, frequency oracles and covers have a prediction for the very population that they are
measured on. (The two covers of few users were replaced after a first look, with their bands: at the
first sizes one run in ten thousand failed, which no number of runs shows, or the plan refused.)
Sums of reports are drawn from their exact law (clients = aggregate). The density of a trusted
server stands beside the local ones. NOT PRIVATE.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Literal

import numpy as np
from scipy.linalg import hadamard

from fedhist.base.arrays import Floats
from fedhist.channels.catalogue import UnaryChannel, scalar_channel
from fedhist.model.losses import L1, SQUARED_L2
from fedhist.model.protocol import Protocol
from fedhist.protocols import (
    CentralDensity,
    CoverSelect,
    Density,
    HadamardResponse,
    LocalDistribution,
    LocalHistogram,
    MeanL2,
    MeanLinf,
    NaiveDensity,
    NaiveMean,
    SparseMean,
    UnaryEncoding,
)
from fedhist.protocols.baselines.protocol import Method
from fedhist.protocols.frequency_oracles.local_histogram import Oracle
from fedhist.protocols.means.theory import exact_two_stage_mse
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.experiments.local_populations import (
    box_means,
    fresh_ids,
    items_of,
    sparse_means,
    users_of,
)
from simulations.experiments.predicted.setting import Setting
from simulations.populations import population
from simulations.runs.run import Options, execute

Band = tuple[float, float]
LOSSES: Mapping[str, str] = MappingProxyType(
    {
        "mean-linf": SQUARED_L2,
        "mean-l2": SQUARED_L2,
        "sparse-mean": SQUARED_L2,
        "density": "ise",
        "central-density": "ise",
        "naive-density": "ise",
        "local-distribution": L1,
        "local-histogram": L1,
        "cover-select": SQUARED_L2,
        "naive-mean": SQUARED_L2,
        "unary-encoding": SQUARED_L2,
        "hadamard-response": SQUARED_L2,
    }
)
Make = Callable[[np.random.Generator], Users]


def local() -> Iterator[Setting]:
    """Go through the protocols."""
    yield from _boxes()
    yield from _balls()
    yield from _sparse()
    yield from _densities()
    yield from _distributions()
    yield from _covers()
    yield from _naive()
    yield from _oracles()
    yield from _histograms()


def _boxes() -> Iterator[Setting]:
    """Measure in the box; that a coordinate has n / d users only on average is left out."""

    def mean(n: int, d: int, T: float, epsilon: float, kind: str) -> MeanLinf:
        return MeanLinf(epsilon, n, d, T, kind=kind)

    yield _folds("n=16000 d=4 T=256 eps=1 onebit", mean(16_000, 4, 256, 1.0, "onebit"), 300, 0.1)
    many = mean(32_000, 32, 100, 1.0, "piecewise")
    yield _folds("n=32000 d=32 T=100 eps=1 piecewise", many, 60, 0.1)
    edge = mean(2_800, 4, 1024, 1.0, "laplace")
    yield _folds("EDGE n=2800 d=4 T=1024 eps=1 laplace", edge, 1500, 0.25)


def _balls() -> Iterator[Setting]:
    def mean(n: int, d: int, T: float, epsilon: float, kind: str) -> MeanL2:
        return MeanL2(epsilon, n, d, T, kind=kind)

    some = mean(32_000, 16, 256, 1.0, "piecewise")
    yield _folds("n=32000 d=16 T=256 eps=1 piecewise", some, 100, 0.1)
    padded = mean(16_000, 5, 64, 2.0, "onebit")
    yield _folds("n=16000 d=5 (8 rows) T=64 eps=2 onebit", padded, 200, 0.1)
    edge = mean(5_600, 8, 1024, 1.0, "laplace")
    yield _folds("EDGE n=5600 d=8 T=1024 eps=1 laplace", edge, 800, 0.25)


def _folds(label: str, protocol: MeanLinf | MeanL2, repeats: int, width: float) -> Setting:
    """Predict the quadrature of every fold, for Gaussian users' means."""
    n, d, plan = protocol.n_users, protocol.dimension, protocol.plan
    ball = isinstance(protocol, MeanL2)
    theta = np.linspace(-0.7, 0.8, d) / (2 * math.sqrt(d) if ball else 1.0)
    scale = 1 / math.sqrt(protocol.samples_per_user * (d if ball else 1.0))
    folds, per_fold, half = theta, scale, 1.0
    if isinstance(protocol, MeanL2):
        k = protocol.n_folds
        padded = np.concatenate((theta, np.zeros(k - d)))
        folds = hadamard(k) @ (protocol.functional.signs * padded) / math.sqrt(k)
        # all of the spread where there is no padding; on average over the rows elsewhere
        per_fold, half = scale * math.sqrt(d / k), protocol.half_range
    users = n / len(folds)

    def predict() -> float:
        return sum(
            exact_two_stage_mse(
                theta=float(t),
                mean_scale=per_fold,
                low=-half,
                high=half,
                n_bins=plan.n_bins,
                n_vote=users * plan.vote_share,
                n_report=users * (1 - plan.vote_share),
                half_width=plan.half_width,
                vote=UnaryChannel(protocol.epsilon),
                report=scalar_channel(protocol.channel_kind, protocol.epsilon),
                log2_points=13,
            ).mse
            for t in folds
        )

    def once(seed: int) -> float:
        rng = np.random.default_rng((2030, seed))
        found = users_of(theta + scale * rng.standard_normal((n, d)), rng)
        return _loss(label, protocol, found, seed, theta)

    # the estimate of a ball has d of its k coordinates: the error is spread evenly over them
    part = d / len(folds)
    band = (1 - width, 1 + width)
    return Setting(
        protocol.name, label, LOSSES[protocol.name], repeats, band, lambda: part * predict(), once
    )


def _sparse() -> Iterator[Setting]:
    def mean(n: int, d: int, T: float, method: Literal["select", "threshold"]) -> SparseMean:
        return SparseMean(1.0, n, d, T, sparsity=4, method=method)

    def users(protocol: SparseMean, amplitude: float) -> Make:
        n, T = protocol.n_users, int(protocol.samples_per_user)
        return lambda rng: sparse_means(n, T, protocol.dimension, 4, amplitude, rng)[0]

    few = mean(8_000, 200, 200, "select")
    yield _planned("n=8000 d=200 T=200 s=4 eps=1 select", few, users(few, 0.5), 30, (0.5, 1.1))
    many = mean(32_000, 16, 100, "threshold")
    label = "n=32000 d=16 T=100 s=4 eps=1 threshold"
    yield _planned(label, many, users(many, 0.5), 40, (0.4, 1.1))
    edge = mean(3_500, 200, 200, "select")
    label = "EDGE n=3500 d=200 T=200 s=4 eps=1 select"
    yield _planned(label, edge, users(edge, 0.5), 60, (0.5, 1.5))


def _densities() -> Iterator[Setting]:
    """Measure the local density, and beside it the naive ones and the one of a trusted server."""
    plain = Density(1.0, 20_000, 50, shrink=False)
    label = "n=20000 T=50 eps=1, not shrunk"
    yield _planned(label, plain, _two_bumps(20_000, 50), 30, (0.4, 1.1))
    shrunk = Density(1.0, 20_000, 50)
    yield _planned("n=20000 T=50 eps=1", shrunk, _two_bumps(20_000, 50), 30, (0.25, 1.0))
    edge = Density(1.0, 2_000, 50)
    yield _planned("EDGE n=2000 T=50 eps=1", edge, _two_bumps(2_000, 50), 100, (0.25, 1.1))

    users = _two_bumps(4_000, 20)(np.random.default_rng(2036))
    central = CentralDensity(1.0, 4_000, 20, 1e-6, radius=4.0)
    series = replace(central, shrink=False, project=False)
    yield _same("n=4000 T=20 eps=1 Gaussian, not shrunk or projected", series, users, 100, 0.05)
    yield _planned("n=4000 T=20 eps=1 Gaussian", central, _two_bumps(4_000, 20), 60, (0.25, 1.0))
    few = _two_bumps(150, 20)(np.random.default_rng(2037))
    edge_series = replace(series, n_users=150, delta=0.0)
    yield _same("EDGE n=150 T=20 eps=1 Laplace, not projected", edge_series, few, 1000, 0.1)

    methods: dict[Method, int] = {"user-mean": 8_000, "one-item": 8_000, "item-level": 800}
    for method, n in methods.items():
        naive = NaiveDensity(1.0, n, method, 20, radius=4.0, shrink=False, project=False)
        label = f"n={n} T=20 eps=1 {method}, not shrunk or projected"
        yield _planned(label, naive, _two_bumps(n, 20), 100, (0.85, 1.15))
    edge_naive = NaiveDensity(1.0, 400, level=9, kind="onebit", shrink=False, project=False)
    label = "EDGE n=400 T=20 eps=1 one-item, 9 terms (noise beyond the density)"
    yield _planned(label, edge_naive, _two_bumps(400, 20), 300, (0.85, 1.15))


def _two_bumps(n: int, T: int) -> Make:
    def make(rng: np.random.Generator) -> Users:
        seed = int(rng.integers(1 << 31))
        held = population("density", n_users=n, samples_per_user=T, seed=seed).load().users.reals
        return Users.from_samples(fresh_ids(n, rng), held.indptr, held.values)

    return make


def _distributions() -> Iterator[Setting]:
    def learn(n: int, k: int, T: int, project: bool) -> LocalDistribution:
        keys = Keys.of([f"{j:06d}" for j in range(k)])
        return LocalDistribution(keys, 1.0, n, T, project=project)

    def zipf(protocol: LocalDistribution) -> Make:
        n, T = protocol.n_users, int(protocol.samples_per_user)
        p = 1 / np.arange(1, len(protocol.domain) + 1)
        return lambda rng: items_of(n, T, p / p.sum(), rng)

    plain = learn(16_000, 8, 100, False)
    yield _planned("n=16000 k=8 T=100 eps=1", plain, zipf(plain), 60, (0.6, 1.1))
    projected = learn(32_000, 16, 1000, True)
    label = "n=32000 k=16 T=1000 eps=1, projected"
    yield _planned(label, projected, zipf(projected), 30, (0.5, 1.1))
    edge = learn(3_500, 8, 100, True)
    yield _planned("EDGE n=3500 k=8 T=100 eps=1", edge, zipf(edge), 200, (0.4, 1.1))


def _planned(label: str, protocol: Protocol, make: Make, repeats: int, band: Band) -> Setting:
    """Predict by the protocol's plan; users are drawn anew in every run."""

    def predict() -> float:
        return protocol.error(make(np.random.default_rng(2031))).expected

    def once(seed: int) -> float:
        users = make(np.random.default_rng((2031, seed)))
        return _loss(label, protocol, users, seed, protocol.truth(users))

    return Setting(protocol.name, label, LOSSES[protocol.name], repeats, band, predict, once)


def _covers() -> Iterator[Setting]:
    """Users who hold a point each, near a common one, as many samples would tell it."""
    rng = np.random.default_rng(2032)

    def points(n: int, d: int, scale: float) -> Users:
        return users_of(np.linspace(-0.31, 0.43, d) + scale * rng.standard_normal((n, d)), rng)

    plane = CoverSelect(1.0, 1000, 2)
    yield _same("n=1000 d=2 eps=1 box", plane, points(1000, 2, 1e-3), 100, 0.1)
    ball = CoverSelect(1.0, 150, 3, geometry="l2-ball", per_axis=5)
    yield _same("n=150 d=3 eps=1 ball, 5 cells an axis", ball, points(150, 3, 0.01), 4000, 0.15)
    edge = CoverSelect(1.0, 70, 2, per_axis=8)
    yield _same("EDGE n=70 d=2 eps=1 box of 64 cells", edge, points(70, 2, 0.02), 4000, 0.15)


def _naive() -> Iterator[Setting]:
    rng = np.random.default_rng(2033)
    theta = np.linspace(-0.7, 0.8, 4)
    some = box_means(2000, 100, theta, rng)
    means = NaiveMean(1.0, 2000, 4, kind="laplace")
    yield _same("n=2000 d=4 eps=1 Laplace on user means", means, some, 500, 0.05)
    one = NaiveMean(1.0, 2000, 4, method="one-item", kind="onebit")
    yield _same("n=2000 d=4 eps=1 one sample, one bit", one, some, 500, 0.05)
    ball = NaiveMean(1.0, 2000, 4, geometry="l2")
    halves = Users.from_samples(some.ids, some.reals.indptr, some.reals.values / 2)
    yield _same("n=2000 d=4 eps=1 Duchi's ball", ball, halves, 500, 0.05)
    edge = NaiveMean(1.0, 20, 4, method="one-item", kind="onebit")
    few = box_means(20, 100, theta, rng)
    yield _same("EDGE n=20 d=4 eps=1 one sample, one bit", edge, few, 1000, 0.05)


def _oracles() -> Iterator[Setting]:
    rng = np.random.default_rng(2034)
    p = 1 / np.arange(1, 17)
    for make in (UnaryEncoding, HadamardResponse):
        for label, n, epsilon in (
            ("n=4000 k=16 eps=1", 4000, 1.0),
            ("n=4000 k=16 eps=4", 4000, 4.0),
            ("EDGE n=30 k=16 eps=1 (noise beyond the shares)", 30, 1.0),
        ):
            users = items_of(n, 20, p / p.sum(), rng)
            yield _same(label, make(epsilon, users.vocabulary), users, 400, 0.05)


def _histograms() -> Iterator[Setting]:
    """Users of 12 items each: slots that stay empty, and slots that overflow."""
    rng = np.random.default_rng(2035)
    p = 1 / np.arange(1, 17)
    rows: tuple[tuple[str, int, int, Oracle], ...] = (
        ("n=4000 k=16 L=20 eps=1 unary", 4000, 20, "unary"),
        ("n=4000 k=16 L=6 eps=1 Hadamard", 4000, 6, "hadamard"),
        ("EDGE n=30 k=16 L=12 eps=1 unary (noise beyond the counts)", 30, 12, "unary"),
    )
    for label, n, slots, oracle in rows:
        users = items_of(n, 12, p / p.sum(), rng)
        protocol = LocalHistogram(users.vocabulary, 1.0, slots, oracle)
        yield _same(label, protocol, users, 400, 0.05)


def _same(label: str, protocol: Protocol, users: Users, repeats: int, width: float) -> Setting:
    """Predict for these very users, who are asked again in every run."""
    truth = cache(lambda: protocol.truth(users))
    return Setting(
        protocol.name,
        label,
        LOSSES[protocol.name],
        repeats,
        (1 - width, 1 + width),
        lambda: protocol.error(users).expected,
        lambda seed: _loss(label, protocol, users, seed, truth()),
    )


def _loss(label: str, protocol: Protocol, users: Users, seed: int, truth: Floats) -> float:
    estimate = execute(protocol, users, Options(seed=seed, clients="aggregate")).estimate
    if estimate.value is None:
        raise RuntimeError(f"{label}: {estimate.status}: {estimate.reason}")
    return protocol.loss_of(estimate, users, truth)
