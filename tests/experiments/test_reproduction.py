"""The reproduction page: every experiment, a verdict per row, errors and missing files said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulations.experiments import report
from simulations.experiments.experiment import Check, Curve, Experiment, Request, Result, experiment
from simulations.experiments.report import PAGE, reproduce_all, write_page


def stand_in(request: Request) -> Result:
    good = Check("a setting", "slope", -1.0, -1.02, -1.1, -0.9)
    bad = Check("a setting", "a | level", None, 3.0, 0.0, 1.0, claim="below 1", cause="known")
    free = Check("another", "seen", None, 5.0, -np.inf, np.inf)
    x = np.array([1.0, 2.0])
    return Result("A figure", "Figure 9", (good, bad, free), (Curve("p", "l", x, x),))


def broken(request: Request) -> Result:
    raise ValueError("no such population")


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    real = experiment("figure1")

    class Stand(Experiment):
        def run(self, request: Request) -> Result:
            return {"works": stand_in, "breaks": broken}[self.name](request)

        @property
        def without_file(self) -> list[str]:
            return [] if self.name == "absent" else ["zipf"]

    fields = {f: getattr(real, f) for f in real.__dataclass_fields__}
    table = {n: Stand(**(fields | {"name": n})) for n in ("works", "breaks", "absent")}
    monkeypatch.setattr(report, "experiment", table.__getitem__)
    monkeypatch.setattr(report, "names", lambda: list(table))
    return list(table)


def test_the_page(three: list[str], tmp_path: Path) -> None:
    done = write_page(reproduce_all(), tmp_path / "out", quick=False, seed=0)
    text = (tmp_path / "out" / PAGE).read_text()
    assert [(d.name, d.broken, d.done is None) for d in done] == [
        ("works", False, False),
        ("breaks", True, True),
        ("absent", False, True),
    ]
    words = " ".join(text.split())
    assert "| 1 | 1 | 1 |" in words
    assert "slope | -1 | -1.02 | -0.02 | -1.1 to -0.9 | PASS" in words
    assert "FAIL: below 1" in words
    assert "ValueError: no such population" in text
    assert (tmp_path / "out" / "works" / "figure.png").exists()
    assert "works/figure.png" in text


def test_experiments_that_end_as_tasks_are_written_in_their_order(
    three: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is lost with its worker; the page names it, and the others are as they were."""

    def on_ray(function: Any, tasks: Any, workers: Any, address: Any) -> Any:
        assert (workers, address) == (2, "somewhere")
        for task in reversed(tasks):
            yield task, OSError("lost") if task[0] == "absent" else function(task)

    monkeypatch.setattr("simulations.runtimes.ray_tasks.on_ray", on_ray)
    ended: list[str] = []
    result = reproduce_all(workers=2, address="somewhere", report=ended.append)
    done = write_page(result, tmp_path / "out", quick=False, seed=0)
    assert ended == ["absent", "breaks", "works"]
    assert [(d.name, d.broken) for d in done] == [
        ("works", False),
        ("breaks", True),
        ("absent", True),
    ]
    assert "OSError: lost" in (tmp_path / "out" / PAGE).read_text()
