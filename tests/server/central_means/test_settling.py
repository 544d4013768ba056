"""Shrinkage of noisy vectors against the closed form of its gain, and against the ball."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from server.central_means.noise import COUNTED, Kind
from server.central_means.settling import Look, Settling, drawn_noise, settled, spread_noise


@pytest.mark.parametrize(("d", "length"), [(3, 0.0), (5, 2.0), (64, 3.5), (64, 80.0)])
def test_the_error_is_less_than_that_of_noise_whatever_the_mean(d: int, length: float) -> None:
    """20,000 draws of the gain: it is negative by more than five standard errors.

    It is by 55 or more: other seeds would not raise a false alarm.

    At the origin the plain rule's error is 2 std^2 exactly, the positive part's less.
    """
    mean = np.full(d, length / np.sqrt(d))
    x = mean + np.random.default_rng(3).standard_normal((20_000, d))
    moved = np.square(settled(x, 1.0, 1e9) - mean).sum(axis=1)
    gain = moved - np.square(x - mean).sum(axis=1)
    assert gain.mean() < -5 * gain.std() / np.sqrt(len(x))
    if not length:
        assert moved.mean() < 2


def test_what_is_kept_of_one_and_two_coordinates() -> None:
    """R^2 / (R^2 + d std^2) of it, and no more than the ball holds."""
    inside, outside = np.array([0.3, -0.4]), np.array([3.0, -4.0])
    np.testing.assert_allclose(settled(inside, 5.0, 1.0), inside / 51)
    np.testing.assert_allclose(settled(inside[:1], 0.5, 1.0), inside[:1] / 1.25)
    np.testing.assert_allclose(settled(outside, 0.1, 1.0), [0.6, -0.8])
    np.testing.assert_array_equal(settled(inside, 1e-9, 1.0), inside)
    assert not settled(np.zeros(4), 1.0, 1.0).any()


@pytest.mark.parametrize("d", [1, 2, 3, 16])
@pytest.mark.parametrize("std", [0.1, 0.3, 1.0, 10.0])
@pytest.mark.parametrize("length", [0.0, 0.5, 1.0])
def test_no_worse_than_the_middle_where_noise_is_all_there_is(
    d: int, std: float, length: float
) -> None:
    """A mean of the ball: at most the minimax error of linear rules, and a tenth.

    Of that 5 % are for 4,000 draws, the rest for multiples that follow the noise. The bound is 3.9
    standard errors off or more: a false alarm has probability 5e-5 in the closest two cases.
    """
    truth = np.full(d, length / np.sqrt(d))
    x = truth + std * np.random.default_rng(9).standard_normal((4000, d))
    error = float(np.square(settled(x, std, 1.0) - truth).sum(axis=1).mean())
    assert error <= 1.1 / (1 + 1 / (d * std**2))


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize(("d", "std"), [(1, 2.0), (8, 0.5), (8, 0.01), (64, 2.0)])
def test_the_predicted_change_is_that_of_many_draws(kind: Kind, d: int, std: float) -> None:
    """Against 40,000 draws, with a clip's bias of a tenth; the seeds are fixed.

    Of 1,024 draws the standard error is 3.2 % in one coordinate, 1 % in more: with others a false
    alarm would have a probability of 2e-5 in each case.
    """
    truth = np.full(d, 0.6 / np.sqrt(d))
    mean = 0.9 * truth
    rng = np.random.default_rng(8)
    x = mean + std * drawn_noise(rng, kind, (40_000, d))
    real = float(np.square(settled(x, std, 1.0) - truth).sum(axis=1).mean())
    plain = float(np.square(mean - truth).sum()) + d * std**2
    predicted = Settling(kind, d, 1.0).error(mean, truth, std, std, plain)
    assert predicted == pytest.approx(real, rel=0.15 if d == 1 else 0.05)
    assert Settling(kind, d, 1e6).error(mean, truth, 1e-9, 0.0, plain) == plain


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize(("d", "std"), [(1, 30.0), (2, 1e3), (3, 1e5), (64, 1e9)])
def test_noise_far_longer_than_the_ball_ends_in_it(
    kind: Kind, power: int, d: int, std: float
) -> None:
    """Against 40,000 draws, within 2 %; the seeds are fixed.

    The standard error of 1,024 draws is .34 % at most: with others a false alarm would have a
    probability of 1e-8 in each of the 16 cases.

    What is known of the noise before tells nothing here, and must not leave a trace of its length.
    """
    truth = np.full(d, 0.6 / np.sqrt(d))
    x = truth + std * drawn_noise(np.random.default_rng(8), kind, (40_000, d))
    lengths = np.linalg.norm(x - truth, axis=1) ** power
    real = (np.linalg.norm(settled(x, std, 1.0) - truth, axis=1) ** power).mean()
    predicted = Settling(kind, d, 1.0).error(truth, truth, std, std, lengths.mean(), power=power)
    assert predicted == pytest.approx(real, rel=0.02)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("s", [0.01, 0.1, 0.3, 2.0])
def test_a_noisy_number_of_users_ends_in_the_ball_too(kind: Kind, s: float) -> None:
    """A mean at the edge, over a noisy number: what that makes longer is cut off.

    The squared error is that of 1 / (1 + s x) from 1 over x > 0, by integration. Of what is drawn
    only the number matters, whose quantiles are no draws.
    """
    edge = np.array([1.0])
    law = stats.norm() if kind == "gaussian" else stats.laplace(scale=np.sqrt(0.5))
    real, _ = integrate.quad(lambda x: (1 - 1 / (1 + s * x)) ** 2 * law.pdf(x), 0, 40, limit=200)
    look = Look(np.zeros(1), edge, 1e-9, s * COUNTED, least=1e-3)
    assert Settling(kind, 1, 1.0).look_error(look, edge) == pytest.approx(real, rel=0.02)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize(("d", "s"), [(1, 0.17), (2, 0.3), (2, 0.8), (2, 2.0), (16, 0.4)])
def test_the_error_of_two_noisy_sums_ratio_is_that_of_many_draws(
    kind: Kind, d: int, s: float
) -> None:
    """200,000 ratios, settled with the noise that each would state, beside a mean known before.

    They have a relative standard error of 1 % at most, and the prediction's own draws of 3 % at
    most: 15 % is farther than four of both, a false alarm has probability 6e-5 in each case.
    """
    rng, n = np.random.default_rng(6), 100
    centre, away = np.full(d, 0.2), np.full(d, 0.3 / d)
    noise, counted = (drawn_noise(rng, kind, (200_000, j)) for j in (d, 1))
    users = np.maximum(n + s * n * counted, 1.0)
    for std, before in ((np.inf, np.zeros(d)), (0.2, np.full(d, 0.1))):
        found = centre + (n * away + n * s * COUNTED * noise) / users
        each = n * s * COUNTED / users
        weight = 1 / (1 + (each / std) ** 2)
        mean = weight * found + (1 - weight) * before
        moved = settled(mean, np.sqrt(weight) * each, 1.0)
        real = np.square(moved - centre - away).sum(axis=1).mean()
        look = Look(centre, away, 1.0, s * COUNTED, 1 / n, before, std)
        predicted = Settling(kind, d, 1.0).look_error(look, centre + away)
        assert predicted == pytest.approx(real, rel=0.15)


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
def test_spread_noise_has_the_quantiles_of_its_law_in_every_column(kind: Kind) -> None:
    law = stats.norm() if kind == "gaussian" else stats.laplace(scale=math.sqrt(0.5))
    noise = spread_noise(np.random.default_rng(1), kind, (40, 3))
    wanted = law.ppf((np.arange(40) + 0.5) / 40)
    assert np.allclose(np.sort(noise, axis=0), wanted[:, None])
    assert len({tuple(np.argsort(column)) for column in noise.T}) == 3
