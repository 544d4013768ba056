"""Experiments: the verdicts, the TOML files, what is measured and what is written."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from running import Recorder, count_table, drive
from scipy.optimize import minimize_scalar
from scipy.stats import foldnorm

import fedhist as fh
from clients.histograms.contributions import NormHistogram
from simulations.experiments import bounded_domain as bounded
from simulations.experiments import experiment as catalogue
from simulations.experiments.bounded_domain import NormIndex, printed_output
from simulations.experiments.experiment import Check, Request
from simulations.runs.options import Options
from simulations.runs.run import execute

HEAD = """
[experiment]
title = "t"
paper = "p"
[settings]
quick = { repeats = 1 }
repeats = 3
rate = 0.5
[population.zipf]
n_users = 40
d = 9
quick = { n_users = 7 }
[population.sentiment140]
"""


def example(**changes: Any) -> Check:
    return replace(Check("s", "q", 1.0, 1.1, 0.8, 1.2), **changes)


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [(0.8, "PASS"), (1.2, "PASS"), (1.21, "FAIL"), (0.79, "FAIL"), (math.nan, "FAIL")],
)
def test_a_verdict_is_an_interval(ours: float, verdict: str) -> None:
    """Ends belong to it; a NaN fails."""
    assert example(ours=ours).verdict == verdict


def test_tolerances_are_read_as_written() -> None:
    """Relative, absolute, one-sided; rows of other populations are left out."""
    rows = (
        '{setting="a", quantity="b", paper=-2.0, relative=0.25},'
        '{setting="a", quantity="c", paper=2, absolute=0.5, cause="known"},'
        '{setting=["a", "z"], quantity="d", claim="large", low=3},'
        '{setting="a", quantity="e", paper=1, absolute=1, populations=["sentiment140"]},'
        '{setting="a", quantity="f", paper=1, shown=true},'
        '{setting="*", quantity="c", claim="small", high=1},'
    )
    text = HEAD + f"[values]\nrows = [{rows}]\n"
    request = catalogue.parse("x", text).request()
    b, c, d, of_z, f, _ = request.values
    assert (of_z.setting, of_z.quantity, of_z.low) == ("z", "d", 3.0)
    assert (f.paper, f.low, f.high) == (1.0, -math.inf, math.inf)
    assert (b.low, b.high) == (-2.5, -1.5)
    assert (c.low, c.high, c.cause) == (1.5, 2.5, "known")
    assert (d.low, d.high, d.paper) == (3.0, math.inf, None)
    check = request.judge("a", "c", 2.6, 0.1)
    assert (check.verdict, check.cause, check.stderr) == ("FAIL", "known", 0.1)
    assert request.judge("a", "e", 1.0) is None
    other = request.judge("b", "c", 2.0)  # of every setting that has no row of its own before it
    assert (other.setting, other.verdict, other.claim) == ("b", "FAIL", "small")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('quantity="b", paper=1', "relative"),
        ('quantity="b", paper=1, low=0, absolute=1', "one of"),
        ('quantity="b", low=0', "claim"),
        ('quantity="b", claim="c", relative=1', "number"),
        ('quantity="b", papr=1', "'papr'"),
        ("paper=1, absolute=1", "quantity"),
        ('quantity="b", paper=1, absolute=1, populations=["zpf"]', "'zpf'"),
    ],
)
def test_a_malformed_row_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        catalogue.parse("x", HEAD + f'[values]\nrows = [{{setting="a", {text}}}]\n')


def test_a_file_has_a_title_and_settings_of_its_own() -> None:
    for text, named in (
        (HEAD.replace('title = "t"', ""), "title"),
        (HEAD.replace("quick = { repeats", "quick = { repeat"), "'repeat'"),
        (HEAD + "[population_]\na=1\n", "'population_'"),
    ):
        with pytest.raises(ValueError, match=named):
            catalogue.parse("x", text)
    for name, named in (("figure_2", "figure_2"), ("figure6", "figure2 measures it")):
        with pytest.raises(ValueError, match=named):
            catalogue.experiment(name)
    assert set(catalogue.PART_OF.values()) <= set(catalogue.names())


def test_settings_are_overridden_in_order() -> None:
    e = catalogue.parse("x", HEAD)
    plain, quick = e.request(), e.request(quick=True)
    assert (plain.settings["repeats"], quick.settings["repeats"]) == (3, 1)
    assert (len(plain.load().users), len(quick.load().users)) == (40, 7)
    both = e.request(quick=True, overrides=["repeats=5", "rate=2", "population.n_users=9"])
    assert both.settings == {"repeats": 5, "rate": 2.0}
    assert len(both.load().users) == 9
    assert e.settings["repeats"] == 3


def request_on(name: str, tmp_path: Path, rows: list[tuple[str, str, int]], **sets: Any) -> Request:
    path = tmp_path / "events.tsv"
    lines = ["userID\tartistID\tweight", *("\t".join(map(str, r)) for r in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    overrides = [f"{k}={v}" for k, v in sets.items()]
    return catalogue.experiment(name).request(population="lastfm", data=path, overrides=overrides)


def test_figure1_counts_distinct_items(tmp_path: Path) -> None:
    """Three users with 250, 3 and 1 distinct artists, however often they were played."""
    rows = [("ann", f"a{k}", 1) for k in range(250)]
    rows += [("bob", f"a{k}", 900) for k in range(3)] + [("cy", "a1", 7)]
    result = catalogue.experiment("figure1").run(request_on("figure1", tmp_path, rows))
    assert result.curves[0].y.tolist() == [250.0, 3.0, 1.0]
    assert result.curves[0].x.tolist() == [1.0, 2.0, 3.0]
    judged = [c for c in result.checks if c.judged]
    assert [(c.ours, c.verdict) for c in judged] == [(pytest.approx(2 / 3), "PASS")]


@pytest.fixture(scope="module")
def users() -> fh.Users:
    return fh.population("zipf", n_users=400, d=40, mean_items=12.0, seed=5).load().users


def setting(users: fh.Users, d: int = 20, **changes: Any) -> bounded.Setting:
    request = catalogue.experiment("figure2").request(population="zipf", quick=True)
    settings = SimpleNamespace(**{**request.settings, **changes})
    domain = fh.Keys.of(users.vocabulary[j] for j in range(d))
    return bounded.Setting(users, domain, settings, 0)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("radius", [0.0, 1.7])
def test_the_index_answers_as_the_users_do(users: fh.Users, norm: int, radius: float) -> None:
    """Bit for bit, with edges below, between, at and above the norms."""
    domain = fh.Keys.of(users.vocabulary[j] for j in range(20))
    index = NormIndex(users, domain)
    at_norms = sorted({float(v) for v in index.l2[:5] if v > 0})
    for edges in ((0.0,), (1.0, 2.5, 4.0, 1e9), tuple(at_norms), (1e9,)):
        query = NormHistogram(domain, edges, norm, radius)
        ours = index.answer(query)
        theirs = query.answer_folded(users, lambda _: object())  # whoever draws from it fails
        assert ours.n_users == theirs.n_users
        assert ours.sums["weight"].tolist() == theirs.sums["weight"].tolist()
        assert ours.sums["weight"].dtype == np.int64


@pytest.mark.parametrize("method", [m for m in bounded.RULES if m != bounded.OUTPUT_FIXED])
def test_the_choice_is_that_of_a_whole_run(users: fh.Users, method: str) -> None:
    """The same seed gives the same threshold, for every rule."""
    s = setting(users)
    estimate = execute(s.protocol(method), users, Options(seed=11)).estimate
    assert s.choose(method, [11]).tolist() == [estimate.public["clip"]]


def test_the_budget_is_the_papers(users: fh.Users) -> None:
    """(1, 1 / 2n) for the release and (0.1, 1 / 2n or 0) for the choice, under zero-out."""
    for method in bounded.RULES:
        p = setting(users).protocol(method)
        assert p.shares.release_epsilon == pytest.approx(1.0)
        assert p.shares.release_delta == pytest.approx(1 / 800)
        assert p.shares.choice_epsilon == pytest.approx(0.1)
        assert p.shares.choice_delta in (0.0, pytest.approx(1 / 800))
        assert p.guarantee.adjacency is fh.Adjacency.ZERO_OUT_USER
        assert p.radius == pytest.approx(math.sqrt(20 if method == bounded.DP_SGD_D else 2))


def test_losses_are_those_of_clipped_noisy_totals(users: fh.Users) -> None:
    """Against dense clipping and SciPy's folded normal."""
    s = setting(users, d=6)
    dense = count_table(users, s.domain)
    truth, size = dense.sum(axis=0), np.sqrt((dense**2).sum(axis=1))
    clips = np.array([0.5, 2.0, 7.3])
    for clip, loss in zip(clips, s.losses_at(clips), strict=True):
        scale = np.minimum(1.0, clip / np.maximum(size, 1e-9))
        bias = truth - (dense * scale[:, None]).sum(axis=0)
        std = clip * s.unit.scale
        expected = foldnorm(np.maximum(bias, 0) / std, scale=std).mean().sum() / truth.sum()
        assert loss == pytest.approx(expected, rel=1e-9)


def test_c_star_is_within_a_factor_two_of_the_best_of_a_fine_search(users: fh.Users) -> None:
    """Theorem 4.3; and the linear search on eight thresholds per octave misses less than 1 %."""
    s = setting(users)
    result = s.measure()
    fine = s.losses_at(np.geomspace(0.05, 200.0, 2000)).min()
    assert result.mean(bounded.BEST) <= 1.01 * fine
    assert fine <= result.mean(bounded.C_STAR) * (1 + 1e-9) <= 2 * fine
    assert result.mean(bounded.M_QUANTILE) >= fine * (1 - 1e-9)


def test_the_printed_rule_minimizes_the_printed_objective(users: fh.Users) -> None:
    """Against a numerical minimum of G(C) + (n lambda / 2) C^2 with the slopes cut to R."""
    s = setting(users)
    task = replace(s.protocol(bounded.OUTPUT_FIXED).task, mass=30.0, c_max=50.0, epsilon=4.0)
    server = Recorder()
    clip = drive(printed_output(task, server), users)[0].clip
    l1, l2, radius, n = s.index.l1, s.index.l2, task.radius, len(users)
    strength = n * 2 * radius * math.sqrt(2) / (50.0 * math.sqrt(n * 4.0))
    slope = np.minimum(np.divide(l1, l2, out=np.zeros_like(l1), where=l2 > 0), radius)

    def objective(c: float) -> float:
        return float((slope * np.maximum(l2 - c, 0)).sum() + 30.0 * c + strength / 2 * c**2)

    best = minimize_scalar(objective, bounds=(0, 50), method="bounded", options={"xatol": 1e-9})
    assert 1.0 < best.x < 50.0
    assert clip == pytest.approx(best.x, rel=3e-3)  # norms are rounded up by at most 0.1 %
    ((_, _, declared),) = server.calls
    assert declared["epsilon"] == 4.0
    assert declared["l1_sensitivity"] == pytest.approx(4 * radius / strength)
