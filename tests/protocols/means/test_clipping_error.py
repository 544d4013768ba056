"""Samples outside the public range: the prediction holds what clipping them costs."""

from __future__ import annotations

import numpy as np
import pytest

import fedhist
from fedhist.protocols import Mean, MeanL2, MeanLinf
from fedhist.protocols.shared.mean_target import MeanTarget
from fedhist.users.batch import Users

PROTOCOLS = [
    Mean(epsilon=np.inf, n_users=300, samples_per_user=4, low=-0.5, high=0.25),
    MeanLinf(epsilon=np.inf, n_users=300, dimension=2, samples_per_user=4, low=-0.5, high=0.25),
    MeanL2(epsilon=np.inf, n_users=300, dimension=2, samples_per_user=4, radius=0.5),
]


def samples(d: int, scale: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(3)
    return scale * rng.uniform(-1, 1, (300, 4, d)) + 0.1 * scale


def users_of(values: np.ndarray) -> Users:
    n, t, d = values.shape
    return Users.from_samples(np.arange(1, n + 1), np.arange(n + 1) * t, values.reshape(-1, d))


def clipped(protocol: MeanTarget, values: np.ndarray) -> np.ndarray:
    if isinstance(protocol, MeanL2):
        norm = np.linalg.norm(values, axis=-1, keepdims=True)
        return values * np.minimum(protocol.radius / norm, 1.0)
    return np.clip(values, -0.5, 0.25)


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.name)
def test_it_is_the_distance_that_the_clip_makes(protocol: MeanTarget) -> None:
    values = samples(getattr(protocol, "dimension", 1))
    users = users_of(values)
    bias = clipped(protocol, values).mean(axis=(0, 1)) - values.mean(axis=(0, 1))
    assert protocol.clipping_error(users) == pytest.approx(float(bias @ bias), rel=1e-9)
    inside = users_of(samples(values.shape[-1], scale=0.2))
    planned = protocol.error(inside).expected
    assert protocol.error(users).expected - planned == pytest.approx(float(bias @ bias), rel=1e-9)
    assert bias @ bias > 1e-3


def test_a_run_without_noise_is_off_by_it() -> None:
    users = users_of(samples(1))
    protocol = PROTOCOLS[0]
    estimate = fedhist.run(protocol, users, seed=1)
    assert protocol.loss(estimate.value, protocol.truth(users)) == pytest.approx(
        protocol.clipping_error(users), rel=1e-9
    )


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.name)
def test_inside_the_range_nothing_is_lost(protocol: MeanTarget) -> None:
    users = users_of(samples(getattr(protocol, "dimension", 1), scale=0.2))
    assert protocol.clipping_error(users) < 1e-30
