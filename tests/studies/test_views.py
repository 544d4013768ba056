"""What a study shows: one table in every format, a figure for each question, one static page."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from simulations.reporting.pictures import TRUST
from simulations.studies.cells import Record
from simulations.studies.compared import Compared
from simulations.studies.summary import Line

ABOUT: dict[str, Any] = {
    "kind": "study",
    "name": "small",
    "title": "histogram: 100 users; epsilon = 1, delta = 0, replace-user",
    "tables": {"run": {"seed": 1}},
    "axes": [],
    "adversary": [],
    "loss": "l1",
    "levels": [],
    "facts": [],
    "doubts": [],
    "left_out": [["other", "passes the common budget"]],
    "unreached": {},
    "run": {"noise": "simulated", "clients": "per-user"},
    "target": "histogram",
    "n_users": 100,
    "budget": {"epsilon": 1.0, "delta": 0.0, "adjacency": "replace-user"},
    "neighbours": "one user's whole record is replaced by any other",
    "seeds": 2,
    "truth": "total",
}
PROMISE = {"epsilon": 1.0, "delta": 0.0, "adjacency": "replace-user", "unit": "user"}


def records(label: str, trust: str, *losses: float, **more: Any) -> dict[str, Record]:
    made = [
        Record(
            f"{label}{more}{i}",
            label=label,
            target="histogram",
            status="ok",
            loss=x,
            loss_name="l1",
            losses={"l1": x, "l2": x / 2},
            trivial={"all zeros": {"l1": 100.0}, "uniform": {"l1": 50.0}},
            predicted=10.0,
            predicted_kind="exact",
            truth="total",
            guarantee={
                **PROMISE,
                "trust": trust,
                "text": f"1-DP per user, {trust} trust, replace-user",
            },
            n_users=100,
            rounds=1,
            bytes_per_user=40.0,
            seconds=0.5,
            cell={"protocol": {"name": label}, "run": {"seed": i}},
        )
        for i, x in enumerate(losses)
    ]
    return {r.key: r for r in made}


def study(*rows: tuple[str, str, list[float]], **about: Any) -> Compared:
    lines, result = [], dict[str, Record]()
    for label, trust, losses in rows:
        own = records(label, trust, *losses)
        lines.append(Line(label, label, tuple(own)))
        result |= own
    return Compared(ABOUT | about, tuple(lines), result)


SMALL = study(
    ("central_one", "central", [9.0, 11.0]),
    ("shuffled", "shuffle", [20.0, 24.0]),
    ("local", "local", [60.0, 64.0]),
)


def test_the_table() -> None:
    """Means, Student's interval of two values (12.706 standard errors), shares, ratios, marks."""
    result = {r["protocol"]: r for r in SMALL.table.to_dicts()}
    assert list(result) == [
        "no privacy (exact)",
        "uniform",
        "all zeros",
        *("central_one", "shuffled", "local"),
    ]
    row = result["shuffled"]
    assert (row["rank"], row["trust"], row["loss"]) == (2, "shuffle", 22.0)
    assert row["half_width"] == pytest.approx(12.7062 * 2, rel=1e-5)
    assert (row["relative"], row["ratio"], row["times"]) == (0.22, 2.2, 2.2)
    assert result["local"]["worse than"] == "uniform"
    assert result["uniform"]["loss"] == 50.0


def test_the_text() -> None:
    said = [line.rstrip() for line in SMALL.written("txt").decode().rstrip().splitlines()]
    assert said == Path(__file__).with_name("small_study.txt").read_text().splitlines()


def test_every_format_has_the_same_table() -> None:
    rows = list(csv.DictReader(io.StringIO(SMALL.written("csv").decode())))
    assert [r["loss"] for r in rows][3:] == ["10.0", "22.0", "62.0"]
    tex = SMALL.written("tex").decode()
    assert "\n1 & C & central\\_one & 10 & " in tex
    assert re.search(r"^\| 2 \| S \| shuffled \| 22 ", SMALL.to_markdown(), re.MULTILINE)
    body = json.loads(SMALL.written("json"))
    assert [x["rank"] for x in body["lines"]] == [1, 2, 3]
    assert body["lines"][1]["mean"] == 22.0


def marks(axes: Any) -> list[tuple[float, float, str]]:
    out = []
    for c in axes.containers:
        line = c.lines[0]
        x, y = line.get_data()
        out += [(float(a), float(b), line.get_color()) for a, b in zip(x, y, strict=True)]
    return out


def test_a_ranking_draws_means_in_the_hue_of_their_trust() -> None:
    """A row under shuffle trust is ranked, and drawn so."""
    (axes,) = SMALL.figure().axes
    assert [(x, c) for x, _, c in marks(axes)] == [
        (10.0, TRUST["central"][0]),
        (22.0, TRUST["shuffle"][0]),
        (62.0, TRUST["local"][0]),
    ]
    told = [t.get_text() for t in axes.get_yticklabels()]
    assert told == ["1. central_one", "2. shuffled", "3. local"]


def grid() -> Compared:
    lines, result = [], dict[str, Record]()
    for label, trust in (("a", "central"), ("b", "central"), ("c", "local")):
        for epsilon in (0.5, 1.0, 4.0):
            for n in (100, 1000):
                own = records(label, trust, 8 / epsilon, 9 / epsilon, at=(epsilon, n))
                setting = {"protocol.epsilon": epsilon, "population.n_users": n}
                lines.append(Line(label, label, tuple(own), setting))
                result |= own
    axes = {"axes": ["protocol.epsilon", "population.n_users"]}
    return Compared(ABOUT | axes, tuple(lines), result)


def test_the_page_is_small_and_static() -> None:
    """Figures are SVG inside, nothing is loaded, nothing runs; every name is text."""
    text = grid().written("html").decode()
    assert len(text.encode()) < 150_000
    assert "<script" not in text
    assert "<svg" in text
    assert all(v.startswith("#") for v in re.findall(r'(?:src|href)="([^"]*)', text))
    for said in ("NOT PRIVATE", "passes the common budget"):
        assert said in text
    evil = study(("<b>x</b> $a$", "central", [9.0, 11.0]))
    assert "<b>x" not in evil.written("html").decode()
