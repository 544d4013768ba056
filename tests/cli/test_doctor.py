"""``fedhist doctor`` says what is wrong in words, and its exit status says whether anything is."""

from __future__ import annotations

import json

import pytest
from commands import Command

from simulations.cli import doctor
from simulations.cli.doctor import FAILED


def test_here_it_works(fedhist: Command) -> None:
    answer = fedhist("doctor", "--quick")
    assert answer.status == 0, answer.out
    assert "fedhist works here" in answer.out
    assert {line[:8] for line in answer.out.splitlines()[:-1]} <= {"ok      ", "note    "}
    result = json.loads(fedhist("doctor", "--quick", "--json").out)
    assert result["works"]
    told = {c["what"]: c["words"] for c in result["checks"]}
    assert told.keys() >= {"python", "packages", "cores"}
    assert "flwr 1." in told["packages"]


def test_a_failure_is_an_exit_status(fedhist: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "requires", lambda _: ["no-such-package>=3", "numpy<1"])
    answer = fedhist("doctor", "--quick")
    assert answer.status == 1
    assert "no-such-package>=3 is missing; numpy " in answer.out
    assert ", not numpy<1" in " ".join(answer.out.split())


def test_a_run_that_fails_or_hangs_is_ended_and_said() -> None:
    failing = ("-c", "import sys; sys.exit('error: no such thing')")
    result = doctor.tiny_run("ray", 60, failing)
    assert result.status == FAILED
    assert result.words == "error: no such thing; --runtime inline needs no other process"
    result = doctor.tiny_run("inline", 1.5, ("-c", "import time; time.sleep(600)"))
    assert result.status == FAILED
    assert "not done after 1.5 s" in result.words
