"""Several releases of one table: their budget, their ledger, their journals, their cohorts."""

from __future__ import annotations

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from commands import Command

import fedhist as fh
from fedhist.protocols import BoundedHistogram, BoxMean
from simulations.runs.data_ledger import DataLedger
from simulations.runs.releases import Planned, plan_releases, run_releases

N = 4000
FILE = """
[run]
runtime = "inline"
seed = 1
[protocol]
epsilon = 2.0
delta = 1e-6
[population]
kind = "table"
path = "people.csv"
user = "user"
"""
DRINKS = """
[[release]]
name = "bounded-histogram"
item = "drink"
domain = ["beer", "tea"]
clip = 1.0
"""
AGES = """
[[release]]
name = "box-mean"
value = "age"
low = 0
high = 100
"""
LOCAL = """
[[release]]
name = "naive-mean"
value = "age"
low = 0
high = 100
[[release]]
name = "local-histogram"
item = "drink"
domain = ["beer", "tea"]
clip = 1
"""


@pytest.fixture(autouse=True)
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    n = np.arange(N)
    age = [None if i % 10 == 0 else 20.0 + i % 50 for i in range(N)]
    frame = pl.DataFrame(
        {
            "user": [f"u{i}" for i in range(N)],
            "drink": np.where(n % 4 == 0, "tea", "beer"),
            "age": age,
            "country": np.where(n % 4 == 3, "FR", "DE"),
        }
    )
    nobody = pl.DataFrame({"user": ["nobody"]})
    pl.concat([frame, nobody], how="diagonal").write_csv("people.csv")


def plan(text: str, **changes: Any) -> Planned:
    tables = tomllib.loads(FILE + text)
    for key, value in changes.items():
        table, _, name = key.partition("_")
        tables[table][name] = value
    return plan_releases(tables, "people.toml", "people")


def test_one_command_one_folder_one_line_of_the_ledger(fedhist: Command) -> None:
    Path("people.toml").write_text(FILE + DRINKS + AGES)
    arguments = ("people.toml", "--ledger", "book.json", "--out", "out", "--json")
    answer = fedhist("run", *arguments)
    assert answer.status == 0, answer.err
    told = json.loads(answer.out[answer.out.index("{\n") :])
    assert told["ledger"]["spent epsilon"] <= 2.0
    rows = pl.read_csv("out/estimate.csv")
    assert rows["release"].unique(maintain_order=True).to_list() == [
        "histogram of drink",
        "mean of age",
    ]
    assert pl.read_parquet("out/estimate.parquet")["estimate"].to_list() == pytest.approx(
        rows["estimate"].to_list()
    )
    assert {"ledger.json", "report.html", "result.json"} <= {p.name for p in Path("out").iterdir()}
    assert "mean of age" in fedhist("show", "out").out
    _, lines = DataLedger("book.json").read()
    assert [s.state for s in lines] == ["spent"]
    assert lines[0].adjacency == "replace-user"
    assert (
        lines[0].epsilon == lines[0].costs["replace-user"][0] > lines[0].costs["zero-out-user"][0]
    )
    assert fedhist("ledger", "book.json", "--cap-epsilon", "2.5").status == 0
    assert fedhist("run", *arguments, "--force").status == 3  # and nobody was asked
    assert len(DataLedger("book.json").read()[1]) == 1


def test_everybody_in_the_table_is_a_user_of_every_column() -> None:
    planned = plan(DRINKS + AGES)
    drinks, ages = (p.whole.users.in_memory() for p in planned.parts)
    assert np.array_equal(drinks.ids, ages.ids)
    assert len(ages) == N + 1
    assert np.count_nonzero(ages.n_items() == 0) == N // 10 + 1
    some = plan(DRINKS + AGES, population_max_users=100)
    assert [len(p.whole.users) for p in some.parts] == [100, 100]


def test_zeroing_out_costs_double_beside_replacement() -> None:
    """A histogram under zero-out-user gets half of its share where a mean hides a replacement."""
    planned = plan(DRINKS + "share = 0.5" + AGES + "share = 0.5", protocol_delta=0.0)
    assert planned.guarantee.adjacency is fh.Adjacency.REPLACE_USER
    assert [p.protocol.guarantee.epsilon for p in planned.parts] == [0.5, 1.0]
    total = run_releases(planned).ledger.spent()
    assert total.epsilon == pytest.approx(2.0)
    alone = plan(DRINKS)
    assert alone.guarantee.adjacency is fh.Adjacency.ZERO_OUT_USER
    assert alone.parts[0].protocol.guarantee.epsilon == 2.0


def test_equal_protocols_do_not_share_their_noise() -> None:
    planned = plan(AGES + 'label = "a"' + AGES + 'label = "b"')
    a, b = run_releases(planned).rows
    assert a.estimate != b.estimate
    assert a.truth == b.truth


def test_local_releases_go_to_disjoint_cohorts_where_that_is_better() -> None:
    planned = plan(LOCAL, protocol_delta=0.0)
    mean, drinks = planned.parts
    assert "disjoint cohorts" in planned.how_local
    assert mean.cohort is not None
    assert drinks.cohort is not None
    assert mean.cohort.disjoint(drinks.cohort)
    assert len(mean.users) + len(drinks.users) == N + 1
    assert [p.protocol.guarantee.epsilon for p in planned.parts] == [2.0, 2.0]
    done = run_releases(planned)
    assert done.ledger.spent().epsilon == 2.0
    total = sum(r.estimate for r in done.rows if r.release == "histogram of drink")
    assert total == pytest.approx(N, rel=0.15)  # of all users, not of the cohort
    assert "unusable records: 401 of 4,001 users" in done.read[0].notes[0]  # of all, too
    split = plan(LOCAL, protocol_epsilon=9.0, protocol_delta=0.0)
    assert "split epsilon" in split.how_local
    assert [p.protocol.guarantee.epsilon for p in split.parts] == [4.5, 4.5]
    assert run_releases(split).ledger.spent().epsilon == 9.0


class Killed(BaseException):
    """Stands for a kill: nothing of the process goes on."""


def test_a_killed_run_goes_on_from_its_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    import simulations.runs.releases as module

    kept = {"run_journal": "journal", "run_ledger": "book.json"}
    real, asked = module.drive, list[str]()

    def drive(session: Any, *rest: Any) -> Any:
        if len(asked) == 1:
            raise Killed
        asked.append(session.protocol.name)
        return real(session, *rest)

    monkeypatch.setattr(module, "drive", drive)
    with pytest.raises(Killed):
        run_releases(plan(DRINKS + AGES, **kept))
    assert [s.state for s in DataLedger("book.json").read()[1]] == ["reserved"]
    monkeypatch.setattr(module, "drive", real)
    first = run_releases(plan(DRINKS + AGES, **kept))
    again = run_releases(plan(DRINKS + AGES, **kept))
    whole = run_releases(plan(DRINKS + AGES))
    assert first.rows == again.rows == whole.rows
    assert [s.state for s in DataLedger("book.json").read()[1]] == ["spent"]


def test_a_run_that_breaks_off_before_it_asks_gives_its_reservation_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import simulations.runs.releases as module

    def broken(*_: Any) -> Any:
        raise Killed

    monkeypatch.setattr(module, "drive", broken)
    with pytest.raises(Killed):
        run_releases(plan(DRINKS + AGES, run_ledger="book.json"))
    assert [s.state for s in DataLedger("book.json").read()[1]] == ["refused"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (AGES.replace('"age"', '"agee"'), "no column 'agee'; did you mean 'age'"),
        (AGES + "share = 0.5" + DRINKS + "share = 0.6", "shares must sum to 1, got 0.5"),
        (AGES + "share = 0.5" + DRINKS, "give every release a share"),
        (AGES + "epsilon = 1.0", "release.epsilon: a release has a share"),
        (AGES + 'item = "drink"', "needs a column: item or value"),
        (AGES + AGES, "two releases are called 'mean of age'"),
        (AGES + "clip = 3", "release 'mean of age': unknown parameter of box-mean 'clip'"),
        (DRINKS.replace("bounded", "item").replace("clip = 1.0", ""), "counted per user"),
    ],
)
def test_bad_input_is_refused_before_anybody_is_asked(text: str, says: str) -> None:
    with pytest.raises((ValueError, fh.PopulationError), match=says.replace("(", r"\(")):
        plan(text)


def test_a_delta_of_two_steps_that_vanishes_is_refused_by_name() -> None:
    exact = plan(DRINKS + AGES, protocol_epsilon=math.inf)
    assert exact.guarantee.epsilon == math.inf
    with pytest.raises(ValueError, match="replaced user is two steps: at epsilon = 1500"):
        plan(DRINKS + AGES, protocol_epsilon=3000.0)


def test_python_runs_a_list_of_protocols_in_one_ledger() -> None:
    frame = pl.read_csv("people.csv").drop_nulls()
    ages = fh.Users.from_frame(frame, user="user", value="age")
    drinks = fh.Users.from_frame(frame, user="user", item="drink")
    mean = BoxMean(epsilon=1.0, n_users=len(ages), low=0.0, high=100.0, delta=0.0)
    counts = BoundedHistogram(domain=drinks.vocabulary, clip=1.0, epsilon=0.5)
    both = fh.run([mean, counts], [ages, drinks], seed=1)
    assert [e.status for e in both] == ["ok", "ok"]
    assert both.ledger.spent().epsilon == 2.0  # .5 of zeroing out is 1 of replacement
    a, b = fh.run([mean, mean], ages, seed=1)
    assert a.value[0] != b.value[0]
    with pytest.raises(ValueError, match=r"users\[1\] are others"):
        fh.run([mean, counts], [ages, drinks.slice(0, 9)])
    with pytest.raises(ValueError, match="as many users"):
        fh.run([mean, counts], [ages])
