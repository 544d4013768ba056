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


def test_one_and_two_dimensions_are_projected_only() -> None:
    inside, outside = np.array([0.3, -0.4]), np.array([3.0, -4.0])
    np.testing.assert_array_equal(settled(inside, 5.0, 1.0), inside)
    np.testing.assert_allclose(settled(outside, 5.0, 1.0), [0.6, -0.8])
    assert not settled(np.zeros(4), 1.0, 1.0).any()


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
    predicted = plain + Settling(kind, d, 1.0).change(mean, truth, std, std)
    assert predicted == pytest.approx(real, rel=0.1)
    away = Settling(kind, d, 1e6).change(mean, truth, 1e-9, 0.0)
    assert away == 0.0
