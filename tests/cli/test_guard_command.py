"""``fedhist node guard``: whole folders, damaged ones, and the owner's reset."""

from __future__ import annotations

from pathlib import Path

from commands import Command

from clients.guard_folder import FolderStore
from clients.spending import Answered


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
