"""What was paid for is written somewhere, and the message says where."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path

import pytest
from commands import Command

from simulations.runs import results
from simulations.runs.data_ledger import DataLedger

FULL = OSError(28, "No space left on device")


@pytest.fixture(autouse=True)
def spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spare").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "spare"))


def test_results_that_find_no_space_go_to_a_temporary_folder(
    run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = results.draw_estimate

    def full_here(*arguments: object, **more: object) -> None:
        if "spare" not in str(arguments[3]):
            raise FULL
        draw(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(results, "draw_estimate", full_here)
    answer = run("--out", "out", "--ledger", "book.json")
    assert answer.status == 1
    assert not Path("out").exists()
    folder = Path(re.search(r"the results are in (\S+)", answer.err)[1])  # type: ignore[index]
    assert (folder / "estimate.csv").is_file()
    assert (folder / "figure.png").is_file()
    assert json.loads(Path("book.json").read_text())["spendings"][0]["state"] == "spent"


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
