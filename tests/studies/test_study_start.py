"""``fedhist init``: columns are guessed, and the file that is written runs as it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from fedhist.base.errors import PopulationError
from simulations.cli.main import cli
from simulations.populations.guessing import guess
from simulations.runs.config import load_config, prepare
from simulations.runs.run import execute
from simulations.studies.compare.config import load_comparison
from simulations.studies.compare.setup import set_up
from simulations.studies.decide.question import load_question
from simulations.studies.start.study_file import start
from simulations.studies.sweep.config import load_sweep

LINES = {
    "names": (
        "user_id,venue,timestamp\nann,tea,7\nann,rye,8\nbob,tea,9\n",
        {"user": "user_id", "item": "venue"},
    ),
    "camels": (
        "rating,movieId,userId,timestamp\n4.5,3,1,7\n2,4,1,8\n3,3,2,9\n",
        {"user": "userId", "item": "movieId"},
    ),
    "counts": (
        "artist,plays,listener\ntea,3,ann\nrye,1,ann\ntea,2,bob\n",
        {"user": "listener", "item": "artist", "count": "plays"},
    ),
    "samples": (
        "customer;when;minutes\nann;7;1.5\nann;8;2.5\nbob;9;3.0\n",
        {"user": "customer", "value": "minutes"},
    ),
    "values alone": (
        "a,b,c\nann,tea,1\nann,rye,2\nbob,tea,3\ncat,oat,4\ncat,oat,5\n",
        {"user": "a", "item": "b"},
    ),
    "no header": ("1,7\n1,8\n2,7\n3,9\n3,7\n", {"user": 0, "item": 1}),
}


@pytest.mark.parametrize("case", LINES)
def test_columns_are_guessed(tmp_path: Path, case: str) -> None:
    text, expected = LINES[case]
    path = tmp_path / "data.csv"
    path.write_text(text, encoding="utf-8")
    found = guess(path)
    told = {k: getattr(found, k) for k in ("user", "item", "value", "count")}
    assert {k: v for k, v in told.items() if v is not None} == expected
    assert found.form.header is (case != "no header")
    assert found.form.separator == (";" if case == "samples" else None)


def test_given_columns_stay(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(LINES["camels"][0], encoding="utf-8")
    found = guess(path, value="rating")
    assert (found.user, found.item, found.value) == ("userId", None, "rating")
    with pytest.raises(ValueError, match=r"--user: .* has no column 'userid'; did you mean 'user"):
        guess(path, user="userid")


def test_parquet_is_looked_at_too(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    pl.DataFrame({"member": [1, 1, 2], "product": ["a", "b", "a"]}).write_parquet(path)
    found = guess(path)
    assert (found.user, found.item) == ("member", "product")


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PopulationError, match=r"no such file: .*absent\.csv"):
        guess(tmp_path / "absent.csv")


def test_what_cannot_be_told_lists_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("p,q\n0.5,0.25\n0.125,0.75\n", encoding="utf-8")
    with pytest.raises(ValueError, match="give --user COLUMN, of 'p', 'q'"):
        guess(path)


def events(path: Path) -> None:
    rng = np.random.default_rng(1)
    rows = [f"u{u},v{i % 12}" for u in range(200) for i in rng.zipf(1.6, size=6)]
    path.write_text("\n".join(["user,item", *rows]) + "\n", encoding="utf-8")


def samples(path: Path) -> None:
    rng = np.random.default_rng(2)
    rows = [f"u{u},{x:.3f}" for u in range(300) for x in rng.normal(5, 1, size=4)]
    path.write_text("\n".join(["user,minutes", *rows]) + "\n", encoding="utf-8")


@pytest.mark.parametrize("write", [events, samples])
def test_every_command_reads_what_is_written(
    tmp_path: Path, write: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("mine.csv")
    write(path)
    text = start(path, guess(path), "mine.toml").text
    assert max(map(len, text.splitlines())) <= 100
    study = Path("mine.toml")
    study.write_text(text, encoding="utf-8")
    prepared = prepare(load_config(study))
    assert prepared.plan is not None
    ran = execute(prepared.protocol, prepared.plan.users, prepared.config.run.options())
    assert ran.estimate.status == "ok"
    ready = set_up(load_comparison(study))
    assert len(ready.contenders) > 2
    assert {c.protocol.guarantee.trust.value for c in ready.contenders} >= {"central", "local"}
    assert len(load_sweep(study).cells) == 12
    assert load_question(study).target == ready.comparison.target


def test_where_nothing_stands_out_of_the_noise(tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text(LINES["names"][0], encoding="utf-8")
    study = tmp_path / "few.toml"
    study.write_text(start(path, guess(path), "few.toml").text, encoding="utf-8")
    assert prepare(load_config(study)).protocol.name == "bounded-histogram"


def refused(*words: str) -> str:
    found = CliRunner().invoke(cli, words)
    assert isinstance(found.exception, ValueError | PopulationError), found.exception
    return str(found.exception)


@pytest.mark.parametrize("body", [b"a note\nwith, commas\n1,2,3,4\n", b"\xff\xfe\x00\n\x80,\x81\n"])
def test_what_is_no_table_is_named(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "notes.csv").write_bytes(body)
    assert f"{tmp_path / 'notes.csv'}: " in refused("init", str(tmp_path / "notes.csv"))


def test_nothing_of_somebody_s_is_in_the_way_of_a_study_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data.csv").write_text(LINES["names"][0], encoding="utf-8")
    Path("data.csv").rename("data.toml")  # the study's usual name
    before = Path("data.toml").read_bytes()
    assert "left alone" in refused("init", "data.toml")
    assert "is the data itself" in refused("init", "data.toml", "--force")
    assert Path("data.toml").read_bytes() == before
    Path("data.toml").rename("data.csv")
    os.mkfifo("pipe.toml")
    assert "neither a file nor" in refused("init", "data.csv", "--out", "pipe.toml", "--force")
    Path("folder.toml").mkdir()
    assert "is a folder" in refused("init", "data.csv", "--out", "folder.toml", "--force")
    Path("link.toml").symlink_to("target.toml")
    assert CliRunner().invoke(cli, ["init", "data.csv", "--out", "link.toml"]).exit_code == 0
    assert Path("link.toml").is_symlink()
    assert Path("target.toml").is_file()
