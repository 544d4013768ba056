"""Experiments: the verdicts, the TOML files, and the parts of figures and of Table 1."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from running import Recorder, count_table, drive, table_users
from scipy.optimize import minimize_scalar
from scipy.stats import chisquare, foldnorm, hypergeom

import fedhist as fh
from clients.histograms.contributions import NormHistogram
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.experiments import bounded_domain as bounded
from simulations.experiments import experiment as catalogue
from simulations.experiments import table1
from simulations.experiments.bounded_domain import NormIndex, printed_output
from simulations.experiments.experiment import Check, Request, experiment
from simulations.experiments.unbounded_domain import Release, kept_totals, margins, scores_of
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


@pytest.mark.parametrize("radius", [0.0, 1.7])
def test_the_index_answers_as_the_users_do(users: fh.Users, radius: float) -> None:
    """Bit for bit, with edges below, between, at and above the norms."""
    domain = fh.Keys.of(users.vocabulary[j] for j in range(20))
    index = NormIndex(users, domain)
    at_norms = sorted({float(v) for v in index.l2[:5] if v > 0})
    for edges in ((0.0,), (1.0, 2.5, 4.0, 1e9), tuple(at_norms), (1e9,)):
        query = NormHistogram(domain, edges, 2, radius)
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


CLIPS = np.array([1, 2, 5, 9, 40])


def some_users(n: int = 300, d: int = 7, seed: int = 3, mean: float = 9.0) -> Users:
    rng = np.random.default_rng(seed)
    counts = rng.poisson(mean / d * rng.gamma(0.5, 2.0, (n, 1)), (n, d))
    return table_users(counts)


def dense(users: Users) -> NDArray[np.float64]:
    return count_table(users, users.vocabulary)


def twins(n: int, first: int, second: int) -> Users:
    """n users with two items each that nobody else has, so that totals show every user."""
    user = np.repeat(np.arange(n), 2)
    words = Keys.of([f"{u:05d}{letter}" for u in range(n) for letter in "ab"])
    return Users.from_counts(np.arange(n), user, np.arange(2 * n), [first, second] * n, words)


def test_every_threshold_keeps_its_number_of_tokens_and_only_adds() -> None:
    """Sums are those of min(m, C); columns grow with C up to the raw totals."""
    users = some_users()
    sizes = dense(users).sum(axis=1)
    assert (sizes == 0).any()
    assert sizes.max() > 40
    clips = np.append(CLIPS, sizes.max())
    kept = kept_totals(users, clips, np.random.default_rng(5))
    assert kept.sum(axis=1).tolist() == [np.minimum(sizes, c).sum() for c in clips]
    assert (np.diff(kept, axis=0) >= 0).all()
    assert (kept[-1] == dense(users).sum(axis=0)).all()
    assert (margins(users)[0] == sizes).all()
    assert (margins(users)[1] == kept[-1]).all()


def test_kept_counts_are_hypergeometric() -> None:
    """Chi-squared, 6,000 users, three thresholds: a correct program fails with probability 3e-6."""
    n, first, second, rng = 6000, 3, 5, np.random.default_rng(1)
    kept = kept_totals(twins(n, first, second), np.array([1, 4, 6]), rng)[:, ::2]
    for c, drawn in zip((1, 4, 6), kept, strict=True):
        law = hypergeom(first + second, first, c).pmf(np.arange(c + 1))
        drawn = np.bincount(drawn, minlength=c + 1)
        assert not drawn[law == 0].any()
        few = law * n < 5
        pooled = (
            np.append(drawn[~few], drawn[few].sum()),
            np.append(law[~few], law[few].sum()) * n,
        )
        live = pooled[1] > 0
        assert chisquare(pooled[0][live], pooled[1][live]).pvalue > 1e-6


def test_expected_loss_is_the_mean_of_real_runs() -> None:
    """4,000 draws of the noise, within 5 standard errors: false alarm 1.2e-6."""
    release = Release(0.5, 0.01)
    kept, totals = np.array([0, 3, 30, 55, 200]), np.array([4, 3, 41, 55, 230])
    rng = np.random.default_rng(4)
    for clip in (1, 6):
        runs = [release.measured(clip, kept, totals, rng) for _ in range(4000)]
        error = np.std(runs) / math.sqrt(len(runs))
        assert abs(release.expected(clip, kept, totals) - np.mean(runs)) < 5 * error


def test_scores_are_the_formulas() -> None:
    users = some_users()
    release = Release(2.0, 0.01)
    task = release.task(1.0, 20, 4)
    counts = dense(users)
    m = counts.sum(axis=1)
    for c, score in zip(task.grid, scores_of(task, users), strict=True):
        h = (counts * np.minimum(1.0, c / np.maximum(m, 1))[:, None]).sum(axis=0)
        t, lost = release.level(c), np.maximum(m - c, 0).sum()
        assert score == pytest.approx(2 * lost + np.minimum(h, t).sum(), rel=1e-6)


def ask(name: str, *overrides: str, seed: int = 0, **more: str) -> Request:
    few = () if more.get("population") == "sentiment140" else ("population.n_users=2000",)
    data = Path(more.pop("data")) if "data" in more else None
    return experiment(name).request(
        overrides=(*few, *overrides), seed=seed, quick=True, data=data, **more
    )


def test_table1_shows_all_readings() -> None:
    """Thirteen lines each for i.i.d. and not; a cause stands with failures."""
    result = experiment("table1").run(ask("table1", "clip_step=200"))
    readings = ("as printed", "fitted", "fitted, n = 200")
    names = [f"{k}, d = 50 ({r})" for k in ("i.i.d.", "non-i.i.d.") for r in readings]
    assert list(dict.fromkeys(c.setting for c in result.checks)) == names
    by = {(c.setting, c.quantity): c for c in result.checks}
    for name in names:
        best, private = by[name, "best C"], by[name, "private C*"]
        assert best.paper is not None
        assert 0 < best.ours <= private.ours <= 1.2
        share = by[name, table1.ONE_RUN]
        assert (share.low, share.high) == pytest.approx((0.025, 0.975))
        assert 0 <= share.ours <= 1
        assert not private.judged
        assert not by[name, "private C* / best C"].judged
        assert by[name, "private C* / best C"].ours == pytest.approx(private.ours / best.ours)
    assert all(c.cause for c in result.failures if "as printed" in c.setting)
    assert {c.panel for c in result.curves} == set(names)
