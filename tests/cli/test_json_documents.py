"""``--json``: one document on stdout, and nothing else; and ``fedhist convert``."""

from __future__ import annotations

import json
import re
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
    result = document(fedhist(*RUN, "--json"))
    assert result["kind"] == "run"
    assert result["estimate"]["key"][0] == "item-001"
    assert result["metrics"]["status"] == "ok"
    assert result["ledger"]["spent epsilon"] == 1.0
    assert "measured" in result["metrics"]["NOT PRIVATE"]
    folder = Path(result["folder"]).resolve()
    assert folder.parent == Path("results").resolve()
    assert re.fullmatch(r"quickstart-\d{8}-\d{6}", folder.name)
    metrics = json.loads((folder / "metrics.json").read_text())
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


EVENTS = "user;item\n" + "".join(f"u{k % 40};item {k % 7}\n" for k in range(400))


def test_a_folder_of_a_file_and_a_run_on_it(fedhist: Command, tmp_path: Path) -> None:
    (tmp_path / "events.csv").write_text(EVENTS + "u1;\n;item 1\nu1;item 1;more\n")
    table = ("--user", "user", "--item", "item")
    call = ("convert", "events.csv", *table, "--set", "separator=;", "--out", "shards")
    refused = fedhist(*call)
    assert refused.status == 2
    assert "row 403: too many fields" in refused.err
    assert not (tmp_path / "shards").exists()
    made = fedhist(*call, "--skip-bad-rows")
    assert "40 users in 1 shards" in made.out
    for fault in ("missing item", "missing user", "too many fields"):
        assert f"left out: 1 rows, {fault} (NOT PRIVATE)" in made.out
    (tmp_path / "whole.csv").write_text(EVENTS)
    estimates = []
    rows = 'kind = "events"\npath = "whole.csv"\nuser = "user"\nitem = "item"\nseparator = ";"\n'
    for name, population in (("a", 'kind = "shards"\npath = "shards"\n'), ("b", rows)):
        (tmp_path / f"{name}.toml").write_text(
            '[protocol]\nname = "bounded-histogram"\nepsilon = 1.0\nclip = 5\n'
            f'[population]\ntop = 7\n{population}[run]\nruntime = "inline"\nseed = 3\n'
        )
        result = fedhist("run", f"{name}.toml", "--out", name)
        assert result.status == 0, result.err
        estimates.append((tmp_path / name / "estimate.csv").read_text())
    assert estimates[0] == estimates[1]


def test_wrong_usage(fedhist: Command) -> None:
    for more in ((), ("--user", "u", "--item", "i", "--set", "seperator=;"), ("--user", "u")):
        assert fedhist("convert", "x.csv", "--out", "o", *more).status == 2
