"""Every option of ``fedhist decide`` changes the question, or what comes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from commands import PLUGIN, Command

from simulations.cli.main import cli
from simulations.studies.decide.question import Question

FILE = ("events.csv", "--user", "who", "--item", "what", "--error", "40%")


@pytest.fixture(autouse=True)
def events(tmp_path: Path) -> None:
    rows = "".join(f"u{i},i{i % 3},{1 + i % 2},{i % 7}.5\n" for i in range(300))
    (tmp_path / "events.csv").write_text("who,what,often,much\n" + rows)


@pytest.fixture
def asked(fedhist: Command, monkeypatch: pytest.MonkeyPatch) -> Any:
    questions: list[Question] = []

    def stop(question: Question, progress: object = None) -> None:
        questions.append(question)
        raise ValueError("answered")

    monkeypatch.setattr("simulations.studies.decide.decision.decide", stop)

    def ask(*words: str) -> Question:
        answer = fedhist("decide", *words)
        assert "answered" in answer.err, answer.err
        return questions[-1]

    return ask


CHANGES: dict[str, tuple[tuple[str, ...], str, Any]] = {
    "--user": (("--user", "what"), "population", {"user": "what"}),
    "--item": (("--item", "who"), "population", {"item": "who"}),
    "--count": (("--count", "often"), "population", {"count": "often"}),
    "--top": (("--top", "2"), "population", {"top": 2}),
    "--target": (("--target", "distribution"), "target", "distribution"),
    "--error": (("--error", "7"), "error", 7.0),
    "--epsilon": (("--epsilon", "0.5"), "epsilon", 0.5),
    "--delta": (("--delta", "1e-9"), "delta", 1e-9),
    "--quick": (("--quick",), "effort", "quick"),
    "--theory": (("--theory",), "theory", True),
    "--set": (("--set", "run.seed=77"), "run", 77),
    "--plugin": (("--plugin", str(PLUGIN)), "run", str(PLUGIN)),
}


@pytest.mark.parametrize("option", CHANGES)
def test_an_option_changes_the_question(asked: Any, option: str) -> None:
    words, field, expected = CHANGES[option]
    before, after = getattr(asked(*FILE), field), getattr(asked(*FILE, *words), field)
    assert before != after
    if field == "population":
        assert expected.items() <= after.items()
    elif field == "run":
        assert expected in (after.seed, *after.plugins)
    else:
        assert after == expected


def test_levels_of_trust_are_those_that_are_named(asked: Any) -> None:
    assert [t.value for t in asked(*FILE, "--trust", "shuffle, local").levels] == [
        "shuffle",
        "local",
    ]
    assert len(asked(*FILE).levels) == 4


def test_what_comes_of_it(fedhist: Command, tmp_path: Path) -> None:
    """--json, --out and --force: one document, a folder, and only then another in its place."""
    central = (*FILE, "--trust", "central", "--quick")
    answer = fedhist("decide", *central, "--out", "d", "--json")
    assert answer.status == 0, answer.err
    told = json.loads(answer.out)
    assert (told["levels"][0]["status"], told["folder"]) == ("yes", "d")
    assert (tmp_path / "d/run-central.toml").is_file()
    assert fedhist("run", "quickstart", "--runtime", "inline", "--out", "e").status == 0
    assert fedhist("decide", *central, "--out", "e").status == 2
    assert not (tmp_path / "e/study.toml").exists()
    assert fedhist("decide", *central, "--out", "e", "--force").status == 0
    assert (tmp_path / "e/study.toml").is_file()
    assert "users" in fedhist("decide", *FILE, "--profile").out


def test_every_option_is_among_these_tests() -> None:
    command = vars(typer.main.get_command(cli))["commands"]["decide"]
    options = {o for p in command.params for o in p.opts if o.startswith("--")} - {
        "--help",
        "--debug",
    }
    others = {"--trust", "--value", "--data", "--json", "--out", "--force", "--profile"}
    assert options == CHANGES.keys() | others
