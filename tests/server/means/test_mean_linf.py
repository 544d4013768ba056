import math
from dataclasses import replace

import numpy as np
import pytest

from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from server.means.mean import Mean
from server.means.mean_linf import MeanLinf
from tests.running import one_sample, run


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
