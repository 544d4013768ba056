"""Profiles of populations: against slow obvious versions, and as a command."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import Command

from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.populations.base import Loaded
from simulations.studies.decide.profile import Profile, profile_of

RECORDS = {
    "ann": {"tea": 6, "rye": 2},
    "bob": {"tea": 3},
    "cyd": {"tea": 1, "chai": 1},
    "dan": {},
    "eve": {"Tea": 2},
}


def test_the_profile_of_items() -> None:
    """Every number by hand."""
    found = profile_of(Loaded(Users.from_records(RECORDS), "five", domain=Keys.of(["tea", "rye"])))
    assert (found.n_users, found.n_events, found.n_items, found.domain_size) == (5, 15, 4, 2)
    assert found.outside.events == pytest.approx(3 / 15)
    assert found.outside.users == pytest.approx(1 / 4)
    assert found.per_user["most"] == 8
    assert found.per_user["50%"] == 2
    assert found.items_per_user["mean"] == pytest.approx(6 / 5)
    for named in ("1 users hold nothing", "'Tea'", "53.3%"):
        assert any(named in w for w in found.warnings)
    assert found.table.filter(pl.col("fact") == "events")["value"].to_list() == [15]


def test_the_profile_of_samples() -> None:
    """Values, a range, users that cannot be used."""
    records = {"a": [1.0, 2.0, 3.0], "b": [9.0], "c": [math.nan], "d": []}
    found = profile_of(
        Loaded(Users.from_records(records, unusable=True), "four", value_range=(0.0, 5.0))
    )
    assert (found.n_users, found.n_events, found.n_items) == (4, 5, None)
    assert found.values["most"] == 9
    assert found.outside.events == pytest.approx(1 / 5)
    assert any("a null record" in w for w in found.warnings)
    assert found.suggested["low"] < found.suggested["high"]


def test_nothing_at_all() -> None:
    """Users without events, and users without samples; three values far outside."""
    empty = profile_of(Loaded(Users.from_records({"a": {}, "b": {}}), "two"))
    assert empty.n_events == 0
    none = Users.from_samples(
        np.arange(2, dtype=np.uint64), [0, 0, 0], np.empty((0, 1)), unusable=True
    )
    assert profile_of(Loaded(none, "two")).values == {}
    x = {str(i): [40.0 + i % 7, 1e6 if i < 3 else 42.0] for i in range(200)}
    assert any("1e+06" in w for w in profile_of(Loaded(Users.from_records(x), "far")).warnings)


def test_the_command(fedhist: Command, tmp_path: Path) -> None:
    """Facts; one JSON document; status 2 for columns that are not there."""
    lines = ["who,what", *(f"u{i},tea" for i in range(41))]
    (tmp_path / "events.csv").write_text("\n".join(lines))
    columns = ("events.csv", "--user", "who", "--item", "what", "--top", "1", "--profile")
    answer = fedhist("decide", *columns)
    assert answer.status == 0, answer.err
    assert "41 users" in answer.out
    assert "NOT PRIVATE" in answer.out
    body = json.loads(fedhist("decide", *columns, "--json").out)
    assert (body["kind"], body["n_users"]) == (Profile.kind, 41)
    answer = fedhist("decide", "events.csv", "--user", "whom", "--item", "what", "--profile")
    assert answer.status == 2
    assert "'whom'" in answer.err
