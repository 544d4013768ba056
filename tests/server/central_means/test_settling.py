"""Shrinkage of noisy vectors against the closed form of its gain, and against the ball."""

import numpy as np
import pytest

from server.central_means.noise import Kind
from server.central_means.settling import Settling, drawn_noise, settled


@pytest.mark.parametrize(("d", "length"), [(3, 0.0), (5, 2.0), (64, 3.5), (64, 80.0)])
def test_the_error_is_less_than_that_of_noise_whatever_the_mean(d: int, length: float) -> None:
    """20,000 draws of the gain: it is negative by more than five standard errors.

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

    Of that 5 % are for 4,000 draws, the rest for multiples that follow the noise.
    """
    truth = np.full(d, length / np.sqrt(d))
    x = truth + std * np.random.default_rng(9).standard_normal((4000, d))
    error = float(np.square(settled(x, std, 1.0) - truth).sum(axis=1).mean())
    assert error <= 1.1 / (1 + 1 / (d * std**2))


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize(("d", "std"), [(1, 2.0), (8, 0.5), (8, 0.01), (64, 2.0)])
def test_the_predicted_change_is_that_of_many_draws(kind: Kind, d: int, std: float) -> None:
    """Against 40,000 draws, with a clip's bias of a tenth: 10 % is five standard errors of 1,024.

    Laplace draws of one coordinate have the largest, about 4 %; the seeds are fixed.
    """
    truth = np.full(d, 0.6 / np.sqrt(d))
    mean = 0.9 * truth
    rng = np.random.default_rng(8)
    x = mean + std * drawn_noise(rng, kind, (40_000, d))
    real = float(np.square(settled(x, std, 1.0) - truth).sum(axis=1).mean())
    plain = float(np.square(mean - truth).sum()) + d * std**2
    predicted = Settling(kind, d, 1.0).error(mean, truth, std, std, plain)
    assert predicted == pytest.approx(real, rel=0.1)
    assert Settling(kind, d, 1e6).error(mean, truth, 1e-9, 0.0, plain) == plain


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize(("d", "std"), [(1, 30.0), (2, 1e3), (3, 1e5), (64, 1e9)])
def test_noise_far_longer_than_the_ball_ends_in_it(
    kind: Kind, power: int, d: int, std: float
) -> None:
    """Against 40,000 draws; a prediction of 1,024 is within 12 %, four standard errors in d = 3.

    What is known of the noise before tells nothing here, and must not leave a trace of its length.
    """
    truth = np.full(d, 0.6 / np.sqrt(d))
    x = truth + std * drawn_noise(np.random.default_rng(8), kind, (40_000, d))
    lengths = np.linalg.norm(x - truth, axis=1) ** power
    real = (np.linalg.norm(settled(x, std, 1.0) - truth, axis=1) ** power).mean()
    predicted = Settling(kind, d, 1.0).error(truth, truth, std, std, lengths.mean(), power=power)
    assert predicted == pytest.approx(real, rel=0.12)


def test_a_noisy_number_of_users_ends_in_the_ball_too() -> None:
    """A mean at the edge whose noise is along itself: cut off half of the time, 5 standard errors.

    Of N(1, s^2) projected to [-1, 1] the squared error is that of the negative half: s^2 / 2.
    """
    edge, s = np.array([1.0]), 0.3
    found = Settling("gaussian", 1, 1.0).error(edge, edge, 0.0, 0.0, s * s, along=s * edge)
    assert found == pytest.approx(s * s / 2, rel=0.25)
