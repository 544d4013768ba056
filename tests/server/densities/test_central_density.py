"""A density with a trusted server: what is sent, how far one user moves it, noise and error."""

import dataclasses
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

import fedhist as fh
from clients.densities.queries import MEAN_STEPS, FourierMeans, curve_diameter, row_sensitivity
from fedhist.base.arrays import Floats
from fedhist.privacy.guarantee import Adjacency, gaussian_multiplier
from server.densities.central_density import CentralDensity
from server.densities.plan import best_level, tail_energy
from simulations.populations.density_samples import DensitySamples
from tests.running import one_sample, streams
from tests.running import result as run


def sample(n: int, T: Any, density: Any = "two-bumps") -> tuple[fh.Users, fh.Floats]:
    spec = DensitySamples(n_users=n, samples_per_user=T, density=density, seed=1)
    return spec.load().users, spec.at_middles()


def rows_of(query: FourierMeans, users: fh.Users) -> Any:
    return query.answer(users, streams(users)).arrays["means"]


def test_rows_by_hand() -> None:
    """One cosine and sine at a time; clipped, and nothing for what cannot be used."""
    records = {
        "a": [0.1, 0.4, 0.95],
        "b": [0.9],
        "empty": [],
        "broken": [0.3, math.nan],
        "outside": [-3.0, 1e300, 0.25, math.inf],
    }
    users = fh.Users.from_records(records, unusable=True)
    K, usable = 300, {"a": records["a"], "b": records["b"], "outside": [0.0, 1.0, 0.25, 1.0]}
    for i in range(len(users)):
        one = users.slice(i, i + 1)
        name = next(name for name in records if fh.Users.from_records({name: []}).ids == one.ids)
        x = np.array(usable.get(name, []))
        slow = np.zeros(2 * K)
        for k in range(1, K + 1) if len(x) else ():
            slow[2 * k - 2] = np.mean(np.cos(2 * math.pi * k * x))
            slow[2 * k - 1] = np.mean(np.sin(2 * math.pi * k * x))
        row = rows_of(FourierMeans(K), one)[0]
        # half a step of rounding, and what doubles do to angles of up to 300 turns
        np.testing.assert_allclose(row, MEAN_STEPS * slow, atol=0.51)
        assert (row == rows_of(FourierMeans(K), users)[i]).all()


def test_rows_are_checked() -> None:
    query, ids = FourierMeans(2, counted=True), np.arange(2, dtype=np.uint64)
    good = np.array([[MEAN_STEPS, 0, 0, -MEAN_STEPS, MEAN_STEPS], [0, 0, 0, MEAN_STEPS, 0]])
    query.check(fh.Report(ids, {"means": good}))
    for more in ([2, 0, 0, 0, 0], [0, 0, 0, 0, -1]):
        with pytest.raises(fh.WireError):
            query.check(fh.Report(ids, {"means": good + np.array([more, [0] * 5])}))
    with pytest.raises(ValueError, match=r"n_frequencies.*0"):
        FourierMeans(0)
    with pytest.raises(fh.PopulationError, match="dimension"):
        rows_of(query, fh.Users.from_samples([1], [0, 1], np.zeros((1, 2)), unusable=True))


def test_users_without_samples_pull_towards_the_uniform_density_where_none_are_counted() -> None:
    n = 400
    users = one_sample(np.where(np.arange(n) < n // 2, 0.3, np.nan)[:, None])
    protocol = CentralDensity(math.inf, n, 1, level=3, project=False, truth_level=3)
    counted = run(protocol, users)
    assert counted.public["users with data, with noise"] == n // 2
    assert counted.value == pytest.approx(protocol.truth(users), abs=1e-6)
    protocol = dataclasses.replace(protocol, adjacency="zero-out-user")
    assert protocol.empty_record == "the uniform density"
    theta = tuple(math.sqrt(0.5) * f(0.6 * math.pi) for f in (math.cos, math.sin))
    half = DensitySamples(n_users=1, samples_per_user=1, density=theta)
    assert run(protocol, users).value == pytest.approx(half.at_middles(), abs=1e-6)


def test_an_even_level_leaves_out_a_sine() -> None:
    users, _ = sample(100, 50)
    protocol = CentralDensity(math.inf, 100, 50, level=6, project=False, truth_level=6)
    assert protocol.query.n_frequencies == 3
    assert run(protocol, users).value == pytest.approx(protocol.truth(users), abs=1e-6)


def test_one_term_asks_nobody() -> None:
    users, _ = sample(10, 5)
    for protocol in (CentralDensity(0.01, 10, 5), CentralDensity(1.0, 10, 5, level=1)):
        assert (protocol.terms, protocol.max_rounds) == (1, 0)
        estimate = run(protocol, users)
        assert estimate.value.tolist() == [1.0] * 1024
        assert estimate.warnings
        assert not estimate.ledger.entries


def test_nobody_answers() -> None:
    estimate = run(CentralDensity.example(), fh.Users.from_samples([], [0], [], unusable=True))
    assert estimate.status == "failed"


REPLACE, ZERO = Adjacency.REPLACE_USER, Adjacency.ZERO_OUT_USER


def points(x: ArrayLike, k: int) -> Floats:
    """The curve, one coordinate after the other: (m, 2 k)."""
    turns = 2 * math.pi * np.multiply.outer(np.asarray(x), np.arange(1, k + 1))
    return np.stack((np.cos(turns), np.sin(turns)), axis=-1).reshape(-1, 2 * k)


@pytest.mark.parametrize("k", [1, 2, 3, 7, 24, 60])
def test_the_diameter_is_attained_and_never_passed(k: int) -> None:
    """Against all differences of parameters on a fine grid: from above, within 1e-6."""
    x = np.arange(1 << 16) / (1 << 17)
    result = np.linalg.norm(points(x, k) - points(0.0, k), axis=1).max()
    assert result <= curve_diameter(k) <= result * (1 + 1e-6)


def test_items_have_no_such_sensitivity() -> None:
    with pytest.raises(ValueError, match="replace-item"):
        row_sensitivity(3, 2, Adjacency.REPLACE_ITEM)


def variance(level: int, n: int, T: float, epsilon: float, delta: float) -> float:
    """Of J terms by hand: noise on sums, and which samples are drawn."""
    one = gaussian_multiplier(epsilon, delta) if delta else math.sqrt(2) / epsilon
    std = one * row_sensitivity(max(1, level // 2), 2 if delta else 1, REPLACE)
    return (level - 1) * (2 * std**2 / n**2 + 1 / (n * T))


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_the_predicted_error_by_hand(delta: float) -> None:
    protocol = CentralDensity(0.5, 800, 20, delta, level=9, smoothness=1.5)
    users = CentralDensity.example_users()
    stated = fh.run(protocol, users, seed=1).public["predicted_ise"]
    expected = variance(9, 800, 20, 0.5, delta) + tail_energy(9, 1.5, 1.5)
    assert stated == pytest.approx(expected, rel=1e-5)  # sums are rounded to steps


@pytest.mark.parametrize(("n", "delta"), [(300, 0.0), (300, 1e-6), (20_000, 1e-6)])
def test_the_level_is_the_best_of_all(n: int, delta: float) -> None:
    def total(level: int) -> float:
        return variance(level, n, 30, 1.0, delta) + tail_energy(level, 1.5, 3.0)

    chosen = CentralDensity(1.0, n, 30, delta, smoothness=1.5, radius=3.0, grid=200)
    assert chosen.terms == min(range(1, 200, 2), key=total) > 1
    assert replace(chosen, grid=5, truth_level=3).terms == 3
    assert replace(chosen, discrete=True).terms == chosen.terms


def test_a_level_that_costs_too_much_ends_the_search() -> None:
    assert best_level(lambda level: math.inf, 1.0, 1.0, 99) == 1
    assert best_level(lambda level: 0.0, 1.0, 1.0, 99) == 99
