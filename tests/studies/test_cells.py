"""Cells: one key and one loss for one setting, wherever it runs; records that survive versions."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedhist.model.registry import protocol_class
from simulations.populations.synthetic import Zipf
from simulations.runs.options import Options
from simulations.runs.run import execute
from simulations.studies.cells import Cell, Record, revision_of
from simulations.studies.losses import norms
from simulations.studies.runner import error_record, run_cell

PLUGIN = str(Path(__file__).with_name("noted.py"))
ZIPF = {"kind": "zipf", "n_users": 80, "d": 6, "mean_items": 4, "seed": 3}
HISTOGRAM = {"name": "bounded-histogram", "epsilon": 1.0, "delta": 1e-6, "clip": 5.0}


def cell(
    protocol: dict[str, Any] | None = None,
    population: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
) -> Cell:
    return Cell(HISTOGRAM | (protocol or {}), ZIPF | (population or {}), {"seed": 1} | (run or {}))


def test_the_key_of_a_setting_is_fixed() -> None:
    """Files of results outlive versions: this digest must never change."""
    assert cell().key == "3d9dd46ef8a916fc6e05d9d695630f9f"


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (cell({"clip": 5}), True),
        (replace(cell(), label="mine"), True),
        (cell(run={"workers": 7, "runtime": "ray", "out": "x", "timeout": 5.0}), True),
        (cell(run={"noise": "simulated", "nodes": 0, "plugins": ()}), True),
        (cell({"clip": 5.5}), False),
        (cell(population={"seed": 4}), False),
        (cell(run={"seed": 2}), False),
        (cell(run={"noise": "secure"}), False),
        (cell(population={"tail": math.inf}), False),
    ],
)
def test_a_key_is_of_what_the_loss_depends_on(other: Cell, same: bool) -> None:
    assert (other.key == cell().key) is same


def test_a_file_that_changes_under_a_study(tmp_path: Path) -> None:
    """A record under the old contents' key would be taken for theirs by the next sweep."""
    path = tmp_path / "a.csv"
    path.write_text("user,item\n" + "ann,tea\nbob,tea\nbob,rye\n")
    population = {"kind": "events", "path": str(path), "top": 2, "user": "user", "item": "item"}
    one, two = (Cell(HISTOGRAM, population, {"seed": s}) for s in (1, 2))
    assert one.key != two.key
    assert run_cell(one).status == "ok"
    path.write_text("user,item\n" + "ann,tea\nbob,tea\nbob,rye\ncid,tea\n")
    late = run_cell(two)
    assert (late.key, late.status) == (two.key, "error")
    assert "has changed since the study began" in late.reason
    assert run_cell(Cell(HISTOGRAM, population, {"seed": 2})).status == "ok"


def test_a_record_says_what_a_run_says() -> None:
    one = cell(run={"nodes": 3})
    loaded = Zipf(**{k: v for k, v in ZIPF.items() if k != "kind"}).load()
    protocol = protocol_class("bounded-histogram")(loaded.domain, 1.0, 5.0, delta=1e-6)
    outcome = execute(protocol, loaded.users, Options(seed=1, nodes=3))
    loss = protocol.loss_of(outcome.estimate, loaded.users)
    record = run_cell(one)
    assert record.loss == loss  # bit for bit
    assert record.predicted == pytest.approx(protocol.error(loaded.users).expected, rel=1e-12)
    assert (record.status, record.loss_name, record.rounds) == ("ok", "l1", 1)
    assert (record.trust, record.guarantee["unit"], record.n_users) == ("central", "user", 80)
    assert record.guarantee["text"] == str(protocol.guarantee)
    assert record.more["spent"]["epsilon"] == pytest.approx(1.0)
    # d counts of 8 bytes, NumPy's header of 128, and a head of less than 100
    assert 128 < (record.bytes_per_user or 0) - 6 * 8 < 228
    assert Cell(**record.cell, label=record.label) == one


def test_what_a_cell_raises_is_a_record() -> None:
    wrong = cell({"clip": -1.0})
    record = run_cell(wrong)
    assert (record.status, record.loss, record.key) == ("error", None, wrong.key)
    assert record.reason.startswith("ValueError: protocol.clip")
    assert "no-such" in run_cell(cell({"name": "no-such"})).reason
    assert run_cell(cell(population={"kind": "remote"})).status == "error"
    assert error_record(wrong, "its worker died").reason == "its worker died"


def test_a_refusal_is_no_error() -> None:
    record = run_cell(cell({"name": "test-noted", "ending": "refused"}, run={"plugins": [PLUGIN]}))
    assert (record.status, record.reason) == ("refused", "too few users")
    assert (record.loss, record.rounds, record.bytes_per_user) == (None, 0, None)
    assert record.more["spent"]["epsilon"] == 0


def test_records_survive_json_and_other_versions() -> None:
    """A row for clip = inf may well be called "inf"."""
    record = replace(run_cell(cell(population={"tail": math.inf})), label="inf", reason="nan")
    assert Record.from_json(record.to_json()) == record
    newer = json.loads(record.to_json()) | {"carbon": {"grams": 3}, "loss": "inf"}
    read = Record.from_json(json.dumps(newer))
    assert read.more == {**record.more, "carbon": {"grams": 3}}
    assert read.loss == math.inf
    assert Record.from_json('{"key":"k"}') == Record("k")


def test_distances_by_hand() -> None:
    truth = np.array([1.0, 0.0, -2.0])
    result = norms(np.array([4.0, 0.0, 2.0]), truth)
    assert result == {"l1": 7.0, "l2": 5.0, "squared l2": 25.0, "linf": 4.0}


def test_cells_of_another_law_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A study that goes on after a protocol's law has changed neither keeps nor mixes its cells."""
    drinks = {"name": "adaptive-histogram", "epsilon": 1.0, "delta": 1e-6}
    before = run_cell(Cell(drinks, ZIPF, {"seed": 1}))
    assert before.versions["revision"] == str(protocol_class(drinks["name"]).revision)
    monkeypatch.setattr(protocol_class(drinks["name"]), "revision", 99)
    revision_of.cache_clear()
    try:
        after = run_cell(Cell(drinks, ZIPF, {"seed": 1}))
    finally:
        revision_of.cache_clear()
    assert before.key != after.key
    assert before.cell == after.cell
    plain = run_cell(cell())  # of a protocol that never had another law
    assert "revision" not in plain.versions
