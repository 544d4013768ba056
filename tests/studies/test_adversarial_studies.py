"""Adversaries in sweeps, comparisons and reports: counted, told apart, and never mistaken for safe.

The statistical test has a fixed seed and states its false-alarm probability.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from server.means.mean import Mean
from simulations.adversaries import Adversary
from simulations.adversaries.table import assign
from simulations.populations import population
from simulations.runs.config import parse_tables
from simulations.runs.options import Options
from simulations.runs.run import execute
from simulations.studies.cells import Cell, Record
from simulations.studies.compared import plan_of, run_study
from simulations.studies.runner import run_cell
from simulations.studies.study import study_of

GAUSSIAN: dict[str, Any] = {
    "kind": "gaussian",
    "n_users": 500,
    "samples_per_user": 5,
    "mean": 0.25,
    "spread": 0.25,
    "low": -1.0,
    "high": 1.0,
    "seed": 3,
}
MEAN = {"name": "mean", "epsilon": 2.0, "samples_per_user": 5, "low": -1.0, "high": 1.0}
BAD = {"kind": "output-poisoning", "fraction": 0.1, "target": 1.0}


def cell(*tables: dict[str, Any], protocol: dict[str, Any] | None = None, **run: Any) -> Cell:
    return Cell(protocol or MEAN, GAUSSIAN, {"seed": 1} | run, adversary=tables)


def test_a_record_says_what_an_attacked_run_says() -> None:
    users = population(**GAUSSIAN).load().users
    protocol = Mean(epsilon=2.0, n_users=500, samples_per_user=5, low=-1.0, high=1.0)
    table = Adversary("output-poisoning", 0.1, target=1)
    honest = run_cell(cell())
    options = Options(seed=1, adversaries=[table])
    outcome = execute(protocol, users, options)
    record = run_cell(cell(BAD))
    assert record.loss == protocol.loss_of(outcome.estimate, users)  # bit for bit
    assert record.more["bias"] == float(outcome.estimate.value[0] - protocol.truth(users)[0])
    assert record.more["diagnostics"]["injected: output-poisoning"] == 50
    assert (record.rounds, record.bytes_per_user) == (honest.rounds, honest.bytes_per_user)
    assert Record.from_json(record.to_json()) == record
    assert Cell(**record.cell, label=record.label) == cell(BAD)
    assert (honest.more["diagnostics"], honest.warnings) == ({}, ())
    assert honest.loss == pytest.approx(honest.more["bias"] ** 2)
    assert run_cell(cell(BAD | {"fraction": 0})).loss == honest.loss


ONE = [{"kind": "output-poisoning", "target": 1.0}]
TWO = [ONE[0] | {"fraction": 0.1}, {"kind": "dropout", "fraction": 0.2}]


def swept(axes: str, adversary: list[dict[str, Any]] = ONE) -> tuple[Cell, ...]:
    sweep = {"sweep": parse_tables(axes), "protocol": MEAN, "population": GAUSSIAN}
    return tuple(plan_of(study_of(sweep | {"adversary": adversary}, "", "attack"))[2])


def test_axes_of_several_adversaries() -> None:
    axes = 'adversary.1.fraction = [0.1, 0.3]\nrun.on_bad_reply = ["drop", "stop"]\n'
    cells = swept(axes, TWO)
    assert [[a["fraction"] for a in c.adversary] for c in cells] == [[0.1, 0.1]] * 2 + [
        [0.1, 0.3]
    ] * 2
    assert [c.run.get("on_bad_reply") for c in cells] == [None, "stop"] * 2
    axes = "adversary.fraction = [0, 0.1, 0.3]\nseeds = 2\n"
    assert swept(axes) == swept(axes.replace("fraction", "0.fraction"))
    assert [(c.adversary[0]["fraction"], c.run["seed"]) for c in swept(axes)] == [
        (f, s) for f in (0, 0.1, 0.3) for s in (0, 1)
    ]
    made = swept('adversary.kind = ["dropout", "corrupted"]\nadversary.fraction = [0.1]\n', [])
    assert [c.adversary for c in made] == [
        ({"kind": kind, "fraction": 0.1},) for kind in ("dropout", "corrupted")
    ]


@pytest.mark.parametrize(
    ("axes", "adversary", "message"),
    [
        ("adversary.fractoin = [0.1]", ONE, "fractoin"),
        ("adversary.fraction = [1.5]", ONE, "1.5"),
        ("adversary.fraction = [0.1]", TWO, r"adversary\.0\.fraction"),
        ("adversary.5.fraction = [0.1]", TWO, r"adversary\.5"),
        ("seeds = 1", ONE, "fraction"),
        ('run.on_bad_reply = ["ignore"]', TWO, "on_bad_reply"),
    ],
)
def test_attacks_that_cannot_be_meant(
    axes: str, adversary: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        swept(axes, adversary)


COMPARE = {
    "epsilon": 2.0,
    "delta": 1e-6,
    "seeds": 2,
    "protocols": [
        {"name": "few-users-mean", "box": 1.0, "corrupted": 0.49, "label": "robust"},
        {"name": "few-users-mean", "epsilon": math.inf, "label": "average"},
        {"name": "naive-mean"},
    ],
}


def test_ranks_are_among_rows_of_one_share() -> None:
    """The plain average is off by what the attackers add to it, exactly; the robust one is not."""
    people = GAUSSIAN | {"samples_per_user": 20}
    tables = {
        "run": {"seed": 1},
        "compare": COMPARE,
        "protocol": {"samples_per_user": 20, "sample_radius": 0.75},
        "adversary": {"kind": "input-poisoning", "target": 1.0},
        "sweep": {"adversary": {"fraction": [0, 0.49]}},
        "population": people,
    }
    result = run_study(study_of(tables, "", "robust"))
    assert [(r.setting["adversary.fraction"], r.rank) for r in result.lines] == [
        (f, k) for f in (0.0, 0.49) for k in (1, 2, None)
    ]
    rows = {(r.label, r.setting["adversary.fraction"]): r for r in result.lines}
    assert "49% of the users" in " ".join(result.about["adversary"])
    assert {"bias", "fraction"} <= set(result.table.columns)
    assert rows["robust", 0.49].rank == 1
    users = population(**people).load().users
    bad = assign([Adversary("input-poisoning", 0.49)], "user", users.ids, users.n_items()) >= 0
    means = users.reals.values.reshape(500, 20).mean(axis=1)
    assert bad.sum() == 245
    assert rows["average", 0.49].bias == pytest.approx((1.0 - means[bad]).sum() / 500, rel=1e-9)
    assert rows["average", 0.0].bias == pytest.approx(0.0, abs=1e-12)
    robust = rows["robust", 0.49].mean
    assert robust < 0.17**2 < 0.13 < (rows["average", 0.49].mean or 0.0)
