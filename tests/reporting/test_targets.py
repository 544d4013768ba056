"""Nothing is replaced but what fedhist wrote as the same kind, unchanged."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from simulations.reporting.targets import (
    COMMENTS,
    MARK,
    add_to_folder,
    check_file,
    check_folder,
    check_target,
    kind_of,
    whole_folder,
    write_target,
)


def made(folder: Path, kind: str = "run", text: str = "1") -> Path:
    with whole_folder(folder, kind) as part:
        (part / "config.json").write_text(text)
        (part / "inner").mkdir()
        (part / "inner" / "a.csv").write_text("x\n")
    return folder


def contents(path: Path) -> dict[str, bytes]:
    """All files of a folder, or the one."""
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_a_folder_of_the_same_kind_is_replaced_and_of_another_is_not(tmp_path: Path) -> None:
    folder = made(tmp_path / "out")
    assert kind_of(folder) == "run"
    made(folder, text="2")
    assert (folder / "config.json").read_text() == "2"
    before = contents(folder)
    with pytest.raises(ValueError, match=r"out holds results of the kind 'run', not 'comparison'"):
        made(folder, "comparison")
    assert contents(folder) == before
    with whole_folder(folder, "comparison", force=True):
        pass
    assert kind_of(folder) == "comparison"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def _added(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")


def _within(folder: Path) -> None:
    (folder / "inner" / "b.csv").write_text("mine")


def _changed(folder: Path) -> None:
    (folder / "config.json").write_text("mine")


def _linked(folder: Path) -> None:
    (folder / "data").symlink_to(folder.parent)


def _unmarked(folder: Path) -> None:
    (folder / MARK).unlink()


def _damaged(folder: Path) -> None:
    (folder / MARK).write_text("[]")


@pytest.mark.parametrize("touch", [_added, _within, _changed, _linked, _unmarked, _damaged])
def test_what_somebody_did_in_a_folder_is_not_lost(
    tmp_path: Path, touch: Callable[[Path], None]
) -> None:
    folder = made(tmp_path / "out")
    touch(folder)
    before = contents(folder)
    for _ in range(2):
        with pytest.raises(ValueError, match="is left alone"):
            made(folder)
    if touch is _changed:  # what fedhist has written may go by force, and nothing else
        assert check_target(folder, "run", force=True) == folder
    else:
        with pytest.raises(ValueError, match="which fedhist did not write: it is left alone"):
            check_target(folder, "run", force=True)
    assert contents(folder) == before


def test_a_folder_is_lost_to_nobody_while_it_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    meanwhile = whole_folder(folder, "run")
    (meanwhile.__enter__() / "config.json").write_text("{}")
    folder.mkdir()
    (folder / "theirs.txt").write_text("x")
    with pytest.raises(ValueError, match="left alone"):
        meanwhile.__exit__(None, None, None)
    assert contents(folder) == {"theirs.txt": b"x"}
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    made(tmp_path / "other")
    with pytest.raises(RuntimeError), whole_folder(tmp_path / "other", "run"):
        raise RuntimeError
    assert (tmp_path / "other" / "config.json").read_text() == "1"


def test_several_may_write_the_same_folder(tmp_path: Path) -> None:
    """The last has it, whole; nobody meets an error, and nothing is left beside it."""

    def write(who: int) -> None:
        for k in range(20):
            with whole_folder(tmp_path / "out", "run") as part:
                for name in ("a", "b"):
                    (part / name).write_text(f"{who} {k}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "a").read_text() == (tmp_path / "out" / "b").read_text()


def test_what_file_managers_leave_and_what_was_removed_is_no_obstacle(tmp_path: Path) -> None:
    folder = made(tmp_path / "out")
    (folder / ".DS_Store").write_text("x")
    (folder / "config.json").unlink()
    made(folder)
    (tmp_path / "empty").mkdir()
    made(tmp_path / "empty")


def test_nobody_s_own_folder_goes_even_by_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    monkeypatch.chdir(inner)
    monkeypatch.setenv("HOME", str(tmp_path / "homes" / "ann"))
    (tmp_path / "homes" / "ann").mkdir(parents=True)
    homes = tmp_path / "homes"
    for path in (".", "..", inner, tmp_path, "/", homes / "ann", homes):
        with pytest.raises(ValueError, match="name a folder in it"):
            check_folder(path, "run", force=True)


def test_a_file_is_no_folder_and_a_folder_no_file(tmp_path: Path) -> None:
    file, folder = tmp_path / "a.md", made(tmp_path / "out")
    write_target(file, "x", "table")
    with pytest.raises(ValueError, match="is a file, not a folder"):
        check_folder(file, "run", force=True)
    with pytest.raises(ValueError, match="is a folder; name a file"):
        check_file(folder, "table", force=True)
    with pytest.raises(ValueError, match=r"a\.md: Not a directory"):
        check_target(file / "b.md", "table")
    with pytest.raises(ValueError, match="neither a file nor a folder"):
        check_file("/dev/null", "table", force=True)


@pytest.mark.parametrize("ending", sorted(COMMENTS))
def test_a_text_is_marked_and_replaced_only_while_nobody_changes_it(
    tmp_path: Path, ending: str
) -> None:
    path = tmp_path / f"a{ending}"
    write_target(path, "first", "page")
    assert path.read_text().startswith("first\n")
    assert kind_of(path) == "page"
    write_target(path, "second\n", "page")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="is of the kind 'page', not 'table'"):
        write_target(path, "third", "table")
    assert path.read_bytes() == before
    path.write_text(path.read_text().replace("second", "mine"))
    with pytest.raises(ValueError, match="is a page that somebody has changed"):
        write_target(path, "third", "page")
    write_target(path, "third", "table", force=True)
    assert kind_of(path) == "table"


@pytest.mark.parametrize("name", ["domain.txt", "a.csv", "a.html", "a.png", "a.pdf", "a.parquet"])
def test_a_file_of_somebody_s_is_left_alone(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("tea\nfedhist:page\n/Creator fedhist:page\nrye\n")
    with pytest.raises(ValueError, match="nothing says that fedhist wrote it"):
        write_target(path, b"x", "page")
    assert path.read_text().startswith("tea")
    path.write_text("")  # nothing to lose
    write_target(path, b"x", "page")
    assert path.read_bytes() == b"x"


def test_links_are_followed(tmp_path: Path) -> None:
    made(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    made(tmp_path / "link", text="2")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "config.json").read_text() == "2"
    (tmp_path / "dangling").symlink_to("nowhere")
    made(tmp_path / "dangling")
    assert kind_of(tmp_path / "nowhere") == "run"


def test_a_page_added_to_a_folder_goes_with_it(tmp_path: Path) -> None:
    folder = made(tmp_path / "out")
    add_to_folder(folder, "report.html", "<p>", "page")
    add_to_folder(folder, "report.html", "<p>2", "page")
    mode = stat.S_IMODE((folder / MARK).stat().st_mode)
    assert mode == 0o600
    assert "report.html" in json.loads((folder / MARK).read_text())["files"]
    made(folder)
    assert not (folder / "report.html").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_nobody_may_write_to_is_told_before(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ValueError, match="Permission denied"):
        check_target(tmp_path / "a" / "b", "run")
