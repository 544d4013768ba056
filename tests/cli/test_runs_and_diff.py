"""``fedhist runs`` and ``fedhist diff``: what lies under results/, and what differs."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from commands import Command

from simulations.studies.shelf.contents import contents_of, contents_under


def test_runs_are_listed_shown_and_told_apart(
    run: Command, fedhist: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("--out", "results/a", "--seed", "1").status == 0
    assert run("--out", "results/b", "--seed", "2", "--epsilon", "2").status == 0
    assert run("--out", "results/c", "--set", "protocol.ending=failed").status == 4
    Path("results/notes.txt").write_text("mine")
    Path("results/empty").mkdir()
    Path("results/broken").mkdir()
    Path("results/broken/.fedhist.json").write_text('{"kind": "run", "files": {}}')
    listed = {c.path.name: c for c in contents_under(Path("results"))}
    assert {n: c.status for n, c in listed.items()} == {
        "a": "ok", "b": "ok", "c": "failed", "broken": "unreadable",
    }  # fmt: skip
    assert listed["a"].kind == "run"
    assert listed["c"].error == "the vote had no winner"
    out = fedhist("runs").out
    assert all(name in out for name in ("a", "failed", "unreadable", "NOT PRIVATE"))
    assert "protocol.epsilon" in fedhist("runs", "b", "--all").out
    assert "NOT PRIVATE" in json.loads(fedhist("runs", "--json").out)
    answer = fedhist("diff", "a", "b", "--json")
    found = json.loads(answer.out)
    assert "NOT PRIVATE" in found
    assert {r["setting"]: (r["A"], r["B"]) for r in found["settings"]}["protocol.epsilon"] == (
        1.0, 2.0,
    )  # fmt: skip
    a, b = (pl.read_parquet(f"results/{n}/estimate.parquet") for n in "ab")
    told = {r["estimates"]: r["value"] for r in found["estimates"]}
    assert told["l1 distance"] == pytest.approx(float((a["estimate"] - b["estimate"]).abs().sum()))
    assert "the settings are the same" in fedhist("diff", "a", "results/a").out
    opened: list[str] = []
    monkeypatch.setattr("typer.launch", opened.append)
    assert fedhist("runs", "a", "--open").status == 0
    assert opened == [str(Path("results/a/report.html").resolve())]
    assert Path("results/a/report.html").is_file()
    for arguments, said in (
        (("runs", "aa"), "there are no results 'aa'"),
        (("runs", "notes.txt"), "holds no results of fedhist"),
        (("runs", "--under", "nowhere"), "nothing has been written yet"),
        (("runs", "--open"), "name it"),
    ):
        answer = fedhist(*arguments)
        assert answer.status == 2
        assert said in " ".join(answer.err.split())


def test_folders_from_before_the_marks_are_known_by_their_files(
    run: Command, fedhist: Command
) -> None:
    assert run("--out", "old").status == 0
    Path("old/.fedhist.json").unlink()
    assert contents_of(Path("old")).kind == "run"
    assert fedhist("runs", "old").status == 0
