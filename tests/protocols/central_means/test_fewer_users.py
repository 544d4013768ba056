"""Central means whom fewer users answer than are planned, and what their stated errors hold."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedhist.protocols import BoxCentre, BoxMean, CentralMean, HuberMean, IntervalMean, WeightedMean
from fedhist.protocols.central_means.protocol import CentralMeans
from fedhist.session.session import Session
from fedhist.users.batch import Users
from server.noise import SimulatedNoise
from simulations.runtimes.inline import InlinePopulation
from tests.protocols.running import one_sample, run

WIDE: dict[str, Any] = {"epsilon": 1.0, "n_users": 1000, "low": -100.0, "high": 100.0}


def near(n: int, mean: float = 0.3) -> Users:
    return one_sample(mean + 0.05 * np.random.default_rng(1).standard_normal((n, 1)))


@pytest.mark.parametrize("adjacency", ["replace-user", "zero-out-user"])
def test_too_few_for_medians_are_asked_over_the_whole_range(adjacency: str) -> None:
    """The whole budget is left for it: the release is that of box-mean, to the last bit.

    Medians of 50 users are drawn from anywhere in [-100, 100], and nothing stated it.
    """
    users, given = near(50), WIDE | {"adjacency": adjacency}
    for protocol in (IntervalMean(**given), IntervalMean(**given, scale=1.0), CentralMean(**given)):
        ran, whole = run(protocol, users), run(BoxMean(**given), users).estimate
        assert ran.estimate.public == whole.public
        assert np.array_equal(ran.estimate.value, whole.value)
        assert len(ran.queries) == 2
        assert protocol.error(users).expected == BoxMean(**given).error(users).expected
        assert run(protocol, near(1000)).estimate.public["radius"] < 10


def test_weights_among_too_few_users_fail_before_anything_is_spent() -> None:
    protocol = WeightedMean(**WIDE, within=1.0)
    session = Session(protocol, lambda index: SimulatedNoise(1, index))
    estimate = session.run(InlinePopulation([near(150)], 1).ask)
    assert (estimate.status, estimate.public) == ("failed", {"n_users": 150.0})
    assert "150 users answered; at least" in estimate.reason
    assert not session.ledger.entries


@pytest.mark.parametrize("n_looks", [2, 3])
def test_fewer_users_than_a_radius_is_drawn_with_keep_the_last_one(n_looks: int) -> None:
    """Looks over the whole range are averaged: 60 runs, whose mean square is within a factor 3.

    It is that of 60 sums of Laplace noise, whose relative standard error is .3 at most. Before, it
    was 30 times what was predicted for the range: the radius of 50 users was drawn from anywhere.
    """
    protocol, users = BoxCentre(**WIDE, n_looks=n_looks), near(50)
    found = [run(protocol, users, seed).estimate for seed in range(60)]
    assert {e.public["radius"] for e in found} == {100.0}
    truth = float(users.reals.values.mean())
    error = np.mean([(np.ravel(e.value)[0] - truth) ** 2 for e in found])
    assert 1 / 3 < error / protocol.error(users).expected < 3
    assert 1 / 3 < error / np.mean([np.ravel(e.stderr)[0] ** 2 for e in found]) < 3


def test_a_public_radius_follows_the_first_mean_of_those_who_answer() -> None:
    users = near(200)
    fewer, few = (BoxCentre(**WIDE | {"n_users": n}, radius=0.1) for n in (1000, 200))
    assert run(fewer, users).estimate.public["radius"] == few.second_radius > fewer.second_radius
    assert fewer.error(users).expected == few.error(users).expected


@pytest.mark.parametrize("kind", [IntervalMean, CentralMean, WeightedMean])
def test_medians_among_a_noisy_number_that_is_too_small_are_told_of(
    kind: type[CentralMeans],
) -> None:
    """150 users with noise of standard deviation 70 at most, where 500 are needed: none in 10^5."""
    more = {"within": 1.0} if kind is WeightedMean else {}
    protocol = kind(**WIDE | {"n_users": 2000, "adjacency": "add-remove-user"}, **more)
    for n, told in ((100, True), (2000, False)):
        why = run(protocol, near(n)).estimate.warnings
        assert any("fewer than the" in words for words in why) == told


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("d", [1, 3])
def test_stated_errors_hold_the_noise_on_a_hidden_number(delta: float, d: int) -> None:
    """All users at a corner: the noise on their number makes 25 / 26 of the squared error or more.

    That is 1 + |a|^2 / (.2 R)^2 of the noise on the sum, in all, a being from the clip's centre. Of
    400 runs the ratio has a relative standard error of .12 at most: .6 to 1.6 are four and more.
    """
    given: dict[str, Any] = {"epsilon": 2.0, "n_users": 4000, "low": -1.0, "high": 1.0}
    given |= {"dimension": d, "delta": delta, "adjacency": "add-remove-user"}
    users = one_sample(np.full((4000, d), 0.9))
    for protocol in (BoxMean(**given), HuberMean(**given, radius=math.sqrt(d))):
        found = [run(protocol, users, seed).estimate for seed in range(400)]
        error = np.mean([np.square(e.value - 0.9).sum() for e in found])
        stated = np.mean([np.square(e.stderr).sum() for e in found])
        assert 0.6 < stated / error < 1.6


def test_steps_of_mere_noise_say_so() -> None:
    few = HuberMean(**WIDE | {"n_users": 3, "epsilon": 0.1}, radius=20.0)
    assert any("more than half of the range" in why for why in run(few, near(3)).estimate.warnings)
