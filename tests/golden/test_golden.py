"""Nothing has changed since the golden record: answers, digests, and files that others keep.

``record.py`` says what is recorded and when it may be rewritten.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import record
from processor import rounds_as_recorded

from fedhist.base.errors import WireError
from fedhist.model.registry import load_builtin, own_protocols
from simulations.runs.data_ledger import DataLedger

RECORD = json.loads(record.ESTIMATES.read_text(encoding="utf-8"))
EXACT = rounds_as_recorded()
"""On another processor floats agree to 1e-9, and a query may differ in a last bit."""
load_builtin()


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Stand in a copy of the recorded files; returns what reading them must give."""
    shutil.copytree(record.FILES, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return RECORD["files"]


def assert_same(found: Any, wanted: Any, where: str = "") -> None:
    """Compare to the bit, or floating-point numbers to 1e-9 where the machine is another."""
    if isinstance(wanted, dict) and "floats" in wanted and not EXACT:
        a, b = ([float.fromhex(x) for x in body["floats"]] for body in (found, wanted))
        scale = max((abs(x) for x in b if np.isfinite(x)), default=0.0)
        assert np.allclose(a, b, rtol=1e-9, atol=1e-9 * scale, equal_nan=True), where
        assert (found["type"], found["shape"]) == (wanted["type"], wanted["shape"]), where
    elif isinstance(wanted, dict):
        assert found.keys() == wanted.keys(), where
        for key, body in wanted.items():
            assert_same(found[key], body, f"{where}/{key}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), where
        for i, (a, b) in enumerate(zip(found, wanted, strict=True)):
            assert_same(a, b, f"{where}/{i}")
    else:
        assert found == wanted, where


def test_the_same_protocols() -> None:
    """And newer ones, which come into the record when it is written anew."""
    assert set(own_protocols()) >= set(RECORD["protocols"])


@pytest.mark.parametrize("name", RECORD["protocols"])
def test_estimates(name: str) -> None:
    wanted = dict(RECORD["protocols"][name])
    found = record.estimates(name, [r["changes"] for r in wanted["runs"]])
    try:
        assert_runs_same(found, wanted)
    except AssertionError as error:
        error.add_note(f"If its law is to change: raise {own_protocols()[name].__name__}.revision")
        raise


def assert_runs_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Compare the runs of a protocol, on another processor those that ask as recorded.

    There a query may hold a number with another last bit, and other noise is drawn; so it may be
    in the draws that stand for many users at once.
    """
    made_on = wanted.pop("fingerprint", RECORD["fingerprint"])  # of an entry that was renewed
    if made_on == record.fingerprint():
        return assert_same(found, wanted)
    alike = True
    for i, (run, recorded) in enumerate(zip(found["runs"], wanted["runs"], strict=True)):
        if run["queries"] == recorded["queries"]:
            assert_same(run, recorded, f"runs/{i}")
            continue
        alike = False
        kinds, known = ([kind for kind, *_ in r["queries"]] for r in (run, recorded))
        assert all(a == b for a, b in zip(kinds, known, strict=False)), f"runs/{i}"
    for part in wanted["example"].keys() - {"aggregate"} if alike else ():
        assert_same(found["example"][part], wanted["example"][part], f"example/{part}")
    return None


def test_revisions() -> None:
    """A law that changes has a new one, and the record is renewed with it."""
    assert record.revisions() == RECORD["revisions"]


@pytest.mark.parametrize("name", record.JOURNALLED)
def test_a_journal_goes_on_and_draws_nothing_again(name: str, files: dict[str, Any]) -> None:
    """Under another seed: a number that were drawn again would be another."""
    example, usual = own_protocols()[name].example(), RECORD["protocols"][name]["runs"][0]
    wanted = {"ended": [0, usual["estimate"]], "unfinished": files["resumed"][name]}
    for state, (n_asked, estimate) in wanted.items():
        journal = Path(f"{name}-{state}/journal.jsonl")
        before = journal.read_bytes()
        try:
            found, asked = record.run(example, journal=journal.parent, seed=record.OTHER_SEED)
        except WireError as e:
            if EXACT or "the journal belongs to another run" not in str(e):
                raise
            pytest.skip("on this processor a query holds a number with another last bit")
        assert_same(record.estimated(found), estimate)
        assert len(asked) == n_asked < len(usual["queries"])
        assert journal.read_bytes().startswith(before)
        assert state == "unfinished" or journal.read_bytes() == before


def test_a_guard_remembers(files: dict[str, Any]) -> None:
    """Without a seed: answers that were drawn again would be others."""
    before = {f.name: f.read_bytes() for f in Path("guard").iterdir()}
    found, wanted = record.guarded(), files["guard"]
    if not EXACT:  # the query of the central protocol may hold a number with another last bit
        found["answers"][-1][0] = wanted["answers"][-1][0]
    assert_same(found, wanted)
    assert {f.name: f.read_bytes() for f in Path("guard").iterdir() if f.name in before} == before
    assert len(list(Path("guard").glob("reply-*"))) == 2


def test_a_ledger_goes_on(files: dict[str, Any]) -> None:
    assert_same(record.booked(DataLedger("ledger.json")), files["ledger"])
    assert "the cap is 4" in files["ledger"]["over"]


def rows() -> list[Any]:
    with closing(sqlite3.connect("sweep.sqlite")) as db:
        return db.execute("SELECT * FROM cells ORDER BY key").fetchall()


def test_a_sweep_is_read_and_runs_nothing_again(files: dict[str, Any]) -> None:
    """The seconds in its rows would differ."""
    before = rows()
    assert_same(record.cells("sweep.sqlite"), files["cells"])
    assert_same(record.results("sweep.sqlite"), files["results"])
    record.command(*record.SWEEP)
    assert rows() == before
    Path("sweep.sqlite").unlink()
    record.command(*record.SWEEP)
    assert_same(record.cells("sweep.sqlite"), files["cells"])


def test_an_older_sweep_is_read(files: dict[str, Any]) -> None:
    assert_same(record.results(record.OLDER), files["results_older"])


def test_no_file_names_this_machine_or_a_module() -> None:
    for file in (f for f in record.FILES.rglob("*") if f.is_file()):
        text = file.read_bytes()
        for name in (
            b"/tmp",
            b"/work",
            b"/home",
            b"fedhist.",
            b"clients.",
            b"server.",
            b"\x80\x04",
        ):
            assert name not in text, (file, name)
