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

from clients.guard_folder import FolderStore
from clients.spending import Answered
from fedhist.privacy.guarantee import Adjacency, Guarantee, NoTotalError, Trust
from fedhist.privacy.ledger import Ledger
from server.session.journal import log_of
from simulations.runs.data_ledger import DataLedger, common_adjacency

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
    once = run("--ledger", "book.json", "--set", "protocol.asked=asked", "--out", "b")
    assert once.status == 3
    assert "the cap is 1.5" in once.err
    assert not Path("asked").exists()
    assert not Path("b").exists()
    assert Path("book.json").read_bytes() == before
    repeats = ("--repeats", "3", "--set", "protocol.asked=asked")
    fedhist("ledger", "few.json", "--cap-epsilon", "1.5")
    assert run("--ledger", "few.json", *repeats).status == 3
    assert not Path("asked").exists()
    assert set(states("few.json")) == {"refused"}
    assert fedhist("ledger", "book.json", "--cap-epsilon", "2").status == 0
    assert run("--ledger", "book.json", "--out", "b").status == 0
    assert states() == ["spent", "spent"]
    assert Path("book.json").stat().st_mode & 0o777 == 0o600


def test_a_reservation_stays_after_a_crash(fedhist: Command, run: Command) -> None:
    options = ("--ledger", "book.json", "--repeats", "3")
    assert run(*options, "--set", "protocol.ending=crash").status == 1
    assert states() == ["reserved", "refused", "refused"]
    assert DataLedger("book.json").total()[0] == pytest.approx(1.0)
    shown = fedhist("ledger", "book.json")
    assert "reserved" in shown.out
    assert "epsilon = 1 at delta = 1e-05; no cap" in shown.out


def test_a_crash_before_anybody_was_asked_gives_everything_back(
    fedhist: Command, run: Command
) -> None:
    options = ("--ledger", "book.json", "--repeats", "2", "--set", "protocol.ending=early")
    assert run(*options).status == 1
    assert states() == ["refused", "refused"]
    assert DataLedger("book.json").total()[0] == 0


def test_a_journal_keeps_its_line_after_a_crash_before_anybody_was_asked(
    fedhist: Command, run: Command
) -> None:
    """Another process may already go on from the journal, under the same line."""
    options = ("--ledger", "book.json", "--set", "run.journal=journal")
    answer = run(*options, "--set", "protocol.ending=early")
    assert answer.status == 1
    assert states() == ["reserved"]


@pytest.mark.parametrize(
    "options",
    [
        ("--set", "run.min_replies=9"),
        ("--runtime", "ray", "--set", "run.clients=aggregate"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_reserved(
    run: Command, options: tuple[str, ...]
) -> None:
    assert run(*options, "--ledger", "book.json").status == 2
    assert not Path("book.json").exists()


def test_a_run_that_goes_on_from_its_journal_is_counted_once(
    fedhist: Command, run: Command
) -> None:
    fedhist("ledger", "book.json", "--cap-epsilon", "1")
    options = ("--ledger", "book.json", "--set", "run.journal=journal", "--seed", "3")
    options += ("--set", "protocol.ending=once", "--set", "protocol.asked=asked")
    assert run(*options).status == 1
    assert states() == ["reserved"]
    for _ in range(2):  # the second repeats a run that is settled
        last = run(*options)
        assert last.status == 0
        assert states() == ["spent"]
    assert "1 round from the journal" in last.out
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
    shutil.rmtree("one")  # nothing is left to go on from: a new release
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
    assert run(*options).status == 1
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
    body["spendings"][0]["chain"] = "a hash, which an earlier version wrote"
    before = DataLedger("book.json").total()
    Path("book.json").write_text(json.dumps(body))
    assert DataLedger("book.json").total() == before
    assert run("--ledger", "book.json").status == 0
    assert states() == ["spent", "spent"]


def test_a_refused_run_spends_nothing_and_a_failed_one_does(fedhist: Command, run: Command) -> None:
    assert run("--ledger", "book.json", "--set", "protocol.ending=refused").status == 3
    assert states() == ["uncharged"]
    assert DataLedger("book.json").total()[0] == 0.0
    assert run("--ledger", "book.json", "--epsilon", "0.5").status == 0
    assert states() == ["uncharged", "spent"]


def test_a_run_that_ended_without_a_charge_may_have_published_n(tmp_path: Path) -> None:
    """It costs nothing, and there is no total under adding; a run that never was leaves one."""
    book, hidden = DataLedger(tmp_path / "book.json"), guarantee(ADD_REMOVE)
    book.settle(book.reserve("never ran", guarantee(REPLACE)), None)
    book.settle(book.reserve("null-safe", guarantee(REPLACE), null_safe=True), Ledger(hidden))
    book.reserve("hides n", hidden, null_safe=True)
    assert common_adjacency(book.read()[1]) is ADD_REMOVE
    assert book.total() == book.total(ADD_REMOVE) == (0.5, 1e-5)
    ended = Ledger(guarantee(ZERO_OUT))
    book.settle(book.reserve("failed: 60 users answered", guarantee(ZERO_OUT)), ended)
    assert [s.state for s in book.read()[1]] == ["refused", "uncharged", "reserved", "uncharged"]
    assert book.total() == book.total(ZERO_OUT) == (0.5, 1e-5)
    assert book.total(REPLACE)[0] == 1.0
    with pytest.raises(NoTotalError, match="'failed: 60 users answered'"):
        book.total(ADD_REMOVE)


def test_what_is_not_a_ledger_is_not_touched(fedhist: Command, run: Command) -> None:
    assert fedhist("ledger", "absent.json").status == 2
    Path("book.json").write_text('{"a": 1}')
    assert fedhist("ledger", "book.json").status == run("--ledger", "book.json").status == 2
    assert Path("book.json").read_text() == '{"a": 1}'
    assert fedhist("ledger", "book.json", "--cap-epsilon", "1").status == 2
    assert fedhist("ledger", "new.json", "--cap-epsilon", "-1").status == 2
    assert not Path("new.json").exists()
    book = booked(Path("whole.json"), ZERO_OUT)
    whole = json.loads(book.path.read_text())
    for changed in ({"format": 9}, {"spendings": [{"when": "now"}]}, {"cap": {"epsilon": -1.0}}):
        book.path.write_text(json.dumps(whole | changed))
        assert fedhist("ledger", book.path).status == 2


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
        end = time.monotonic() + 300
        while not all(Path(f"ready-{i}").exists() for i in range(4)):
            assert time.monotonic() < end
            assert all(r.poll() is None for r in racers)
            time.sleep(0.01)
        Path("go").touch()
        said = [r.communicate(timeout=300) for r in racers]
    finally:
        for r in racers:
            r.kill()
    assert [r.returncode for r in racers] == [0] * 4, [err for _, err in said]
    words = " ".join(out for out, _ in said).split()
    assert words.count("took") == 3
    assert words.count("refused") == 4
    assert states() == ["reserved"] * 3


def guarantee(adjacency: Adjacency, epsilon: float = 0.5, delta: float = 0.0) -> Guarantee:
    return Guarantee(epsilon, delta, Trust.CENTRAL, adjacency)


def booked(path: Path, *adjacencies: Adjacency) -> DataLedger:
    book = DataLedger(path)
    for adjacency in adjacencies:
        book.reserve(adjacency.value, guarantee(adjacency))
    return book


ZERO_OUT, REPLACE = Adjacency.ZERO_OUT_USER, Adjacency.REPLACE_USER
ADD_REMOVE = Adjacency.ADD_REMOVE_USER


@pytest.mark.parametrize(
    ("adjacencies", "under", "total"),
    [
        ([ADD_REMOVE] * 2, ADD_REMOVE, 1.0),
        ([REPLACE] * 2, REPLACE, 1.0),
        ([ADD_REMOVE, ZERO_OUT], ZERO_OUT, 1.5),
        ([ADD_REMOVE, REPLACE], REPLACE, 1.5),
        ([ZERO_OUT, REPLACE], REPLACE, 1.5),
    ],
)
def test_a_total_is_under_one_adjacency(
    tmp_path: Path, fedhist: Command, adjacencies: list[Adjacency], under: Adjacency, total: float
) -> None:
    """Two steps of group privacy where a line is of a weaker one."""
    book = booked(tmp_path / "book.json", *adjacencies)
    assert book.total()[0] == pytest.approx(total)
    shown = " ".join(fedhist("ledger", book.path).out.split())
    assert f"released, {under.value}: epsilon = {total:g}" in shown


def test_what_cannot_be_converted_is_refused(tmp_path: Path, fedhist: Command) -> None:
    book = booked(tmp_path / "book.json", ADD_REMOVE, ZERO_OUT, REPLACE)
    with pytest.raises(ValueError, match="zero-out-user says nothing under add-remove-user"):
        book.total(ADD_REMOVE)
    assert book.total(ZERO_OUT)[0] == pytest.approx(0.5 * 4)  # a replacement covers emptying
    assert "the same, add-remove-user: no total" in fedhist("ledger", book.path).out


def test_every_line_null_safe_is_stated_under_adding(tmp_path: Path, fedhist: Command) -> None:
    """An empty record changes nothing there: the cost of emptying is that of leaving."""
    book = DataLedger(tmp_path / "book.json")
    for adjacency in (ZERO_OUT, ADD_REMOVE):
        book.reserve("sums", guarantee(adjacency), null_safe=True)
    assert book.total() == book.total(ADD_REMOVE) == book.total(ZERO_OUT)
    assert book.total()[0] == pytest.approx(1.0)
    assert book.total(REPLACE)[0] == pytest.approx(2.0)
    book.reserve("shares", guarantee(REPLACE), null_safe=True)
    shown = " ".join(fedhist("ledger", book.path).out.split())
    assert "released, replace-user: epsilon = 2.5" in shown
    assert "the same, add-remove-user: epsilon = 1.5" in shown
    assert "the same, zero-out-user: epsilon = 1.5" in shown


def test_what_is_stated_of_a_run_depends_on_what_it_publishes(
    tmp_path: Path, fedhist: Command
) -> None:
    """One that publishes n under zero-out, and one that hides it; each keeps its own costs."""
    run = ("run", "quickstart", "--runtime", "inline", "--population.n_users", 200, "--nodes", 10)
    path = tmp_path / "book.json"
    for number, adjacency in enumerate((ZERO_OUT, ADD_REMOVE)):
        more = ("--protocol.adjacency", adjacency.value, "--ledger", path)
        assert fedhist(*run, *more, "--out", tmp_path / str(number)).status == 0
    lines = DataLedger(path).read()[1]
    assert [s.null_safe for s in lines] == [False, True]
    with pytest.raises(NoTotalError, match="zero-out-user says nothing under add-remove-user"):
        DataLedger(path).total(ADD_REMOVE)
    # a Gaussian histogram costs 2 rho under replacement, not two steps
    assert lines[0].under(REPLACE).rho == pytest.approx(2 * lines[0].rho)


def test_a_journal_is_checked(fedhist: Command, tmp_path: Path) -> None:
    folder = tmp_path / "j"
    log = log_of(folder)
    folder.mkdir()
    log.start()
    log.read()
    for kind in ("run", "release", "release"):
        log.append({"kind": kind, "index": 0})
    shown = fedhist("node", "journal", folder)
    assert "3 lines, 2 releases; the run can go on" in " ".join(shown.out.split())
    raw = log.file.read_bytes().splitlines(keepends=True)
    log.file.write_bytes(raw[0] + raw[2])
    damaged = fedhist("node", "journal", folder)
    assert damaged.status != 0
    assert "line 2" in " ".join(damaged.err.split())
    assert "no journal" in " ".join(fedhist("node", "journal", tmp_path).err.split())


@pytest.mark.parametrize("path", [".", "/dev/full", "/proc/no.ledger"])
def test_what_cannot_be_a_ledger_is_refused(run: Command, path: str) -> None:
    answer = run("--ledger", path)
    assert answer.status == 2
    assert "a ledger" in answer.err


def test_a_folder_is_checked_counted_and_reset(fedhist: Command, tmp_path: Path) -> None:
    folder, counter = tmp_path / "g", tmp_path / "counter"
    store = FolderStore(folder, 4)
    for digest in ("aa", "bb"):
        store.add(Answered(digest, 0.5), None)
    shown = fedhist("node", "guard", folder)
    assert shown.status == 0
    assert "node 4: 2 answers, which cost a user epsilon = 1 at most" in shown.out
    assert "whole" in fedhist("node", "guard", folder, "--counter", counter, "--start-counter").out
    (folder / "answered.jsonl").unlink()
    damaged = fedhist("node", "guard", folder)
    assert damaged.status != 0
    assert "tally.json has counted 2" in "".join(damaged.err.split("\n")).replace("  ", " ")
    reset = fedhist("node", "guard", folder, "--counter", counter, "--reset")
    assert reset.status == 0
    assert "cannot be told" in reset.out
    assert (folder / "reset-1" / "tally.json").exists()
    assert FolderStore(folder, 4, counter).answered() == ()
    assert "0 answers" in fedhist("node", "guard", folder, "--counter", counter).out


def test_what_is_no_guard_s_folder(fedhist: Command, tmp_path: Path) -> None:
    assert "no guard's folder" in " ".join(fedhist("node", "guard", tmp_path / "none").err.split())
    (tmp_path / "node").write_text("x")
    assert fedhist("node", "guard", tmp_path).status != 0
