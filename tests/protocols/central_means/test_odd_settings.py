"""Central means at odd settings: what is refused before anything is spent, and what is told of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedhist.privacy.aggregation import Aggregation
from fedhist.protocols import BoxCentre, BoxMean, CentralMean, HuberMean, IntervalMean, WeightedMean
from fedhist.users.batch import Users
from tests.protocols.running import one_sample, run

WIDE: dict[str, Any] = {"epsilon": 1.0, "n_users": 4000, "low": -1000.0, "high": 1000.0}


def around(mean: float) -> Any:
    return one_sample(mean + 0.1 * np.random.default_rng(1).standard_normal((4000, 1)))


def test_a_radius_is_given_or_a_number_of_samples() -> None:
    with pytest.raises(ValueError, match="radius or samples_per_user"):
        HuberMean(**WIDE, radius=5.0, samples_per_user=4)


def test_counts_of_bins_for_which_there_is_no_room_are_never_asked_for() -> None:
    """Sizes were released, and paid for, before the question about 5,000 medians was refused."""
    wide = {"epsilon": 50.0, "n_users": 10**9, "low": -1.0, "high": 1.0, "dimension": 5000}
    with pytest.raises(ValueError, match="dimension must be"):
        WeightedMean(**wide, within=0.1)
    WeightedMean(**wide | {"dimension": 4096}, within=0.1)
    assert not IntervalMean(**wide).enough
    assert IntervalMean(**wide, scale=0.01).enough
    assert CentralMean(**wide, delta=0.0).chosen.name != "interval-mean"


@pytest.mark.parametrize("scale", [0.01, 0.1, 0.3, 1.0])
def test_a_clip_around_a_bin_that_is_wider_than_the_scale_holds_the_users(scale: float) -> None:
    """Bins are .49 wide: .47 is .23 from the middle of one, and drawn with probability 1 - 1e-6.

    Of scale .01 the clip was .03 around the middle: all users were shortened to it, up to .24 off.
    """
    protocol = IntervalMean(**WIDE, scale=scale)
    users = one_sample(0.47 + scale / 10 * np.random.default_rng(1).standard_normal((4000, 1)))
    truth = float(users.reals.values.mean())
    for seed in range(10):  # |Laplace noise| beyond 14 standard deviations: none in 10^8
        found = run(protocol, users, seed).estimate
        assert abs(np.ravel(found.value)[0] - truth) < 14 * np.ravel(found.stderr)[0]


def test_steps_that_have_not_come_to_the_users_say_so() -> None:
    """64 steps of 1 from 0 are on their way to 500, one of 300 as well; three of them are there."""
    for how, told in (
        ({"radius": 1.0}, True),
        ({"radius": 300.0, "n_steps": 1}, True),
        ({"radius": 300.0, "n_steps": 3}, False),
        ({"radius": 1.0, "n_steps": 2, "start": 500.0}, False),
        ({"radius": 1000.0}, False),
    ):
        why = run(HuberMean(**WIDE, **how), around(500.0)).estimate.warnings
        assert any("steps moved by" in words for words in why) == told, how


def test_a_sum_of_weights_is_not_called_a_number_of_users() -> None:
    """A tenth of 2,000 users have 400 samples; the others' one is worth 1 / 512 of what counts."""
    sizes = np.where(np.arange(2000) % 10 == 0, 400, 1)
    values = 0.5 + 0.2 * np.random.default_rng(1).standard_normal(sizes.sum())
    users = Users.from_samples(np.arange(2000), np.cumsum([0, *sizes]), values)
    given = WIDE | {"epsilon": 4.0, "n_users": 2000, "low": -1.0, "high": 1.0}
    public = run(WeightedMean(**given, within=0.2), users).estimate.public
    assert "users, with noise" not in public
    assert public["samples that count, at most"] == 512
    assert 50 < public["weights, with noise"] < 300  # 160, and noise of 5 in each


def test_without_noise_users_without_samples_are_left_out_and_predicted_so() -> None:
    """The prediction said exactly (.3 / 2)^2; the nodes' one sum does count them as the middle."""
    given = WIDE | {"epsilon": math.inf, "low": -1.0, "high": 1.0}
    users = one_sample(np.where(np.arange(4000) % 2, 0.3, np.nan)[:, None])
    summed = BoxMean(**given, discrete=True, trust=Aggregation(20))
    for protocol, error in ((BoxMean(**given), 0.0), (CentralMean(**given), 0.0), (summed, 0.0225)):
        found = np.ravel(run(protocol, users, nodes=20).estimate.value)[0]
        assert (found - 0.3) ** 2 == pytest.approx(error, abs=1e-6)
        assert protocol.error(users).expected == pytest.approx(error, abs=1e-6)


@pytest.mark.parametrize("cls", [BoxCentre, IntervalMean, CentralMean])
def test_predictions_of_several_steps_say_that_they_are_of_users_with_samples(cls: Any) -> None:
    """The middle of the range, where half the users are counted, draws later steps to it."""
    protocol = cls(epsilon=1.0, n_users=4000, low=-1.0, high=1.0)
    values = 0.3 + 0.05 * np.random.default_rng(1).standard_normal(4000)
    for without, told in ((0, False), (200, False), (2000, True)):
        sizes = (np.arange(4000) >= without).astype(np.int64)
        users = Users.from_samples(np.arange(4000), np.cumsum([0, *sizes]), values[: sizes.sum()])
        assert protocol.error(users).is_bound == told, without
