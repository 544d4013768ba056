"""What stands under a run and a comparison: what is left out, what a budget is not worth."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from commands import Command

from fedhist.protocols import BoundedHistogram
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.populations import Loaded
from simulations.populations.facts import budget_doubts, facts_for, facts_of_run

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
