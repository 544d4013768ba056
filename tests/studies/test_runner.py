"""Cells are run once, here or on Ray, and a study may be killed at any moment."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Command
from noted_study import NOTED

from fedhist.base.errors import FedhistError
from simulations.reporting.files import kind_of
from simulations.studies.cells import Cell, Record
from simulations.studies.compared import Compared, plan_of, run_study
from simulations.studies.runner import RECORDS, read_records, run_all, run_cells, writing
from simulations.studies.study import load_study

ROOT = Path(__file__).resolve().parents[2]
Write = Callable[[str], Path]


@pytest.fixture
def cells(write: Write, tmp_path: Path) -> list[Cell]:
    text = "[sweep]\nprotocol.epsilon = [1, 2]\npopulation.seed = [1, 2]\nseeds = 6\n"
    noted = [f"protocol.log={tmp_path / 'log'}", "protocol.pause=0.01"]
    return plan_of(load_study(write(text), noted))[2]


def comparable(folder: Path) -> dict[str, Record]:
    return {k: replace(r, seconds=0.0) for k, r in read_records(folder).items()}


def runs(cells: list[Cell]) -> int:
    log = Path(cells[0].protocol["log"])
    return len(log.read_text().split()) if log.exists() else 0


def statuses(found: dict[str, Record]) -> Counter[str]:
    return Counter(r.status for r in found.values())


def test_a_cell_is_run_once(cells: list[Cell], tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    result = run_cells(cells[:5], tmp_path, progress=lambda *done: told.append(done))
    assert statuses(result) == {"ok": 5}
    assert told == [(i, 5) for i in range(1, 6)]
    assert statuses(run_cells([*cells, *cells], tmp_path)) == {"ok": 24}
    assert runs(cells) == 24
    assert comparable(tmp_path).keys() == {c.key for c in cells}


def test_errors_are_kept_and_run_again(write: Write, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    study = load_study(write("[sweep]\nseeds = 3\n"), [f"protocol.broken={broken}"])
    every = plan_of(study)[2]
    broken.touch()
    assert statuses(run_cells(every, tmp_path)) == {"error": 3}
    (reason,) = {r.reason for r in comparable(tmp_path).values()}
    before = NOTED.read_text().partition("raise RuntimeError")[0]
    line = before.count("\n") + 1
    assert f"(noted.py, line {line}, in rounds)" in reason
    broken.unlink()
    assert statuses(run_cells(every, tmp_path)) == {"ok": 3}
    assert len((tmp_path / RECORDS).read_text().splitlines()) == 6  # nothing is rewritten


def test_killed_at_any_moment(cells: list[Cell], tmp_path: Path) -> None:
    """SIGKILL after 0 and 9 cells: the records are those of a run in peace."""
    peace, killed = tmp_path / "peace", tmp_path / "killed"
    for folder in (peace, killed):
        folder.mkdir()
    run_cells(cells, peace)
    before = runs(cells)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedhist.protocols", "simulations.studies.runner"])
    kills = (0, 9)
    for most in kills:
        child = context.Process(target=run_cells, args=(cells, killed))
        child.start()
        end = time.monotonic() + 300
        while time.monotonic() < end and child.is_alive():
            if runs(cells) > before and len(read_records(killed)) >= most:
                break
            time.sleep(0.003)
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert child.exitcode == -signal.SIGKILL
        assert most <= len(read_records(killed)) < len(cells)
    assert statuses(run_cells(cells, killed)) == {"ok": 24}
    assert comparable(killed) == comparable(peace)
    assert runs(cells) <= before + len(cells) + len(kills)


def test_half_a_line_is_cut_off(cells: list[Cell], tmp_path: Path) -> None:
    run_cells(cells[:3], tmp_path)
    file = tmp_path / RECORDS
    whole = file.read_bytes()
    file.write_bytes(whole + b'{"key": "torn')
    assert len(read_records(tmp_path)) == 3
    run_cells(cells[:4], tmp_path)
    assert file.read_bytes().startswith(whole)
    assert len(read_records(tmp_path)) == 4
    file.write_bytes(b"{]\n" + whole)
    with pytest.raises(ValueError, match=r"records\.jsonl, line 1"):
        run_cells(cells, tmp_path)


def test_one_study_writes_at_a_time(cells: list[Cell], tmp_path: Path) -> None:
    with writing(tmp_path), pytest.raises(ValueError, match=tmp_path.name):
        run_cells(cells, tmp_path)
    assert runs(cells) == 0


def test_interrupted_while_others_read(write: Write, tmp_path: Path, fedhist: Command) -> None:
    """Ctrl-C keeps what is done; ``fedhist show`` reads a study that is running."""
    config, folder = write('[sweep]\n"protocol.pause" = [0.05]\nseeds = 400\n'), tmp_path / "a"
    process = subprocess.Popen(
        [sys.executable, "-m", "simulations.cli.main", "compare", config, "--out", folder],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    end = time.monotonic() + 300
    while time.monotonic() < end and not (folder.exists() and len(read_records(folder)) > 2):
        time.sleep(0.05)
    status, out, _ = fedhist("show", folder)
    assert status == 0
    assert "of 400 cells are done" in " ".join(out.split())
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    kept = len(read_records(folder))
    assert f"interrupted; {kept} cells are in" in " ".join(errors.split())
    assert 2 < kept < 400


@pytest.mark.ray
@pytest.mark.usefixtures("one_ray")
def test_ray_gives_the_same(cells: list[Cell], tmp_path: Path) -> None:
    """Bit for bit, also for sums of real numbers. A cell that kills its worker is an error."""
    mean = {"name": "mean", "epsilon": 1, "low": -1, "high": 1, "samples_per_user": 5}
    people = {"kind": "gaussian", "n_users": 3000, "samples_per_user": 5, "mean": 0.2}
    every = [*cells, *(Cell(mean, people, {"seed": s}) for s in range(4))]
    dead = replace(cells[0], protocol={**cells[0].protocol, "ending": "dead"})
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    run_cells(every, tmp_path / "here")
    result = run_cells([*every, dead], tmp_path / "there", workers=2)
    assert "its worker died" in result[dead.key].reason
    there = comparable(tmp_path / "there")
    assert there.pop(dead.key).status == "error"
    assert there == comparable(tmp_path / "here")


def test_a_cluster_of_another_version_is_refused_before_any_work(
    cells: list[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    from simulations.runtimes import ray_tasks

    def unlike(plugins: object) -> None:
        raise FedhistError("0.0.1 there")

    monkeypatch.setattr(ray_tasks, "ray_session", lambda *_: nullcontext())
    monkeypatch.setattr(ray_tasks, "check_machines", unlike)
    with pytest.raises(FedhistError, match=r"0\.0\.1 there"):
        list(run_all(cells, 2, "10.0.0.1:1"))
    assert runs(cells) == 0


def test_a_study_goes_on_in_its_folder(write: Write, tmp_path: Path) -> None:
    folder, log = tmp_path / "out", tmp_path / "log"
    path = write("[sweep]\nprotocol.epsilon = [1, 2]\nseeds = 2\n")
    run_study(load_study(path, [f"protocol.log={log}"]), folder)
    assert {p.name for p in folder.iterdir()} == {
        *("study.toml", RECORDS, "result.json", "figure.png", "report.html", ".fedhist.json")
    }
    assert kind_of(folder) == "study"
    more = run_study(load_study(path, [f"protocol.log={log}", "sweep.seeds=3"]), folder)
    assert len(log.read_text().split()) == 6
    again = Compared.open(folder)
    assert again.document() == more.document()
    assert again.written("txt") == more.written("txt")
    repeated = run_study(load_study(folder / "study.toml"), folder)
    assert repeated.table.equals(more.table)
    assert len(log.read_text().split()) == 6
    run_study(load_study(folder / "study.toml"), folder, force=True)
    assert len(log.read_text().split()) == 12


def test_what_others_wrote_is_left_alone(write: Write, tmp_path: Path) -> None:
    study, folder = load_study(write("[sweep]\n")), tmp_path / "out"
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    for force in (False, True):
        with pytest.raises(ValueError, match=r"mine\.txt"):
            run_study(study, folder, force=force)
    (folder / "mine.txt").unlink()
    (folder / ".fedhist.json").write_text('{"kind": "run", "files": ["config.json"]}')
    (folder / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="'run'"):
        run_study(study, folder)
    run_study(study, folder, force=True)
    assert not (folder / "config.json").exists()
