"""``--json``: one document on stdout, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from commands import Answer, Command

RUN = ("run", "quickstart", "--runtime", "inline", "--population.n_users", 200, "--nodes", 2)


def document(answer: Answer) -> dict[str, Any]:
    assert answer.status == 0, answer.err

    def no_constant(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    body: dict[str, Any] = json.loads(answer.out, parse_constant=no_constant)
    return body


def test_run(fedhist: Command) -> None:
    result = document(fedhist(*RUN, "--json", "--out", "results/a"))
    assert result["kind"] == "run"
    assert result["estimate"]["key"][0] == "item-001"
    assert result["metrics"]["status"] == "ok"
    assert result["ledger"]["spent epsilon"] == 1.0
    assert "measured" in result["metrics"]["NOT PRIVATE"]
    metrics = json.loads((Path(result["folder"]) / "metrics.json").read_text())
    assert metrics == result["metrics"]


def test_audit(fedhist: Command) -> None:
    result = document(fedhist("audit", "frequency-oracle", "--json", "--effort", "0.01"))
    assert result["kind"] == "audit"
    assert all(f["verdict"] == "consistent" for f in result["findings"])


def test_ledger(fedhist: Command) -> None:
    ledger = ("--ledger", "ledger.json", "--epsilon", "0.5")
    assert fedhist(*RUN, "--out", "results/a", *ledger).status == 0
    result = document(fedhist("ledger", "ledger.json", "--cap-epsilon", "2", "--json"))
    assert (result["kind"], result["cap"]["epsilon"]) == ("ledger", 2.0)
    assert result["total"] == result["totals"][result["adjacency"]]
    assert 0.47 < result["total"]["epsilon"] <= 0.5
    (run,) = result["runs"]
    assert (run["epsilon"], run["state"]) == (0.5, "spent")


def test_convert(fedhist: Command, tmp_path: Path) -> None:
    rows = "".join(f"u{u},i{(u * i) % 7}\n" for u in range(30) for i in range(3))
    (tmp_path / "events.csv").write_text("user,item\n" + rows)
    columns = ("--user", "user", "--item", "item")
    result = document(fedhist("convert", tmp_path / "events.csv", *columns, "--out", "s", "--json"))
    assert (result["kind"], result["folder"], result["shards"]) == ("shards", "s", 1)
    assert result["NOT PRIVATE"] == {"users": 30, "left_out": {}}
