"""What falls outside a domain or a range, and names written in several ways."""

from __future__ import annotations

import numpy as np
import pytest

from fedhist.protocols import MeanL2, MeanLinf, NaiveMean, SparseMean
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.quantiles.quantiles import Quantiles
from simulations.populations.base import Loaded
from simulations.populations.facts import facts_for, facts_of, similar_names


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["Tea", "tea"], 1),
        (["café", "cafe\u0301"], 1),
        (["ｔｅａ", "tea"], 1),
        (["te\u200ba", "tea"], 1),
        (["tea", "teas", "rye"], 0),
        (["Tea", "tea", "RYE", "rye"], 2),
        ([], 0),
    ],
)
def test_similar_names(names: list[str], groups: int) -> None:
    assert similar_names(Keys.of(names), np.ones(len(names))).groups == groups


def test_the_facts_of_items() -> None:
    """Two sentences: what is outside, and that a name of the domain has a twin outside it."""
    users = Users.from_records({"ann": {"tea": 2, "Tea": 6}, "bob": {"rye": 1}})
    first, second = facts_of(Loaded(users, "", domain=Keys.of(["tea"])))
    assert first.startswith("77.8% of events and 50% of users fall outside the domain")
    assert "'tea' is in the domain, the other is left out ('Tea')" in second
    assert facts_of(Loaded(users, "", domain=Keys.of(["tea", "Tea", "rye"])))[0].startswith("1 ")


def test_whole_numbers_want_bins_of_their_own() -> None:
    asked = {"epsilon": 1.0, "levels": (0.5,), "n_users": 2}
    users = Users.from_records({"ann": [1.0, 5.0], "bob": [3.0]})
    between = Quantiles(low=1.0, high=5.0, **asked)
    (said,) = facts_for(Loaded(users, ""), between)
    assert "low = 0.5, high = 5.5, n_bins = 5" in said
    assert facts_for(Loaded(users, ""), Quantiles(low=0.5, high=5.5, n_bins=5, **asked)) == ()
    halves = Users.from_records({"ann": [1.5]})
    assert facts_for(Loaded(halves, ""), between) == ()


def test_samples_outside_the_ball_of_a_mean() -> None:
    """One of four has the norm .99, two are outside it but inside the box [-1, 1]^2."""
    samples = np.array([[0.7, 0.7], [0.9, 0.9], [-0.8, 0.7], [3.0, 0.0]])
    loaded = Loaded(Users.from_samples([1, 2], [0, 2, 4], samples), "", value_range=(-9.0, 9.0))
    for protocol, share in (
        (MeanL2(1.0, 2, 2, 2), "75% of samples lie outside the ball of radius 1, for 50% of users"),
        (NaiveMean(1.0, 2, 2, geometry="l2", radius=1.1), "50% of samples lie outside the ball"),
        (MeanLinf(1.0, 2, 2, 2), "25% of samples lie outside [-1, 1], for 0% of users"),
        (
            SparseMean(1.0, 2, 2, 2, sparsity=1, radius=0.85),
            "50% of samples lie outside [-0.85, 0.85]",
        ),
    ):
        assert facts_for(loaded, protocol)[0].startswith(share)
    assert facts_for(loaded, MeanL2(1.0, 2, 2, 2, radius=3.0)) == ()
