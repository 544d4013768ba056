"""The command ``fedhist reproduce``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Command


def test_a_reproduced_figure_ends_with_zero(fedhist: Command, tmp_path: Path) -> None:
    small = ("--set", "population.n_users=500", "--set", "population.d=200")
    answer = fedhist("reproduce", "figure1", *small, "--out", "f1")
    assert answer.status == 0, answer.err
    assert "PASS: most users have fewer than 200 samples" in answer.out
    assert "NOT PRIVATE" in answer.out
    assert (tmp_path / "f1" / "figure.png").stat().st_size > 10_000  # not an empty one
    body = json.loads((tmp_path / "f1" / "result.json").read_text(encoding="utf-8"))
    assert [c["verdict"] for c in body["checks"] if c["verdict"]] == ["PASS"]
    assert len(body["curves"][0]["x"]) == len(body["curves"][0]["y"]) > 1
    assert body["population"]["n_users"] == 500


def test_a_quick_run_is_not_judged(fedhist: Command, tmp_path: Path) -> None:
    """Its sizes are too small. The folder has the names of experiment and population."""
    for _ in range(2):  # the second replaces the first
        answer = fedhist("reproduce", "figure1", "--quick")
        assert answer.status == 0, answer.err
        assert not {"PASS", "FAIL"} & set(answer.out.split())
        assert "too small to be judged" in answer.out
    assert [f.name for f in (tmp_path / "results").iterdir()] == ["figure1-zipf"]


def test_a_file_of_ones_own_is_described_by_its_columns(fedhist: Command, tmp_path: Path) -> None:
    """Without a column of counts every row is one event, whatever the population's file has."""
    rows = "".join(f"u{u},i{i}\n" for u in range(40) for i in range(1 + u % 5))
    (tmp_path / "mine.csv").write_text("who,what\n" + rows)
    mine = ("reproduce", "figure1", "--quick", "--population", "lastfm", "--data", "mine.csv")
    answer = fedhist(*mine, "--user", "who", "--item", "what", "--out", "f1")
    assert answer.status == 0, answer.err


def test_a_figure_that_is_not_reproduced_ends_with_five(fedhist: Command, tmp_path: Path) -> None:
    """Everybody holds more than 200 of 1,000 items: most users are not below 200."""
    sets = ("population.n_users=50", "population.d=1000", "population.mean_items=4000")
    arguments = [word for s in sets for word in ("--set", s)]
    answer = fedhist("reproduce", "figure1", *arguments, "--out", "f1")
    assert answer.status == 5
    assert "FAIL" in answer.out
    assert "FAIL" in (tmp_path / "f1" / "result.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("out", [".", "/proc/none/f1"])
def test_a_folder_that_cannot_be_written_is_noticed_before_anything_is_measured(
    out: str, fedhist: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One holds somebody's file, the other cannot be made."""
    (tmp_path / "notes.txt").touch()
    monkeypatch.setattr("simulations.experiments.figure1.run", lambda _: pytest.fail("measured"))
    assert fedhist("reproduce", "figure1", "--out", out).status == 2
