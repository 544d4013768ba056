"""Profiles of populations: against slow obvious versions, and as a command."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import Command

from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.populations import population
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
    assert any("1 users hold nothing" in w for w in found.warnings)
    assert any("'tea' is in the domain, the other is left out ('Tea')" in w for w in found.warnings)
    assert any("one user holds 53.3% of everything" in w for w in found.warnings)
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
    assert any("a null record stands for each" in w for w in found.warnings)
    assert found.suggested["low"] < found.suggested["high"]


def test_nothing_at_all() -> None:
    """Users without events, and users without samples."""
    empty = profile_of(Loaded(Users.from_records({"a": {}, "b": {}}), "two"))
    assert empty.n_events == 0
    none = Users.from_samples(
        np.arange(2, dtype=np.uint64), [0, 0, 0], np.empty((0, 1)), unusable=True
    )
    assert profile_of(Loaded(none, "two")).values == {}


def test_a_million_events_take_seconds() -> None:
    """Processor time, without reading a file."""
    loaded = population("zipf", n_users=30_000, d=20_000, mean_items=35, seed=2).load()
    started = time.process_time()
    found = profile_of(loaded)
    assert found.n_events > 900_000
    assert time.process_time() - started < 10


def write(path: Path) -> None:
    """Write an uneven file: names in several spellings, a user in two."""
    lines = ["who,what"]
    lines += [f"u{i},{'tea' if i % 3 else 'Tea'}" for i in range(40)]
    lines += [f"u{i},mate" for i in range(0, 40, 5) for _ in range(i)] + ["U1,chai"]
    path.write_text("\n".join(lines) + "\n")


def test_the_command(fedhist: Command, tmp_path: Path) -> None:
    """Facts and warnings; one JSON document; status 2 for columns that are not there."""
    write(tmp_path / "events.csv")
    columns = ("events.csv", "--user", "who", "--item", "what", "--top", "1", "--profile")
    answer = fedhist("decide", *columns)
    assert answer.status == 0, answer.err
    assert "41 users" in answer.out
    assert "NOT PRIVATE" in answer.out
    body = json.loads(fedhist("decide", *columns, "--json").out)
    assert (body["kind"], body["n_users"]) == (Profile.kind, 41)
    answer = fedhist("decide", "events.csv", "--user", "whom", "--item", "what", "--profile")
    assert answer.status == 2
    assert "no column 'whom'" in answer.err


def test_a_few_who_are_everything_are_said() -> None:
    """Two of 200 users hold most events; three of 600 values are far outside."""
    records = {str(i): {"a": 400 if i < 2 else 2} for i in range(200)}
    events = profile_of(Loaded(Users.from_records(records, unusable=True), "uneven"))
    assert any("2 of 200 users hold 66.9% of everything" in w for w in events.warnings)
    x = {str(i): [40.0 + i % 7, 41.0, 1e6 if i < 3 else 42.0] for i in range(200)}
    far = profile_of(Loaded(Users.from_records(x), "far"))
    assert any("3 values lie far outside" in w and "1e+06" in w for w in far.warnings)
    usual = profile_of(Loaded(Users.from_records({u: v[:2] for u, v in x.items()}), "usual"))
    assert not any("far outside" in w or "of everything" in w for w in usual.warnings)
