"""The options of data are those of every command that reads data, and mean the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from commands import Command

from simulations.cli.main import cli

OF_DATA = {"--data", "--user", "--item", "--count", "--value", "--top", "--plugin", "--json"}


@pytest.mark.parametrize("name", ["run", "compare", "sweep", "plan", "profile", "decide"])
def test_every_command_that_reads_data_has_them(name: str) -> None:
    commands = vars(typer.main.get_command(cli))["commands"]
    assert {o for p in commands[name].params for o in p.opts} >= OF_DATA


def test_a_profile_reads_its_argument_and_data_alike(fedhist: Command, tmp_path: Path) -> None:
    rows = "".join(f"u{u},i{(u * i) % 7}\n" for u in range(30) for i in range(3))
    (tmp_path / "events.csv").write_text("who,what\n" + rows)
    columns = ("--user", "who", "--item", "what", "--json")
    told = [
        json.loads(fedhist("profile", *given, *columns).out)
        for given in (
            ("events.csv",),
            ("--data", "events.csv"),
            ("quickstart", "--data", "events.csv"),
        )
    ]
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("name", ["profile", "decide"])
def test_data_that_are_given_twice_are_an_error(
    fedhist: Command, tmp_path: Path, name: str
) -> None:
    (tmp_path / "events.csv").write_text("who,what\na,b\n")
    columns = ("--user", "who", "--item", "what")
    answer = fedhist(name, "events.csv", "--data", "events.csv", *columns)
    assert answer.status == 2
    assert "the data are events.csv: --data is for a" in answer.err


def test_a_profile_of_nothing_is_an_error(fedhist: Command) -> None:
    answer = fedhist("profile")
    assert answer.status == 2
    assert "say what to profile" in answer.err
