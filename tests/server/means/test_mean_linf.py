from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from server.means.mean import Mean
from server.means.mean_linf import MeanLinf
from tests.running import one_sample, run

# -- the protocol ----------------------------------------------------------------------------


def test_one_dimension_is_the_univariate_procedure() -> None:
    """The same queries, hence the same digests, draws and estimate, to the last bit."""
    for mode in ("default", "paper"):
        one = replace(Mean.example(), mode=mode)
        other = MeanLinf(2.0, 400, 1, 64, mode=mode, salt=one.salt)
        assert one.plan == other.plan
        users = Mean.example_users()
        (a, *_), (b, *_) = run(one, users, 3), run(other, users, 3)
        assert a.value == b.value
        assert a.stderr == b.stderr


def test_different_numbers_of_samples() -> None:
    """The harmonic mean is a safe plan, and what it costs against a better one is a factor 2.

    Numbers of samples log-uniform on 10, ..., 1000. With 4000 users, Laplace noise and epsilon = 1
    the specification's squared errors are 5.6e-4, 1.5e-4 and 7.7e-5 for plans with 10 (the least),
    46 (the harmonic mean) and 211 (the mean). Averages of 150 squares deviate by 0.12: a factor 1.6
    has a false alarm of 4e-5 each. The bias, at most 2 percent of the error, is hidden by chance:
    bias^2 < 3e-6 + 3.5^2 mse / 150.
    """
    n, theta = 4000, 0.237
    for T, mse in ((10, 5.6e-4), (46, 1.5e-4), (211, 7.7e-5)):
        protocol, rng = MeanLinf(1.0, n, 1, T, kind="laplace"), np.random.default_rng(T)
        errors = []
        for seed in range(150):
            sizes = np.floor(np.exp(rng.uniform(math.log(10), math.log(1001), n))).astype(int)
            x = 2 * rng.binomial(sizes, (1 + theta) / 2) / sizes - 1
            estimate, _, _ = run(protocol, one_sample(x[:, None]), seed, aggregate=True)
            errors.append(estimate.value[0] - theta)
        assert mse / 1.6 < np.mean(np.square(errors)) < 1.6 * mse
        assert np.mean(errors) ** 2 < 3e-6 + 3.5**2 * mse / 150


def test_the_spread_that_is_planned_with() -> None:
    assert MeanLinf(1.0, 9000, 2, 100, low=0.0, high=4.0).scale == pytest.approx(0.2)
    assert MeanLinf(1.0, 9000, 2, 100, mean_scale=0.5).scale == 0.5
    wide = MeanLinf(1.0, 9000, 2, 100, mean_scale=0.5).plan
    assert wide.half_width > MeanLinf(1.0, 9000, 2, 100).plan.half_width


def test_folds_without_users_say_so() -> None:
    """Four of 400 users answer, noise off: 36 of 40 folds or more have the midpoint."""
    protocol = MeanLinf(math.inf, 400, 40, 1, low=0.0, high=4.0)
    estimate, _, _ = run(protocol, one_sample(np.full((4, 40), 3.0)), 0)
    empty = np.isinf(estimate.stderr)
    assert 36 <= empty.sum() < 40
    assert (estimate.value[empty] == 2.0).all()
    assert (estimate.value[~empty] == 3.0).all()
    assert f"{empty.sum()} of 40" in estimate.warnings[0]


def test_paper_mode_is_the_papers_procedure_in_every_fold() -> None:
    """Three votes, 7 delta, Laplace noise and the first T* samples, for n / d users."""
    protocol = MeanLinf(1.0, 3000, 3, 1e6, mode="paper")
    _, (vote, refine), _ = run(protocol, one_sample(np.full((3000, 3), 0.2)), 0, aggregate=True)
    items = math.floor(math.exp(0.01 * 1000))
    delta = math.sqrt(0.25 * math.log(1000 * items) / items)
    assert vote.functional.max_items == refine.functional.max_items == items
    assert (vote.n_bins, vote.channel.ones) == (math.ceil(2 / delta), 3)
    assert refine.half_width == pytest.approx(3.5 * delta)
    assert refine.kind == "laplace"


# -- truth and configuration -----------------------------------------------------------------


def test_truth_is_the_average_of_usable_means() -> None:
    rows = [[1.0, 9.0], [3.0, 9.0], [5.0, 0.0], [np.nan, 2.0], [2.0, np.inf]]
    users = Users.from_samples(np.arange(5), [0, 2, 3, 4, 5, 5], rows, unusable=True)
    protocol = MeanLinf(2.0, 900, 2, 64)
    # a NaN spoils its own coordinate; the infinity is an end of the range, 9 lies outside and shows
    assert protocol.truth(users).tolist() == [3.0, 3.0]
    assert protocol.diagnostics(users) == {"unusable records": 2}
    assert MeanLinf.example().loss(np.array([0.5, 1.0]), np.array([0.0, 3.0])) == 4.25
    with pytest.raises(PopulationError, match="mean"):
        protocol.truth(users.take(np.array([2, 4])))
    with pytest.raises(PopulationError, match=r"3.* 2"):
        MeanLinf.example().truth(users)
