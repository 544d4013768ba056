"""Plans, sweeps and audits as objects: their numbers are those of the runs, in every form."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from simulations.audit.audited import Audited
from simulations.audit.finding import Finding, Witness
from simulations.studies.sweep.config import sweep_of
from simulations.studies.sweep.run import run_cells
from simulations.studies.sweep.swept import Swept

LAPLACE = {"name": "bounded-histogram", "epsilon": 0.5, "clip": 3.0, "adjacency": "zero-out-user"}
ONE = {"kind": "zipf", "n_users": 50, "d": 1, "mean_items": 3, "tail": math.inf}
RUN = {"runtime": "inline", "seed": 1}


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Swept:
    protocol = {k: v for k, v in LAPLACE.items() if k != "epsilon"}
    axes = {"protocol.epsilon": [1.0, 16.0], "seeds": 3}
    tables = {"sweep": axes, "protocol": protocol, "population": ONE, "run": RUN}
    path = tmp_path_factory.mktemp("sweep") / "small.sqlite"
    run_cells(sweep_of(tables, "", "small").cells, path, workers=0)
    return Swept.open(path)


def measured(swept: Swept) -> pl.DataFrame:
    """Leave out the answers that need no data."""
    return swept.table.filter(pl.col("protocol") == swept.records[0].label)


def test_a_sweep_s_frame_has_the_means(swept: Swept, tmp_path: Path) -> None:
    of = {e: [r.loss for r in swept.records if r.epsilon == e] for e in (1.0, 16.0)}
    table = measured(swept)
    assert table["epsilon"].to_list() == [1.0, 16.0]
    assert table["mean"].to_list() == pytest.approx([np.mean(of[1.0]), np.mean(of[16.0])])
    assert table["theory"].to_list() == pytest.approx([3.0, 3 / 16])
    assert table["runs"].to_list() == [3, 3]
    assert swept.table["protocol"].to_list()[:2] == ["uniform", "all zeros"]
    assert len(swept.frame) == 6
    assert repr(swept) == "<Swept: small: 6 cells (6 ok)>"
    swept.save(tmp_path / "out")
    assert (tmp_path / "out" / "figure.png").stat().st_size > 5000
    (panel,) = swept.figure("column").axes
    labels = [t.get_text() for t in panel.get_xticklabels(which="both")]
    assert [label for label in labels if label] == ["1", "16"]  # what was run, without powers


def test_a_sweep_is_filtered_as_on_the_command_line(swept: Swept) -> None:
    assert measured(swept.where("epsilon > 2"))["mean"].to_list() == [measured(swept)["mean"][1]]
    with pytest.raises(ValueError, match="no record of small has epsilon = 3"):
        swept.where("epsilon = 3")
    with pytest.raises(ValueError, match="has no axis of numbers"):
        swept.where("epsilon > 2").figure()


def test_an_audit_shows_its_violations(tmp_path: Path) -> None:
    curve = ((0.0, 0.4), (1.0, 0.2))
    seen = Witness(("tea", "rye"), "the answer is tea", (90, 10), (100, 100))
    fine = Finding.judge("krr: votes", "exact", (1.0, 0.0), 1.0, 1.0)
    bad = Finding.judge("krr: sums", "statistical", (1.0, 1e-6), 2.0, 0.999, seen, curve=curve)
    found = Audited((fine, bad), 1e-3)
    assert found.violated
    assert repr(found) == "<Audited: krr: VIOLATION in 1 of 2 checks>"
    assert found.table["at least"].to_list() == [1.0, 2.0]
    assert found.table["verdict"].to_list() == ["consistent", "VIOLATION"]
    html = found.to_html()
    assert "90 of 100 and 10 of 100" in html
    assert "NOT PRIVATE" not in html  # the records are made up
    found.save(tmp_path / "audit")
    assert {"findings.json", "curves.png"} <= {p.name for p in (tmp_path / "audit").iterdir()}
    with pytest.raises(ValueError, match="no check of krr: consistent has a curve"):
        Audited((fine,), 1e-3).figure()
