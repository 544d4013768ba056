"""What falls outside a domain or a range, and names written in several ways."""

from __future__ import annotations

import numpy as np
import pytest

from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.quantiles.quantiles import Quantiles
from simulations.populations.base import Loaded
from simulations.populations.facts import (
    facts_for,
    facts_of,
    similar_names,
)


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
    """Case, blanks, decomposed letters, wide letters, invisible signs; and what is different."""
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
