"""``fedhist doctor`` says what is wrong in words, and its exit status says whether anything is."""

from __future__ import annotations

import json
import socket
import subprocess
from collections import namedtuple
from pathlib import Path

import pytest
from commands import Command

from fedhist.base.errors import FedhistError
from simulations.runs import doctor, tiny_runs
from simulations.runs.doctor import FAILED, NOTE, OK
from simulations.runtimes import deployment

Usage = namedtuple("Usage", "total used free")


def test_here_it_works(fedhist: Command) -> None:
    answer = fedhist("doctor", "--quick")
    assert answer.status == 0, answer.out
    assert "fedhist works here" in answer.out
    assert {line[:8] for line in answer.out.splitlines()[:-1]} <= {"ok      ", "note    ", " " * 8}
    assert max(map(len, answer.out.splitlines())) <= 80
    found = json.loads(fedhist("doctor", "--quick", "--json").out)
    assert found["works"]
    told = {c["what"]: c["words"] for c in found["checks"]}
    assert told.keys() >= {"python", "packages", "cores", "memory", "folder", "network", "ports"}
    assert "flwr 1." in told["packages"]
    assert "ray 2." in told["packages"]


def test_a_failure_is_an_exit_status(fedhist: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "requires", lambda _: ["no-such-package>=3", "numpy<1"])
    answer = fedhist("doctor", "--quick")
    assert answer.status == 1
    assert "no-such-package>=3 is missing; numpy is" in answer.out
    assert "1 of 10 checks failed" in answer.out


def test_requirements_of_extras_are_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ['no-such-package>=3; extra == "test"', "numpy>=2"]
    monkeypatch.setattr(doctor, "requires", lambda _: asked)
    assert [p.status for p in doctor.packages()] == [OK]


def test_a_folder_that_is_full_or_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert doctor.disk("folder", tmp_path / "absent").status == FAILED
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: Usage(2**40, 2**40 - 5, 5))
    assert doctor.disk("folder", tmp_path).status == NOTE


def test_a_port_that_is_taken_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        monkeypatch.setattr(doctor, "PORTS", {port: "a SuperLink's drivers"})
        found = doctor.ports()
    assert found.status == NOTE
    assert f"taken: {port} (a SuperLink's drivers)" in found.words


def test_a_run_that_fails_or_hangs_is_ended_and_said() -> None:
    failing = ("-c", "import sys; sys.exit('error: no such thing')")
    found = tiny_runs.in_a_process("ray", 60, failing)
    assert found.status == FAILED
    assert found.words == "error: no such thing; --runtime inline needs no other process"
    # what it started, in a session of its own as Ray's are, is ended with it
    child = "import subprocess, time; subprocess.Popen(['sleep', '612.75'], start_new_session=True)"
    found = tiny_runs.in_a_process("inline", 1.5, ("-c", f"{child}; time.sleep(600)"))
    assert found.status == FAILED
    assert "not done after 1.5 s" in found.words
    assert "612.75" not in every_command()
    assert tiny_runs.in_a_process("inline", 60, ("-c", "pass")).status == OK


def every_command() -> str:
    """Return the command lines of this machine's processes."""
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


class NoLink:
    """A SuperLink that does not start."""

    def __init__(self, folder: Path, *, simulation: bool) -> None:
        Path(folder, "superlink.log").write_text("started\nno room on this machine\n")
        raise FedhistError("the SuperLink did not start")


def test_a_superlink_that_does_not_start_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "Loopback", NoLink)
    steps: list[str] = []
    found = tiny_runs.tiny_run("simulation", 60, steps.append)
    assert (found.what, found.status) == ("run, simulation", FAILED)
    assert found.words == (
        "the SuperLink did not start (its log ends: no room on this machine); "
        "fedhist run needs no SuperLink"
    )
    assert steps == ["starting a SuperLink"]


def test_an_unknown_runtime_is_an_error(fedhist: Command) -> None:
    answer = fedhist("doctor", "--runtimes", "inline,simulaton")
    assert answer.status == 2
    assert "simulation, deployment, got 'simulaton'; did you mean 'simulation'?" in answer.err


@pytest.mark.slow
@pytest.mark.deploy
@pytest.mark.parametrize("runtime", ["simulation", "deployment"])
def test_tiny_runs_on_flower_leave_nothing_behind(runtime: str) -> None:
    found = tiny_runs.tiny_run(runtime, 300)
    assert found.status == OK, found.words
    assert "fedhist-doctor-" not in every_command()
