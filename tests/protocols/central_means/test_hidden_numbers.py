"""Predictions where the number of users is hidden: means are ratios of two noisy sums."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats

from fedhist.protocols import BoxMean, HuberMean, WeightedMean
from fedhist.protocols.central_means.theory import inverse_moments
from fedhist.users.batch import Users
from server.central_means.noise import Kind
from tests.protocols.running import run

HIDDEN: dict[str, Any] = {"low": -1.0, "high": 1.0, "adjacency": "add-remove-user"}


def some(n: int, d: int, spread: float) -> Users:
    rows = 0.3 + spread * np.random.default_rng(1).standard_normal((n, d))
    return Users.from_samples(np.arange(n), np.arange(n + 1), np.clip(rows, -1, 1))


@pytest.mark.parametrize(
    ("n", "epsilon", "d", "spread"),
    [(50, 0.1, 1, 0.01), (150, 0.1, 2, 0.01), (500, 0.1, 16, 0.5), (50, 1.0, 16, 0.01),
     (500, 1.0, 2, 0.5)],
)  # fmt: skip
def test_a_mean_over_the_range_errs_as_predicted(
    n: int, epsilon: float, d: int, spread: float
) -> None:
    """400 runs: within four standard errors and a tenth; noise on n is .02 to 2.3 times n.

    Losses are skewed: of 5,000 resamples of 200,000 draws at most .1 % were farther off in any
    case, which is the probability of a false alarm; the seeds are fixed.
    """
    protocol, users = BoxMean(epsilon=epsilon, n_users=n, dimension=d, **HIDDEN), some(n, d, spread)
    truth, predicted = protocol.truth(users), protocol.error(users).expected
    losses = [protocol.loss_of(run(protocol, users, s).estimate, users, truth) for s in range(400)]
    assert abs(np.mean(losses) - predicted) <= 4 * np.std(losses) / 20 + 0.1 * predicted


@pytest.mark.parametrize("kind", ["gaussian", "laplace"])
@pytest.mark.parametrize("std", [1e-5, 0.05, 0.2, 3.0])
def test_moments_of_the_inverse_of_a_noisy_number(kind: Kind, std: float) -> None:
    """Against integration on either side of 1, and the chance of the least."""
    least = 0.01
    law = stats.norm() if kind == "gaussian" else stats.laplace(scale=math.sqrt(0.5))
    lowest = (least - 1) / std

    def moment(power: int) -> float:
        def part(low: float, high: float) -> float:
            found, _ = integrate.quad(
                lambda x: (1 / (1 + std * x) - 1) ** power * law.pdf(x), low, high,
                limit=500, epsabs=0.0, epsrel=1e-9,
            )  # fmt: skip
            return float(found)

        cuts = np.unique(np.clip([-40.0, 0.9 * lowest, -1.0, 0.0, 1.0, 40.0], max(lowest, -40), 40))
        below = float(law.cdf(lowest)) * (1 / least - 1) ** power
        return below + sum(part(a, b) for a, b in pairwise(cuts.tolist()))

    found = inverse_moments(kind, std, least)
    assert found[1] == pytest.approx(moment(2), rel=1e-3)
    assert found[0] == pytest.approx(moment(1), rel=1e-3)


def test_what_rare_runs_make_of_a_huber_mean_is_told_and_stays_in_the_range() -> None:
    """Where hardly anybody is counted steps would go far out: errors of 600 in [-1, 1]."""
    users = some(50, 1, 0.01)
    few = HuberMean(epsilon=0.1, n_users=50, radius=0.5, **HIDDEN)
    many = HuberMean(epsilon=1.0, n_users=5000, radius=0.5, **HIDDEN).error(some(5000, 1, 0.01))
    assert (few.error(users).is_bound, many.is_bound) == (True, False)
    values = [np.atleast_1d(run(few, users, s).estimate.value) for s in range(100)]
    assert np.abs(values).max() <= 1.0


def test_a_huber_mean_of_one_step_errs_as_predicted() -> None:
    """400 runs, noise on n of .05 n: within four standard errors and 5 %.

    A false alarm has probability 6e-5, and some more for the skewness; the seeds are fixed.
    """
    protocol = HuberMean(epsilon=1.0, n_users=500, radius=0.8, n_steps=1, **HIDDEN)
    users = some(500, 1, 0.01)
    truth, predicted = protocol.truth(users), protocol.error(users).expected
    losses = [protocol.loss_of(run(protocol, users, s).estimate, users, truth) for s in range(400)]
    assert abs(np.mean(losses) - predicted) <= 4 * np.std(losses) / 20 + 0.05 * predicted


def test_a_weighted_mean_of_users_who_differ_errs_as_predicted() -> None:
    """Who is said to share a mean, and does not: the clip is short, and medians are far from it.

    400 runs: within five standard errors and a tenth. Of 5,000 resamples of 1,500 other runs none
    was farther off. Medians taken as exact made it a twentieth of what is measured.
    """
    rng, n = np.random.default_rng(1), 2000
    sizes = np.floor(200 ** rng.random(n)).astype(int)
    indptr = np.append(0, np.cumsum(sizes))
    x = np.repeat(rng.standard_normal(n), sizes) + rng.normal(0.5, 1.0, indptr[-1])
    users = Users.from_samples(np.arange(n), indptr, np.clip(x, -10, 10))
    protocol = WeightedMean(epsilon=1.0, n_users=n, low=-10.0, high=10.0, within=1.0)
    truth, predicted = protocol.truth(users), protocol.error(users).expected
    losses = [protocol.loss_of(run(protocol, users, s).estimate, users, truth) for s in range(400)]
    assert abs(np.mean(losses) - predicted) <= 5 * np.std(losses) / 20 + 0.1 * predicted
