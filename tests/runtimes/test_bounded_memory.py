"""Runs hold a plan, a block and sums: nothing grows with the users, and nobody loads them."""

from __future__ import annotations

import math
import tracemalloc
from typing import Any

import numpy as np
import pytest

from fedhist.model.evaluation import first_pass, measured
from fedhist.users.shards import BLOCK, Shard
from simulations.benchmarks.scale import GROWTH, PROTOCOLS, Case, run_apart
from simulations.populations.synthetic import Made, Synthetic
from simulations.runs.booked_run import run_job
from simulations.runs.config import Config, Prepared, RunTable, prepare
from simulations.runs.options import Options
from simulations.runs.run import execute

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "zipf": ("histogram", {"d": 20, "mean_items": 6, "tail": math.inf}),
    "gaussian": ("votes", {"samples_per_user": 1, "mean": 0.3, "spread": 0.05}),
}


def prepared(kind: str, n_users: int, out: object = "", **more: Any) -> Prepared:
    what, fields = KINDS[kind]
    table = RunTable(runtime="inline", seed=2, out=str(out))
    users = {"kind": kind, "n_users": n_users, **fields, **more}
    return prepare(Config("bounded", table, PROTOCOLS[what][0], users), lambda spec: spec.plan())


@pytest.mark.parametrize("kind", KINDS)
def test_a_plan_whose_load_raises_is_run_evaluated_and_written(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    loaded = run_job(prepared(kind, 500, tmp_path / "a"))

    def refuse(*_: object) -> None:
        raise AssertionError("users were asked for at once")

    monkeypatch.setattr(Synthetic, "load", refuse)
    monkeypatch.setattr(Shard, "in_memory", refuse)
    monkeypatch.setattr(Made, "public_ids", refuse)
    walked = run_job(prepared(kind, 500, tmp_path / "b"))
    assert walked.evaluation is not None
    a, b = (done.outcomes[0].estimate.value for done in (loaded, walked))
    assert np.array_equal(np.asarray(a), np.asarray(b))
    assert (tmp_path / "b").is_dir()


def peak_of(kind: str, n_users: int, **options: Any) -> int:
    made = prepared(kind, n_users)
    users, protocol = made.plan.users, made.protocol
    tracemalloc.start()
    try:
        done = execute(protocol, users, Options(seed=1, beside=first_pass(protocol), **options))
        known = measured(protocol, users, done.measured)
        _ = known.truth, known.diagnostics  # a prediction keeps up to 32 MB of users
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["zipf", "gaussian"])
def test_peak_memory_is_that_of_a_block(kind: str) -> None:
    more: dict[str, Any] = {"nodes": 3} if kind == "zipf" else {}
    peak_of(kind, BLOCK, **more)  # what is looked up and compiled once
    few, many = (peak_of(kind, n, **more) for n in (3 * BLOCK, 9 * BLOCK))
    block = next(prepared(kind, 3 * BLOCK).plan.users.blocks())
    assert many - few < 0.2 * (block.nbytes + block.ids.nbytes)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("runtime", ["inline", "ray"])
@pytest.mark.parametrize("what", PROTOCOLS)
def test_no_process_grows_with_the_users(what: str, runtime: str) -> None:
    """Five million users and more pass what is kept between rounds (ROOM, 256 MB)."""
    few, many = (run_apart(Case(what, runtime, n)) for n in (5 * 10**6, 10**7))
    peaks = [(x.driver, max(x.workers, default=0)) for x in (few, many)]
    assert all(b - a < 1e6 * GROWTH for a, b in zip(*peaks, strict=True))
    assert len(many.workers) >= (2 if runtime == "ray" else 0)
