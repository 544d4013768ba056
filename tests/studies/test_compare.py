"""Comparisons: rankings known in closed form, one truth and one budget, failures that count."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from commands import Command
from rich.console import Console
from scipy import optimize, stats

from fedhist.model import registry
from fedhist.model.registry import load_builtin, protocol_class
from fedhist.privacy.guarantee import Adjacency
from fedhist.users.keys import Keys
from simulations.populations.shared_mean import Uniform
from simulations.populations.zipf import Zipf
from simulations.reporting.export import save_figure
from simulations.studies.compare import tables as compare_tables
from simulations.studies.compare.config import builtin_comparisons, load_comparison
from simulations.studies.compare.output import read_comparison, summary_of
from simulations.studies.compare.rows import Row
from simulations.studies.compare.run import Compared, ranked, run_comparison
from simulations.studies.compare.setup import _flags, set_up
from simulations.studies.compare.tables import absent_kinds, print_comparison
from simulations.studies.records.cells import Record, run_cell
from simulations.studies.records.losses import in_loss
from simulations.studies.records.truth import Exact, sampling_error

PLUGIN = Path(__file__).with_name("histograms.py")
HEAD = f"""
[run]
runtime = "inline"
seed = 5
plugins = ["{PLUGIN}"]
"""
ZIPF = """
[population]
kind = "zipf"
n_users = 300
d = 40
exponent = 0
mean_items = {items}
tail = {tail}
seed = 3
"""


@pytest.fixture(autouse=True, scope="module")
def _leave_no_plugin() -> Iterator[None]:
    yield
    for name in ("test-moody", "test-shares", "test-stubborn", "test-greedy"):
        registry._protocols.pop(name, None)


def written(folder: Path, compare: str, *, items: float = 60, tail: str = "inf") -> Path:
    path = folder / "mine.toml"
    path.write_text(HEAD + "[compare]\n" + compare + ZIPF.format(items=items, tail=tail))
    return path


def compared(path: Path | str, *overrides: str, workers: int = 0) -> Compared:
    return run_comparison(set_up(load_comparison(path, overrides)), workers=workers)


def histograms(*rows: str, more: str = "") -> str:
    entries = ",\n".join(f"{{ {row} }}" for row in rows)
    return f"epsilon = 1.0\ndelta = 1e-6\nseeds = 20\n{more}\nprotocols = [\n{entries}]\n"


LAPLACE = 'name = "bounded-histogram", delta = 0, nonneg = false, clip = {}, label = "Laplace"'
GAUSSIAN = 'name = "bounded-histogram", nonneg = false, clip = {}, label = "Gaussian"'


def analytic_sigma(epsilon: float, delta: float) -> float:
    """Solve the Gaussian mechanism's exact condition for sensitivity 1."""

    def excess(s: float) -> float:
        a, b = 0.5 / s - epsilon * s, -0.5 / s - epsilon * s
        return float(stats.norm.cdf(a) - math.exp(epsilon) * stats.norm.cdf(b) - delta)

    return float(optimize.brentq(excess, 0.5, 50))


@pytest.mark.parametrize(("items", "l2", "first"), [(60, 20.0, "Gaussian"), (4, 4.0, "Laplace")])
def test_a_ranking_that_is_known(tmp_path: Path, items: int, l2: float, first: str) -> None:
    """Nobody is clipped; under replacement the sensitivities are 2 C in l1 and sqrt(2) C in l2.

    An absolute deviation's standard deviation is less than its mean: of 40 items and 20 seeds,
    the relative standard error is at most 1 / sqrt(800). Five of them: a false alarm in 10^6.
    """
    users = Zipf(n_users=300, d=40, exponent=0, mean_items=items, tail=math.inf, seed=3).load()
    counts = users.users.counts
    owner = np.repeat(np.arange(300), np.diff(counts.indptr))
    assert np.sqrt(np.bincount(owner, counts.count.astype(float) ** 2)).max() <= l2
    rows = histograms(LAPLACE.format(items), GAUSSIAN.format(l2))
    found = compared(written(tmp_path, rows, items=items))
    sigma = math.sqrt(2) * l2 * analytic_sigma(1.0, 1e-6)
    expected = {"Laplace": 40 * 2 * items, "Gaussian": 40 * sigma * math.sqrt(2 / math.pi)}
    assert [r.label for r in found.rows] == sorted(expected, key=lambda k: expected[k])
    assert [r.rank for r in found.rows] == [1, 2]
    assert found.rows[0].label == first
    for row in found.rows:
        assert row.mean == pytest.approx(expected[row.label], rel=5 / math.sqrt(800))
        assert row.predicted == pytest.approx(expected[row.label], rel=1e-6)
        assert {(r.adjacency, r.epsilon) for r in row.records} == {("replace-user", 1.0)}


def record(seed: int, loss: float | None, **more: Any) -> Record:
    known = {"label": "x", "status": "failed" if loss is None else "ok", "loss_name": "l1"}
    return Record(f"k{seed}", loss=loss, seed=seed, **(known | more))


def test_students_interval() -> None:
    """Of 1, 2, 3, 4: s = sqrt(5 / 3), and the 97.5 % quantile at 3 degrees is 3.18245."""
    row = Row(None, "x", "x", (), tuple(record(i, i + 1.0) for i in range(4)))
    assert row.mean == 2.5
    assert row.half_width == pytest.approx(3.182446 * math.sqrt(5 / 3) / 2, rel=1e-6)
    assert replace(row, records=row.records[:1]).half_width is None


def test_the_order_of_rows() -> None:
    def row(label: str, *losses: float | None, flags: tuple[str, ...] = ()) -> Row:
        return Row(None, label, "x", flags, tuple(map(record, range(len(losses)), losses)))

    rows = [
        row("flagged", 0.1, 0.1, flags=("NOT PRIVATE",)),
        row("never", None, None),
        row("sometimes", None, 0.2),
        row("second", 2.0, 2.0),
        row("first", 1.0, 1.5),
        row("not a number", math.nan, 1.0),
    ]
    found = [(r.rank, r.label) for r in ranked(rows)]
    assert found == [
        (1, "first"),
        (2, "second"),
        (3, "not a number"),
        (4, "sometimes"),
        (None, "never"),
        (None, "flagged"),
    ]


def test_failed_runs_are_counted(tmp_path: Path) -> None:
    """Each run fails where its first count is above the true one: with probability 1/2."""
    exact = Zipf(n_users=300, d=40, exponent=0, mean_items=60, tail=math.inf, seed=3).load()
    first = float(exact.users.counts.count[exact.users.counts.item == 0].sum())
    moody = f'name = "test-moody", clip = 1, nonneg = false, delta = 0, most = {first}'
    rows = histograms(
        GAUSSIAN.format(20), moody.replace("clip = 1,", 'clip = 60, label = "moody",')
    )
    found = compared(written(tmp_path, rows))
    good, bad = found.rows
    assert (good.label, bad.label, bad.rank) == ("Gaussian", "moody", 2)
    values = [r.loss for r in bad.records]
    assert 0 < bad.missing["failed"] < 20
    assert bad.missing["failed"] == values.count(None)
    assert bad.mean == pytest.approx(np.mean([x for x in values if x is not None]))
    text = shown(found)
    assert f"{bad.missing['failed']} of 20 runs failed" in " ".join(text.split())
    assert "failed: the first count is high" in text
    never = compared(written(tmp_path, rows.replace(str(first), "-1e9")))
    assert (never.rows[-1].rank, never.rows[-1].mean) == (None, None)
    assert "20 of 20 runs failed" in " ".join(shown(never).split())
    save_figure(never.draw, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def shown(found: Compared) -> str:
    text = io.StringIO()
    print_comparison(Console(width=80, file=text, highlight=False), found)
    return text.getvalue()


def test_who_is_flagged_and_who_is_left_out(tmp_path: Path) -> None:
    rows = histograms(
        GAUSSIAN.format(20),
        'name = "test-stubborn", clip = 20',
        'name = "test-greedy", clip = 20',
        'name = "test-shares", clip = 20',
        'name = "bounded-histogram", clip = 20, adjacency = "add-remove-user", label = "add"',
        'name = "bounded-histogram", clip = "best", label = "best"',
        'name = "bounded-histogram", clip = 60, epsilon = inf, label = "no noise"',
    )
    found = compared(written(tmp_path, rows), "compare.seeds=2")
    assert {r.label for r in found.rows if r.rank} == {"Gaussian", "test-shares"}
    other = next(r for r in found.rows if r.label == "test-shares")
    total = float(
        Zipf(n_users=300, d=40, exponent=0, mean_items=60, tail=math.inf, seed=3)
        .load()
        .users.counts.count.sum()
    )
    assert other.off == pytest.approx(0.9 * total)
    assert other.relative == pytest.approx((other.mean or 0.0) / total)
    flags = {r.label: r.flags for r in found.rows}
    assert flags["test-stubborn"] == ("other adjacency: zero-out-user",)
    assert flags["add"] == ("other adjacency: add-remove-user",)
    assert flags["no noise"] == ("NOT PRIVATE",)
    assert "read the data" in flags["best"][0]
    left = {x.label: x.reason for x in found.ready.left_out}
    assert "passes the common budget (1, 1e-06): (2, 1e-06)-DP" in left["test-greedy"]
    assert "test-shares" not in left
    text = shown(found)
    for word in ("other adjacency: zero-out-user", "left out", "other truth:", "NOT PRIVATE"):
        assert word in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_warnings_of_the_runs_are_quoted(tmp_path: Path) -> None:
    """Ragged users, of whom hardly any have the samples that the protocol was told of."""
    compare = 'target = "distribution"\nepsilon = 4.0\ndelta = 1e-6\nseeds = 2\n'
    rows = 'protocols = [{ name = "distribution", mechanism = "gaussian" }]\n'
    told = "[protocol]\nsamples_per_user = 400\n"
    found = compared(written(tmp_path, compare + rows + told, tail="1.2"))
    (row,) = (r for r in found.rows if r.label == "distribution")
    said = row.records[0].warnings
    assert said
    assert f"distribution: {said[0]} (2 of 2 runs)" in " ".join(shown(found).split())


def test_replacement_implies_zeroing_out(tmp_path: Path) -> None:
    rows = histograms(
        GAUSSIAN.format(20),
        'name = "bounded-histogram", clip = 20, adjacency = "replace-user", label = "replaced"',
        more='adjacency = "zero-out-user"',
    )
    ready = set_up(load_comparison(written(tmp_path, rows)))
    assert [c.flags for c in ready.contenders] == [(), ()]
    assert ready.contenders[0].table["adjacency"] == "zero-out-user"


def test_a_null_safe_protocol_says_the_same_of_adding() -> None:
    """And of emptying; where the number of users is public nothing is said of adding."""
    quantiles, histogram = (protocol_class(n).example() for n in ("quantiles", "bounded-histogram"))
    add_remove, zero_out = Adjacency.ADD_REMOVE_USER, Adjacency.ZERO_OUT_USER
    assert quantiles.guarantee.adjacency is Adjacency.REPLACE_USER
    assert _flags(zero_out, quantiles) == _flags(zero_out, histogram) == ()
    assert _flags(add_remove, quantiles) == ("other adjacency: replace-user",)
    assert _flags(add_remove, histogram) == ("other adjacency: zero-out-user",)
    for stated in (quantiles, histogram):
        hidden = replace(stated, adjacency=add_remove.value)
        assert _flags(add_remove, hidden) == _flags(zero_out, hidden) == ()


def test_what_rows_estimate_is_said(tmp_path: Path) -> None:
    found = compared(written(tmp_path, histograms(GAUSSIAN.format(20))))
    assert f"estimates total: {found.rows[0].label}" in " ".join(shown(found).split())


def test_a_target_takes_all_that_can_be_configured(tmp_path: Path) -> None:
    """Users of equal and of ragged sizes: all of them estimate the average of users."""
    compare = 'target = "distribution"\nepsilon = 4.0\ndelta = 1e-6\nseeds = 1\n'
    given = "[protocol]\nsamples_per_user = 60\n"
    for tail in ("inf", "2.0"):
        ready = set_up(load_comparison(written(tmp_path, compare + given, tail=tail)))
        kept = {c.protocol.name: c.flags for c in ready.contenders}
        left = {x.protocol: x.reason for x in ready.left_out}
        everybody = {n for n, cls in registry.protocols().items() if cls.target == "distribution"}
        assert kept.keys() | left.keys() == everybody
        assert kept["distribution"] == kept["ragged-distribution"] == ()
    one = 'protocols = [{ name = "ragged-distribution" }]\n'
    ready = set_up(load_comparison(written(tmp_path, compare + one)))  # no samples_per_user
    assert "samples_per_user" in {x.protocol: x.reason for x in ready.left_out}["distribution"]
    without = written(tmp_path, compare + 'without = ["ragged-distribution"]\n' + given)
    ready = set_up(load_comparison(without))
    left = {x.protocol: x.reason for x in ready.left_out}
    assert "compare.without" in left["ragged-distribution"]


def test_losses_in_the_same_units(tmp_path: Path) -> None:
    """few-users-mean reports l2 and mean the squared error; the table has both squared."""
    ready = set_up(load_comparison("mean", ["compare.seeds=2", "population.n_users=2000"]))
    found = run_comparison(ready)
    few = next(r for r in found.rows if r.protocol == "few-users-mean")
    plain = next(r for r in found.rows if r.protocol == "mean")
    assert ready.loss == "squared l2"
    for row in (few, plain):
        assert {r.loss_name for r in row.records} == {"squared l2"}
    own = run_cell(next(c for c in ready.cells if c.label == few.label))
    assert (own.loss_name, few.records[0].more["own_loss"]) == ("l2", own.loss)
    assert own.loss is not None
    assert own.predicted is not None
    assert few.records[0].loss == pytest.approx(own.loss**2)
    assert few.predicted == pytest.approx(own.predicted**2)
    assert plain.records[0].predicted == run_cell(plain.records[0].tables).predicted


def test_a_prediction_in_another_loss_is_dropped() -> None:
    losses = {"l1": 3.0, "l2": 2.0, "squared l2": 4.0, "linf": 1.5}
    one = record(0, 4.0, loss_name="mse", losses=losses, predicted=5.0, predicted_exact=True)
    squared, l1 = in_loss(one, "squared l2"), in_loss(one, "l1")
    assert (squared.loss, squared.predicted, squared.predicted_exact) == (4.0, 5.0, True)
    assert (l1.loss, l1.predicted, l1.more["own_predicted"]) == (3.0, None, 5.0)
    assert (in_loss(replace(one, losses={}), "l1").status) == "error"
    assert in_loss(record(0, None), "l2").loss is None


def test_truths_are_matched_by_item() -> None:
    a = Exact(np.array([1.0, 2.0, 0.0]), Keys.of(["x", "y", "z"]))
    b = Exact(np.array([2.0, 1.0]), Keys.of(["y", "x"]))
    assert a.same(b)
    assert b.same(a)
    assert not a.same(Exact(np.array([2.0, 1.0, 1e-3]), Keys.of(["y", "x", "w"])))
    assert Exact(np.zeros(2), None).gap(Exact(np.zeros(3), None)) == math.inf
    infinite = Exact(np.array([math.inf]), None)
    assert not infinite.same(Exact(np.zeros(1), None))
    assert not infinite.same(infinite)


def test_sampling_error_of_a_mean() -> None:
    """Against the mean of the law, over 400 populations; the mean of 800 squares errs by 5 %."""
    true, claimed = [], []
    for seed in range(400):
        users = Uniform(
            n_users=30,
            samples_per_user=[1, 9],
            mean=[0.2, -0.3],
            spread=0.5,
            dimension=2,
            seed=seed,
        )
        loaded = users.load().users
        rows = np.add.reduceat(loaded.reals.values, loaded.reals.indptr[:-1], axis=0)
        means = rows / np.diff(loaded.reals.indptr)[:, None]
        truth = Exact(means.mean(axis=0), None)
        true.append(float(np.square(truth.value - users.centre).sum()))
        error = sampling_error(truth, loaded, "squared l2")
        assert error is not None
        claimed.append(error)
        assert sampling_error(Exact(truth.value + 0.1, None), loaded, "l2") is None
    assert np.mean(claimed) == pytest.approx(np.mean(true), rel=0.25)


@pytest.mark.parametrize("counts", [True, False])
def test_sampling_error_of_items(counts: bool) -> None:
    """Against the law of Zipf items: expected counts, or shares; five standard errors are 8 %."""
    weights = np.arange(1, 9) ** -1.0
    weights /= weights.sum()
    true, claimed = [], []
    for seed in range(200):
        loaded = Zipf(n_users=200, d=8, mean_items=6, tail=math.inf, seed=seed).load()
        items = loaded.users.counts
        owner = np.repeat(np.arange(200), np.diff(items.indptr))
        table = np.zeros((200, 8))
        table[owner, items.item] = items.count
        value = table.sum(axis=0) if counts else (table / table.sum(axis=1, keepdims=True)).mean(0)
        law = weights * (1200 if counts else 1)
        true.append(float(np.abs(value - law).sum()))
        error = sampling_error(Exact(value, loaded.domain), loaded.users, "l1")
        assert error is not None
        claimed.append(error)
    assert np.mean(claimed) == pytest.approx(np.mean(true), rel=0.08)


def without_seconds(found: Compared) -> Any:
    body = summary_of(found)
    for part in (*body["rows"], *body["records"]):
        part.pop("seconds")
    return body


def test_the_same_seeds_give_the_same_table(tmp_path: Path) -> None:
    path = written(tmp_path, histograms(LAPLACE.format(60), GAUSSIAN.format(20)))
    first = compared(path, "compare.seeds=3")
    assert without_seconds(compared(path, "compare.seeds=3")) == without_seconds(first)
    other = compared(path, "compare.seeds=[9, 8]")
    assert [r.seed for r in other.rows[0].records] == [9, 8]
    assert other.rows[0].mean != first.rows[0].mean


@pytest.mark.ray
@pytest.mark.usefixtures("one_ray")
def test_workers_give_the_same_table(tmp_path: Path) -> None:
    path = written(tmp_path, histograms(LAPLACE.format(60), GAUSSIAN.format(20)))
    inline = compared(path, "compare.seeds=3")
    assert without_seconds(compared(path, "compare.seeds=3", workers=2)) == without_seconds(inline)


def test_the_folder(tmp_path: Path) -> None:
    path = written(tmp_path, histograms(LAPLACE.format(60), GAUSSIAN.format(20)))
    found = compared(path, "compare.seeds=2")
    target = tmp_path / "out"
    found.save(target)
    found.save(target)  # an older one is replaced
    body, records = read_comparison(target)
    assert records == found.records
    assert [r["label"] for r in body["rows"]] == ["Gaussian", "Laplace"]
    assert body["reference"]["loss"] == 0.0
    assert pl.read_parquet(target / "records.parquet")["loss"].to_list() == [
        r.loss for r in records
    ]
    assert "Gaussian" in (target / "table.txt").read_text()
    assert (target / "figure.png").read_bytes().startswith(b"\x89PNG")
    newer = json.loads((target / "comparison.json").read_text()) | {"schema": 2}
    (target / "comparison.json").write_text(json.dumps(newer))
    with pytest.raises(ValueError, match="newer fedhist"):
        read_comparison(target)
    with pytest.raises(ValueError, match=r"no comparison\.json"):
        read_comparison(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("seeds = 20", "seed = 20"), "'seed'; did you mean 'seeds'"),
        (("seeds = 20", "seeds = 0"), "seeds must be a positive number"),
        (("epsilon = 1.0", "epsilon = -1.0"), "compare.epsilon must be a positive number"),
        (("epsilon = 1.0", "delta = 1e-6"), "not TOML"),
        (("epsilon = 1.0\n", ""), r"\[compare\] needs the key 'epsilon'"),
        (("seeds = 20", 'adjacency = "replace"'), "compare.adjacency must be one of"),
        (("seeds = 20", 'loss = "l3"'), "compare.loss must be one of"),
        (("seeds = 20", 'target = "mean"'), "estimates another target, 'histogram'"),
        (("seeds = 20", 'without = ["mean"]'), "without leaves out protocols of compare.target"),
        (("clip = 60", "clip = -60"), "Laplace: protocol.clip"),
        (("clip = 60", "clipp = 60"), "Laplace: unknown parameter"),
        (('"Laplace"', '"Gaussian"'), "two rows are called 'Gaussian'"),
        (('name = "bounded-histogram", delta', 'name = "bounded", delta'), "unknown protocol"),
        (("[population]", "[protocol]\nclap = 3\n[population]"), "has the parameter 'clap'"),
        (("[population]", "[protocol]\nepsilon = 3\n[population]"), "stands in \\[compare\\]"),
        (("seed = 5", "seed = 5\nrepeats = 3"), "compare.seeds repeats runs"),
        (("[compare]", "[compared]"), "unknown table 'compared'; did you mean 'compare'"),
    ],
)
def test_files_that_cannot_be_meant(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    path = written(tmp_path, histograms(LAPLACE.format(60), GAUSSIAN.format(20)))
    assert change[0] in path.read_text()
    path.write_text(path.read_text().replace(*change, 1))
    with pytest.raises(ValueError, match=message):
        set_up(load_comparison(path))


def test_built_in_comparisons_are_complete() -> None:
    """Every row that a built-in file names can be run, at fewer users."""
    assert set(builtin_comparisons()) >= {"histogram", "distribution", "mean"}
    for name in builtin_comparisons():
        comparison = load_comparison(name, ["population.n_users=300"])
        ready = set_up(comparison)
        labels = {c.label for c in ready.contenders}
        assert labels >= {e.label for e in comparison.entries if e.named}
        # known of averages and totals, in distances between vectors only
        assert bool(ready.sampling) == (ready.loss not in {"ise", "rank error"})


def test_the_command(tmp_path: Path, fedhist: Command) -> None:
    path = written(tmp_path, histograms(LAPLACE.format(60), GAUSSIAN.format(20)))
    answer = fedhist("compare", path, "--seeds", 2, "--out", "here")
    assert answer.status == 0
    assert (tmp_path / "here" / "table.txt").read_text() in answer.out
    assert len(read_comparison(tmp_path / "here")[1]) == 4
    answer = fedhist("compare", path, "--seeds", 1, "--set", "compare.epsilon=2")
    assert answer.status == 0
    assert len(list((tmp_path / "results").glob("compare-mine-*"))) == 1
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    answer = fedhist("compare", path, "--out", "taken")
    assert answer.status == 2
    assert "left alone" in answer.err
    assert fedhist("compare", "no-such").status == 2
    assert fedhist("compare", tmp_path / "no.toml").status == 2
    for arguments, said in (((), "distribution"), (("mean", "--show"), "[compare]")):
        answer = fedhist("compare", *arguments)
        assert answer.status == 0
        assert said in answer.out


def test_the_figure_of_errors_that_are_zero(tmp_path: Path) -> None:
    rows = histograms('name = "bounded-histogram", clip = 60, epsilon = inf, label = "no noise"')
    found = compared(written(tmp_path, rows), "compare.seeds=2")
    assert [(r.mean, r.rank) for r in found.rows] == [(0.0, None)]
    save_figure(found.draw, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")


def test_means_that_are_zero_count() -> None:
    """Half of the users have the mean 0: it is a mean like others."""
    loaded = Uniform(n_users=6, samples_per_user=2, mean=0.0, spread=0.5, seed=1).load().users
    values = np.array([1, -1] * 3 + [1, 1, 0, 1, -1, 0], dtype=float)[:, None]
    users = replace(loaded, samples=replace(loaded.samples, values=values))
    means = np.array([0, 0, 0, 1, 0.5, -0.5])
    found = sampling_error(Exact(means[:3].mean(keepdims=True), None), users, "squared l2")
    assert found is None  # another statistic
    found = sampling_error(Exact(means.mean(keepdims=True), None), users, "squared l2")
    assert found == pytest.approx(float(np.var(means, ddof=1)) / 6)


def test_a_comparison_says_what_is_not_private(tmp_path: Path) -> None:
    """Also where no setting read the data: who compares knows the truth."""
    stream = io.StringIO()
    rows = histograms(GAUSSIAN.format(60))
    print_comparison(
        Console(file=stream, width=80), compared(written(tmp_path, rows), "compare.seeds=2")
    )
    told = " ".join(stream.getvalue().split())
    assert "noise: simulated; clients: per-user; composed by: " in told
    assert "nothing was spent" not in told
    assert "NOT PRIVATE in these runs errors, theory and times" in told


def test_tables_that_a_comparison_has_not() -> None:
    with pytest.raises(ValueError, match="unknown table 'budget'; there are 'run', 'protocol'"):
        load_comparison("mean", ["budget.epsilon=0"])
    with pytest.raises(ValueError, match="did you mean 'compare'"):
        load_comparison("mean", ["compar.epsilon=1"])


def test_kinds_that_a_target_has_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read from the registry: every kind is there, or the table says that it is not."""
    load_builtin()
    assert absent_kinds("mean") == []
    assert absent_kinds("parameters") == ["local"]
    found = compared(written(tmp_path, histograms(LAPLACE.format(60), GAUSSIAN.format(20))))
    assert "no registered protocol" not in shown(found)
    only = {"bounded-histogram": registry.protocol_class("bounded-histogram")}
    monkeypatch.setattr(compare_tables, "protocols", lambda: only)
    told = "no registered protocol for a histogram is local"
    assert told in " ".join(shown(found).split())


def test_l1_of_a_frequency_oracle_is_predicted_from_its_variance(tmp_path: Path) -> None:
    """Its theory is the squared distance, here k sigma^2; l1 is then k sigma sqrt(2 / pi).

    Means of 40 runs of 20 symbols: their relative standard error is 1.4 per cent, and a correct
    program is off by five of them once in a million times.
    """
    path = tmp_path / "oracles.toml"
    path.write_text(
        HEAD
        + """[compare]
epsilon = 1.0
seeds = 40
protocols = [
  { name = "frequency-oracle", kind = "hadamard", label = "hadamard" },
  { name = "frequency-oracle", kind = "unary", label = "unary" },
]
[population]
kind = "zipf"
n_users = 2000
d = 20
exponent = 0.5
mean_items = 1
tail = inf
seed = 7
"""
    )
    found = compared(path)
    assert found.ready.loss == "l1"
    assert {r.entries for r in found.records} == {20}
    for row in found.rows:
        own = row.records[0].more["own_predicted"]
        assert row.predicted == pytest.approx(math.sqrt(2 / math.pi * 20 * own))
        assert row.ratio == pytest.approx(1, abs=0.07)
        assert not row.records[0].predicted_exact
    assert "follows from their squared l2" in " ".join(shown(found).split())
