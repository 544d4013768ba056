"""How a run ends, what it leaves behind, and what it never leaves behind."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path

import polars as pl
import pytest
from commands import Command

from fedhist.base.errors import FedhistError, MissingReplies
from simulations.reporting.charts import Chart
from simulations.reporting.shown import Kept
from simulations.runs.data_ledger import DataLedger

FULL = OSError(28, "No space left on device")
PNG = b"\x89PNG\r\n\x1a\n"
FILES = {
    *("config.json", "estimate.csv", "estimate.parquet"),
    *("chart.npz", "ledger.json", "metrics.json", "result.json", ".fedhist.json"),
}


def read(path: str) -> dict[str, object]:
    return json.loads(Path(path).read_text())


@pytest.mark.parametrize(("ending", "status"), [("ok", 0), ("refused", 3), ("failed", 4)])
def test_the_exit_status_says_how_it_ended(run: Command, ending: str, status: int) -> None:
    answer = run("--set", f"protocol.ending={ending}", "--out", "out")
    assert answer.status == status
    written = {p.name for p in Path("out").iterdir()}
    released = {"estimate.csv", "estimate.parquet", "chart.npz"}
    assert written == (FILES if ending == "ok" else FILES - released)
    metrics = read("out/metrics.json")
    assert metrics["status"] == ending
    assert bool(metrics["reason"]) == (ending != "ok")


def test_a_run_that_breaks_off_is_status_1(run: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*arguments: object) -> None:
        raise MissingReplies(3, 1, {"TimeoutError": 2})

    monkeypatch.setattr("simulations.runs.booked_run.drive", missing)
    answer = run("--out", "out", "--ledger", "book.json")
    assert answer.status == 1
    assert "MissingReplies: 2 of 3" in answer.err
    assert DataLedger("book.json").read()[1][0].state == "refused"  # nobody was asked
    assert not Path("out").exists()


def test_results_are_kept_that_cannot_be_shown(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(*arguments: object, **more: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("simulations.runs.results.print_table", closed)
    assert run("--out", "out").status == 2
    assert {p.name for p in Path("out").iterdir()} == FILES


def test_what_a_folder_holds(run: Command) -> None:
    assert run("--out", "out", "--repeats", "3").status == 0
    assert {p.name for p in Path("out").iterdir()} == FILES

    csv, parquet = pl.read_csv("out/estimate.csv"), pl.read_parquet("out/estimate.parquet")
    assert csv.equals(parquet)
    assert csv.columns == ["key", "estimate", "stderr"]
    assert csv["key"].to_list() == [f"item-{j:02d}" for j in range(1, 13)]

    config = read("out/config.json")
    assert config["NOT PRIVATE"]["seeds"] == [1, 2, 3]
    assert "seed" not in config["run"]
    assert config["resolved"]["protocol"]["clip"] == 5.0
    assert {"fedhist", "python", "numpy", "opendp"} <= config["versions"].keys()
    assert config["population"]["n_users"] == 60

    metrics = read("out/metrics.json")
    assert (metrics["noise"], metrics["clients"]) == ("simulated", "per-user")
    secret = metrics["NOT PRIVATE"]
    assert secret["loss"] == "l1"
    assert secret["repeats"] == 3
    assert secret["measured"] > 0
    assert secret["predicted"] > 0
    assert secret["standard error"] > 0
    assert secret["rounds"][0]["replies"] == 3
    assert "rounds" not in metrics
    assert not {"loss", "measured", "predicted", "truth"} & metrics.keys()

    ledger = read("out/ledger.json")
    assert ledger["guarantee"] == "(1, 1e-06)-DP per user, central trust, zero-out-user"
    assert ledger["charges"][0]["label"] == "gaussian"
    assert ledger["spent epsilon"] == pytest.approx(1.0)

    figure = Kept.open(Path("out")).figure()
    assert figure.axes[0].get_title("left").startswith("test-ending: (1, 1e-06)-DP per user")
    assert Kept.open(Path("out")).written("png").startswith(PNG)
    Path("out/figure.png").write_bytes(b"as it was written")
    assert Kept.open(Path("out")).written("png") == b"as it was written"


def test_a_private_number_of_users_is_kept_apart(run: Command) -> None:
    """Under add-remove the number of users is private: nothing public may hold it."""
    assert run("--protocol.adjacency", "add-remove-user", "--out", "out").status == 0
    metrics = read("out/metrics.json")
    assert "rounds" in metrics["NOT PRIVATE"]
    assert metrics["NOT PRIVATE"]["standard error"] is None  # of one run
    assert "rounds" not in metrics
    assert "n_users" not in metrics["public"]


def test_a_seed_repeats_a_run_and_none_does_not(run: Command) -> None:
    run("--seed", "4", "--out", "a")
    run("--seed", "4", "--out", "b")
    run("--seed", "-1", "--out", "c")
    run("--seed", "-1", "--out", "d")
    a, b, c, d = (Path(x, "estimate.csv").read_bytes() for x in "abcd")
    assert a == b
    assert len({a, c, d}) == 3


def nothing_but(folder: Path, *names: str) -> bool:
    return {p.name for p in folder.iterdir()} == {"small.toml", *names}


def test_an_interrupt_while_writing_leaves_nothing_and_keeps_what_was_there(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("--out", "out").status == 0
    before = {p.name: p.read_bytes() for p in Path("out").iterdir()}

    def interrupt(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simulations.runs.results.chart_of", interrupt)
    for folder in ("out", "new"):
        answer = run("--seed", "2", "--out", folder)
        assert answer.status == 130
    assert nothing_but(tmp_path, "out")
    assert {p.name: p.read_bytes() for p in Path("out").iterdir()} == before


@pytest.mark.parametrize("error", [FedhistError("Ray is lost"), MemoryError()])
def test_an_estimate_that_cannot_be_evaluated_is_written(
    error: Exception, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*arguments: object, **more: object) -> None:
        raise error

    monkeypatch.setattr("simulations.runs.config.measured", lost)
    assert run("--out", "out").status == 1
    assert Path("out/estimate.csv").exists()
    assert "predicted" not in Path("out/metrics.json").read_text()


def test_a_run_of_another_question_is_replaced_by_force_only(run: Command) -> None:
    assert run("--out", "out").status == run("--out", "out").status == 0
    for other in ("--epsilon", "7"), ("--population.n_users", "50"):
        before = Path("out/config.json").read_bytes()
        answer = run("--out", "out", *other)
        assert answer.status == 2
        assert "--force" in answer.err
        assert Path("out/config.json").read_bytes() == before
        assert run("--out", "out", *other, "--force").status == 0
        assert Path("out/config.json").read_bytes() != before
    for damaged in "{", "[1]", "":
        Path("out/config.json").write_text(damaged)
        answer = run("--out", "out")
        assert answer.status == 2
        assert "--force" in answer.err


def test_a_folder_of_something_else_is_left_alone(run: Command, tmp_path: Path) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.txt").write_text("years")
    for target in ("mine", "mine/thesis.txt"):
        answer = run("--out", target, "--set", "protocol.asked=asked")
        assert answer.status == 2
        assert "is left alone" in answer.err
    assert Path("mine/thesis.txt").read_text() == "years"
    assert nothing_but(tmp_path, "mine")
    Path("empty").mkdir()
    assert run("--out", "empty").status == 0


def modes(folder: str) -> dict[str, int]:
    files = {p.name: p.stat().st_mode & 0o777 for p in Path(folder).iterdir()}
    return {".": Path(folder).stat().st_mode & 0o777, **files}


def test_truth_and_seeds_are_their_owner_s_alone(run: Command) -> None:
    """But for the released numbers, which may be handed on."""
    before = os.umask(0o022)
    try:
        assert run("--out", "out").status == 0
    finally:
        os.umask(before)
    private = dict.fromkeys(FILES - {"estimate.csv", "estimate.parquet"}, 0o600)
    assert modes("out") == {".": 0o700, **private, "estimate.csv": 0o644, "estimate.parquet": 0o644}


NASTY = ("=cmd|'/c calc'!A0", "+1", "-5", "@sum(a)", "red \x1b[31mtext", "[bold]tea[/]", "\x9b2J")


def test_names_of_items_do_nothing_to_a_terminal_or_a_spreadsheet(fedhist: Command) -> None:
    rows = "".join(f'u{i},"{name}"\n' for i, name in enumerate(NASTY))
    Path("events.csv").write_text("user,item\n" + rows)
    Path("domain.txt").write_text("\n".join(NASTY) + "\n")
    command = ("run", "quickstart", "--runtime", "inline", "--data", "events.csv", "--user", "user")
    command += ("--item", "item", "--set", "population.domain=domain.txt", "--seed", "1")
    answer = fedhist(*command, "--out", "out")
    assert answer.status == 0, answer.err
    assert not set(answer.out + answer.err) & {"\x1b", "\x9b", "\x07"}
    assert "[bold]tea[/]" in answer.out
    keys = pl.read_csv("out/estimate.csv", infer_schema=False)["key"].to_list()
    assert sorted(keys) == sorted(f"'{n}" if n[0] in "=@" else n for n in NASTY)
    assert sorted(pl.read_parquet("out/estimate.parquet")["key"].to_list()) == sorted(NASTY)


def test_places_whose_names_are_not_utf8(run: Command, fedhist: Command) -> None:
    odd = os.fsdecode(b"caf\xe9")
    assert run("--out", odd).status == 0
    assert Path(odd, "estimate.parquet").is_file()
    Path(f"{odd}.csv").write_text("who,what\nu1,tea\n")
    data = ("--data", f"{odd}.csv", "--user", "who", "--item", "what", "--top", "1")
    answer = fedhist("run", "quickstart", "--runtime", "inline", *data)
    assert answer.status == 2
    assert "is not UTF-8" in answer.err


def test_results_that_find_no_space_go_to_a_temporary_folder(
    run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spare").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spare"))
    save = Chart.save

    def full_here(chart: Chart, path: Path) -> None:
        if "spare" not in str(path):
            raise FULL
        save(chart, path)

    monkeypatch.setattr(Chart, "save", full_here)
    answer = run("--out", "out", "--ledger", "book.json")
    assert answer.status == 1
    assert not Path("out").exists()
    folder = Path(re.search(r"the results are in (\S+)", answer.err)[1])
    assert (folder / "estimate.csv").is_file()
    assert (folder / "chart.npz").is_file()
    assert json.loads(Path("book.json").read_text())["spendings"][0]["state"] == "spent"


def test_results_that_no_folder_takes_are_shown(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(chart: Chart, path: Path) -> None:
        raise FULL

    monkeypatch.setattr(Chart, "save", full)
    answer = run("--out", "out")
    assert answer.status == 2
    assert "± 1.96 s.e." in answer.out


def test_results_are_written_where_the_ledger_cannot_be(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise FULL

    monkeypatch.setattr(DataLedger, "settle", full)
    answer = run("--out", "out", "--ledger", "book.json")
    assert answer.status == 1
    assert "it holds the reservation" in answer.err
    assert (Path("out") / "estimate.csv").is_file()
    assert DataLedger("book.json").total()[0] == pytest.approx(1.0)
