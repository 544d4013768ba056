"""Lower bounds as they are shown beside comparisons and plans: terminal, JSON and the page."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from simulations.studies.compare.config import load_comparison
from simulations.studies.compare.output import read_comparison
from simulations.studies.compare.run import Compared, run_comparison
from simulations.studies.compare.setup import set_up
from simulations.studies.compare.tables import print_comparison
from simulations.studies.plan.planner import plans
from simulations.studies.plan.tables import print_plans
from simulations.studies.plan.template import template_of
from simulations.studies.report.data import Study, read_results
from simulations.studies.report.sweep import study_page

FILE = """
[run]
runtime = "inline"
seed = 5
[compare]
target = "mean"
epsilon = 2.0
delta = 1e-6
seeds = 2
without = ["cover-select", "sparse-mean"]
[protocol]
samples_per_user = 20
[population]
kind = "gaussian"
n_users = 900
samples_per_user = 20
mean = [0.2, -0.1]
spread = 0.2
dimension = 2
low = -1.0
high = 1.0
seed = 3
"""


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    path = tmp_path_factory.mktemp("compare") / "mine.toml"
    path.write_text(FILE)
    return run_comparison(set_up(load_comparison(path, ())), workers=0)


def shown(found: Compared) -> str:
    out = io.StringIO()
    print_comparison(Console(file=out, width=80, highlight=False), found)
    return out.getvalue()


def test_every_row_has_its_bounds(compared: Compared) -> None:
    """It is shown; a trusted server has its own."""
    rows = {r.label: r for r in compared.rows}
    for label in ("mean-linf", "mean-l2 centred"):
        (bound,) = rows[label].bounds
        assert bound.explicit
        assert 0 < bound.value < rows[label].mean
        assert rows[label].at_least == bound
    central = [r for r in compared.rows if "central" in r.records[0].trust and r.bounds]
    assert central
    assert all(r.bounds[0].explicit and 0 < r.bounds[0].value < r.mean for r in central)
    text = shown(compared)
    assert "at least" in text
    assert f"{rows['mean-linf'].at_least.value:.1e}" in text
    assert max(map(len, text.splitlines())) <= 80
    bare = replace(compared, rows=tuple(replace(r, bounds=()) for r in compared.rows))
    assert "at least" not in shown(bare)
    assert " bytes" in shown(bare)


def test_the_folder_and_the_page_have_them(compared: Compared, tmp_path: Path) -> None:
    compared.save(tmp_path / "out")
    body, _ = read_comparison(tmp_path / "out")
    row = next(r for r in body["rows"] if r["label"] == "mean-linf")
    first = row["at_least"][0]
    assert set(first) == {"loss", "value", "explicit", "source"}
    study = read_results(tmp_path / "out")
    assert isinstance(study, Study)
    page = study_page(study).to_html()
    assert "at least: explicit: two hypotheses" in page
    assert "at least</th>" in page or ">at least<" in page


def test_plans_have_them() -> None:
    """At the answer's own users, few of which are made; an exact share of an error has none."""
    config = template_of("mean", ())
    (answer,) = plans(config, ["mean"], 1e-3)
    (less,) = plans(config, ["mean"], 1e-4)
    assert answer.at_least is not None
    assert answer.at_least.explicit
    assert less.at_least.value == pytest.approx(answer.at_least.value * answer.x / less.x, rel=0.03)
    out = io.StringIO()
    print_plans(Console(file=out, width=100), [answer])
    assert "at least" in out.getvalue()
    assert str(answer.at_least) in out.getvalue()
    (relative,) = plans(config, ["mean"], 0.1, relative=True)
    assert relative.at_least is None
