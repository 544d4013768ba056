"""The command run with a table [repeat]: what it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import SMALL, Command

FILE = SMALL.replace('"test-ending"', '"local-histogram"').replace("delta = 1e-6\n", "")


def test_a_repeat_is_written_shown_and_run_again(fedhist: Command) -> None:
    Path("again.toml").write_text(FILE + "\n[repeat]\ntimes = 3\nchange = 0.5\nleave = 0.1\n")
    first = fedhist("run", "again.toml", "--out", "one", "--seed", "-1")
    assert (first.status, first.err) == (0, "")
    assert "memoized: that a record changed, when, and when it came back" in first.out
    shown = fedhist("show", "one")
    assert shown.status == 0
    assert shown.out.rstrip() in first.out
    assert (Path("one") / "figure.png").stat().st_size > 10_000
    assert fedhist("run", "one/run.toml", "--out", "two").status == 0
    one, two = (Path(folder, "result.json").read_text() for folder in ("one", "two"))
    assert one == two
    assert fedhist("run", "quickstart", "--out", "one").status == 2  # another kind of results


def test_a_refusal_ends_a_repeat_as_it_ends_a_run(fedhist: Command) -> None:
    text = FILE.replace('"local-histogram"', '"heavy-hitters"').replace("clip", "# clip")
    Path("few.toml").write_text(text + "\n[repeat]\ntimes = 2\n")
    answer = fedhist("run", "few.toml", "--out", "few")
    assert answer.status == 3
    assert "users are too few" in " ".join(answer.out.split())


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--ledger", "data.ledger"], "leave run.ledger and run.repeats out"),
        (["--repeats", 2], "leave run.ledger and run.repeats out"),
        (["--repeat.change", 1.5], "repeat.change must be a number in [0, 1], got 1.5"),
        (["--runtime", "ray"], 'set run.runtime = "inline"'),
        (["--repeat.times", 10**7], "records to remember"),
        (["--adversary.kind", "dropout", "--adversary.fraction", 0.1], "[[adversary]] out"),
    ],
)
def test_what_does_not_go_with_a_repeat(fedhist: Command, arguments: list, why: str) -> None:
    Path("again.toml").write_text(FILE + "\n[repeat]\n")
    answer = fedhist("run", "again.toml", *arguments)
    assert answer.status == 2
    assert why in answer.err
    assert not Path("data.ledger").exists()
