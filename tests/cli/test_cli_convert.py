"""``fedhist convert`` and a run on what it makes."""

from __future__ import annotations

from pathlib import Path

from commands import Command

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
