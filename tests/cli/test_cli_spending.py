"""The ledger file of a data set: what is spent stays spent, and a cap is never passed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import Command

from simulations.runs.data_ledger import DataLedger

RACER = """
import sys, time
from pathlib import Path
from fedhist.base.errors import BudgetExceeded
from fedhist.privacy.guarantee import (Adjacency, Guarantee, Trust)
from simulations.runs.data_ledger import DataLedger

guarantee = Guarantee(1.0, 0.0, Trust.LOCAL, Adjacency.REPLACE_USER)
book = DataLedger("book.json")
Path(f"ready-{sys.argv[1]}").touch()
while not Path("go").exists():
    time.sleep(0.001)
try:
    for _ in range(5):
        book.reserve("race", guarantee)
        print("took")
except BudgetExceeded:
    print("refused")
"""


def states(path: str = "book.json") -> list[str]:
    return [s["state"] for s in json.loads(Path(path).read_text())["spendings"]]


def test_a_cap_is_refused_before_anything_is_asked(fedhist: Command, run: Command) -> None:
    assert fedhist("ledger", "book.json", "--cap-epsilon", "1.5").status == 0
    assert run("--ledger", "book.json", "--out", "a").status == 0
    before = Path("book.json").read_bytes()
    answer = run("--ledger", "book.json", "--set", "protocol.asked=asked", "--out", "b")
    assert answer.status == 3
    assert "refused:" in answer.err
    assert "the cap is 1.5" in answer.err
    assert not Path("asked").exists()
    assert not Path("b").exists()
    assert Path("book.json").read_bytes() == before
    assert fedhist("ledger", "book.json", "--cap-epsilon", "2").status == 0
    assert run("--ledger", "book.json", "--out", "b").status == 0
    assert states() == ["spent", "spent"]
    assert Path("book.json").stat().st_mode & 0o777 == 0o600


def test_repeats_beyond_the_cap_are_refused_before_anything_is_asked(
    fedhist: Command, run: Command
) -> None:
    fedhist("ledger", "book.json", "--cap-epsilon", "1.5")
    answer = run(
        "--ledger", "book.json", "--repeats", "3", "--set", "protocol.asked=asked", "--out", "b"
    )
    assert answer.status == 3
    assert not Path("asked").exists()
    assert set(states()) == {"refused"}
    assert DataLedger("book.json").total()[0] == 0


def test_repeats_are_spent_one_by_one(fedhist: Command, run: Command) -> None:
    assert run("--ledger", "book.json", "--repeats", "3").status == 0
    assert states() == ["spent"] * 3


def test_a_reservation_stays_after_a_crash(fedhist: Command, run: Command) -> None:
    with pytest.raises(RuntimeError):
        run("--ledger", "book.json", "--set", "protocol.ending=crash")
    assert states() == ["reserved"]
    assert DataLedger("book.json").total()[0] == pytest.approx(1.0)
    shown = fedhist("ledger", "book.json")
    assert "reserved" in shown.out
    assert "epsilon = 1 at delta = 1e-05; no cap" in shown.out


def test_a_crash_before_anybody_was_asked_gives_everything_back(
    fedhist: Command, run: Command
) -> None:
    options = ("--ledger", "book.json", "--repeats", "2", "--set", "protocol.ending=early")
    with pytest.raises(RuntimeError, match="before it asked"):
        run(*options)
    assert states() == ["refused", "refused"]
    assert DataLedger("book.json").total()[0] == 0


def test_of_several_repeats_only_the_one_that_asked_stays(fedhist: Command, run: Command) -> None:
    with pytest.raises(RuntimeError):
        run("--ledger", "book.json", "--repeats", "3", "--set", "protocol.ending=crash")
    assert states() == ["reserved", "refused", "refused"]


def test_a_journal_keeps_its_line_after_a_crash_before_anybody_was_asked(
    fedhist: Command, run: Command
) -> None:
    """Another process may already go on from the journal, under the same line."""
    options = ("--ledger", "book.json", "--set", "run.journal=journal")
    with pytest.raises(RuntimeError):
        run(*options, "--set", "protocol.ending=early")
    assert states() == ["reserved"]


def test_too_many_replies_are_refused_before_anything_is_reserved(
    fedhist: Command, run: Command
) -> None:
    answer = run("--ledger", "book.json", "--set", "run.min_replies=9")
    assert answer.status == 2
    assert "min_replies must be at most the number of nodes, 3, got 9" in " ".join(
        answer.err.split()
    )
    assert not Path("book.json").exists()


def test_sums_on_ray_are_refused_with_the_way_out(fedhist: Command, run: Command) -> None:
    answer = run("--runtime", "ray", "--set", "run.clients=aggregate", "--ledger", "book.json")
    assert answer.status == 2
    assert "fedhist run --runtime inline" in " ".join(answer.err.split())
    assert not Path("book.json").exists()


@pytest.mark.parametrize("cap", ["1", "9"])
def test_a_run_that_goes_on_from_its_journal_is_counted_once(
    fedhist: Command, run: Command, cap: str
) -> None:
    fedhist("ledger", "book.json", "--cap-epsilon", cap)
    options = ("--ledger", "book.json", "--set", "run.journal=journal", "--seed", "3")
    options += ("--set", "protocol.ending=once", "--set", "protocol.asked=asked")
    with pytest.raises(RuntimeError):
        run(*options)
    assert states() == ["reserved"]
    for _ in range(2):  # the second repeats a run that is settled
        assert run(*options).status == 0
        assert states() == ["spent"]
    assert run("--ledger", "whole.json", "--seed", "3").status == 0
    assert DataLedger("book.json").total()[0] == DataLedger("whole.json").total()[0]


def test_another_run_on_the_journal_or_on_its_copy_is_counted_apart(
    fedhist: Command, run: Command
) -> None:
    fedhist("ledger", "book.json", "--cap-epsilon", "9")
    options = ("--ledger", "book.json", "--seed", "3", "--set")
    assert run(*options, "run.journal=one").status == 0
    shutil.copytree("one", "two")
    assert run(*options, "run.journal=two").status == 0
    assert states() == ["spent", "spent"]
    Path("one", "journal.jsonl").unlink()  # nothing is left to go on from: a new release
    assert run(*options, "run.journal=one").status == 0
    assert states() == ["spent", "spent", "spent"]
    for other in (("--epsilon", "2"), ("--set", "protocol.clip=6")):
        answer = run(*options, "run.journal=one", *other)  # refused before anything is reserved
        assert answer.status != 0
        assert "belongs to another" in answer.err
    assert states() == ["spent", "spent", "spent"]


def test_a_journal_that_is_put_back_is_another_release(fedhist: Command, run: Command) -> None:
    """What an older copy goes on to draw is not what was released before."""
    fedhist("ledger", "book.json", "--cap-epsilon", "1")
    options = ("--ledger", "book.json", "--set", "run.journal=journal", "--seed", "3")
    options += ("--set", "protocol.ending=once", "--set", "protocol.asked=asked")
    with pytest.raises(RuntimeError):
        run(*options)
    shutil.copytree("journal", "older")
    assert run(*options).status == 0
    shutil.rmtree("journal")
    shutil.move("older", "journal")
    before = Path("book.json").read_bytes()
    answer = run(*options)
    assert answer.status == 3
    assert "the cap is 1" in answer.err
    assert Path("book.json").read_bytes() == before
    fedhist("ledger", "book.json", "--cap-epsilon", "9")
    assert run(*options).status == 0
    assert states() == ["spent", "spent"]
    assert run(*options).status == 0  # it has ended now, and is only repeated
    assert states() == ["spent", "spent"]


def test_a_ledger_of_before_there_were_journals_is_read(fedhist: Command, run: Command) -> None:
    assert run("--ledger", "book.json").status == 0
    body = json.loads(Path("book.json").read_text())
    assert body["spendings"][0].pop("run") == ""
    before = DataLedger("book.json").total()
    Path("book.json").write_text(json.dumps(body))
    assert DataLedger("book.json").total() == before
    assert run("--ledger", "book.json").status == 0
    assert states() == ["spent", "spent"]


def test_a_refused_run_spends_nothing_and_a_failed_one_does(fedhist: Command, run: Command) -> None:
    assert run("--ledger", "book.json", "--set", "protocol.ending=refused").status == 3
    assert states() == ["refused"]
    assert DataLedger("book.json").total()[0] == 0.0
    assert run("--ledger", "book.json", "--epsilon", "0.5").status == 0
    assert states() == ["refused", "spent"]


def test_the_table_fits(fedhist: Command, run: Command) -> None:
    fedhist("ledger", "book.json", "--cap-epsilon", "9", "--cap-delta", "1e-4")
    run("--ledger", "book.json", "--protocol.adjacency", "add-remove-user")
    shown = fedhist("ledger", "book.json")
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "add-remove-user" in shown.out
    assert "at delta = 0.0001; the cap is 9" in shown.out


def test_what_is_not_a_ledger_is_not_touched(fedhist: Command, run: Command) -> None:
    assert fedhist("ledger", "absent.json").status == 2
    Path("book.json").write_text('{"a": 1}')
    for answer in (fedhist("ledger", "book.json"), run("--ledger", "book.json")):
        assert answer.status == 2
        assert "is not a ledger" in answer.err
    assert Path("book.json").read_text() == '{"a": 1}'
    assert fedhist("ledger", "book.json", "--cap-epsilon", "1").status == 2
    assert fedhist("ledger", "new.json", "--cap-epsilon", "-1").status == 2
    assert not Path("new.json").exists()


def test_processes_cannot_pass_a_cap_together(fedhist: Command, tmp_path: Path) -> None:
    """Four processes try 20 reservations at once under a cap of 3; each time exactly 3 succeed."""
    fedhist("ledger", "book.json", "--cap-epsilon", "3")
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, str(i)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for i in range(4)
    ]
    try:
        end = time.monotonic() + 60
        while not all(Path(f"ready-{i}").exists() for i in range(4)):
            assert time.monotonic() < end
            assert all(r.poll() is None for r in racers)
            time.sleep(0.01)
        Path("go").touch()
        said = [r.communicate(timeout=60) for r in racers]
    finally:
        for r in racers:
            r.kill()
    assert [r.returncode for r in racers] == [0] * 4, [err for _, err in said]
    words = " ".join(out for out, _ in said).split()
    assert words.count("took") == 3
    assert words.count("refused") == 4
    assert states() == ["reserved"] * 3
