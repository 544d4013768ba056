"""What evaluation sees does not depend on how users are cut, and is what all at once would say."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest

from fedhist.model import measures
from fedhist.model.measures import measured
from fedhist.model.registry import load_builtin, own_protocols, protocol_class
from fedhist.protocols import BoxMean, CentralDensity, Density, Mean, MeanL2, MeanLinf, NaiveMean
from fedhist.protocols.baselines.dame import Dame
from fedhist.protocols.baselines.protocol import Method
from fedhist.protocols.central_means.box_centre import BoxCentre
from fedhist.protocols.central_means.interval_mean import IntervalMean
from fedhist.protocols.central_means.weighted_mean import WeightedMean
from fedhist.protocols.means.mean_error import Prediction
from fedhist.protocols.shared import seen
from fedhist.protocols.shared.central_bounds import central_mean_bounds
from fedhist.protocols.shared.seen import SeenProtocol
from fedhist.users.batch import Users
from fedhist.users.folds import fold_of, salt_of_folds
from fedhist.users.shards import Shard
from server.central_means.noise import COUNTED
from server.central_means.settling import drawn_noise
from server.means.lower_bounds import Sizes, coins, two_point_bound
from tests.protocols.running import Cut

load_builtin()
ITEMS = ("distribution", "histogram")
"""Targets about items: see test_seen_shares and test_histogram_measures."""
NAMES = sorted(
    n for n, c in own_protocols().items() if issubclass(c, SeenProtocol) and c.target not in ITEMS
)


def cuts(users: Users) -> list[Shard]:
    """Three slices, seven, one of them empty, and small blocks."""
    n = len(users)
    some = (1, n // 9, n // 9, n // 3, n // 2, n - 2)
    return [Cut(users, (n // 5, n // 2)), Cut(users, some), Cut(users, tuple(range(11, n, 11)))]


def people(d: int, n: int = 300, seed: int = 3) -> Users:
    """Users who differ, in means and sizes; some hold nothing, some what is no number."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 9, n)
    sizes[5] = 5000
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    own = np.repeat(rng.normal(0.3, 0.3, (n, d)), sizes, axis=0)
    values = own + rng.normal(0, 0.4, own.shape)
    values[rng.integers(0, len(values), 9), rng.integers(0, d, 9)] = np.nan
    values[rng.integers(0, len(values), 5), 0] = np.inf
    return Users.from_samples(np.sort(rng.integers(0, 1 << 60, n)), indptr, values)


@cache
def width(name: str) -> int:
    return int(protocol_class(name).example_users().reals.values.shape[1])


def told(found: measures.Measured) -> list[Any]:
    bound, lows = found.error, found.lower_bounds
    numbers = [found.truth, bound.expected, found.resolution, *found.diagnostics.values()]
    return [*numbers, *(b.value for b in lows)]


@pytest.mark.parametrize("name", NAMES)
def test_users_may_be_cut_anywhere(name: str) -> None:
    """The example on its users, and on users who differ: every part, to rounding."""
    cls = protocol_class(name)
    protocol, users = cls.example(), people(width(name))
    whole = told(measured(protocol, users))
    pairs = [(told(measured(protocol, shard)), whole) for shard in cuts(users)[1:]]
    own = cls.example_users()
    pairs += [(told(measured(protocol, cuts(own)[0])), told(measured(protocol, own)))]
    for found, expected in pairs:
        for x, y in zip(found, expected, strict=True):
            assert x == pytest.approx(y, rel=1e-9, abs=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_nobody_has_no_truth(name: str) -> None:
    protocol = protocol_class(name).example()
    nobody = Users.from_records({"a": [], "b": []})
    with pytest.raises(measures.PopulationError, match="no user has usable samples"):
        _ = measured(protocol, nobody).truth


# -- what all users at once say --------------------------------------------------------------------


def own(users: Users, low: float, high: float) -> np.ndarray:
    """Every user's mean, one after the other; infinities stand for the range's ends."""
    p, x = users.reals.indptr, users.reals.values
    x = np.where(np.isinf(x), np.clip(x, low, high), x)
    rows = [x[a:b].mean(axis=0) if b > a else np.full(x.shape[1], np.nan) for a, b in pairwise(p)]
    return np.array(rows)


def test_a_mean_is_that_of_everybody() -> None:
    """By coordinate, who has none left out; a clipped one beside it."""
    users, cut = people(3), cuts(people(3))[1]
    protocol = MeanLinf(1.0, 300, 3, 4.0, low=-0.5, high=0.9)
    means = own(users, -0.5, 0.9)
    clipped = Users(
        users.ids, samples=replace(users.reals, values=users.reals.values.clip(-0.5, 0.9))
    )
    found = measured(protocol, cut)
    assert found.truth == pytest.approx(np.nanmean(means, axis=0), rel=1e-12)
    assert found.diagnostics == {"unusable records": np.isnan(means).any(axis=1).sum()}
    bias = np.nanmean(own(clipped, -0.5, 0.9), axis=0) - np.nanmean(means, axis=0)
    assert protocol.clipping_error(users) == pytest.approx(float(bias @ bias), rel=1e-11)
    planned = protocol.planned_error().expected
    assert found.error.expected == pytest.approx(planned + float(bias @ bias), rel=1e-12)


def test_rounds_are_followed_with_everybody() -> None:
    """Of a mean; and its bound counts the numbers of samples, a large one too."""
    users, cut = people(1), cuts(people(1))[1]
    protocol = Mean(2.0, 300, 4.0, low=-1.0, high=1.5)
    x = own(users, -1.0, 1.5)[:, 0]
    kept = np.sort(np.clip(x[~np.isnan(x)], -1.0, 1.5))
    given = Prediction(
        protocol.design, kept, -1.0, 1.5, 2.0, protocol.channel_kind, 4.0, protocol.scale, len(kept)
    )
    found = measured(protocol, cut)
    expected = given.risk() + protocol.clipping_error(users)
    assert found.error.expected == pytest.approx(expected, rel=1e-12)
    held = np.diff(users.reals.indptr)
    sizes, n = np.unique(held[held > 0], return_counts=True)
    sizes_n = Sizes(sizes.astype(float), n.astype(float))
    square = 1.25**2 * two_point_bound(sizes_n, 2.0, coins())
    assert found.lower_bounds[0].value == pytest.approx(square, rel=1e-12)


@pytest.mark.parametrize("adjacency", ["replace-user", "add-remove-user"])
def test_a_release_is_followed_with_everybody(adjacency: str) -> None:
    """Over the whole range: the clip's bias and the noise, of users one after the other.

    Of the mean all but d std^2 / R^2, less than a hundredth, is kept. A ratio of two noisy sums is
    drawn 400,000 times: the standard error is .3 %, a false alarm has probability 1e-4.
    """
    users, cut = people(2), cuts(people(2))[1]
    protocol = BoxMean(epsilon=1.0, n_users=300, box=0.8, dimension=2, adjacency=adjacency)
    p, x = users.reals.indptr, users.reals.values
    means = [x[a:b].mean(axis=0) for a, b in pairwise(p) if b > a]
    means = [m for m in means if np.isfinite(m).all()]
    short = sum(m * min(1.0, 0.8 / np.linalg.norm(m)) for m in means)
    hidden = adjacency == "add-remove-user"
    n, std = (len(means) if hidden else 300), protocol.noise().std()
    bias = short / n - np.mean(means, axis=0)
    expected = bias @ bias + 2 * (0.8 * std / n) ** 2
    if hidden:
        rng, kind = np.random.default_rng(4), protocol.noise().kind
        noise, counted = (std * drawn_noise(rng, kind, (400_000, j)) for j in (2, 1))
        ratios = (short + 0.8 * noise) / np.maximum(n + counted / COUNTED, 1.0)
        expected = np.square(ratios - np.mean(means, axis=0)).sum(axis=1).mean()
    found = measured(protocol, cut)
    assert found.error.expected == pytest.approx(float(expected), rel=2e-2 if hidden else 5e-3)
    far = np.mean([np.square(m - np.mean(means, axis=0)).sum() for m in means])
    assert found.lower_bounds[0].value == pytest.approx(
        central_mean_bounds(protocol.guarantee, 300, 2, math.sqrt(far), "squared l2", 2)[0].value
    )


@pytest.mark.parametrize("name", ["cosine", "fourier"])
def test_a_density_is_that_of_everybody(name: str) -> None:
    """Every user's coefficients by itself; the energy of those left out beside the noise."""
    users, cut = people(1), cuts(people(1))[1]
    protocol = Density(1.0, 300, 4.0, basis=name, truth_level=9, level=4, grid=64)
    rows = []
    for a, b in pairwise(users.reals.indptr):
        x = users.reals.values[a:b, 0]
        if b > a and not np.isnan(x).any():
            x = x.clip(0, 1)
            rows.append(protocol.series.coefficients_of(x, np.full(b - a, 1 / (b - a)), 9))
    theta = np.mean(rows, axis=0)
    found = measured(protocol, cut)
    assert found.truth == pytest.approx(protocol.series.on_grid(theta, 64), rel=1e-11)
    central = CentralDensity(1.0, 300, 4.0, level=5, truth_level=9, grid=64)
    seen_there = central.seen(cut)
    if name == "fourier":
        noise = 4 * 2 * (central.noise_std / 300) ** 2 + float(np.square(theta[5:]).sum())
        assert seen_there.error.expected == pytest.approx(noise, rel=1e-11)
    assert not seen_there.error.exact


@pytest.mark.parametrize("method", get_args(Method))
@pytest.mark.parametrize("geometry", ["linf", "l2"])
def test_naive_reports_of_everybody(method: Method, geometry: str) -> None:
    """Reports of users, or of items, one after the other."""
    users, d = people(2), 2
    protocol = NaiveMean(
        2.0, 300, d, method=method, geometry=geometry, samples_per_user=4, kind="laplace"
    )
    p, x = users.reals.indptr, users.reals.values
    fold = fold_of(users.ids, salt_of_folds(1), d)
    reports: list[tuple[int, np.ndarray, float]] = []  # coordinate, mean, variance
    for u, (a, b) in enumerate(pairwise(p)):
        rows = x[a:b]
        if geometry == "l2":
            bad = ~np.isfinite(rows).all(axis=1)
            rows = np.where(bad[:, None], 0.0, rows)
            rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        else:
            rows = rows[:, [fold[u]]].clip(-1, 1)
            bad = np.isnan(rows[:, 0])
        whole = method == "user-mean"
        kept = np.zeros_like(rows) if whole and bad.any() else np.where(bad[:, None], 0.0, rows)
        mean = kept.mean(axis=0) if b > a else np.zeros(rows.shape[1])
        if geometry == "l2":
            each = kept if method == "item-level" else mean[None]
            reports += [(0, r, protocol.sphere.length**2 - r @ r) for r in each]
            continue
        variance = protocol.channel.variance
        if method == "item-level":
            reports += [(int(fold[u]), r, float(variance(r)[0])) for r in kept]
        elif method == "one-item" and b > a:
            reports.append((int(fold[u]), mean, variance(kept).mean() + kept.var()))
        else:
            reports.append((int(fold[u]), mean, float(variance(mean)[0])))
    found = measured(protocol, cuts(users)[1])
    mse = 0.0
    for j in range(d if geometry == "linf" else 1):
        mine = [(m, v) for k, m, v in reports if k == j]
        off = (
            np.mean([m for m, _ in mine], axis=0) - found.truth[[j] if geometry == "linf" else ...]
        )
        mse += sum(v for _, v in mine) / len(mine) ** 2 + float(off @ off)
    assert found.error.expected == pytest.approx(mse, rel=1e-11)
    assert found.error.exact


def test_of_many_users_some_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 of 40,000 users: the prediction is that of all, but for the draw, and says so.

    Of normal means a variance from 5,000 of them has a relative deviation of .02: five are allowed.
    """
    n, rng = 40_000, np.random.default_rng(8)
    sizes = rng.integers(1, 4, n)
    values = np.repeat(rng.normal(0.2, 0.1, n), sizes) + rng.normal(0, 0.1, sizes.sum())
    users = Users.from_samples(np.arange(n), np.concatenate(([0], np.cumsum(sizes))), values)
    line = {"epsilon": 1.0, "n_users": n, "low": -1.0, "high": 1.0}
    protocols: list[SeenProtocol] = [
        Mean(**line, samples_per_user=2.0),
        IntervalMean(**line),
        BoxCentre(**line),
        WeightedMean(**line, within=0.1, between=0.1),
        Dame(1.0, n, 200.0, 1),
        MeanL2(1.0, n, 1, 2.0),
        BoxMean(**line),
    ]
    whole = [p.error(users) for p in protocols]
    monkeypatch.setattr(seen, "MOST_ROWS", 5000)
    for protocol, all_of_them in zip(protocols, whole, strict=True):
        found = Cut(users, (20_000,))
        some = protocol.error(found)  # type: ignore[arg-type]
        assert some.expected == pytest.approx(all_of_them.expected, rel=0.1)
        assert protocol.seen(found).truth == pytest.approx(protocol.truth(users), rel=1e-12)
        if isinstance(protocol, BoxMean):
            assert some.expected == pytest.approx(all_of_them.expected, rel=1e-12)
        if not isinstance(
            protocol, MeanL2 | WeightedMean | BoxMean
        ):  # some in any case, and everybody
            assert some.source.endswith("; sampled: 5,000 of 40,000 users")
            assert not some.exact
