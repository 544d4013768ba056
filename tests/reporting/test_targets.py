"""Nothing is replaced but what the same command wrote, unless forced; and never half of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulations.reporting import files


def make(folder: Path, kind: str = "run", text: str = "old", **more: bool) -> None:
    with files.whole_folder(folder, kind, **more) as part:
        (part / "a.txt").write_text(text)


def test_another_kind_is_left_alone_unless_it_is_forced(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    make(folder)
    make(folder, text="new")
    assert (folder / "a.txt").read_text() == "new"
    with pytest.raises(ValueError, match="'run', not 'study'"):
        make(folder, "study")
    make(folder, "study", force=True)
    assert files.kind_of(folder) == "study"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


@pytest.mark.parametrize("force", [False, True])
def test_files_of_others_are_left_alone(tmp_path: Path, force: bool) -> None:
    folder = tmp_path / "out"
    make(folder)
    (folder / "mine").mkdir()
    (folder / "mine" / "b.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"mine/b\.txt"):
        make(folder, force=force)
    assert (folder / "mine" / "b.txt").read_text() == "mine"


def test_a_folder_without_a_mark(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    make(tmp_path / "empty")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "c.txt").touch()
    with pytest.raises(ValueError, match=r"c\.txt"):
        files.check_folder(tmp_path / "other", "run")
    (tmp_path / "other" / files.MARK).write_text("[]")
    assert files.kind_of(tmp_path / "other") == ""


def test_where_one_stands_is_no_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for path in (".", "..", "/"):
        with pytest.raises(ValueError, match="replace"):
            files.check_folder(path, "run", force=True)
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(ValueError, match="file"):
        files.check_folder(file, "run", force=True)


def test_what_breaks_off_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "out")

    def broken(*_: object) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError), files.whole_folder(tmp_path / "out", "run"):
        broken()
    monkeypatch.setattr("os.replace", broken)
    with pytest.raises(RuntimeError):
        make(tmp_path / "out", text="new")
    assert (tmp_path / "out" / "a.txt").read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_a_file_that_is_there_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    assert files.check_file(file) == file.resolve()
    file.touch()
    with pytest.raises(ValueError, match=r"a\.csv"):
        files.check_file(file)
    assert files.check_file(file, force=True) == file.resolve()
    with pytest.raises(ValueError, match="folder"):
        files.check_file(tmp_path, force=True)
