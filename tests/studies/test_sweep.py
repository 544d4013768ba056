"""Sweeps: the cells of a file, and a run that may be killed at any moment."""

from __future__ import annotations

import csv
import math
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from commands import Answer, Command
from rich.console import Console

from fedhist.base.errors import PopulationError
from fedhist.model import evaluation
from fedhist.model.registry import protocol_class
from simulations.studies.records.cells import Cell, Record, run_cell
from simulations.studies.records.filters import select
from simulations.studies.records.settings_table import print_summary
from simulations.studies.records.store import Store, frame_of
from simulations.studies.records.summary import axes, groups
from simulations.studies.sweep.config import builtin_sweeps, load_sweep
from simulations.studies.sweep.run import run_cells, writing

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = Path(__file__).with_name("noted.py")
BASE = """
[run]
runtime = "inline"
plugins = ["{plugin}"]

[protocol]
name = "test-noted"
epsilon = 1.0
delta = 1e-6
clip = 5.0

[population]
kind = "zipf"
n_users = 60
d = 5
mean_items = 4
seed = 2
"""

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a sweep file of the base configuration and what is given."""

    def written(text: str) -> Path:
        path = tmp_path / "grid.toml"
        path.write_text(text + BASE.format(plugin=PLUGIN), encoding="utf-8")
        return path

    return written


@pytest.fixture
def narrow(fedhist: Command) -> Command:
    """Run ``fedhist ARGUMENTS`` and check that it prints at most 80 columns."""

    def command(*arguments: object) -> Answer:
        answer = fedhist(*arguments)
        assert all(len(line) <= 80 for line in answer.out.split("\n") if "/" not in line)
        return answer

    return command


def values(cells: tuple[Cell, ...], *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(getattr(c, k.split(".")[0]).get(k.split(".")[1]) for k in keys) for c in cells]


# -- the file --------------------------------------------------------------------------------------


def test_all_combinations_population_by_population(write: Write) -> None:
    sweep = load_sweep(
        write('[sweep]\nprotocol.epsilon = [0.5, 1]\n"population.n_users" = [60, 70]\nseeds = 2\n')
    )
    assert values(sweep.cells, "population.n_users", "protocol.epsilon", "run.seed") == [
        (n, epsilon, seed) for n in (60, 70) for epsilon in (0.5, 1) for seed in (0, 1)
    ]
    assert len({c.key for c in sweep.cells}) == 8
    assert {c.label for c in sweep.cells} == {"test-noted"}


def test_zipped_axes_go_together(write: Write) -> None:
    text = '[sweep]\n[[sweep.zip]]\n"population.d" = [5, 6]\n"protocol.clip" = [1, 2]\n'
    cells = load_sweep(write(text)).cells
    assert values(cells, "population.d", "protocol.clip") == [(5, 1), (6, 2)]


def test_several_protocols(write: Write) -> None:
    text = """[sweep]
seeds = [4, 9]
protocols = [
    { name = "bounded-histogram" }, { name = "test-noted", pause = 0.5 },
    { clip = 7 }, { clip = 8, label = "wide" },
]
"""
    cells = load_sweep(write(text)).cells
    found = list(zip(cells, values(cells, "protocol.clip", "run.seed"), strict=True))
    assert [(c.label, *v) for c, v in found] == [
        (label, clip, seed)
        for label, clip in (
            ("bounded-histogram", 5),
            ("test-noted pause=0.5", 5),
            ("test-noted clip=7", 7),
            ("wide", 8),
        )
        for seed in (4, 9)
    ]


def test_protocols_on_an_axis(write: Write) -> None:
    names = ["bounded-histogram", "test-noted"]
    cells = load_sweep(write(f'[sweep]\n"protocol.name" = {names}\n')).cells
    assert [c.label for c in cells] == names


def test_equal_cells_are_one(write: Write) -> None:
    assert len(load_sweep(write("[sweep]\nprotocol.epsilon = [1, 1.0, 2]\n")).cells) == 2


def test_overrides(write: Write) -> None:
    text = write("[sweep]\nprotocol.epsilon = [1, 2]\nseeds = 5\n")
    cells = load_sweep(text, ["sweep.seeds=1", "population.n_users=9", "run.seed=3"]).cells
    assert values(cells, "population.n_users", "run.seed") == [(9, 3), (9, 3)]


def test_a_file_of_data_is_named_for_other_processes(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "d.csv").write_text("user,item\nann,tea\nbob,rye\n")
    monkeypatch.chdir(tmp_path)
    data = ["population.kind=events", "population.path=d.csv", "population.top=2"]
    data += ["population.user=user", "population.item=item"]
    (cell,) = load_sweep(write("[sweep]\n"), data).cells
    assert cell.population["path"] == str(tmp_path / "d.csv")
    assert run_cell(cell).status == "ok"


def test_what_only_a_population_refuses_is_a_result(write: Write) -> None:
    """Two users' samples are no two dimensions: the file is not wrong, one population is."""
    text = '[sweep]\n"population.dimension" = [1, 2]\n'
    people = [f"population.{x}" for x in ("kind=gaussian", "n_users=60", "samples_per_user=4")]
    mean = [f"protocol.{x}" for x in ("name=naive-mean", "epsilon=1", "low=-1", "high=1")]
    found = [run_cell(c) for c in load_sweep(write(text), [*people, *mean]).cells]
    assert [r.status for r in found] == ["ok", "error"]
    assert "dimension" in found[1].reason


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"needs a table \[sweep\]; fedhist run"),
        ("[sweep]\nseed = 3\n", "'seed'; did you mean 'seeds'"),
        ('[sweep]\n"protocl.epsilon" = [1]\n', "'protocl.epsilon'; did you mean 'protocol.epsilon"),
        ('[sweep]\n"run.workers" = [1]\n', "run.workers cannot be swept"),
        ('[sweep]\n"run.node" = [1]\n', "run.node cannot be swept; did you mean 'nodes'"),
        ("[sweep]\nprotocol.epsilon = 1\n", "the axis protocol.epsilon needs a list of values"),
        ("[sweep]\nprotocol.epsilon = []\n", "the axis protocol.epsilon needs a list of values"),
        ("[sweep]\nseeds = 0\n", "sweep.seeds must be a positive number"),
        ("[sweep]\nseeds = [1, -1]\n", "sweep.seeds must be a positive number"),
        ('[sweep]\nseeds = 2\n"run.seed" = [1]\n', "run.seed is an axis"),
        ("[sweep]\nprotocol.epsilom = [1]\n", "'epsilom'; did you mean 'epsilon'"),
        ("[sweep]\npopulation.n_user = [1]\n", "'n_user'; did you mean 'n_users'"),
        ("[sweep]\npopulation.n_users = [60, -1]\n", "n_users must be a positive integer, got -1"),
        ('[sweep]\nprotocols = ["mean"]\n', "sweep.protocols must be a list of tables"),
        ('[sweep]\nprotocols = [{ name = "maen" }]\n', "'maen'; did you mean 'mean'"),
        ("[sweep]\nprotocols = [{ clip = 1 }, { clip = 1 }]\n", "two rows are called"),
        ("[sweep]\nprotocol.clip = [1]\n[[sweep.zip]]\nprotocol.clip = [1]\n", "is on two axes"),
        (
            "[sweep]\n[[sweep.zip]]\nprotocol.clip = [1]\npopulation.d = [1, 2]\n",
            "protocol.clip has 1, population.d has 2",
        ),
        ("[sweep]\nzip = 3\n", r"\[\[sweep.zip\]\]"),
        (
            "[sweep]\nprotocol.epsilon = [0, -1, 1]\n",
            r"protocol.epsilon must be positive, got 0\.0",
        ),
        (
            "[sweep]\nprotocol.clip = [1, 2]\nprotocol.epsilon = [1, -1]\n",
            r"\.toml: protocol.epsilon must be positive, got -1\.0",
        ),
        ("[sweep]\nprotocols = [{ delta = 2.0 }]\n", r"\.toml: test-noted: protocol.delta"),
        ("[budget]\n[sweep]\n", "unknown table 'budget'; there are 'run', 'protocol'"),
        ("[sweep\n", "is not TOML"),
        ("[sweep]\n[swep]\n", "unknown table 'swep'"),
        (f"[sweep]\nprotocol.clip = {list(range(1, 1002))}\nseeds = 1000\n", "1,001,000 cells"),
    ],
)
def test_files_that_cannot_be_meant(write: Write, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_sweep(write(text))


@pytest.mark.parametrize("override", ["run.repeats=2", "run.ledger=l", "run.out=o"])
def test_keys_without_meaning(write: Write, override: str) -> None:
    with pytest.raises(ValueError, match="has no meaning in a sweep"):
        load_sweep(write("[sweep]\n"), [override])


@pytest.mark.parametrize("name", builtin_sweeps())
def test_builtin_sweeps_can_be_run(name: str) -> None:
    cells = load_sweep(name, ["sweep.seeds=1"]).cells
    assert len(cells) >= 10
    assert {run_cell(c).status for c in cells[:2]} == {"ok"}


# -- running ---------------------------------------------------------------------------------------


@pytest.fixture
def cells(write: Write, tmp_path: Path) -> list[Cell]:
    """24 cells that note their runs in a file."""
    text = "[sweep]\nprotocol.epsilon = [1, 2]\npopulation.seed = [1, 2]\nseeds = 6\n"
    noted = [f"protocol.log={tmp_path / 'log'}", "protocol.pause=0.01"]
    return list(load_sweep(write(text), noted).cells)


def comparable(path: Path) -> list[Record]:
    with Store(path, create=False) as store:
        return [replace(r, seconds=0.0) for r in store.records()]


def runs(cells: list[Cell]) -> int:
    log = Path(cells[0].protocol["log"])
    return len(log.read_text().split()) if log.exists() else 0


def test_a_cell_is_run_once(cells: list[Cell], tmp_path: Path) -> None:
    path, told = tmp_path / "a.sqlite", []
    ended = run_cells(cells[:5], path, workers=0, progress=lambda *done: told.append(done))
    assert ended == {"ok": 5}
    assert told == [(i, 5) for i in range(6)]
    assert run_cells([*cells, *cells], path, workers=0) == {"ok": 24}
    assert runs(cells) == 24
    assert {r.key for r in comparable(path)} == {c.key for c in cells}


def test_errors_are_kept_and_run_again_when_asked(write: Write, tmp_path: Path) -> None:
    broken, path = tmp_path / "broken", tmp_path / "a.sqlite"
    sweep = load_sweep(write("[sweep]\nseeds = 3\n"), [f"protocol.broken={broken}"])
    broken.touch()
    assert run_cells(sweep.cells, path, workers=0) == {"error": 3}
    assert {r.reason for r in comparable(path)} == {"RuntimeError: the script broke"}
    broken.unlink()
    assert run_cells(sweep.cells, path, workers=0) == {"error": 3}
    assert run_cells(sweep.cells, path, workers=0, retry=True) == {"ok": 3}


def test_killed_at_any_moment(cells: list[Cell], tmp_path: Path) -> None:
    """SIGKILL after 0, 5 and 14 cells: the table is that of a run in peace.

    Only the cell that was under way at a kill is run again.
    """
    peace, path = tmp_path / "peace.sqlite", tmp_path / "killed.sqlite"
    run_cells(cells, peace, workers=0)
    before = runs(cells)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedhist.protocols", "simulations.studies.sweep.run"])
    kills = (0, 5, 14)
    for most in kills:
        child = context.Process(target=run_cells, args=(cells, path), kwargs={"workers": 0})
        child.start()
        end = time.monotonic() + 300
        while time.monotonic() < end and child.is_alive():
            if runs(cells) > before and path.exists():
                with Store(path, create=False) as store:
                    if len(store) >= most:
                        break
            time.sleep(0.003)
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        assert child.exitcode == -signal.SIGKILL
        with Store(path, create=False) as store:
            assert most <= len(store) < len(cells)
    assert run_cells(cells, path, workers=0) == {"ok": 24}
    assert comparable(path) == comparable(peace)
    assert runs(cells) <= before + len(cells) + len(kills)


def test_one_study_writes_at_a_time(cells: list[Cell], tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with writing(path), pytest.raises(ValueError, match="another process writes to"):
        run_cells(cells, path, workers=0)
    assert runs(cells) == 0
    run_cells(cells[:1], path, workers=0)
    assert not list(tmp_path.glob("*.lock"))


def test_a_file_that_another_program_locks(
    cells: list[Cell], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simulations.studies.records.store.WAIT", 0.05)
    path = tmp_path / "a.sqlite"
    run_cells(cells[:2], path, workers=0)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:

        def lock(done: int, _: int) -> None:
            if done == 4:
                other.execute("BEGIN IMMEDIATE")

        with pytest.raises(OSError, match="database is locked; what it has is kept"):
            run_cells(cells, path, workers=0, progress=lock)
        assert len(comparable(path)) == 4
        with pytest.raises(ValueError, match="cannot be opened: database is locked"):
            run_cells(cells, path, workers=0)
        other.execute("ROLLBACK")
    assert run_cells(cells, path, workers=0) == {"ok": 24}
    assert runs(cells) == 25


def test_interrupted_while_others_read(write: Write, tmp_path: Path, narrow: Command) -> None:
    """Ctrl-C keeps what is done; ``fedhist results`` reads a sweep that is running."""
    config = write('[sweep]\n"protocol.pause" = [0.05]\nseeds = 400\n')
    path = tmp_path / "a.sqlite"
    process = subprocess.Popen(
        [sys.executable, "-m", "simulations.cli.main", "sweep", config, "--out", path],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    end, found = time.monotonic() + 300, 0
    while found < 3 and time.monotonic() < end:
        time.sleep(0.05)
        if path.exists():
            with Store(path, create=False) as store:
                found = len(store)
    status, out, _ = narrow("results", path)
    assert status == 0
    assert "ok" in out
    assert process.poll() is None
    status, _, err = narrow("sweep", config, "--out", path, "--set", "sweep.seeds=2")
    assert (status, "another process writes to" in err) == (2, True)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "nothing was written" not in errors
    assert "Traceback" not in errors
    kept = len(comparable(path))
    assert f"interrupted; {kept} of 400 cells are in" in " ".join(errors.split())
    assert found <= kept < 400
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.sqlite", "grid.toml"]


@pytest.mark.ray
@pytest.mark.usefixtures("one_ray")
def test_ray_gives_the_same(cells: list[Cell], tmp_path: Path) -> None:
    """Bit for bit, also for sums of real numbers. A cell that kills its worker is an error."""
    mean = {"name": "mean", "epsilon": 1, "low": -1, "high": 1, "samples_per_user": 5}
    people = {"kind": "gaussian", "n_users": 3000, "samples_per_user": 5, "mean": 0.2}
    people |= {"spread": 0.3, "low": -1, "high": 1}
    learner = {"name": "user-level-erm", "epsilon": 4, "delta": 1e-4, "gradient_bound": 4}
    learner |= {"radius": 3, "spread": 0.25, "smoothness": 1.1, "strong_convexity": 0.4}
    rows = {"kind": "regression", "n_users": 2000, "samples_per_user": [20, 60], "dimension": 10}
    more = [Cell(mean, people, {"seed": s}) for s in range(3)]
    more.append(Cell(learner, rows, {"seed": 1}))
    inline, ray = tmp_path / "inline.sqlite", tmp_path / "ray.sqlite"
    statuses = run_cells([*cells, *more], inline, workers=0)
    assert statuses == {"ok": 28}
    assert run_cells([*cells, *more], ray, workers=2) == statuses
    assert comparable(ray) == comparable(inline)
    dead = Cell({**cells[0].protocol, "ending": "dead"}, cells[0].population, cells[0].run)
    assert run_cells([dead], ray, workers=1) == {"error": 1}
    with Store(ray, create=False) as store:
        found = store.get(dead.key)
    assert found is not None
    assert found.reason.startswith("its worker died: WorkerCrashedError")


# -- the commands ----------------------------------------------------------------------------------


def test_a_sweep_and_its_results(write: Write, tmp_path: Path, narrow: Command) -> None:
    config = write("[sweep]\nprotocol.epsilon = [0.5, 1]\npopulation.n_users = [60, 90]\nseeds=3\n")
    status, out, _ = narrow("sweep", config)
    assert status == 0
    assert "12 cells: 12 ok; written to results/grid.sqlite" in out
    assert len([line for line in out.split("\n") if line.endswith("     3 ")]) == 4
    file = tmp_path / "results" / "grid.sqlite"
    status, out, _ = narrow("results", file, "--where", "epsilon = 1", "--out", "one.csv")
    assert status == 0
    rows = list(csv.DictReader((tmp_path / "one.csv").open()))
    assert {row["protocol.epsilon"] for row in rows} == {"1.0"}
    assert len(rows) == 6
    where = "epsilon = 1 and n_users > 60"
    assert narrow("results", file, "--where", where, "--out", "one.parquet")[0] == 0
    assert pl.read_parquet(tmp_path / "one.parquet")["loss"].len() == 3
    assert "loss" in narrow("results", file, "--keys")[1].split()
    assert narrow("results", file, "--protocol", "test-noted")[0] == 0
    for arguments, message in (
        (("--protocol", "test-note"), "did you mean 'test-noted'"),
        (("--where", "epsilom = 1"), "did you mean 'epsilon'"),
        (("--where", "epsilon"), "a test reads"),
        (("--where", "epsilon = one"), "epsilon holds numbers, got 'one'"),
        (("--out", "x.xlsx"), "ends in '.xlsx'; known: .md, .tex, .csv, .parquet"),
    ):
        status, _, err = narrow("results", file, *arguments)
        assert status == 2
        assert message in " ".join(err.split())
    assert narrow("results", "none.sqlite")[0] == 2


def test_errors_end_with_their_status(write: Write, tmp_path: Path, narrow: Command) -> None:
    config = write("[sweep]\nprotocol.ending = ['ok', 'refused']\nseeds = 2\n")
    (tmp_path / "broken").touch()
    status, out, err = narrow("sweep", config, "--set", "protocol.broken=broken")
    assert status == 1
    assert "4 x error: RuntimeError: the script broke" in out
    assert "--retry" in err
    (tmp_path / "broken").unlink()
    status, out, _ = narrow("sweep", config, "--set", "protocol.broken=broken", "--retry")
    assert status == 0
    assert "2 x refused: too few users" in out
    assert "2 ok, 2 refused" in out


def test_the_builtin_sweeps_are_listed(narrow: Command) -> None:
    _, out, _ = narrow("sweep")
    assert set(builtin_sweeps()) <= set(out.split())
    assert "[sweep]" in narrow("sweep", builtin_sweeps()[0], "--show")[1]
    status, _, err = narrow("sweep", "clipp")
    assert (status, "did you mean 'clip'" in err) == (2, True)


# -- the summary -----------------------------------------------------------------------------------


def record(loss: float | None, epsilon: float, seed: int, population: int = 0) -> Record:
    tables = {
        "protocol": {"name": "mean", "epsilon": epsilon, "n": epsilon},
        "population": {"kind": "uniform", "seed": population, "d": 3},
        "run": {"seed": seed},
    }
    status = "failed" if loss is None else "ok"
    key = f"{epsilon}-{seed}-{population}"
    predicted = None if loss is None else 2.0
    return Record(key, "mean", status=status, loss=loss, predicted=predicted, cell=tables)


def test_groups_by_hand() -> None:
    """1, 3, 5 have the mean 3 and its standard error sqrt(4 / 3); two populations are averaged."""
    found = groups([record(x, 2.0, i) for i, x in enumerate((1.0, 3.0, 5.0, None))])
    (one,) = found
    assert one.mean == 3
    assert one.standard_error == pytest.approx(math.sqrt(4 / 3))
    assert one.ratio == 1.5
    assert one.statuses == Counter(ok=3, failed=1)
    (two,) = groups([record(x, 1.0, s, p) for p in (0, 1) for s, x in enumerate((p, p + 2.0))])
    assert two.mean == 1.5
    assert two.standard_error == pytest.approx(0.5)  # of 1 and 2, not of 0, 2, 1, 3
    (three,) = groups([record(None, 1.0, 0)])
    assert (three.mean, three.standard_error, three.ratio) == (None, None, None)


def test_settings_are_in_order_and_named_by_what_varies() -> None:
    found = groups([record(1.0, e, 0) for e in (10.0, 2.0, 0.5)])
    assert axes(found) == ["protocol.epsilon"]  # "protocol.n" says the same
    assert [g.setting["protocol.epsilon"] for g in found] == [0.5, 2.0, 10.0]
    one = record(1.0, 1.0, 0)
    kinds = [
        replace(one, cell=dict(one.cell) | {"population": {"kind": kind}})
        for kind in ("uniform", "gaussian")
    ]
    assert axes(groups(kinds)) == ["population.kind"]
    two = [
        replace(one, label=name, cell=dict(one.cell) | {"protocol": {"name": name}})
        for name in ("mean", "density")
    ]
    assert axes(groups(two)) == []  # the label says it


def test_many_axes_fit_in_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    for i in range(8):
        r = record(1.0, 1.0, 0)
        own = {f"parameter_{j}": (i >> j) & 1 if j < 3 else i * j for j in range(6)}
        rows.append(replace(r, key=str(i), cell=dict(r.cell) | {"protocol": own}))
    print_summary(Console(width=80), rows)
    out = capsys.readouterr().out
    assert "parameter_2=1" in " ".join(out.split())
    assert max(map(len, out.split("\n"))) <= 80


@pytest.mark.parametrize(
    ("test", "keys"),
    [
        ("protocol.epsilon >= 2", ["2.0-0-0", "9.0-0-0"]),
        ("n < 2", ["1.0-0-0"]),
        ("label = mean AND n != 2", ["1.0-0-0", "9.0-0-0"]),
        ("population.kind = 'uniform' and n == 9", ["9.0-0-0"]),
        ("loss > 5", []),
        ("predicted_exact = true", []),
        ("status = failed", ["9.0-0-0"]),
    ],
)
def test_filters(test: str, keys: list[str]) -> None:
    frame = frame_of([record(1.0, 1.0, 0), record(2.0, 2.0, 0), record(None, 9.0, 0)])
    assert select(frame, [test])["key"].to_list() == keys


def test_a_name_of_two_columns() -> None:
    frame = frame_of([replace(record(1.0, 1.0, 0), cell={"protocol": {"d": 1}, "run": {"d": 2}})])
    with pytest.raises(ValueError, match=r"'d' may be protocol\.d or run\.d"):
        select(frame, ["d = 1"])


@pytest.mark.parametrize(
    ("test", "clips"),
    [
        ("clip < 100", [20, 80]),
        ("clip >= 100", [320]),
        ("clip = 80.0", [80]),
        ("clip != 80", [20, 320, "best", None]),
        ("clip != best", [20, 80, 320, None]),
        ("clip = best", ["best"]),
        ("label = this and that and clip > 20", [80, 320]),
        ("label = 'this and that' and clip > 20", [80, 320]),
        ("key = x' OR 1=1 --", []),
    ],
)
def test_filters_of_numbers_and_words(test: str, clips: list[Any]) -> None:
    """As text, "320" would come before "80"; a value may hold the word "and"."""
    found = [
        Record(str(clip), label="this and that", cell={"protocol": {"clip": clip}})
        for clip in (20, 80, 320, "best", None)
    ]
    kept = select(frame_of(found), [test])["key"].to_list()
    assert kept == [str(clip) for clip in clips]


def test_a_parameter_that_is_missing(write: Write) -> None:
    """Every cell would be an error: the sweep is not begun."""
    path = write("[sweep]\nseeds = 2\n")
    path.write_text(path.read_text().replace("epsilon = 1.0\n", ""))
    with pytest.raises(ValueError, match="test-noted needs epsilon: give protocol"):
        load_sweep(path)
    path.write_text(path.read_text().replace("seeds = 2", "protocol.epsilon = [1, 2]"))
    assert len(load_sweep(path).cells) == 2


def test_more_users_than_cells_may_hold_are_refused_before_any(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what a specification or a folder says; a file is read where its records are needed."""
    text = write("[sweep]\npopulation.n_users = [60, 20_000_000]\n")
    told = r"test-noted on a population of kind 'zipf': a cell .* at most 10,000,000, got 20,000,0"
    with pytest.raises(PopulationError, match=told):
        load_sweep(text)
    few = write("[sweep]\n")
    load_sweep(few)  # and the plugin
    monkeypatch.setattr(protocol_class("test-noted"), "adds_up", False)
    monkeypatch.setattr(evaluation, "MOST_ROWS", 60)
    assert len(load_sweep(few).cells) == 1
    told = "test-noted on a population of kind 'zipf': the truth of test-noted needs .* got 61"
    with pytest.raises(PopulationError, match=told):
        load_sweep(few, ["population.n_users=61"])
    (tmp_path / "d.csv").write_text("user,item\n" + "".join(f"{u},tea\n" for u in range(61)))
    data = ["population.kind=events", f"population.path={tmp_path / 'd.csv'}", "population.top=1"]
    data += ["population.user=user", "population.item=item"]
    with pytest.raises(
        PopulationError, match=r"of kind 'events': the truth of test-noted .* got 6"
    ):
        load_sweep(few, data)
    assert load_sweep(few, [*data, "population.max_users=60"]).cells


def test_two_labels_for_the_same_cells(write: Write) -> None:
    """One of them would have no runs."""
    text = '[sweep]\nprotocols = [{ label = "a" }, { epsilon = 1, label = "b" }]\n'
    with pytest.raises(ValueError, match="'a' and 'b' are the same cells"):
        load_sweep(write(text))


def test_a_summary_says_what_is_guaranteed(write: Write, narrow: Command) -> None:
    config = write('[sweep]\n"protocol.epsilon" = [0.5, 1, 2]\nprotocol.clip = [5, "best"]\n')
    status, out, _ = narrow("sweep", config, "--out", "a.sqlite")
    told = " ".join(out.split())
    assert status == 0
    assert "test-noted: epsilon = 0.5, 1, 2, delta = 1e-06 per user, central trust" in told
    assert "noise: simulated; clients: per-user NOT PRIVATE: losses, predictions and times" in told
    assert "computed from the private data" in told
    with Store("a.sqlite", create=False) as store:
        (composed,) = {r.composed for r in store.records()}
        assert {bool(r.reads) for r in store.records()} == {True, False}
    assert composed in told
    status, again, _ = narrow("results", "a.sqlite")
    assert " ".join(again.split()).startswith(told.partition(" 6 cells")[0])


def test_nothing_to_summarize(capsys: pytest.CaptureFixture[str]) -> None:
    print_summary(Console(width=80), [])
    assert capsys.readouterr().out == "no records\n"


def test_an_unknown_column_says_where_the_columns_are() -> None:
    frame = pl.DataFrame({f"column{i}": [i] for i in range(30)})
    with pytest.raises(ValueError, match=r"'column19', and 10 more \(--keys lists them\)"):
        select(frame, ["zzzzz = 1"])
