"""The benchmark of scale, small. Nothing here judges a time."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from simulations.benchmarks import running, scale, scale_run
from simulations.benchmarks.scale_run import Case, Seen


def test_every_process_is_of_the_family() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert {os.getpid(), child.pid} <= set(scale_run.family())
        assert "sleep(60)" in scale_run.command(child.pid)
        used = scale_run.cpu_times()
        assert used.keys() >= {os.getpid(), child.pid}
        assert used[os.getpid()] == pytest.approx(time.process_time(), abs=0.5)
    finally:
        child.kill()
        child.wait()
    assert child.pid not in scale_run.family()
    assert scale_run.command(child.pid) == ""


@pytest.mark.parametrize("what", scale_run.PROTOCOLS)
def test_a_small_case_inline(what: str) -> None:
    found = scale_run.seen(Case(what, "inline", 3000))
    assert found.phases.keys() == {"make", "answer", "measure"}
    assert min(found.phases.values()) > 0
    assert found.workers == []
    assert found.driver > 50e6
    assert found.seconds > 0


def test_targets_are_for_ray_at_the_size_that_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Case] = []

    def seen(case: Case) -> Seen:
        asked.append(case)
        workers = [] if case.runtime == "inline" else [200_000_000, 200_000_000 + case.n_users]
        return Seen(1.0, case.n_users * 5e-8, 300_000_000, workers, 10**9, {"make": 2e-8})

    monkeypatch.setattr(scale, "seen", seen)
    rows = scale.measure(full=True).rows
    assert {c.n_users for c in asked} == {10**6, 10**7, 10**8, 10**9}
    assert {c.runtime for c in asked} == {"inline", "ray", "raylets"}
    judged = [(r.unit, r.at_most, r.met) for r in rows if r.at_most is not None]
    # CPU, driver, worker, on Ray and three raylets; the driver alone inline
    grown = [("MB", 40.0, True), ("ns", 400.0, True), ("MB", 40.0, True), ("MB", 40.0, False)]
    assert judged[:4] == grown
    assert ("ns", 60.0, True) in judged
    asked.clear()
    scale.measure()
    assert {c.n_users for c in asked} == {10**6, 10**7, 10**8}
    assert {c.runtime for c in asked} == {"inline", "ray"}


def test_a_case_that_breaks_off_is_no_measurement() -> None:
    with pytest.raises(RuntimeError, match=r"what='speed'.* broke off with status 1"):
        scale.seen(Case("speed", "inline", 10))


def test_a_run_is_not_small_and_large_at_once() -> None:
    assert "scale" in running.NAMES
    with pytest.raises(ValueError, match="quick or full, not both"):
        next(running.run_benchmarks(["scale"], quick=True, full=True))
