"""The file of a study: written whole, read by others, older and newer."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from simulations.studies.records.cells import Record
from simulations.studies.records.store import COLUMNS, SCHEMA, Store, frame_of

ROOT = Path(__file__).resolve().parents[2]
ONE = Record(
    "a1",
    label="mine",
    protocol="mean",
    status="ok",
    loss=0.1 + 0.2,
    predicted=math.inf,
    seed=3,
    epsilon=1.0,
    not_private=("chosen by looking", "known truth"),
    public={"n_bins": 4.0},
    cell={"protocol": {"name": "mean", "epsilon": 1}, "run": {"seed": 3}},
)
ERROR = Record("b2", label="mine", protocol="mean", reason="ValueError: no")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "study.sqlite"


def test_what_is_put_is_there(path: Path) -> None:
    with Store(path) as store:
        assert store.put(ONE)
        assert store.put(ERROR)
        assert store.has("a1")
        assert not store.has("c3")
    with Store(path, create=False) as store:
        assert store.get("a1") == ONE
        assert store.records() == [ONE, ERROR]
        assert store.records({"status": "ok", "epsilon": 1.0}) == [ONE]
        assert store.records({"loss": None}) == [ERROR]
        assert store.statuses() == {"a1": "ok", "b2": "error"}
        assert len(store) == 2
        with pytest.raises(ValueError, match="'los' is not one of the columns"):
            store.records({"los": 1})
    assert [p.name for p in path.parent.iterdir()] == ["study.sqlite"]


def test_only_an_error_is_replaced(path: Path) -> None:
    with Store(path) as store:
        store.put(ONE)
        store.put(ERROR)
        assert not store.put(replace(ONE, loss=9.0))
        assert not store.put(replace(ONE, status="error"))
        assert store.put(replace(ERROR, status="refused"))
        assert not store.put(ERROR)
        assert store.statuses() == {"a1": "ok", "b2": "refused"}
        assert store.get("a1") == ONE


def test_a_put_is_a_transaction_that_others_see(path: Path) -> None:
    with Store(path) as writer, Store(path, create=False) as reader:
        assert len(reader) == 0
        writer.put(ONE)
        assert reader.get("a1") == ONE
        mode = sqlite3.connect(path).execute("PRAGMA journal_mode").fetchone()
    assert mode == ("wal",)


def old_file(path: Path) -> None:
    """Write a file as before the columns ``predicted`` and ``target``, by a version with others."""
    path.parent.mkdir(parents=True)
    with Store(path) as store:
        store.put(ONE)
    db = sqlite3.connect(path)
    for name in ("predicted", "target"):
        db.execute(f"ALTER TABLE cells DROP COLUMN {name}")
    db.execute("ALTER TABLE cells ADD COLUMN mood TEXT DEFAULT 'good'")
    body = json.loads(ONE.to_json()) | {"predicted": 0.25}
    for key in ("composed", "more", "clients"):
        body.pop(key, None)
    db.execute("UPDATE cells SET record = ?", [json.dumps(body | {"carbon": 3})])
    db.commit()
    db.close()


def test_an_older_file_is_read_as_it_is(path: Path) -> None:
    old_file(path)
    before = path.read_bytes()
    with Store(path, create=False) as store:
        (record,) = store.records({"predicted": 0.25, "status": "ok"})
    assert record == replace(ONE, predicted=0.25, more={"carbon": 3})
    assert path.read_bytes() == before


def test_an_older_file_is_written_to(path: Path) -> None:
    old_file(path)
    with Store(path) as store:
        assert store.put(Record("c3", protocol="a protocol of next year", predicted=0.5))
    db = sqlite3.connect(path)
    rows = db.execute("SELECT key, predicted, mood, target FROM cells ORDER BY key").fetchall()
    assert rows == [("a1", 0.25, "good", ""), ("c3", 0.5, "good", "")]
    with Store(path) as store:
        assert frame_of(store.records()).height == 2
        assert store.records({"protocol": "mean"})[0].more == {"carbon": 3}


@pytest.mark.parametrize("create", [True, False])
def test_files_that_are_not_ours(path: Path, create: bool) -> None:
    path.parent.mkdir()
    path.write_text("user,item\nann,tea\n" * 100)
    with pytest.raises(ValueError, match="not a file of fedhist results"):
        Store(path, create=create)
    assert path.read_text().startswith("user,item")
    path.unlink()
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE friends (name TEXT)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not a file of fedhist results"):
        Store(path, create=create)
    assert path.read_bytes() == before
    path.unlink()
    Store(path).close()
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    db.close()
    with pytest.raises(ValueError, match="newer fedhist"):
        Store(path, create=create)


def test_a_file_that_is_just_being_made_is_empty(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    with Store(path, create=False) as store:
        assert (len(store), store.records({"status": "ok"}), store.statuses()) == (0, [], {})
        assert frame_of(store.records()).is_empty()
    assert path.read_bytes() == b""


def test_a_missing_file_is_not_made(path: Path) -> None:
    with pytest.raises(ValueError, match="no such file of results"):
        Store(path, create=False)
    assert not path.parent.exists()
    path.mkdir(parents=True)
    with pytest.raises(ValueError, match="cannot be opened"):
        Store(path)


def test_a_file_that_may_only_be_read(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(path) as store:
        store.put(ONE)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with Store(path, create=False) as store:
        assert store.records() == [ONE]
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            store.put(ERROR)
    assert [p.name for p in path.parent.iterdir()] == ["study.sqlite"]


def test_the_table() -> None:
    other = replace(ONE, key="z", cell={"protocol": {"name": "x", "clip": "best", "epsilon": 0.5}})
    third = replace(other, cell={"protocol": {"clip": 5}, "run": {"seed": None}}, more={"new": [1]})
    frame = frame_of([ONE, other, third])
    assert frame["key"].to_list() == ["a1", "z", "z"]
    assert frame["loss"].to_list() == [ONE.loss] * 3
    assert frame["protocol.epsilon"].to_list() == [1.0, 0.5, None]
    assert frame["protocol.clip"].to_list() == [None, "best", "5"]
    assert frame["run.seed"].to_list() == [3, None, None]
    assert frame["public.n_bins"].dtype == pl.Float64
    assert frame["not_private"][0] == "chosen by looking; known truth"
    assert frame["new"].to_list() == [None, None, "[1]"]
    assert {"status", *COLUMNS} <= set(frame.columns)
    assert frame_of([]).is_empty()
    fine = replace(ONE, cell={"protocol": {"clip": 1 / 3}})
    assert frame_of([fine, other])["protocol.clip"].to_list() == [str(1 / 3), "best"]


WRITER = """
import sys
from simulations.studies.records.cells import Record
from simulations.studies.records.store import Store
with Store(sys.argv[1]) as store:
    for i in range(60):
        store.put(Record(f"{sys.argv[2]}{i}", status="ok", loss=float(i)))
        if i == 0:
            print("ready", flush=True)
"""


def test_two_processes_write_and_one_reads(path: Path) -> None:
    """What a reader sees only grows, and every record is whole."""
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [
        subprocess.Popen([*command, name], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for name in ("x", "y")
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    seen = 0
    with Store(path, create=False) as reader:
        while any(w.poll() is None for w in writers):
            found = reader.records()
            assert all(r.loss == float(r.key[1:]) for r in found)
            assert len(found) >= seen
            seen = len(found)
        assert len(reader) == 120
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0


def test_who_opens_a_file_that_another_is_making_waits(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other comes between two looks at the file, which would see none and then a whole one."""
    look = Store._pragma
    other = threading.Thread(target=lambda: Store(path).close())

    def look_and_let_the_other(store: Store, name: str) -> int:
        found = look(store, name)
        if other.ident is None:
            other.start()
            other.join(1.0)  # it ends here if nothing holds it
        return found

    monkeypatch.setattr(Store, "_pragma", look_and_let_the_other)
    with Store(path) as store:
        store.put(ONE)
    other.join()
    with Store(path, create=False) as store:
        assert store.records() == [ONE]


def test_damaged_pages_give_an_error_that_names_the_file(path: Path) -> None:
    """Not a traceback, whatever the damage; the header stays, so that the file opens."""
    with Store(path) as store:
        for i in range(200):
            store.put(replace(ONE, key=f"k{i:03d}"))
    whole = path.read_bytes()
    said = []
    for start in range(4096, len(whole), 4096):
        path.write_bytes(whole[:start] + b"\xa5" * 2048 + whole[start + 2048 :])
        try:
            with Store(path, create=False) as store:
                store.records()
                store.statuses()
        except ValueError as e:
            said.append(str(e))
    assert len(said) > 3
    assert all("study.sqlite" in text for text in said)
