"""``--json``: one document on stdout, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from commands import Answer, Command

RUN = ("run", "quickstart", "--runtime", "inline", "--population.n_users", 200, "--nodes", 2)


def document(answer: Answer) -> dict[str, Any]:
    """Read what is on stdout, all of it, as strict JSON."""
    assert answer.status == 0, answer.err

    def no_constant(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    body: dict[str, Any] = json.loads(answer.out, parse_constant=no_constant)
    return body


def test_run(fedhist: Command) -> None:
    found = document(fedhist(*RUN, "--json", "--out", "results/a"))
    assert found["kind"] == "run"
    assert found["estimate"]["key"][0] == "item-001"
    assert found["metrics"]["status"] == "ok"
    assert found["ledger"]["spent epsilon"] == 1.0
    assert "measured" in found["metrics"]["NOT PRIVATE"]
    metrics = json.loads((Path(found["folder"]) / "metrics.json").read_text())
    assert metrics == found["metrics"]


def test_audit(fedhist: Command) -> None:
    found = document(fedhist("audit", "frequency-oracle", "--json", "--effort", "0.01"))
    assert found["kind"] == "audit"
    assert all(f["verdict"] == "consistent" for f in found["findings"])


def test_ledger(fedhist: Command) -> None:
    ledger = ("--ledger", "ledger.json", "--epsilon", "0.5")
    assert fedhist(*RUN, "--out", "results/a", *ledger).status == 0
    found = document(fedhist("ledger", "ledger.json", "--cap-epsilon", "2", "--json"))
    assert (found["kind"], found["cap"]["epsilon"]) == ("ledger", 2.0)
    assert found["total"] == found["totals"][found["adjacency"]]
    assert 0.47 < found["total"]["epsilon"] <= 0.5
    (run,) = found["runs"]
    assert (run["epsilon"], run["state"]) == (0.5, "spent")


def test_convert(fedhist: Command, tmp_path: Path) -> None:
    rows = "".join(f"u{u},i{(u * i) % 7}\n" for u in range(30) for i in range(3))
    (tmp_path / "events.csv").write_text("user,item\n" + rows)
    columns = ("--user", "user", "--item", "item")
    found = document(fedhist("convert", tmp_path / "events.csv", *columns, "--out", "s", "--json"))
    assert (found["kind"], found["folder"], found["shards"]) == ("shards", "s", 1)
    assert found["NOT PRIVATE"] == {"users": 30, "left_out": {}}
