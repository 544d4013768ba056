"""Ctrl-C during a run on Ray: a clear exit code, nothing left running, nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from flower_cases import write_config

from tests.support.loopback import MARKER, marked_processes

SLOW = Path(__file__).with_name("faulty.py")


@pytest.mark.ray
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes by /proc")
def test_interrupt_leaves_nothing_behind(tmp_path: Path) -> None:
    """A terminal's Ctrl-C reaches every process of the group, Ray's workers included."""
    config = write_config(
        tmp_path / "slow.toml",
        run={"nodes": 400, "workers": 1, "seed": 1, "plugins": [str(SLOW)]},
        protocol={"name": "test-many-rounds", "pause": 0.1},
        population={"kind": "zipf", "n_users": 400, "d": 10, "mean_items": 5, "seed": 1},
    )
    token, answering, out = uuid.uuid4().hex, tmp_path / "answering", tmp_path / "runs" / "one"
    env = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "simulations.cli.main", "run", str(config), "--out", str(out)],
        env=env | {MARKER: token, "FEDHIST_TEST_ANSWERING": str(answering)},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + 300
        while not answering.exists() and time.monotonic() < end and process.poll() is None:
            time.sleep(0.1)
        assert answering.exists()
        time.sleep(0.5)  # well inside the 40 seconds that the round takes
        assert len(list(marked_processes(token))) > 2  # this one, Ray's, and a worker
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 130, errors
        assert "interrupted" in errors
        assert "Traceback" not in errors

        end = time.monotonic() + 60  # Ray's own processes end a moment after their driver
        while list(marked_processes(token)) and time.monotonic() < end:
            time.sleep(0.2)
        assert list(marked_processes(token)) == []
    finally:
        for pid in marked_processes(token):
            os.kill(pid, signal.SIGKILL)
    assert not (tmp_path / "runs").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["answering", "slow.toml"]
