"""The reproduction page: every experiment, a verdict per row, errors and missing files said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simulations.experiments import report
from simulations.experiments.experiment import (
    Check,
    Curve,
    Experiment,
    Findings,
    Request,
    experiment,
)
from simulations.experiments.report import Reproduced, reproduce_all


def stand_in(what: Experiment, request: Request) -> Findings:
    good = Check("a setting", "slope", -1.0, -1.02, -1.1, -0.9)
    bad = Check("a setting", "a | level", None, 3.0, 0.0, 1.0, claim="below 1", cause="known")
    free = Check("another", "seen", None, 5.0, -np.inf, np.inf)
    x = np.array([1.0, 2.0])
    result = Findings(what, request)
    result.checks, result.curves = [good, bad, free], [Curve("p", "l", x, x)]
    return result


def broken(what: Experiment, request: Request) -> Findings:
    raise ValueError("no such population")


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    real = experiment("figure1")

    class Stand(Experiment):
        def run(self, request: Request) -> Findings:
            return {"works": stand_in, "breaks": broken}[self.name](self, request)

        @property
        def without_file(self) -> list[str]:
            return [] if self.name == "absent" else ["zipf"]

    fields = {f: getattr(real, f) for f in real.__dataclass_fields__}
    table = {n: Stand(**(fields | {"name": n})) for n in ("works", "breaks", "absent")}
    monkeypatch.setattr(report, "experiment", table.__getitem__)
    monkeypatch.setattr(report, "names", lambda: list(table))
    return list(table)


def test_the_page(three: list[str], tmp_path: Path) -> None:
    every = reproduce_all()
    every.save(tmp_path / "out")
    kinds = {name: type(x) for name, x in every.every.items()}
    assert kinds == {"works": Reproduced, "breaks": ValueError, "absent": str}
    (good, bad, free), *_ = [row[2:5] for row in every.tables()[0].rows if row[0] == "works"]
    assert (good, bad, free) == (1, 1, 1)
    words = " ".join(every.to_markdown().split())
    assert "slope | -1 | -1.02 | -0.02 | -1.1 to -0.9 | PASS" in words
    assert "FAIL: below 1" in words
    assert "ValueError: no such population" in (tmp_path / "out" / "report.html").read_text()
    assert (tmp_path / "out" / "works" / "figure.png").exists()
