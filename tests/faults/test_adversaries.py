"""Adversaries: what they do is counted, what can be seen is dropped, who they are is exact.

Most of these are exact: a run with adversaries equals a run on the population that is left, to the
bit, because a user's coins are its own.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhist.base.errors import MissingReplies
from fedhist.users.keys import Keys, user_ids
from simulations.adversaries import read_adversaries
from simulations.adversaries.table import assign
from simulations.runs.booked_run import run_job
from simulations.runs.config import Config, load_config, prepare
from simulations.runs.options import Options
from tests.faults.attacks import CASES, Adversary, assert_same, honest, hostile, left, shoppers


def test_the_share_is_exact_nested_and_seeded() -> None:
    ids = shoppers(333).ids
    sizes = np.ones(333)
    before = np.zeros(333, dtype=bool)
    for fraction in (0.0, 0.1, 0.2, 0.49, 1.0):
        table = Adversary("dropout", fraction)
        now = assign([table], "user", ids, sizes) >= 0
        assert now.sum() == int(fraction * 333 + 1e-9)
        assert (now | ~before).all()
        backwards = assign([table], "user", ids[::-1], sizes) >= 0
        assert np.array_equal(backwards[::-1], now)
        before = now
    other = assign([Adversary("dropout", 0.5, seed=1)], "user", ids, sizes)
    assert not np.array_equal(other, assign([Adversary("dropout", 0.5)], "user", ids, sizes))


def test_nobody_follows_two_tables() -> None:
    ids = shoppers().ids
    tables = [Adversary("dropout", share) for share in (0.3, 0.3, 0.4)]
    result = assign(tables, "user", ids, np.ones(200))
    assert np.bincount(result).tolist() == [60, 60, 80]
    with pytest.raises(ValueError, match=r"adversary\.1\.fraction = 0\.8"):
        assign([tables[0], Adversary("dropout", 0.8)], "user", ids, np.ones(200))


def test_correlated_dropout_prefers_large_records() -> None:
    """With records of 1 and 3, three of four of the first to go are large ones.

    200 of 20,000 are drawn: a standard deviation of 0.031, tested at 5.3 of them (1e-7).
    """
    ids, sizes = Keys.range(20_000), np.tile([1, 3, 0], 6667)[:20_000]
    away = assign([Adversary("dropout", 0.01, correlated=True)], "user", user_ids(ids), sizes) >= 0
    assert away.sum() == 200
    assert abs((sizes[away] == 3).mean() - 0.75) < 0.163
    assert not (sizes[away] == 0).any()
    plain = assign([Adversary("dropout", 0.01)], "user", user_ids(ids), sizes) >= 0
    assert abs((sizes[plain] == 3).mean() - 1 / 3) < 0.18


@pytest.mark.parametrize("case", CASES)
def test_who_does_not_answer_is_not_in_the_estimate(case: str) -> None:
    protocol, users = CASES[case]
    table = Adversary("dropout", 0.25, correlated=case == "histogram")
    result = hostile((protocol, users), table)
    assert_same(result.estimate, honest(protocol, left(users, table)))
    n = len(users) // 4
    assert result.adversaries["injected"] == {"dropout": n}
    assert list(result.adversaries["dropped"].values()) == [n]
    assert result.estimate.public.get("n_users", 3 * n) == 3 * n


def test_a_silent_node_is_left_out_whole() -> None:
    protocol, users = CASES["histogram"]
    table = Adversary("dropout", 0.2, level="node")
    with pytest.raises(MissingReplies, match="2 of 10"):
        hostile((protocol, users), table, nodes=10)
    result = hostile((protocol, users), table, nodes=10, min_replies=8)
    bad = assign([table], "node", np.arange(10, dtype=np.uint64), np.ones(10)) >= 0
    rest = [u for u, b in zip(users.split(10), bad, strict=True) if not b]
    expected = sum(honest(protocol, u).value for u in rest)
    assert np.array_equal(result.estimate.value, expected)
    assert result.estimate.public["n_users"] == 160
    assert result.rounds[0]["missing"] == 2
    assert sum(result.adversaries["dropped"].values()) == 2


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"kind": "dropot", "fraction": 0.1}, "'dropout'"),
        ({"kind": "dropout", "fraction": 1.5}, "1.5"),
        ({"kind": "dropout", "fraction": math.nan}, "nan"),
        ({"kind": "dropout", "fraction": 0.1, "level": "town"}, "level"),
        ({"kind": "dropout", "fraction": 0.1, "seed": -1}, "seed"),
        ({"kind": "dropout", "fraction": 0.1, "correlated": True, "level": "node"}, "node"),
        ({"kind": "dropout", "fraction": 0.1, "frac": 1}, "frac"),
    ],
)
def test_bad_tables_are_refused(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_adversaries([table])


def test_options_that_do_not_go_together() -> None:
    table = (Adversary("dropout", 0.1),)
    for bad in (
        {"clients": "aggregate", "adversaries": table},
        {"noise": "secure", "adversaries": table},
        {"on_bad_reply": "ignore"},
    ):
        with pytest.raises(ValueError, match=r"on_bad_reply|adversaries"):
            Options(**bad)


def test_a_configured_run_reports_what_was_done(tmp_path: Path) -> None:
    config: Config = load_config(
        "adversarial", [f"run.out={tmp_path / 'a'}", "population.n_users=1000"]
    )
    finished = run_job(prepare(config))
    metrics = json.loads((tmp_path / "a" / "metrics.json").read_text())
    result = metrics["NOT PRIVATE"]["adversaries"]
    assert result["injected"] == {"dropout": 100, "output-poisoning": 20}
    assert finished.evaluation.mean < 0.05
