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

from fedhist.privacy.guarantee import Adjacency
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.populations import population
from simulations.populations.base import Loaded
from simulations.studies.profile.profile import Profile, profile_of
from simulations.studies.profile.suggest import Budget, for_items

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
    assert found.outside_events == pytest.approx(3 / 15)
    assert found.outside_users == pytest.approx(1 / 4)
    assert found.per_user["most"] == 8
    assert found.per_user["50%"] == 2
    assert found.items_per_user["mean"] == pytest.approx(6 / 5)
    assert found.similar.split == ("tea", "Tea")
    assert found.ranked.tolist() == [10, 2, 2, 1]
    assert any("1 users hold nothing" in w for w in found.warnings)
    assert any("one user holds 53.3% of everything" in w for w in found.warnings)
    assert [line.split(" ")[0] for line in found.facts()] == ["20%", "1"]
    assert found.table.filter(pl.col("fact") == "events")["value"].to_list() == [15]


def test_the_profile_of_samples() -> None:
    """Values, a range, users that cannot be used."""
    records = {"a": [1.0, 2.0, 3.0], "b": [9.0], "c": [math.nan], "d": []}
    found = profile_of(Loaded(Users.from_records(records), "four", value_range=(0.0, 5.0)))
    assert (found.n_users, found.n_events, found.n_items) == (4, 5, None)
    assert found.values["most"] == 9
    assert found.outside_events == pytest.approx(1 / 5)
    assert any("a sample that is no number" in w for w in found.warnings)
    assert found.suggested["low"] < found.suggested["high"]


def test_nothing_at_all() -> None:
    """Users without events, and users without samples."""
    empty = profile_of(Loaded(Users.from_records({"a": {}, "b": {}}), "two"))
    assert empty.n_events == 0
    none = Users.from_samples(np.arange(2, dtype=np.uint64), [0, 0, 0], np.empty((0, 1)))
    assert profile_of(Loaded(none, "two")).values == {}


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("adjacency", [Adjacency.REPLACE_USER, Adjacency.ZERO_OUT_USER])
def test_the_suggested_clip_is_the_reference_of_the_protocol(
    delta: float, adjacency: Adjacency
) -> None:
    """As clip = "c-star" computes it, in a path of its own."""
    from fedhist.protocols import BoundedHistogram

    loaded = population("zipf", n_users=3000, d=40, mean_items=20, seed=2).load()
    given = {"epsilon": 1.0, "delta": delta, "adjacency": adjacency.value, "clip": "c-star"}
    resolved, _ = BoundedHistogram.resolve(given, loaded.users, loaded.domain)
    found = profile_of(loaded, epsilon=1.0, delta=delta, adjacency=adjacency)
    assert found.suggested["clip"] == pytest.approx(resolved["clip"], rel=0.005)


def test_the_suggested_size_has_the_least_bound() -> None:
    """Over all sizes of the series, each bound worked out by a walk over users."""
    rng = np.random.default_rng(3)
    table = rng.poisson(30 / np.arange(1, 31) ** 1.5, (60, 30))
    users = Users.from_records(
        {
            f"u{i}": {f"{j:02}": int(c) for j, c in enumerate(row) if c}
            for i, row in enumerate(table)
        }
    )
    rank = np.argsort(-table.sum(axis=0), kind="stable")
    bounds = {}
    for d in (1, 2, 5, 10, 20, 30):
        held = table[:, rank[:d]].sum(axis=1)
        errors = [np.maximum(held - c, 0).sum() + 2 * d * c / 2.0 for c in range(1, 200)]
        bounds[d] = min(errors) + table.sum() - held.sum()
    suggestions = for_items(users, None, Budget(epsilon=2.0))
    assert suggestions["top"].value == min(bounds, key=bounds.__getitem__)


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


def test_one_item_and_few_users_are_not_called_something_else() -> None:
    """Users of one item do hold several; a bound of most of the events is no suggestion."""
    alike = profile_of(Loaded(Users.from_records({str(i): {"a": 3} for i in range(50)}), "alike"))
    told = {row["fact"]: row["in words"] for row in alike.table.to_dicts()}
    assert told["correlation within users"] == "not defined: all events are alike"
    assert "its score" not in told
    two = profile_of(Loaded(Users.from_records({u: {"a": 3, "b": 3} for u in "xy"}), "two"))
    assert any("these 2 users" in w and "more users" in w for w in two.warnings)


def test_a_few_who_are_everything_are_said() -> None:
    """Two of 200 users hold most events; three of 600 values are far outside."""
    records = {str(i): {"a": 400 if i < 2 else 2} for i in range(200)}
    events = profile_of(Loaded(Users.from_records(records), "uneven"))
    assert any("2 of 200 users hold 66.9% of everything" in w for w in events.warnings)
    x = {str(i): [40.0 + i % 7, 41.0, 1e6 if i < 3 else 42.0] for i in range(200)}
    far = profile_of(Loaded(Users.from_records(x), "far"))
    assert any("3 values lie far outside" in w and "1e+06" in w for w in far.warnings)
    usual = profile_of(Loaded(Users.from_records({u: v[:2] for u, v in x.items()}), "usual"))
    assert not any("far outside" in w or "of everything" in w for w in usual.warnings)
    assert "variance -" not in "".join(row["in words"] or "" for row in far.table.to_dicts())
