"""The report: one page that needs nothing else, with the numbers of the files and nothing run."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from simulations.cli.main import cli
from simulations.experiments.experiment import Check, Curve, Request, Result, experiment
from simulations.experiments.report import Reproduced
from simulations.reporting.page import Page, Plot, Section, Text, in_plot
from simulations.reporting.pictures import COLOURS
from simulations.reporting.table import Table
from simulations.studies.records.cells import Record
from simulations.studies.records.losses import in_one_loss
from simulations.studies.records.store import Store
from simulations.studies.records.summary import unit_of
from simulations.studies.report.assemble import page_of, write_report
from simulations.studies.report.data import thin
from simulations.studies.report.maps import TIE_COLOUR, Winner, winner, winner_maps, winners
from simulations.studies.report.plots import MARKERS, error_plot, look, scale
from simulations.studies.report.study import view_of

EVIL = "<script>alert('x')</script><img src=http://e.vil/a.png onerror=alert(1)>"
VOID = {"meta", "link", "img", "br", "hr", "input"}


class Reader(HTMLParser):
    """Checks that elements nest, and gathers what the page says."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.scripts: list[tuple[dict[str, str], str]] = []
        self.text: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {k: v or "" for k, v in attrs}
        self.tags.append((tag, found))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append((found, ""))
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            attributes, before = self.scripts[-1]
            self.scripts[-1] = (attributes, before + data)
        elif self.open and self.open[-1] == "td":
            self.cells[-1] += data
        if not self.open or self.open[-1] not in ("script", "style"):
            self.text.append(data)

    @property
    def plots(self) -> list[dict[str, Any]]:
        """What the page's plots are made of."""
        return [json.loads(t) for a, t in self.scripts if a.get("type") == "application/json"]


def record(label: str, loss: float | None, seed: int = 0, **axes: Any) -> Record:
    """Make a record by hand; axes are keys of [population] but for epsilon."""
    epsilon = axes.pop("epsilon", 1.0)
    return Record(
        key=f"{label}{sorted(axes.items())}{epsilon}{seed}",
        label=label,
        protocol="distribution",
        target="distribution",
        status="failed" if loss is None else "ok",
        reason="too few" if loss is None else "",
        loss_name="l1",
        loss=loss,
        losses={} if loss is None else {"l1": loss},
        predicted=None if loss is None else 1.1 * loss,
        guarantee=f"{epsilon}-DP per user",
        trust="central",
        adjacency="replace-user",
        unit="user",
        epsilon=epsilon,
        delta=0.0,
        spent_epsilon=epsilon,
        composed="basic composition",
        seed=seed,
        charges=(f"counts: epsilon = {epsilon}",),
        not_private=("clip 'best' was chosen by looking at the data",),
        cell={
            "protocol": {"name": "distribution", "mechanism": label, "epsilon": epsilon},
            "population": {"kind": "zipf", **axes},
            "run": {"seed": seed},
        },
    )


def grid(seed: int = 3) -> list[Record]:
    """Three mechanisms over samples, epsilon and users, three seeds; one cell fails once."""
    rng, found = np.random.default_rng(seed), []
    for label in ("a", "b", "c"):
        for m in (1, 4, 16):
            for epsilon in (0.5, 2.0):
                for n in (100, 1000):
                    for s in range(3):
                        loss: float | None = float(rng.uniform(1, 2))
                        if (label, m, epsilon, n, s) == ("a", 1, 0.5, 100, 2):
                            loss = None
                        axes = {"mean_items": m, "n_users": n, "epsilon": epsilon}
                        found.append(record(label, loss, s, **axes))
    return found


def store(path: Path, records: list[Record]) -> Path:
    with Store(path) as file:
        for r in records:
            file.put(r)
    return path


def run_folder(folder: Path, keys: list[str], values: list[float]) -> Path:
    """Write what a run writes."""
    folder.mkdir()
    bodies: dict[str, Any] = {
        "config.json": {
            "protocol": {"name": "bounded-histogram", "epsilon": 1.0},
            "population": {"kind": EVIL},
            "run": {"noise": "secure"},
            "NOT PRIVATE": {"seeds": [17], "choices": [f"domain: the top {EVIL}"]},
        },
        "metrics.json": {
            "status": "ok",
            "reason": "",
            "warnings": [EVIL],
            "public": {"clip": 80.0},
            "noise": "secure",
            "NOT PRIVATE": {
                "loss": "l1",
                "measured": 123.456,
                "standard error": None,
                "repeats": 1,
                "predicted": 111.0,
                "prediction is": "exact",
                "prediction": "Equation 3",
            },
        },
        "ledger.json": {
            "guarantee": "(1, 1e-06)-DP per user, central trust, zero-out-user",
            "unit": "user",
            "trust": "central",
            "adjacency": "zero-out-user: one user's record is replaced by the empty one",
            "spent epsilon": 1.0,
            "at delta": 1e-6,
            "composed by": "basic composition",
            "charges": [
                {"label": "choice", "epsilon": 0.25, "delta": 0.0, "rho": "inf", "cohort": None},
                {"label": "counts", "epsilon": 0.75, "delta": 1e-6, "rho": 0.02, "cohort": None},
            ],
        },
    }
    for name, body in bodies.items():
        (folder / name).write_text(json.dumps(body))
    frame = pl.DataFrame({"key": keys, "estimate": values, "stderr": [1.5] * len(keys)})
    frame.write_parquet(folder / "estimate.parquet")
    return folder


# -- the page --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("report")
    run_folder(home / "run", [EVIL, "tea", "rye"], [3.25, 2.0, -1.0])
    store(home / "study.sqlite", [replace(r, label=f"{r.label}{EVIL}") for r in grid()])
    return {name: page_of(home / name).to_html() for name in ("run", "study.sqlite")}


@pytest.mark.parametrize("name", ["run", "study.sqlite"])
def test_a_page_needs_no_other_file(pages: dict[str, str], name: str) -> None:
    read = Reader(pages[name])
    for tag, attributes in read.tags:
        for key in ("src", "href", "action", "data", "srcset", "poster"):
            if key in attributes:
                assert attributes[key].startswith(("data:", "#")), (tag, attributes)
        assert not any(key.startswith("on") for key in attributes), (tag, attributes)
    assert {tag for tag, _ in read.tags} & {"iframe", "object", "embed", "base", "form"} == set()
    styles = re.findall(r"<style>(.*?)</style>", pages[name], re.DOTALL)
    assert not any("url(" in s or "@import" in s for s in styles)


@pytest.mark.parametrize("name", ["run", "study.sqlite"])
def test_only_the_own_scripts_may_run(pages: dict[str, str], name: str) -> None:
    """plotly.js stands there once; the policy names the digests of all scripts that run."""
    read = Reader(pages[name])
    policy = next(a["content"] for t, a in read.tags if t == "meta" and "http-equiv" in a)
    run = [text for attributes, text in read.scripts if "type" not in attributes]
    assert len(run) == 2
    assert sum("plotly.js v" in text[:200] for text in run) == 1
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe-eval" not in policy
    allowed = re.search(r"script-src ([^;]*);", policy)
    assert allowed is not None
    digests = [base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in run]
    assert allowed[1].split() == [f"'sha256-{d}'" for d in digests]


@pytest.mark.parametrize("name", ["run", "study.sqlite"])
def test_names_from_the_data_stay_text(pages: dict[str, str], name: str) -> None:
    read = Reader(pages[name])
    assert EVIL in "".join(read.text)  # shown as it is
    assert "<script>alert" not in pages[name]
    assert "<img src=http" not in pages[name]
    for plot in read.plots:  # plotly.js reads markup in names: none of the data's reaches it
        assert isinstance(plot.pop("slices"), list)  # these become options' texts, not markup
        told = json.dumps(plot).replace("<b>", "").replace("</b>", "").replace("<br>", "")
        assert "<" not in told.replace("<extra></extra>", "")
        assert "&lt;script&gt;" in told


@pytest.mark.parametrize("name", ["run", "study.sqlite"])
def test_plots_are_what_plotly_knows(pages: dict[str, str], name: str) -> None:
    """plotly's own schema checks every property; a wrong one raises ValueError."""
    go = pytest.importorskip("plotly.graph_objects")
    for plot in Reader(pages[name]).plots:
        go.Figure({"data": plot["data"], "layout": plot["layout"]})


def test_size(pages: dict[str, str]) -> None:
    assert max(len(p.encode()) for p in pages.values()) < 6e6


def test_json_stands_safely_in_a_script() -> None:
    body = {"a": "</script><!-- \u2028 &", "b": [1.5, None]}

    def page(body: dict[str, Any]) -> str:
        return Page("t", "s", "w", (Section("one", (Plot("p", [body], {}),)),)).to_html()

    read = Reader(page(body))
    (text,) = (t for a, t in read.scripts if "type" in a)
    assert "<" not in text
    assert json.loads(text)["data"] == [body]
    with pytest.raises(ValueError, match="JSON"):
        page({"a": math.nan})


def test_pages_without_plots_run_nothing() -> None:
    page = Page("t", "s", "w", (Section("one", (Text("x < y"),)), Section("none", ())))
    read = Reader(page.to_html())
    assert read.scripts == []
    assert "x < y" in "".join(read.text)
    assert "none" not in "".join(read.text)


# -- runs and experiments --------------------------------------------------------------------------


def test_numbers_of_a_run(pages: dict[str, str]) -> None:
    read = Reader(pages["run"])
    text = "".join(read.text)
    assert "123.5" in text  # measured
    assert "111" in text  # predicted
    assert "1.11" in text  # ratio
    plot = read.plots[0]["data"][0]
    assert plot["y"] == [3.25, 2.0, -1.0]
    assert plot["x"] == [1, 2, 3]
    assert plot["text"] == [in_plot(EVIL), "tea", "rye"]
    assert plot["error_y"]["type"] == "constant"
    assert plot["error_y"]["value"] == pytest.approx(1.96 * 1.5)
    assert read.cells[read.cells.index("tea") + 1 :][:2] == ["2", "1.5"]


def test_the_ledger_in_words(pages: dict[str, str]) -> None:
    read = Reader(pages["run"])
    text = " ".join(read.text)
    for said in (
        "(1, 1e-06)-DP per user, central trust, zero-out-user",
        "everything that a user holds",
        "one user's record is replaced by the empty one",
        "is trusted with them",
        "basic composition",
        "secure: exact integer samplers",
        "seeds 17",
        "domain: the top",
    ):
        assert said in text, said
    i = read.cells.index("choice")
    assert read.cells[i : i + 6] == ["choice", "all users", "0.25", "0", "", "25 %"]
    assert read.cells[i + 6 : i + 12] == ["counts", "all users", "0.75", "1e-06", "0.02", "75 %"]


def test_many_points_are_thinned_with_a_note(tmp_path: Path) -> None:
    n = 120_000
    folder = run_folder(tmp_path / "run", [f"i{k}" for k in range(n)], list(np.arange(n) + 0.5))
    read = Reader(page_of(folder).to_html())
    plot = read.plots[0]["data"][0]
    assert len(plot["x"]) <= 50_000
    assert plot["x"][:3] == [1, 2, 3]
    assert plot["x"][-1] == n
    assert plot["y"][-1] == 0.5
    assert f"{len(plot['x']):,} of {n:,} points are drawn" in " ".join(read.text)


@pytest.mark.parametrize(("n", "most"), [(1, 1), (10, 10), (11, 10), (1000, 7), (10**6, 50_000)])
def test_thinning_keeps_ends_and_order(n: int, most: int) -> None:
    chosen = thin(n, most)
    assert len(chosen) <= most
    assert chosen[-1] == n - 1
    assert (np.diff(chosen) > 0).all()
    assert chosen[0] == 0 or most == 1


def test_an_experiments_folder(tmp_path: Path) -> None:
    x = np.array([1.0, 10.0, 100.0])
    measured = Curve("left & right", "ours", x, x**-0.5, yerr=0.1 * x**-0.5)
    theory = Curve("left & right", "theory", x, x**-0.5, style="--")
    check = Check("n = 10", "slope", -0.5, -0.4987, -0.6, -0.4)
    result = Result(
        "Errors", "Figure 9", (check,), (measured, theory), "n", "error", "xy", ("best C is known",)
    )
    Reproduced(experiment("figure1"), Request({}, {}, None, "zipf", 4, False), result).write(
        tmp_path
    )
    read = Reader(page_of(tmp_path).to_html())
    (plot,) = read.plots
    assert plot["layout"]["xaxis"]["type"] == plot["layout"]["yaxis"]["type"] == "log"
    assert plot["layout"]["xaxis"]["title"]["text"] == "n"
    assert [t["name"] for t in plot["data"]] == ["ours", "theory"]
    np.testing.assert_allclose(plot["data"][0]["y"], measured.y, rtol=1e-7)
    np.testing.assert_allclose(plot["data"][0]["error_y"]["array"], measured.yerr, rtol=1e-7)
    assert "error_y" not in plot["data"][1]
    assert plot["data"][1]["mode"] == "lines"
    assert "-0.4987" in read.cells
    assert "1 PASS" in " ".join(read.text)
    assert "best C is known" in " ".join(read.text)


# -- studies ---------------------------------------------------------------------------------------


def test_points_of_a_study_are_its_records_means() -> None:
    records = grid()
    view = view_of(records)
    assert {k: v for k, v in view.axes.items()} == {
        "population.mean_items": (1, 4, 16),
        "population.n_users": (100, 1000),
        "protocol.epsilon": (0.5, 2.0),
    }
    assert view.series == ("a", "b", "c")
    plot = error_plot(view, "protocol.epsilon", "", "l1", "t", 10**6)
    assert len(plot.slices) == 6
    part = plot.slices.index("mean_items = 4, n_users = 1,000")
    (drawn,) = (
        t for t in plot.data if t["meta"] == {"slice": part, "theory": False} and t["name"] == "b"
    )
    (theory,) = (
        t for t in plot.data if t["meta"] == {"slice": part, "theory": True} and t["name"] == "b"
    )
    for i, epsilon in enumerate((0.5, 2.0)):
        losses = [
            r.loss
            for r in records
            if r.label == "b"
            and r.epsilon == epsilon
            and r.cell["population"] == {"kind": "zipf", "mean_items": 4, "n_users": 1000}
        ]
        assert len(losses) == 3
        assert drawn["y"][i] == pytest.approx(np.mean(losses), rel=1e-7)
        # 4.302653: Student's 97.5 % quantile of 2 degrees of freedom, from a printed table
        half = 4.302653 * np.std(losses, ddof=1) / math.sqrt(3)
        assert drawn["error_y"]["array"][i] == pytest.approx(half, rel=1e-6)
        assert theory["y"][i] == pytest.approx(1.1 * np.mean(losses), rel=1e-7)


def test_an_interval_that_reaches_zero_loses_its_lower_half() -> None:
    records = [record("a", v, s, n_users=n) for n in (10, 20) for s, v in enumerate((0.1, 5.0))]
    plot = error_plot(view_of(records), "population.n_users", "", "l1", "t", 100)
    (drawn,) = (t for t in plot.data if not t["meta"]["theory"])
    assert min(drawn["error_y"]["array"]) > 2.55
    assert drawn["error_y"]["arrayminus"] == [0.0, 0.0]


def test_winners_against_brute_force() -> None:
    records = grid()
    view = view_of(records)
    x, y, z = "population.mean_items", "protocol.epsilon", "population.n_users"
    for n in (100, 1000):
        found = winners(view, x, y, {z: n})
        for j, epsilon in enumerate((0.5, 2.0)):
            for i, m in enumerate((1, 4, 16)):
                means: dict[str, float] = {}
                for label in ("a", "b", "c"):
                    here = [
                        r.loss
                        for r in records
                        if r.label == label
                        and r.epsilon == epsilon
                        and r.cell["population"]["mean_items"] == m
                        and r.cell["population"]["n_users"] == n
                    ]
                    if None not in here:
                        means[label] = sum(v for v in here if v is not None) / 3
                first, second = sorted(means, key=means.__getitem__)[:2]
                won = found[j][i]
                assert won is not None
                assert (won.series, won.runner_up) == (first, second)
                assert won.loss == pytest.approx(means[first])
                assert won.margin == pytest.approx(means[second] / means[first])
                assert won.margin >= 1
    failed = found[0][0]
    assert failed is not None


def test_the_map_says_what_its_table_says() -> None:
    view = view_of(grid())
    blocks, left = winner_maps(view)
    assert left == []
    assert len(blocks) == 6  # three pairs of axes, a map and a table each
    plot, table = blocks[:2]
    assert isinstance(plot, Plot)
    assert isinstance(table, Table)
    assert plot.title == "Least error at each mean items and epsilon"  # asked for first
    heats = [t for t in plot.data if t["type"] == "heatmap"]
    assert len(heats) == len(plot.slices) == 2
    cells = [[cell.text for cell in row or ()] for row in table.written()]
    told = {(row[0], row[1]): row[2:] for row in cells}
    for name, heat in zip(plot.slices, heats, strict=True):
        for epsilon, row, numbers in zip(heat["y"], heat["text"], heat["z"], strict=True):
            for text, cell in zip(row, told[name, epsilon], strict=True):
                assert text.replace("<br>", " ") == re.sub(r"tie: .*(×.*)", r"tie \1", cell)
            names = [*view.series, "tie"]
            assert [names[k] for k in numbers] == [t.split("<br>")[0] for t in row]


def test_who_cannot_win() -> None:
    good, bad, equal = (
        [record(label, value, s) for s in (0, 1)]
        for label, value in (("good", 2.0), ("bad", 1.0), ("also good", 2.0))
    )

    def won(*records: Record) -> Winner | None:
        return winner(view_of(records).points)

    assert won(*good, *bad) == Winner("bad", 1.0, "good", 2.0, True)
    failing = [bad[0], record("bad", None, 1)]
    assert won(*good, *failing) == Winner("good", 2.0)
    assert won(*good, *(replace(r, epsilon=math.inf) for r in bad)) == Winner("good", 2.0)
    assert won(*good, *(replace(r, unit="item") for r in bad)) == Winner("good", 2.0)
    for value in (math.nan, math.inf):
        assert won(*good, *(replace(r, loss=value) for r in bad)) == Winner("good", 2.0)
    looked = won(*good, *(replace(r, reads=("clip is the best one",)) for r in bad))
    assert looked == Winner("good", 2.0)
    assert won(*failing) is None
    noisy = [record("bad", v, s) for s, v in enumerate((0.1, 1.9))]
    close = won(*good, *noisy)
    assert close is not None
    assert close.tied
    assert str(close) == "tie: bad, good ×2"
    single = won(good[0], bad[0])
    assert single == Winner("bad", 1.0, "good", 2.0, told_apart=False)
    assert str(single) == "bad ×2 ≈"  # one run each: no interval
    for order in ((*good, *equal), (*equal, *good)):
        same = won(*order)
        assert same is not None
        assert (same.series, same.runner_up, same.tied) == ("also good", "good", True)


def test_a_tie_is_no_win() -> None:
    """It has a colour and a word of its own, and its mechanisms are in the table."""
    records = [
        record(label, value + s, s, epsilon=e, n_users=n)
        for label, value in (("a", 1.0), ("b", 1.5))
        for e in (0.5, 2.0)
        for n in (10, 20)
        for s in (0, 1)
    ]
    (plot, table), _ = winner_maps(view_of(records))
    assert isinstance(plot, Plot)
    assert isinstance(table, Table)
    heat = plot.data[0]
    assert {text.split("<br>")[0] for row in heat["text"] for text in row} == {"tie"}
    assert {z for row in heat["z"] for z in row} == {2}
    assert heat["colorscale"][-1][1] == TIE_COLOUR
    assert [t["name"] for t in plot.data[1:]] == ["tie"]
    (_, cell, *_), *_ = filter(None, table.written())
    assert cell.text.startswith("tie: a, b ×1.3")
    assert cell.mark == "tie"


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_losses_that_are_not_finite(tmp_path: Path, value: float) -> None:
    found = [
        record(label, loss, s, mean_items=m, n_users=n)
        for label, loss in (("a", 2.0), ("bad", value))
        for s in (0, 1)
        for m in (1, 4)
        for n in (10, 20)
    ]
    text = page_of(store(tmp_path / "a.sqlite", found)).to_html()
    plots = json.dumps(Reader(text).plots)
    assert "NaN" not in plots
    assert "Infinity" not in plots
    assert "×inf" not in text
    assert "×nan" not in text


def test_a_map_of_several_budgets_says_so(tmp_path: Path) -> None:
    def text(other: float) -> str:
        found = [
            record(label, 1.0, 0, epsilon=epsilon, mean_items=m, n_users=n)
            for label, epsilon in (("a", 1.0), ("b", other))
            for m in (1, 4)
            for n in (10, 20)
        ]
        return page_of(store(tmp_path / f"{other:g}.sqlite", found)).to_html()

    warning = "The budgets differ at one setting"
    assert "Which mechanism wins" in text(1.0)
    assert warning not in text(1.0)
    assert warning in text(2.0)


def test_keys_of_one_mechanism_are_no_axes() -> None:
    """A clip that only "a" has names its series; epsilon is everybody's axis."""
    records = [record("b", 2.0, s, epsilon=e) for e in (1.0, 2.0) for s in (0, 1)]
    for clip in (10, 20):
        for r in [record("a", float(clip), s, epsilon=e) for e in (1.0, 2.0) for s in (0, 1)]:
            cell = {**r.cell, "protocol": {**r.cell["protocol"], "clip": clip}}
            records.append(replace(r, cell=cell, key=f"{r.key}{clip}"))
    view = view_of(records)
    assert list(view.axes) == ["protocol.epsilon"]
    assert view.series == ("a, clip = 10", "a, clip = 20", "b")


def test_phase_transitions_and_sections_of_a_sweep(tmp_path: Path) -> None:
    found = Reader(page_of(store(tmp_path / "s.sqlite", grid())).to_html())
    text = " ".join(found.text)
    assert "Phase transitions: error against samples per user" in text
    for said in (
        "107 ok",
        "1 failed",
        "too few",
        "counts: epsilon = 0.5",
        "clip 'best'",
        "0, 1, 2",
    ):
        assert said in text, said
    phase = next(p for p in found.plots if "n_users" in p["data"][0].get("name", ""))
    assert phase["layout"]["xaxis"]["type"] == "log"
    assert phase["log"] == "xy"
    assert {t["name"] for t in phase["data"]} == {"n_users = 100", "n_users = 1,000"}


def test_a_comparisons_folder(tmp_path: Path) -> None:
    """In the order of its ranks, with what was left out, what is not ranked, and no winner map."""
    found = [record(label, loss, s) for label, loss in (("b", 1.0), ("a", 2.0)) for s in (0, 1)]
    rows = [{"label": "b", "flags": []}, {"label": "a", "flags": ["other adjacency"]}]
    body = {
        "schema": 1,
        "name": "mine",
        "loss": "l1",
        "rows": rows,
        "left_out": [{"label": "c", "protocol": "c", "reason": f"needs a radius {EVIL}"}],
        "reference": {"loss": 0.0, "sampling_error": 0.125},
        "config": {"compare": {"epsilon": 1.0, "seeds": [0, 1]}},
        "records": [json.loads(r.to_json()) for r in found],
    }
    (tmp_path / "comparison.json").write_text(json.dumps(body))
    read = Reader(page_of(tmp_path).to_html())
    text = " ".join(read.text)
    for said in (
        f"c is left out: needs a radius {EVIL}",
        "a is not ranked: other adjacency",
        "0.125",
    ):
        assert said in text, said
    (plot,) = read.plots
    assert [t["y"] for t in plot["data"] if not t["meta"]["theory"]] == [["b"], ["a"]]
    assert [t["x"] for t in plot["data"]] == [[1.0], [1.1], [2.0], [2.2]]
    assert "Which mechanism wins" not in text


def test_losses_are_made_comparable_or_not_compared() -> None:
    mse = replace(record("a", 4.0), loss_name="mse", losses={"l2": 2.0, "squared l2": 4.0})
    l2 = replace(record("b", 3.0), loss_name="l2", losses={"l2": 3.0, "squared l2": 9.0})
    found, loss, notes = in_one_loss([mse, l2])
    assert loss == "squared l2"
    assert [r.loss for r in found] == [4.0, 9.0]
    assert [r.predicted for r in found] == pytest.approx([4.4, 3.3**2])  # rooted, squared
    assert len(notes) == 1
    risk = replace(record("c", 1.0), loss_name="excess risk", losses={})
    assert in_one_loss([mse, risk])[1] == ""


def test_figures_can_be_told_apart_without_colours() -> None:
    looks = [look(i) for i in range(len(COLOURS))]
    assert len({k["marker"] for k in looks}) == len({k["dash"] for k in looks}) == len(MARKERS)
    many = {(k["colour"], k["marker"]) for k in map(look, range(64))}
    assert len(many) == 64


def test_logarithmic_where_values_spread() -> None:
    assert scale([1.0, 100.0], "n")["type"] == "log"
    assert scale([1.0, 2.0], "n")["type"] == "linear"
    assert scale([0.0, 100.0], "n")["type"] == "linear"


# -- the command -----------------------------------------------------------------------------------


def test_the_command_writes_the_page(tmp_path: Path) -> None:
    folder = run_folder(tmp_path / "run", ["tea"], [1.0])
    done = CliRunner().invoke(cli, ["report", str(folder)])
    assert done.exit_code == 0, done.output
    assert "NOT PRIVATE" in done.output
    assert Reader((folder / "report.html").read_text(encoding="utf-8")).plots
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run"]


def test_what_is_no_result_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such folder or file"):
        page_of(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"has no config\.json"):
        page_of(tmp_path)
    (tmp_path / "x.txt").write_text("hello")
    with pytest.raises(ValueError, match="not a file of fedhist results"):
        page_of(tmp_path / "x.txt")
    with pytest.raises(ValueError, match="is a folder; name a file"):
        write_report(run_folder(tmp_path / "run", ["a"], [1.0]), tmp_path)
    with pytest.raises(ValueError, match="no records yet"):
        page_of(store(tmp_path / "empty.sqlite", []))


def test_the_page_names_its_populations(tmp_path: Path) -> None:
    records = [replace(record("a", 1.0, n_users=n), population=f"{n} people") for n in range(1, 6)]
    for count, said in ((2, "1 people; 2 people"), (5, "3 people and 2 more populations")):
        file = store(tmp_path / f"{count}.sqlite", records[:count])
        write_report(file, tmp_path / "page.html")
        assert said in (tmp_path / "page.html").read_text()


def test_losses_are_named_in_words() -> None:
    assert unit_of("ise", "density") == "integrated squared error"
    assert unit_of("l1", "histogram") == "l1 error (counts)"
