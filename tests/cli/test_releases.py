"""Several releases of one table, also by group: budget, ledger, journals, cohorts, a moved user."""

from __future__ import annotations

import itertools
import json
import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from commands import Command

import fedhist as fh
from fedhist.privacy.guarantee import NoTotalError
from fedhist.protocols import BoundedHistogram, BoxMean
from simulations.runs.columns import Groups
from simulations.runs.data_ledger import DataLedger
from simulations.runs.released import run_releases
from simulations.runs.releases import Part, Planned, plan_releases

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
    import simulations.runs.released as module

    files = {"run_journal": "journal", "run_ledger": "book.json"}
    real, asked = module.drive, list[str]()

    def drive(session: Any, *rest: Any) -> Any:
        if len(asked) == 1:
            raise Killed
        asked.append(session.protocol.name)
        return real(session, *rest)

    monkeypatch.setattr(module, "drive", drive)
    with pytest.raises(Killed):
        run_releases(plan(DRINKS + AGES, **files))
    assert [s.state for s in DataLedger("book.json").read()[1]] == ["reserved"]
    monkeypatch.setattr(module, "drive", real)
    first = run_releases(plan(DRINKS + AGES, **files))
    again = run_releases(plan(DRINKS + AGES, **files))
    whole = run_releases(plan(DRINKS + AGES))
    assert first.rows == again.rows == whole.rows
    assert [s.state for s in DataLedger("book.json").read()[1]] == ["spent"]


def test_a_run_that_breaks_off_before_it_asks_gives_its_reservation_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import simulations.runs.released as module

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


BY = '\nby = "country"\ngroups = ["DE", "FR"]\n'
QUARTILES = """
[[release]]
name = "quantiles"
value = "age"
levels = [0.5]
low = 0
high = 100
"""


def only_part(text: str, **changes: Any) -> Part:
    return plan(text, **changes).parts[0]


VALUES = (None, 0.0, 30.0, 100.0)
RECORDS = [(None, None), *itertools.product((0, 1), VALUES)]


def vector(query: fh.Query, group: int | None, value: float | None) -> np.ndarray[Any, Any]:
    samples = [] if value is None else [value]
    user = fh.Users.from_records({"ann": samples})
    of = Groups("country", ("DE", "FR"), np.array([-1 if group is None else group]))
    parts = [query.answer_folded(of.only(user, g), no_coins).sums for g in (0, 1)]
    return np.concatenate([np.ravel(s[k]).astype(float) for s in parts for k in sorted(s)])


def no_coins(users: fh.Users) -> fh.Streams:
    return fh.SeededStreams(users.ids, 1, "test")


@pytest.mark.parametrize("text", [AGES, QUARTILES], ids=["mean", "quantiles"])
def test_every_change_of_one_record_is_paid_for(text: str) -> None:
    """Enumerated: a move has twice the l1, and sqrt(2) times the l2 norm of an emptied record."""
    part = only_part(text + BY, protocol_delta=0.0)
    protocol: Any = part.protocol
    query = protocol.over_range if isinstance(protocol, BoxMean) else protocol.grid
    rows = {r: vector(query, *r) for r in RECORDS}
    sizes = {1: list[float](), 2: list[float]()}
    moved, inside = {1: 0.0, 2: 0.0}, {1: 0.0, 2: 0.0}
    for a, b in itertools.combinations(RECORDS, 2):
        for norm in (1, 2):
            by = float(np.linalg.norm(rows[a] - rows[b], norm))
            if a[0] is None or b[0] is None:
                sizes[norm].append(by)
            elif a[0] != b[0]:
                moved[norm] = max(moved[norm], by)
            else:
                inside[norm] = max(inside[norm], by)
    emptied = {norm: max(result) for norm, result in sizes.items()}
    assert moved[1] == pytest.approx(2 * emptied[1])
    assert moved[2] == pytest.approx(np.sqrt(2) * emptied[2])
    # pure noise is sized for an emptied record at the run's epsilon: it costs epsilon for each
    worst = max(moved[1], inside[1]) / emptied[1] * protocol.guarantee.epsilon
    assert worst == pytest.approx(2.0)
    assert part.planned(fh.Adjacency.REPLACE_USER).epsilon == pytest.approx(worst)
    assert part.planned(fh.Adjacency.ZERO_OUT_USER).epsilon == protocol.guarantee.epsilon


def test_the_ledger_holds_a_move_and_no_more_than_the_budget() -> None:
    replaced = plan(AGES + BY, protocol_delta=0.0)
    ledger = run_releases(replaced).ledger
    assert ledger.spent().epsilon == pytest.approx(2.0)
    assert [p.protocol.guarantee.epsilon for p in replaced.parts] == [1.0]
    with pytest.raises(NoTotalError, match="the number of users is public"):
        ledger.under(fh.Adjacency.ADD_REMOVE_USER)
    hidden = plan(AGES + 'adjacency = "add-remove-user"' + BY, protocol_delta=0.0)
    assert hidden.guarantee.adjacency is fh.Adjacency.ADD_REMOVE_USER
    assert [p.protocol.guarantee.epsilon for p in hidden.parts] == [2.0]  # one group pays
    assert run_releases(hidden).ledger.spent().epsilon == pytest.approx(2.0)
    assert hidden.parts[0].jobs[0].not_private  # the planned number of users was looked at
    assert (replaced.null_safe, hidden.null_safe) == (False, True)
    # a rank at .95 moves by .95 with a user more, and by 1 with another one: a move costs more
    skew = plan(QUARTILES.replace("[0.5]", "[0.95]") + BY, protocol_delta=0.0)
    assert run_releases(skew).ledger.spent().epsilon == pytest.approx(2.0)
    each = [p.protocol for p in (*replaced.parts, *hidden.parts)]
    assert all(p.guarantee.adjacency is fh.Adjacency.ADD_REMOVE_USER for p in each)


def test_gaussian_releases_by_group_keep_the_whole_delta() -> None:
    planned = plan(AGES + "dimension = 1" + BY + DRINKS + BY)
    done = run_releases(planned)
    assert done.ledger.spent().epsilon <= 2.0
    assert sum(e.release.delta for e in done.ledger.entries) <= 1e-6


@pytest.mark.parametrize(
    ("text", "epsilon", "within"),
    [
        (AGES, 2.0, 2.0),
        (AGES.replace("box-mean", "naive-mean"), 20.0, 2.5),
        (QUARTILES, 8.0, 2.0),
        (QUARTILES.replace('"quantiles"', '"local-quantiles"') + "n_bins = 32", 20.0, 3.0),
    ],
)
def test_each_group_has_its_own_number(text: str, epsilon: float, within: float) -> None:
    planned = plan(text + BY, protocol_epsilon=epsilon, protocol_delta=0.0)
    done = run_releases(planned)
    assert [r.key.split(" / ")[0] for r in done.rows] == ["DE", "FR"]
    frame = pl.read_csv("people.csv").drop_nulls()
    for row in done.rows:
        ages = frame.filter(country=row.key.split(" / ")[0])["age"]
        assert row.truth == pytest.approx(
            ages.mean() if "mean" in row.release else ages.median(), abs=0.6
        )
        assert row.estimate == pytest.approx(row.truth, abs=within)
    assert done.ledger.spent().epsilon <= epsilon * (1 + 1e-9)


def test_the_error_of_a_local_mean_by_group_is_stated() -> None:
    planned = plan(AGES.replace("box-mean", "naive-mean") + BY, protocol_delta=0.0)
    runs = [replace(planned, run=replace(planned.run, seed=s)) for s in range(25)]
    rows = [row for run in runs for row in run_releases(run).rows]
    z = np.array([(r.estimate - r.truth) / r.stderr for r in rows])
    assert 0.75 < np.sqrt(np.square(z).mean()) < 1.3


def test_histograms_count_pairs_of_public_groups_only() -> None:
    done = run_releases(plan(DRINKS + 'by = "country"\ngroups = ["FR", "IT"]'))
    truth = {r.key: r.truth for r in done.rows}
    assert truth == {"FR / beer": N / 4, "FR / tea": 0, "IT / beer": 0, "IT / tea": 0}


def test_groups_go_on_from_their_journals() -> None:
    files = {"run_journal": "journal", "run_ledger": "book.json"}
    first, again = (run_releases(plan(AGES + BY + DRINKS, **files)) for _ in range(2))
    assert first.rows == again.rows == run_releases(plan(AGES + BY + DRINKS)).rows
    assert len({p.parent for p in Path("journal").rglob("journal.jsonl")}) == 3


def test_groups_do_not_share_their_noise() -> None:
    a, b = run_releases(plan(AGES + 'by = "country"\ngroups = ["IT", "ES"]')).rows
    assert a.estimate != b.estimate  # both of nobody


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (AGES + 'by = "county"\ngroups = ["DE"]', "no column 'county'; did you mean"),
        (AGES + 'by = "country"\ngroups = ["DE", "FR", "DE"]', "'DE' stands twice, groups overlap"),
        (AGES + 'by = "country"', "none is named"),
        (AGES + 'groups = ["DE"]', "groups need by"),
        (AGES + 'by = "drink"\ngroups = ["a / b"]', "groups must not hold ' / '"),
        (AGES.replace("box-mean", "nothing"), "unknown protocol 'nothing'"),
        (
            AGES
            + 'trust = "aggregate"\ntau_d = 0.1\ntau_c = 0.1\nmax_users = 10\ndiscrete = true'
            + BY,
            "central or local",
        ),
    ],
)
def test_bad_groups_are_refused_before_anybody_is_asked(text: str, says: str) -> None:
    with pytest.raises((ValueError, fh.PopulationError), match=says):
        plan(text)


def test_a_user_in_two_groups_is_refused() -> None:
    more = pl.DataFrame({"user": ["u0"], "drink": ["tea"], "age": [3.0], "country": ["FR"]})
    pl.concat([pl.read_csv("people.csv"), more]).write_csv("people.csv")
    with pytest.raises(fh.PopulationError, match="1 users are in two groups, one of them in 'DE'"):
        plan(AGES + BY)
