"""Where the guard's memory lives: Flower's Context and a folder of the node's owner."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from flwr.app import RecordDict

from clients.guard import Answered
from clients.store import ContextStore, FolderStore, Store, guard_lines, set_guard_lines
from fedhist.base.errors import FedhistError
from fedhist.flower.wire import ARRAYS, HEAD, decode_answer, encode_answer
from fedhist.model.query import Report, Summary

ENTRIES = [Answered("aa", 0.5), Answered("bb", 1.0, 7, 0.25, 0.5), Answered("cc", 0.0)]


@pytest.fixture(params=["context", "folder"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return ContextStore(RecordDict()) if request.param == "context" else FolderStore(tmp_path / "g")


def replies() -> list[RecordDict]:
    report = Report(
        np.array([4, 2**64 - 1], dtype=np.uint64),
        {"x": np.array([[True], [False]])},
        {"y": np.array([0.5, -0.0, np.inf])},
        np.array([0, 1, 3]),
    )
    return [
        encode_answer(Summary(2, {"s": np.array([[1, 2]], dtype=np.int32)}), 1, "aa"),
        encode_answer(report, 2, "bb"),
        encode_answer("no", 3, "cc"),
    ]


def test_entries_and_replies_come_back(store: Store) -> None:
    assert store.answered() == ()
    assert store.reply("aa") is None
    for k, (entry, reply) in enumerate(zip(ENTRIES, replies(), strict=True)):
        with store.locked():
            store.add(entry, reply)
        assert store.answered() == tuple(ENTRIES[: k + 1])
    for entry, reply in zip(ENTRIES, replies(), strict=True):
        got = store.reply(entry.digest)
        assert got is not None
        assert dict(got[HEAD]) == dict(reply[HEAD])
        assert {k: a.data for k, a in got[ARRAYS].items()} == {
            k: a.data for k, a in reply[ARRAYS].items()
        }
        assert type(decode_answer(got).body) is type(decode_answer(reply).body)


def test_replies_that_can_be_recomputed_are_not_kept(store: Store) -> None:
    store.add(ENTRIES[0], None)
    assert store.answered() == (ENTRIES[0],)
    assert store.reply("aa") is None


def test_context_survives_the_worker() -> None:
    """The driver keeps the lines and hands them to the next worker's Context."""
    state = RecordDict()
    for entry in ENTRIES:
        ContextStore(state).add(entry, None)
    lines = guard_lines(state)
    fresh = RecordDict()
    set_guard_lines(fresh, lines)
    assert ContextStore(fresh).answered() == tuple(ENTRIES)
    empty = RecordDict()
    set_guard_lines(empty, ())
    assert ContextStore(empty).answered() == ()


# -- the folder ------------------------------------------------------------------------------------


def test_folder_survives_a_restart(tmp_path: Path) -> None:
    for entry, reply in zip(ENTRIES, replies(), strict=True):
        FolderStore(tmp_path / "g").add(entry, reply)
    again = FolderStore(tmp_path / "g")
    assert again.answered() == tuple(ENTRIES)
    assert again.reply("bb") is not None


def test_modes(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "g")
    store.add(ENTRIES[0], replies()[0])
    assert (tmp_path / "g").stat().st_mode & 0o777 == 0o700
    files = sorted(f.name for f in (tmp_path / "g").iterdir())
    assert files == ["answered.jsonl", "node", "reply-aa.json"]
    for file in (tmp_path / "g").iterdir():
        assert file.stat().st_mode & 0o777 == 0o600


def test_a_folder_serves_one_node(tmp_path: Path) -> None:
    FolderStore(tmp_path, 3)
    FolderStore(tmp_path, 3)
    with pytest.raises(FedhistError, match="belongs to node 3"):
        FolderStore(tmp_path, 4)


@pytest.mark.parametrize("cut", [1, 10, 30])
def test_a_torn_line_was_never_answered(tmp_path: Path, cut: int) -> None:
    store = FolderStore(tmp_path)
    for entry in ENTRIES[:2]:
        store.add(entry, None)
    log = tmp_path / "answered.jsonl"
    log.write_bytes(log.read_bytes()[:-cut])
    again = FolderStore(tmp_path)
    assert again.answered() == (ENTRIES[0],)
    again.add(ENTRIES[2], None)
    assert FolderStore(tmp_path).answered() == (ENTRIES[0], ENTRIES[2])


def test_a_broken_line_in_the_middle_is_not_skipped(tmp_path: Path) -> None:
    """A guard that cannot read what was spent does not answer."""
    store = FolderStore(tmp_path)
    for entry in ENTRIES:
        store.add(entry, None)
    log = tmp_path / "answered.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text(lines[0] + lines[1][:9] + "\n" + lines[2])
    with pytest.raises(ValueError):  # noqa: PT011 - JSON's own error
        FolderStore(tmp_path).answered()


def test_a_crash_between_reply_and_charge_leaves_no_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reply is written first; without its entry the query was never answered."""
    from clients import store as module

    write, calls = module.write_private, []

    def crash(path: Path, data: bytes, *, append: bool = False) -> None:
        calls.append(path.name)
        if path.name == "answered.jsonl":
            raise OSError("power cut")
        write(path, data, append=append)

    monkeypatch.setattr(module, "write_private", crash)
    store = FolderStore(tmp_path)
    with pytest.raises(OSError, match="power cut"):
        store.add(ENTRIES[0], replies()[0])
    assert calls == ["node", "reply-aa.json", "answered.jsonl"]
    assert FolderStore(tmp_path).answered() == ()
    assert not list(tmp_path.glob("*.part"))


def test_the_lock_is_held(tmp_path: Path) -> None:
    import fcntl

    store = FolderStore(tmp_path)
    with store.locked(), (tmp_path / "lock").open("w") as f, pytest.raises(BlockingIOError):
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (tmp_path / "lock").open("w") as f:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
