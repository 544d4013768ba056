"""What falls outside a domain or a range, and names written in several ways."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest

from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.populations.base import Loaded
from simulations.populations.facts import (
    facts_of,
    outside_domain,
    outside_range,
    similar_names,
)


def normal(name: str) -> str:
    """Write a name as names are compared, letter by letter."""
    name = unicodedata.normalize("NFKC", name).lower()
    return " ".join("".join(c for c in name if unicodedata.category(c) != "Cf").split())


RECORDS = {
    "ann": {"tea": 2, "rye": 6},
    "bob": {"rye": 1},
    "cyd": {"tea": 1},
    "dan": {},
}


def test_outside_is_of_events_and_of_users_who_hold_something() -> None:
    """Seven of ten events; one of three users."""
    found = outside_domain(Users.from_records(RECORDS), Keys.of(["tea", "absent"]))
    assert (found.events, found.users) == pytest.approx((0.7, 1 / 3))


def test_outside_a_range() -> None:
    """A user all of whose samples are outside; what is no number is counted elsewhere."""
    users = Users.from_records({"a": [1, 9], "b": [9, 9], "c": [np.nan], "d": []}, unusable=True)
    found = outside_range(users, 0, 5)
    assert (found.events, found.users) == pytest.approx((3 / 5, 1 / 3))


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


def test_no_letter_hides_a_similar_name() -> None:
    """Names of small letters of ASCII are not looked at; with any other letter they are.

    The four separators that only Python takes for blanks are left out.
    """
    for letter in map(chr, (*range(0x1C), *range(0x20, 256), 0x200B, 0xFF21)):
        twin = normal(f"x{letter}y")
        found = similar_names(Keys.of(dict.fromkeys(["other", f"x{letter}y", twin])))
        assert found.groups == (twin != f"x{letter}y"), letter


def test_the_facts_of_items() -> None:
    """Two sentences: what is outside, and that a name of the domain has a twin outside it."""
    users = Users.from_records({"ann": {"tea": 2, "Tea": 6}, "bob": {"rye": 1}})
    first, second = facts_of(Loaded(users, "", domain=Keys.of(["tea"])))
    assert first.startswith("77.8% of events and 50% of users fall outside the domain")
    assert "'tea' is in the domain, the other is left out ('Tea')" in second
    assert facts_of(Loaded(users, "", domain=Keys.of(["tea", "Tea", "rye"])))[0].startswith("1 ")
