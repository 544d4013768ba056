"""The benchmarks on tiny sizes. Nothing here judges a time."""

from __future__ import annotations

import inspect
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from simulations.benchmarks import scale
from simulations.benchmarks.__main__ import main, measure
from simulations.benchmarks.measuring import memory
from simulations.benchmarks.scale import Case, Taken


@pytest.mark.parametrize("name", ["votes", "secagg"])
def test_it_runs_small_and_is_not_judged(name: str) -> None:
    rows = measure(name, quick=True).rows
    assert all(min(row.values) > 0 and row.met is None for row in rows)


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.flwr
@pytest.mark.parametrize("name", ["messages", "scale"])
def test_the_large_ones_run_small(name: str) -> None:
    assert all(row.met is None for row in measure(name, quick=True).rows)


def test_the_command_runs_a_child_and_adds_to_the_file(tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text('{"name": "older"}\n')
    main(["kernels", "--quick", "--out", str(out)])
    older, body = map(json.loads, out.read_text().splitlines())
    assert (older["name"], body["name"]) == ("older", "kernels")
    assert body["machine"]["cpus"] >= 1
    assert all(row["median"] > 0 for row in body["rows"])


def test_the_entry_into_flowers_runtime_is_still_there() -> None:
    """``simulate`` passes these by name to a function that is not Flower's public API."""
    from flwr.simulation.run_simulation import _run_simulation

    named = inspect.signature(_run_simulation).parameters
    used = "num_supernodes exit_event client_app server_app backend_config app_dir is_app"
    assert set(used.split()) <= set(named)


def test_every_process_is_of_the_family() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert {os.getpid(), child.pid} <= set(scale.family())
        assert scale.cpu_times()[os.getpid()] == pytest.approx(time.process_time(), abs=0.5)
        assert 0 < memory(child.pid)["VmRSS"] <= memory(child.pid)["VmHWM"]
    finally:
        child.kill()
        child.wait()
    assert child.pid not in scale.family()


def test_targets_are_for_ray_at_the_size_that_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Case] = []

    def run(case: Case) -> Taken:
        asked.append(case)
        workers = [] if case.runtime == "inline" else [200_000_000, 200_000_000 + case.n_users]
        return Taken(1.0, case.n_users * 5e-8, 300_000_000, workers, 10**9)

    monkeypatch.setattr(scale, "run_apart", run)
    rows = scale.measure(full=True).rows
    assert {c.runtime for c in asked} == {"inline", "ray", "raylets"}
    judged = [(r.unit, r.at_most, r.met) for r in rows if r.at_most is not None]
    # CPU, driver, worker, on Ray and three raylets; the driver alone inline
    grown = [("MB", 40.0, True), ("ns", 400.0, True), ("MB", 40.0, True), ("MB", 40.0, False)]
    assert judged[:4] == grown
    assert ("ns", 60.0, True) in judged
