"""Every row of docs/papers.md works: its classes, tests, experiments and results are there."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import Any

import pytest

import fedhist.protocols
from docs.printed import ROOT
from simulations.experiments.experiment import experiment, names

PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
RESULTS = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith("| Statement")
]
PAPERS = ("ICML 2023", "arXiv 2405.11923", "NeurIPS 2020", "Narayanan et al., ICML 2022")


def built(call: ast.Call) -> Any:
    fields = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg is not None}
    return replace(getattr(fedhist.protocols, call.func.id).example(), **fields)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_works(row: list[str]) -> None:
    _, classes, test, measured = row
    for code in re.findall(r"`(\w+\(.*?\)(?:\.\w+)?)`", classes):
        tree = ast.parse(code, mode="eval").body
        if isinstance(tree, ast.Attribute):
            assert callable(getattr(built(tree.value), tree.attr))
        else:
            assert built(tree).guarantee
    assert (ROOT / test.strip("`")).exists()
    assert re.findall(r"`[\w-]+`|\]\(", measured)
    experiments = set(re.findall(r"`([\w-]+)`", measured))
    assert experiments <= set(names())
    assert {n for n in experiments if f"`{n}`" not in RESULTS} == set()


def test_every_experiment_of_a_paper_has_a_row() -> None:
    of_papers = {n for n in names() if any(paper in experiment(n).paper for paper in PAPERS)}
    assert of_papers <= {n for row in ROWS for n in re.findall(r"`([\w-]+)`", row[3])}
