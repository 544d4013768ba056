"""What the figure of an estimate says: labels, ticks and points, by what is estimated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from fedhist.model.protocol import Estimate, Protocol
from fedhist.model.registry import display_of, load_builtin, own_protocols
from fedhist.users.keys import Keys
from simulations.reporting.charts import Chart
from simulations.reporting.estimates import chart_of
from simulations.reporting.pictures import drawn

load_builtin()


def example(name: str) -> Protocol:
    return own_protocols()[name].example()


def axes_of(name: str, value: Any, truth: Any = None, **details: Any) -> Any:
    estimate = Estimate.ok(np.asarray(value, dtype=float), **details)
    figure = Figure()
    chart_of(estimate, None if truth is None else np.asarray(truth), example(name)).draw(figure)
    return figure.axes[0]


def test_a_figure_is_what_its_run_wrote(tmp_path: Path) -> None:
    """Arrays, words and what is missing come back as they were: the same file, letter by letter."""
    named = Estimate.ok(np.arange(3.0), stderr=np.ones(3), keys=Keys.of(["tea", "", "é"]))
    items = Estimate.ok(
        np.ones(3), public={"n_report": np.int64(9), "missed_below": 0.5, "threshold": 0.2}
    )
    quantiles = example("quantiles")
    levels = Estimate.ok(np.linspace(0, 1, len(quantiles.positions)))
    for estimate, truth, protocol in (
        (named, np.ones(3), example("bounded-histogram")),
        (items, None, example("heavy-hitters")),
        (levels, levels.value, quantiles),
    ):
        chart = chart_of(estimate, truth, protocol, ["a choice"])
        chart.save(tmp_path / "chart.npz")
        opened = Chart.open(tmp_path / "chart.npz")
        assert drawn(opened.draw, 7, "svg") == drawn(chart.draw, 7, "svg")
        other = replace(opened, value=2 * opened.value)
        assert drawn(opened.draw, 7, "svg") != drawn(other.draw, 7, "svg")


@pytest.mark.parametrize("body", [b"", b"PK\x03\x04", b"\x93NUMPY"])
def test_a_damaged_file_is_refused_by_name(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "chart.npz").write_bytes(body)
    with pytest.raises(ValueError, match=r"chart\.npz cannot be read"):
        Chart.open(tmp_path / "chart.npz")
    np.savez(tmp_path / "chart.npz", value=np.ones(3))
    with pytest.raises(ValueError, match=r"chart\.npz cannot be read"):
        Chart.open(tmp_path / "chart.npz")


def points(axes: Any, label: str) -> tuple[list[float], list[float]]:
    (line,) = (line for line in axes.lines if line.get_label() == label)
    return line.get_xdata().tolist(), line.get_ydata().tolist()


def test_found_items_stand_over_the_truth_of_all() -> None:
    """Items that were missed have a truth and no estimate; two lines say what might be missed."""
    public = {"n_report": 100.0, "missed_below": 0.08, "threshold": 0.02}
    truth = np.arange(60.0, 0, -1)
    value = np.where(np.arange(60) == 3, 50.0, 0.0)
    axes = axes_of("heavy-hitters", value, truth, stderr=value / 10, public=public)
    assert points(axes, "truth (NOT PRIVATE)")[1] == truth.tolist()
    assert points(axes, "estimate") == ([4], [50.0])
    levels = {line.get_label()[:9]: line.get_ydata()[0] for line in axes.lines[-2:]}
    assert levels == {"more user": 2.0, "no missed": 8.0}
    assert axes.get_yscale() == "log"


def test_every_protocol_says_how_it_is_drawn_and_those_of_a_target_say_the_same() -> None:
    """A protocol that says nothing would be drawn over coordinates: is that what it is?"""
    for name, cls in own_protocols().items():
        assert cls.display is not None, name
        assert cls.display == display_of(cls.target), name
