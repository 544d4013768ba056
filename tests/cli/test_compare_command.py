"""Every option of ``compare``, ``show``, ``list`` and ``new`` changes what is asked or shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import PLUGIN, Command

import simulations.studies.compared as compared
from simulations.studies.study import Study

STUDY = """
[compare]
epsilon = 1.0
seeds = 4
protocols = [{ name = "bounded-histogram", clip = 5, delta = 0, label = "mine" }]
[population]
kind = "zipf"
n_users = 60
d = 5
mean_items = 4
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "small.toml"
    path.write_text(STUDY)
    return path


@pytest.fixture
def asked(study: Path, fedhist: Command, monkeypatch: pytest.MonkeyPatch) -> Any:
    result: dict[str, Any] = {}

    class Stop(Exception):
        pass

    def run(study: Study, folder: Path, **more: Any) -> None:
        result.update(more, study=study, folder=folder)
        raise Stop

    monkeypatch.setattr(compared, "run_study", run)

    def ask(*options: object) -> dict[str, Any]:
        result.clear()
        assert fedhist("compare", study, *options).status == 1  # Stop
        return result

    return ask


def test_the_usual(asked: Any, tmp_path: Path) -> None:
    """The same as from Python: in this process, and nothing begun anew."""
    result = asked()
    assert (result["workers"], result["address"], result["force"]) == (0, None, False)
    assert result["folder"] == tmp_path / "results" / "compare-small"
    ((_, comparison),) = result["study"].points
    assert (comparison.epsilon, comparison.seeds) == (1.0, 4)


def test_where_it_runs(asked: Any) -> None:
    for options, expected in (
        (["--workers", 3], (3, None, False)),
        (["--ray-address", "here:1"], (None, "here:1", False)),
        (["--ray-address", "here:1", "--workers", 2, "--force"], (2, "here:1", True)),
    ):
        result = asked(*options)
        assert (result["workers"], result["address"], result["force"]) == expected


def test_what_is_asked(asked: Any, tmp_path: Path) -> None:
    def comparison(*options: object) -> Any:
        return asked(*options)["study"].points[0][1]

    assert comparison("--seeds", 2).seeds == 2
    assert comparison("--set", "compare.epsilon=2").epsilon == 2.0
    assert asked("--out", "here")["folder"] == tmp_path / "here"
    data = tmp_path / "d.csv"
    data.write_text("who,what,n,x\nann,tea,2,0.5\nbob,rye,1,0.25\n")
    items = ["--data", data, "--user", "who", "--item", "what", "--count", "n", "--top", 2]
    assert comparison(*items).population == {
        "kind": "events", "path": str(data), "user": "who", "item": "what", "count": "n", "top": 2
    }  # fmt: skip
    samples = comparison("--data", data, "--user", "who", "--value", "x").population
    assert samples == {"kind": "samples", "path": str(data), "user": "who", "value": "x"}
    assert comparison("--plugin", PLUGIN).run.plugins == (str(PLUGIN),)


def test_json_is_the_folders(fedhist: Command, study: Path, tmp_path: Path) -> None:
    answer = fedhist("compare", study, "--out", "out", "--json")
    assert answer.status == 0, answer.err
    body = json.loads(answer.out)
    records, folder = body.pop("records"), body.pop("folder")
    assert len(records) == 4
    assert body == json.loads((tmp_path / "out" / "result.json").read_text())
    assert body == json.loads(fedhist("show", folder, "--json").out)


def test_show_writes_every_format(fedhist: Command, study: Path, tmp_path: Path) -> None:
    said = fedhist("compare", study, "--seeds", 2, "--out", "out")
    text = fedhist("show", "out").out
    assert text.rstrip() == said.out.partition("\nwritten to")[0].rstrip()
    starts = {
        "md": "**histogram: ",
        "tex": "% histogram: ",
        "csv": "rank,trust,protocol,loss",
        "svg": "<?xml",
        "html": "<!DOCTYPE html>",
        "json": "{",
        "txt": "histogram: ",
    }
    for kind, start in starts.items():
        assert fedhist("show", "out", "--as", kind).out.lstrip().startswith(start), kind
    assert fedhist("show", "out", "--as", "doc").status == 2


def test_every_folder_is_shown(fedhist: Command, tmp_path: Path) -> None:
    quick = ["--set", "population.n_users=200", "--nodes", 5, "--runtime", "inline"]
    assert fedhist("run", "quickstart", *quick, "--out", "run").status == 0
    assert fedhist("audit", "local-histogram", "--effort", 0.01, "--out", "audit").status == 0
    assert fedhist("reproduce", "binomial-distance", "--quick", "--out", "again").status in (0, 5)
    for folder, told in (
        ("run", ("bounded-histogram on zipf: ok", "guarantee", "l1 ")),
        ("audit", ("local-histogram", "consistent")),
        ("again", ("NOT PRIVATE", "log-log slope", "verdict")),
    ):
        answer = fedhist("show", folder)
        assert answer.status == 0, answer.err
        page = fedhist("show", folder, "--as", "html").out
        for words in told:
            assert words in " ".join(answer.out.split()) or words in page, words
        assert "<html" in page
        table = fedhist("show", folder, "--as", "csv").out
        assert len(table.splitlines()) >= 2


def test_list(fedhist: Command) -> None:
    every = json.loads(fedhist("list", "--json").out)
    for kind, name, told in (
        ("protocols", "mean", "samples_per_user"),
        ("configurations", "quickstart", "[population]"),
        ("populations", "gaussian", "samples_per_user"),
        ("studies", "histogram", "[compare]"),
        ("studies", "shoppers", "[decide]"),
        ("experiments", "figure1", "population"),
    ):
        assert name in every[kind]
        assert name in fedhist("list", kind).out
        assert told in fedhist("list", kind, name).out
    rows = json.loads(fedhist("list", "protocols", "--plugin", PLUGIN, "--json").out)["rows"]
    trust = {r["protocol"]: r["trust"] for r in rows}
    assert "test-ending" in trust
    assert trust["distribution"] == "central, aggregate"
    assert trust["few-users-mean"] == "central"


def test_new(fedhist: Command, tmp_path: Path) -> None:
    answer = fedhist("new", "my-mean", "--of", "samples", "--out", "here")
    assert answer.status == 0
    assert {p.name for p in (tmp_path / "here").iterdir()} == {
        *("my_mean.py", "test_my_mean.py", "my_mean.toml")
    }
    assert "coordinate_points" in (tmp_path / "here" / "my_mean.py").read_text()
    assert fedhist("new", "my-mean", "--out", "here").status == 2
    assert fedhist("new", "my-mean", "--out", "here", "--force").status == 0
    assert "holders" in (tmp_path / "here" / "my_mean.py").read_text()
    assert fedhist("new", "x", "--of", "cats").status == 2
