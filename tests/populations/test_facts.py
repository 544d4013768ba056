"""What falls outside a domain or a range, what a clip takes, what a budget is not worth."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from commands import Command

from fedhist.protocols import BoundedHistogram, MeanL2, MeanLinf, NaiveMean, SparseMean
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.quantiles.quantiles import Quantiles
from simulations.populations import Loaded
from simulations.populations.facts import (
    budget_doubts,
    facts_for,
    facts_of,
    facts_of_run,
    words_of_names,
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
    told = words_of_names(Keys.of(names), np.ones(len(names)))
    assert told.startswith(f"{groups} group") if groups else not told


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


COMPARISON = """
[compare]
protocols = [{ name = "bounded-histogram", clip = 2.0 }]
epsilon = 1.0
delta = 0.2
seeds = 1

[run]
runtime = "inline"

[population]
kind = "events"
path = "events.csv"
user = "who"
item = "what"
domain = "domain.txt"
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    rows = [f"u{i},tea" for i in range(20)] + [f"v{i},rye" for i in range(8)] + ["w,tea"] * 12
    (tmp_path / "events.csv").write_text("\n".join(["who,what", *rows, "x,Tea"]) + "\n")
    (tmp_path / "domain.txt").write_text("tea\n")
    (tmp_path / "small.toml").write_text(COMPARISON)
    return tmp_path


def test_a_run_says_what_falls_outside(fedhist: Command, files: Path) -> None:
    """On the terminal and in metrics.json, NOT PRIVATE; budgets as warnings, which are public."""
    config = files / "run.toml"
    protocol = '[protocol]\nname = "bounded-histogram"\nepsilon = 1e9\ndelta = 0.2\nclip = 2.0\n'
    config.write_text(protocol + COMPARISON[COMPARISON.index("[run]") :])
    answer = fedhist("run", "run.toml", "--out", "out")
    assert answer.status == 0, answer.err
    said = " ".join(answer.out.split())
    assert "NOT PRIVATE 22% of events and 30% of users fall outside the domain" in said
    assert "the clip of 2 takes 31.2% of the events" in said
    assert "warning epsilon = 1e+09" in said
    assert "warning delta = 0.2" in said
    body = json.loads((files / "out" / "metrics.json").read_text())
    assert len(body["warnings"]) == 2
    assert body["NOT PRIVATE"]["facts"][0].startswith("22% of events")


@pytest.mark.parametrize(
    ("epsilon", "delta", "said"),
    [
        (1.0, 1e-6, []),
        (64.0, 0.001, []),
        (math.inf, 0.0, []),
        (65.0, 0.0, ["epsilon = 65 "]),
        (1.0, 0.0011, ["delta = 0.0011 "]),
        (1e9, 0.5, ["epsilon = 1e+09 ", "delta = 0.5 "]),
    ],
)
def test_budgets_that_protect_nobody(epsilon: float, delta: float, said: list[str]) -> None:
    result = budget_doubts(epsilon, delta, 1000)
    assert [d.startswith(s) for d, s in zip(result, said, strict=True)] == [True] * len(said)


def test_what_a_clip_takes_is_counted_by_hand() -> None:
    """In the norm of the protocol, inside its own domain."""
    users = Users.from_records({"a": {"x": 3, "y": 4, "z": 50}, "b": {"x": 1}})
    loaded = Loaded(users, "")
    for delta, norm in ((0.0, 7.0), (1e-6, 5.0)):
        protocol = BoundedHistogram(Keys.of(["x", "y"]), 1.0, 2.5, delta=delta)
        outside, clip = facts_of_run(loaded, protocol)
        assert outside.startswith("86.2% of events and 0% of users")
        lost = 7 * (1 - 2.5 / norm) / 8
        assert f"takes {100 * lost:.3g}% of the events in the domain, from the 50%" in clip
        assert facts_for(loaded, protocol) == (outside,)
