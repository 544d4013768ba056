"""Releases by group: what one user changes, in all ways that there are, and what is read off."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from test_releases import AGES, DRINKS, N, people, plan

import fedhist as fh
from fedhist.privacy.adjacency import NoTotalError
from fedhist.protocols import BoxMean
from simulations.runs.columns import Groups
from simulations.runs.releases import Part, run_releases

__all__ = ["people"]  # a fixture, for every test here

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
    kept = {"run_journal": "journal", "run_ledger": "book.json"}
    first, again = (run_releases(plan(AGES + BY + DRINKS, **kept)) for _ in range(2))
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
