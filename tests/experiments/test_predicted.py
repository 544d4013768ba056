"""Results rows: what is declared can be run, and the verdict is that of an interval."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from rich.console import Console

from fedhist.model.registry import parameters
from fedhist.protocols import BoundedHistogram, Mean
from simulations.experiments.predicted.populations import made
from simulations.experiments.predicted.rows import (
    Measured,
    ResultsRow,
    Setting,
    measure,
    rows_table,
    settings,
    summary_of,
    within,
)
from simulations.reporting.terminal import print_table

SHOPPERS = {"kind": "shoppers", "n_users": 30, "d": 5}


def test_rows_are_those_of_one_protocol_or_of_all() -> None:
    """Each says what a setting is, in words and keys that there are, and has a band that is one."""
    every = settings()
    assert {s.protocol.name for s in settings("mean")} == {"mean"}
    assert {s.protocol.name for s in every} >= {"mean", "density", "bounded-histogram"}
    assert len({(s.protocol.name, s.row.label) for s in every}) == len(every)
    for s in every:
        assert s.row.repeats >= 20, s.row.label
        assert 0 < s.row.band[0] < s.row.band[1], s.row.label
        assert set(s.row.protocol) <= set(parameters(s.protocol)), s.row.label
    with pytest.raises(ValueError, match=r"no results rows for 'men'; there are some for .*mean"):
        settings("men")


@pytest.mark.parametrize("label", ["EDGE n=250", "k=20 n=2000 eps=2 aggregate"])
def test_a_row_is_run(label: str) -> None:
    (row,) = (s for s in settings("bounded-histogram") if s.row.label.startswith(label))
    assert row.measure(0) == pytest.approx(row.predict(), rel=0.5)


ROW = ResultsRow(
    "some",
    {"epsilon": math.inf, "samples_per_user": 1, "low": -1.0, "high": 1.0},
    {"kind": "gaussian", "n_users": 50, "samples_per_user": 1, "mean": 0.25, "spread": 1e-9},
    100,
    within(0.1),
    anew=True,
    expected=4.0,
)


def test_a_prediction_of_another_source_is_held_against_runs() -> None:
    """Without noise: nothing is lost, in runs of 50 users each."""
    found = measure(Setting(Mean, ROW), 0.01)
    assert len(found.losses) == 20
    assert found.measured < 1e-15
    assert (found.predicted, found.loss, found.check.verdict) == (4.0, "squared l2", "FAIL")
    with pytest.raises(ValueError, match="effort must be positive, got 0"):
        measure(Setting(Mean, ROW), 0)


@pytest.mark.parametrize(
    ("losses", "verdict"),
    [
        ((4.1, 4.2) * 20, "PASS"),
        ((4.5, 4.6) * 20, "FAIL"),
        ((4.1, 4.9) * 20, "PASS"),  # the mean is outside, its interval meets the band
        ((0.0, 8.0) * 5, "too few runs"),
    ],
)
def test_the_interval_is_judged(losses: tuple[float, ...], verdict: str) -> None:
    """The band is 3.6 to 4.4."""
    found = Measured(Setting(Mean, ROW), losses)
    assert found.check.verdict == verdict
    file = io.StringIO()
    print_table(Console(file=file, width=80), rows_table([found], "mean"))
    assert [row["verdict"] for row in summary_of([found])["rows"]] == [verdict]
    assert verdict in file.getvalue()
    assert "0.9 to 1.1" in " ".join(file.getvalue().split())


def test_populations_are_repeated_by_their_seed() -> None:
    """The words alone say which users; a seed makes others, under ids of their own."""
    words = {**SHOPPERS, "seed": 3}
    one, same, other = made(words), made(words), made(words, 7)
    assert (one.ids == same.ids).all()
    assert (one.counts.count == same.counts.count).all()
    assert len(one.counts.count) != len(other.counts.count)
    assert not set(one.ids.tolist()) & set(other.ids.tolist())
    many = {"kind": "items", "n_users": 7, "d": 4, "items": 12}
    counts = made(many).counts
    assert set(np.add.reduceat(counts.count, counts.indptr[:-1]).tolist()) == {12}
    rates = made({"kind": "mixed-poisson", "n_users": 9000, "rates": [2.0, 0.5], "shape": 3.0})
    totals = np.bincount(rates.counts.item, rates.counts.count) / 9000
    assert totals == pytest.approx([2.0, 0.5], rel=0.1)  # ten standard errors


def test_a_setting_is_completed_from_its_population() -> None:
    row = ResultsRow("x", {"epsilon": 1.0, "clip": 3.0}, SHOPPERS, 20, within(0.1))
    users, protocol, known = Setting(BoundedHistogram, row).fixed
    assert isinstance(protocol, BoundedHistogram)
    assert len(protocol.domain) == len(known.truth) == 5
    assert len(users) == 30
