"""Results rows: what is declared can be run, and the verdict is that of an interval."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from rich.console import Console

from fedhist.model.results import ResultsRow, within
from fedhist.protocols import BoundedHistogram, Mean
from simulations.experiments.predicted.populations import made
from simulations.experiments.predicted.rows import (
    Measured,
    Setting,
    measure,
    rows_table,
    settings,
    summary_of,
)
from simulations.reporting.terminal import print_table

LOCAL = (
    *("mean-linf", "mean-l2", "sparse-mean", "density", "local-distribution", "cover-select"),
    *("naive-mean", "unary-encoding", "hadamard-response", "local-histogram"),
    *("central-density", "naive-density"),
)
SHOPPERS = {"kind": "shoppers", "n_users": 30, "d": 5}


@pytest.mark.parametrize("name", LOCAL)
def test_every_local_protocol_has_results_rows(name: str) -> None:
    """One at the edge, each with a band that holds 1; the edge is run once."""
    rows = settings(name)
    assert all(s.row.band[0] < 1 <= s.row.band[1] for s in rows)
    (edge,) = (s for s in rows if s.row.edge)
    assert math.isfinite(edge.measure(0))
    assert 0 < edge.predict() < math.inf


def test_rows_are_those_of_one_protocol_or_of_all() -> None:
    assert {s.protocol.name for s in settings("mean")} == {"mean"}
    assert {s.protocol.name for s in settings()} >= {"mean", "density", *LOCAL}
    with pytest.raises(ValueError, match=r"no results rows for 'men'; there are some for .*mean"):
        settings("men")


ROW = ResultsRow(
    "some",
    {"epsilon": math.inf, "samples_per_user": 1, "low": -1.0, "high": 1.0},
    {"kind": "gaussian", "n_users": 50, "samples_per_user": 1, "mean": 0.25, "spread": 1e-9},
    100,
    within(0.1),
    anew=True,
    expected=lambda protocol, population: 4.0,
)


def test_a_prediction_by_words_is_held_against_the_populations_own_mean() -> None:
    """Without noise, spread 1e-9: nothing is lost against 0.25, in runs of 50 users each."""
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
