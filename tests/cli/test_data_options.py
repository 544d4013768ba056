"""The options of data are those of every command that reads data, and mean the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from commands import Command

from simulations.cli.main import cli

OF_DATA = {"--data", "--user", "--item", "--count", "--value", "--top", "--plugin", "--json"}


@pytest.mark.parametrize("name", ["run", "compare", "decide"])
def test_every_command_that_reads_data_has_them(name: str) -> None:
    commands = vars(typer.main.get_command(cli))["commands"]
    assert {o for p in commands[name].params for o in p.opts} >= OF_DATA


def test_data_that_are_given_twice_are_an_error(fedhist: Command, tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text("who,what\na,b\n")
    columns = ("--user", "who", "--item", "what")
    answer = fedhist("decide", "events.csv", "--data", "events.csv", *columns)
    assert answer.status == 2
    assert "--data" in answer.err
