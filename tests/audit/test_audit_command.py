"""The command: exit status, table of 80 columns, JSON, figure; findings as data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fedhist.privacy.shares import Aggregation
from fedhist.protocols import ItemHistogram
from simulations.audit.audited import audit_all
from simulations.audit.finding import Settings
from simulations.cli.main import cli

BROKEN = '''
"""Half the noise."""
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
import fedhist as fh
from fedhist.privacy.guarantee import pure
from tests.audit.mechanisms import Rounds, Warner


@fh.register_query
@dataclass(frozen=True)
class Half(Warner):
    wire_name: ClassVar[str] = "half-the-noise"
    keep: float = 0.9


@fh.register_protocol
@dataclass(frozen=True)
class HalfTheNoise(Rounds):
    name: ClassVar[str] = "half-the-noise"

    @property
    def query(self):
        return Half(1.0)

    @classmethod
    def example(cls):
        return cls(1.0)
'''


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, Path]:
    folder = tmp_path_factory.mktemp("audit")
    plugin = folder / "broken_half.py"
    plugin.write_text(BROKEN)
    arguments = ["audit", "--plugin", str(plugin), "--effort", "0.02", "--out", str(folder / "out")]
    result = CliRunner().invoke(cli, arguments)
    return result.exit_code, result.output, folder / "out"


def test_a_broken_plugin_ends_with_1_and_a_witness(audited: tuple[int, str, Path]) -> None:
    code, output, folder = audited
    assert code == 1, output
    for word in ("exact", "statistical", "VIOLATION", "counts"):
        assert word in output
    body = json.loads((folder / "result.json").read_text())
    kinds = [(f["kind"], f["verdict"]) for f in body["findings"]]
    proved = [(k, "violation") for k in ("exact", "statistical")]
    assert kinds == [*proved, ("structural", "consistent")]
    witness = body["findings"][1]["witness"]
    assert witness["hits"][0] > witness["hits"][1]
    assert (folder / "figure.png").stat().st_size > 10_000


def test_an_honest_protocol_ends_with_0_whatever_two_records_are_compared(tmp_path: Path) -> None:
    inputs = tmp_path / "records.json"
    inputs.write_text('[{"item-03": 1}, {"item-05": 2}]')
    arguments = ["audit", "frequency-oracle", "--effort", "0.005", "--epsilon", "1.5"]
    arguments += ["--inputs", str(inputs), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    assert "1.5-DP per user" in result.output
    assert "VIOLATION" not in result.output
    body = json.loads((tmp_path / "out" / "result.json").read_text())
    words = [w.partition(": ")[2] for w in body["findings"][1]["witness"]["inputs"]]
    assert sorted(words) == ["{'item-03': 1}", "{'item-05': 2}"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["audit", "meen"], "'mean'"),
        (["audit", "mean", "--epsilon", "inf"], "mean"),
        (["audit", "mean", "--effort", "0"], "effort"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code != 0
    assert message in str(result.exception)


def test_other_levels_of_trust_are_left_to_the_tests() -> None:
    """Only structure could be looked at: a word of "consistent" would say too much."""
    protocol = replace(ItemHistogram.example(), trust=Aggregation(10))
    with pytest.raises(ValueError, match="aggregate"):
        audit_all([protocol], Settings())
