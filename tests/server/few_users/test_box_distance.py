"""Predicted lengths of noise, and of the plain branches' errors, against simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from server.central_means.noise import Kind
from server.few_users.box import box_distance, held_distance, noise_length, shifted_length
from server.few_users.box_plan import SHARES, look_noise
from server.few_users.plan import Method, Wishes, choose_branch

KINDS: tuple[Kind, ...] = ("laplace", "gaussian")


def noise(kind: Kind, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if kind == "gaussian":
        return rng.standard_normal(shape)
    return rng.laplace(scale=math.sqrt(0.5), size=shape)


@pytest.mark.parametrize("d", [1, 2, 3, 10, 200])
@pytest.mark.parametrize("kind", KINDS)
def test_lengths_are_those_of_drawn_noise(kind: Kind, d: int) -> None:
    """20,000 draws: beyond six standard errors by chance 2e-9 each; 4 % is the stated excess."""
    rng = np.random.default_rng(60)
    z = noise(kind, (20_000, d), rng)
    for shift in (0.0, 0.5 * math.sqrt(d), math.sqrt(d), 4 * math.sqrt(d)):
        v = rng.standard_normal((len(z), d))
        v *= shift / np.linalg.norm(v, axis=1, keepdims=True)
        length = np.linalg.norm(z + v, axis=1)
        found = shifted_length(kind, d, 1.0, shift)
        six = 6 * length.std() / math.sqrt(len(z))
        excess = 0.04 if d > 1 and shift else 1e-12
        assert -six <= found - length.mean() <= six + excess * length.mean()
    assert shifted_length(kind, d, 2.0, 0.0) == pytest.approx(2 * noise_length(kind, d))


@pytest.mark.parametrize("d", [1, 2, 3, 10])
@pytest.mark.parametrize("delta", [1e-12, 0.05])  # Laplace and, but for one or two, Gaussian noise
@pytest.mark.parametrize("method", ["box", "box-centre"])
def test_plain_branches_err_as_predicted(method: Method, delta: float, d: int) -> None:
    """Within 10 % of 3,000 runs by a slow obvious version, and five of their standard errors."""
    n, r, box = 300, 1.0, 8.0
    plan = choose_branch(n, d, r, box, 1.0, delta, Wishes(method=method))
    rng = np.random.default_rng(61)
    rows = 0.5 + rng.standard_normal((n, d)) * r / math.sqrt(d)
    shares = SHARES[method]
    budget = [(plan.box, shares[0]), (plan.part_radius, shares[-1])][: len(shares)]
    law = look_noise(method, 1.0, delta, d)
    errors = []
    for _ in range(3000):
        centre = np.zeros(d)
        for radius, share in budget:
            away = rows - centre
            short = away * np.minimum(1, radius / np.linalg.norm(away, axis=1))[:, None]
            std = radius * law.std(share) / n
            centre = centre + short.mean(axis=0) + std * noise(law.kind, (d,), rng)
            length = float(np.linalg.norm(centre))
            kept = max(0.0, 1 - max(d - 2, 0) * std**2 / length**2)
            centre = centre * min(kept, box / length)
        errors.append(float(np.linalg.norm(centre - rows.mean(axis=0))))
    mean, stderr = float(np.mean(errors)), float(np.std(errors)) / math.sqrt(len(errors))
    assert box_distance(rows, plan) == pytest.approx(mean, abs=0.1 * mean + 5 * stderr)


@pytest.mark.parametrize("d", [1, 2, 3, 256])
def test_estimates_held_in_a_ball_err_as_predicted(d: int) -> None:
    """100,000 directions: beyond six standard errors by chance 2e-9 each; 1 % is quadrature."""
    u = np.random.default_rng(61).standard_normal((100_000 // d + 100, d))
    u /= np.linalg.norm(u, axis=1, keepdims=True)
    for distance, length, box in ((0.8, 0.2, 0.4), (0.3, 0.4, 0.4), (5.0, 0.0, 1.0), (0.1, 0.2, 1)):
        x = distance * u
        x[:, 0] += length
        x *= np.minimum(1, box / np.linalg.norm(x, axis=1))[:, None]
        x[:, 0] -= length
        error = np.linalg.norm(x, axis=1)
        six = 6 * error.std() / math.sqrt(len(error))
        found = held_distance(distance, length, box, d)
        assert abs(found - error.mean()) <= six + 0.01 * error.mean()
