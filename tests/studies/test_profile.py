"""Profiles of populations: against slow obvious versions, and as a command."""

from __future__ import annotations

import math

import polars as pl
import pytest

from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.populations.base import Loaded
from simulations.studies.decide.profile import profile_of

RECORDS = {
    "ann": {"tea": 6, "rye": 2},
    "bob": {"tea": 3},
    "cyd": {"tea": 1, "chai": 1},
    "dan": {},
    "eve": {"Tea": 2},
}


def test_the_profile_of_items() -> None:
    result = profile_of(Loaded(Users.from_records(RECORDS), "five", domain=Keys.of(["tea", "rye"])))
    assert (result.n_users, result.n_events, result.n_items, result.domain_size) == (5, 15, 4, 2)
    assert result.outside.events == pytest.approx(3 / 15)
    assert result.outside.users == pytest.approx(1 / 4)
    assert result.per_user["most"] == 8
    assert result.per_user["50%"] == 2
    assert result.items_per_user["mean"] == pytest.approx(6 / 5)
    for named in ("1 users hold nothing", "'Tea'", "53.3%"):
        assert any(named in w for w in result.warnings)
    assert result.table.filter(pl.col("fact") == "events")["value"].to_list() == [15]


def test_the_profile_of_samples() -> None:
    records = {"a": [1.0, 2.0, 3.0], "b": [9.0], "c": [math.nan], "d": []}
    result = profile_of(
        Loaded(Users.from_records(records, unusable=True), "four", value_range=(0.0, 5.0))
    )
    assert (result.n_users, result.n_events, result.n_items) == (4, 5, None)
    assert result.values["most"] == 9
    assert result.outside.events == pytest.approx(1 / 5)
    assert any("a null record" in w for w in result.warnings)
    assert result.suggested["low"] < result.suggested["high"]
