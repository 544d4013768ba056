"""``fedhist shard`` and a run on what it makes."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from simulations.cli.main import cli

EVENTS = "user,item\n" + "".join(f"u{k % 40},item {k % 7}\n" for k in range(400))


def test_shards_of_a_file_and_a_run_on_them(tmp_path: Path) -> None:
    """The run's estimate is that of the file itself."""
    (tmp_path / "events.csv").write_text(EVENTS + "u1,\n")
    runner = CliRunner()
    table = ["--user", "user", "--item", "item"]
    call = ["shard", str(tmp_path / "events.csv"), *table, "--out", str(tmp_path / "shards")]
    refused = runner.invoke(cli, call)
    assert refused.exit_code != 0
    assert "row 401: missing item (user 'u1')" in str(refused.exception)
    made = runner.invoke(cli, [*call, "--shards", "3", "--skip-bad-rows"], catch_exceptions=False)
    assert "40 users in 3 shards, 7 items" in made.stdout
    assert "left out: 1 rows, missing item (NOT PRIVATE)" in made.stdout
    (tmp_path / "whole.csv").write_text(EVENTS)
    estimates = []
    for name, population in [
        ("a", ["--population.kind", "shards", "--population.path", str(tmp_path / "shards")]),
        ("b", ["--data", str(tmp_path / "whole.csv"), *table]),
    ]:
        config = tmp_path / f"{name}.toml"
        config.write_text(
            '[protocol]\nname = "bounded-histogram"\nepsilon = 1.0\nclip = 5\n'
            '[population]\nkind = "zipf"\nn_users = 9\n[run]\nruntime = "inline"\nseed = 3\n'
        )
        run = ["run", str(config), "--population.top", "7", "--out", str(tmp_path / name)]
        if name == "a":
            text = config.read_text().replace('kind = "zipf"\nn_users = 9', "")
            config.write_text(text)
        result = runner.invoke(cli, [*run, *population], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        estimates.append((tmp_path / name / "estimate.csv").read_text())
    assert estimates[0] == estimates[1]


def test_a_file_without_a_column_of_users(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["shard", "x.csv", "--out", str(tmp_path / "o")])
    assert "--user" in str(result.exception)
