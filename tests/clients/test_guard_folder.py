"""The folder of a node's owner: it survives restarts and kills, and every damage is seen."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from test_store import ENTRIES, replies

from clients import guard_folder
from clients.guard_folder import FolderStore, GuardDamaged
from fedhist.base import chained_log
from fedhist.base.chained_log import DamagedLog
from fedhist.base.errors import FedhistError


def filled(folder: Path, n: int = 3, **options: Path) -> FolderStore:
    store = FolderStore(folder, **options)
    for entry, reply in list(zip(ENTRIES, replies(), strict=True))[:n]:
        store.add(entry, reply)
    return store


class Killed(Exception):
    pass


def killed_at(monkeypatch: pytest.MonkeyPatch, name: str, *, torn: bool = False) -> None:
    """Let a write of this file end the process, with half of what is appended on disk if torn."""
    write = chained_log.write_private

    def stopped(path: Path, data: bytes, *, append: bool = False) -> None:
        if path.name == name:
            if torn:
                write(path, data[: len(data) // 2], append=append)
            raise Killed
        write(path, data, append=append)

    for module in (chained_log, guard_folder):
        monkeypatch.setattr(module, "write_private", stopped)


@pytest.mark.parametrize(
    ("name", "torn", "charged"),
    [
        ("reply-bb.json", False, 1),
        ("answered.jsonl", False, 1),
        ("answered.jsonl", True, 1),
        ("tally.json", False, 2),
    ],
)
def test_a_killed_process_leaves_a_folder_that_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, torn: bool, charged: int
) -> None:
    """The reply is written first, then the charge, then the tally; the reply has not left."""
    counter = tmp_path / "counter"
    store = filled(tmp_path / "g", 1, counter=counter)
    with monkeypatch.context() as patch:
        killed_at(patch, name, torn=torn)
        with pytest.raises(Killed):
            store.add(ENTRIES[1], replies()[1])
    again = FolderStore(tmp_path / "g", counter=counter)
    assert again.answered() == tuple(ENTRIES[:charged])
    again.add(ENTRIES[2], replies()[2])
    whole = FolderStore(tmp_path / "g", counter=counter)
    assert whole.answered() == (*ENTRIES[:charged], ENTRIES[2])
    assert whole.reply("cc") is not None


def lines(change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        log = folder / "answered.jsonl"
        log.write_text("".join(change(log.read_text().splitlines(keepends=True))))

    return damage


def reworded(field: str, value: object) -> Callable[[Path], None]:
    def change(before: list[str]) -> list[str]:
        return [before[0], json.dumps(json.loads(before[1]) | {field: value}) + "\n", before[2]]

    return lines(change)


def removed(*names: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return damage


DAMAGES: dict[str, Callable[[Path], None]] = {
    "log deleted": removed("answered.jsonl"),
    "log and tally deleted": removed("answered.jsonl", "tally.json"),
    "tally deleted": removed("tally.json"),
    "node deleted": removed("node"),
    "a reply deleted": removed("reply-bb.json"),
    "log emptied": lambda g: (g / "answered.jsonl").write_text("") and None,
    "tally emptied": lambda g: (g / "tally.json").write_text("") and None,
    "last line removed": lines(lambda x: x[:-1]),
    "first line removed": lines(lambda x: x[1:]),
    "last line cut": lines(lambda x: [*x[:-1], x[-1][:20]]),
    "last byte lost": lines(lambda x: [*x[:-1], x[-1][:-1]]),
    "a line cut in the middle": lines(lambda x: [x[0], x[1][:9] + "\n", x[2]]),
    "a line doubled": lines(lambda x: [x[0], x[1], x[1], x[2]]),
    "lines swapped": lines(lambda x: [x[1], x[0], x[2]]),
    "NUL bytes": lines(lambda x: [x[0], "\0" * 40 + "\n", x[2]]),
    "a list for a line": lines(lambda x: [x[0], "[]\n", x[2]]),
    "epsilon NaN": reworded("epsilon", float("nan")),
    "epsilon negative": reworded("epsilon", -1.0),
    "epsilon smaller": reworded("epsilon", 0.5),
    "another cohort": reworded("hi", 0.3),
    "a hash removed": reworded("chain", None),
    "not JSON": lines(lambda x: ["{" * 100_000 + "\n", *x[1:]]),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_refuses_everything_until_the_owner_resets(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "g"
    filled(folder)
    DAMAGES[name](folder)
    with pytest.raises(GuardDamaged):
        FolderStore(folder).answered()
    if name == "node deleted":
        return
    store = FolderStore(folder)
    with pytest.raises(GuardDamaged, match=r"line|tally\.json|reply"):
        store.add(ENTRIES[0], None)
    aside = store.reset()
    assert FolderStore(folder).answered() == ()
    assert {f.name for f in aside.iterdir()} >= {"node"}


def test_a_reply_that_was_altered_is_not_sent(tmp_path: Path) -> None:
    store = filled(tmp_path)
    file = tmp_path / "reply-aa.json"
    file.write_text(file.read_text().replace("1", "2"))
    with pytest.raises(GuardDamaged, match=r"reply-aa\.json has been altered"):
        store.reply("aa")


def test_a_folder_put_back_from_an_older_copy_is_found_out(tmp_path: Path) -> None:
    """If the counter is not put back with it; without one it cannot be seen."""
    import shutil

    folder, counter = tmp_path / "g", tmp_path / "counter"
    store = filled(folder, 1, counter=counter)
    shutil.copytree(folder, tmp_path / "old")
    store.add(ENTRIES[1], replies()[1])
    store.add(ENTRIES[2], replies()[2])
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "old", folder)
    assert len(FolderStore(folder).answered()) == 1
    with pytest.raises(GuardDamaged, match=r"1 lines where .*counter has counted 3"):
        FolderStore(folder, counter=counter).answered()
    shutil.rmtree(folder)
    with pytest.raises(GuardDamaged, match=r"0 lines where .*counter has counted 3"):
        FolderStore(folder, counter=counter).answered()


def test_a_counter_can_be_started_later(tmp_path: Path) -> None:
    folder, counter = tmp_path / "g", tmp_path / "counter"
    filled(folder)
    with pytest.raises(
        GuardDamaged, match=r"counter, which counts the lines of answered\.jsonl, is missing"
    ):
        FolderStore(folder, counter=counter).answered()
    FolderStore(folder, counter=counter).start_counter()
    assert len(FolderStore(folder, counter=counter).answered()) == 3
    with pytest.raises(DamagedLog, match="there already"):
        FolderStore(folder, counter=counter).start_counter()


def test_a_folder_of_version_0_2_goes_on_and_is_chained_from_then_on(tmp_path: Path) -> None:
    (tmp_path / "node").write_text("0\n")
    old = "".join(f"{e.to_json()}\n" for e in ENTRIES[:2])
    (tmp_path / "answered.jsonl").write_text(old)
    FolderStore(tmp_path).add(ENTRIES[2], None)
    assert FolderStore(tmp_path).answered() == tuple(ENTRIES)
    assert (tmp_path / "answered.jsonl").read_text().startswith(old)
    for change in (lambda x: x[1:], lambda x: [x[0], x[2]], lambda x: x[:2], lambda x: [*x, x[0]]):
        before = (tmp_path / "answered.jsonl").read_text()
        lines(change)(tmp_path)
        with pytest.raises(GuardDamaged):
            FolderStore(tmp_path).answered()
        (tmp_path / "answered.jsonl").write_text(before)


def test_the_lock_is_held(tmp_path: Path) -> None:
    import fcntl

    store = FolderStore(tmp_path)
    with store.locked(), (tmp_path / "lock").open("w") as f, pytest.raises(BlockingIOError):
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with (tmp_path / "lock").open("w") as f:
        fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_modes_and_owner(tmp_path: Path) -> None:
    FolderStore(tmp_path / "g", 3).add(ENTRIES[0], replies()[0])
    assert (tmp_path / "g").stat().st_mode & 0o777 == 0o700
    files = sorted(f.name for f in (tmp_path / "g").iterdir())
    assert files == ["answered.jsonl", "node", "reply-aa.json", "tally.json"]
    for file in (tmp_path / "g").iterdir():
        assert file.stat().st_mode & 0o777 == 0o600
    FolderStore(tmp_path / "g", 3)
    with pytest.raises(FedhistError, match="3"):  # a folder serves one node
        FolderStore(tmp_path / "g", 4)
