from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.guard import Guard, Policy, Refusal
from fedhist.base.errors import PopulationError, WireError
from fedhist.flower.wire import Question
from fedhist.model.query import Query, Report, Summary
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust, pure
from fedhist.protocols.baselines.naive_mean import NaiveMean
from fedhist.protocols.shared.noninteractive_error import naive_mse, sphere_length
from fedhist.users.batch import Users
from fedhist.users.folds import fold_of, salt_of_folds
from fedhist.users.streams import SeededStreams
from simulations.runs.data_ledger import CapExceeded, DataLedger
from simulations.runs.run import run

BASE = NaiveMean(epsilon=1.0, n_users=40, samples_per_user=3)
CONFIGURATIONS: list[dict[str, Any]] = [
    {"kind": "onebit"},
    {"kind": "laplace"},
    {"kind": "piecewise", "dimension": 3, "low": -2.0, "high": 4.0},
    {"kind": "onebit", "method": "one-item"},
    {"kind": "laplace", "method": "one-item", "dimension": 2, "epsilon": 4.0},
    {"kind": "piecewise", "method": "one-item", "epsilon": 3.0},
    {"kind": "onebit", "method": "item-level", "dimension": 3},
    {"kind": "laplace", "method": "item-level", "epsilon": 3.0},
    {"geometry": "l2", "dimension": 3, "radius": 2.0},
    {"geometry": "l2", "dimension": 2, "method": "one-item"},
    {"geometry": "l2", "dimension": 5, "method": "item-level", "epsilon": 2.0},
    {"geometry": "l2", "dimension": 1},
]


def label(c: dict[str, Any]) -> str:
    return "-".join(str(v) for v in c.values())


each = pytest.mark.parametrize("changes", CONFIGURATIONS, ids=label)


def ragged_users(d: int, seed: int = 0) -> Users:
    """40 users of 0 to 6 samples whose means differ; some samples out of range, one record NaN."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 7, 40)
    sizes[:3] = (0, 2, 6)
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    centres = np.repeat(rng.normal(0.3, 0.3, (40, d)), sizes, axis=0)
    values = centres + rng.normal(0, 0.5, centres.shape)
    values[1] = np.nan
    return Users.from_samples(np.arange(7, 47), indptr, values)


def conclude(protocol: NaiveMean, summary: Summary) -> Any:
    script = protocol.rounds(None)
    next(script).check_summary(summary)
    try:
        script.send(summary)
    except StopIteration as end:
        return end.value
    raise AssertionError("a second query")


# -- errors ----------------------------------------------------------------------------------


@each
def test_the_error_is_exact(changes: dict[str, Any]) -> None:
    """Mean loss over 400 draws of the reports within 5 standard errors (false alarm 6e-7 each).

    The population has empty and NaN records and samples out of range: the bias is in the formula.
    """
    protocol = replace(BASE, **changes)
    users = ragged_users(protocol.dimension)
    truth, bound = protocol.truth(users), protocol.error(users)
    rng = np.random.default_rng(11)
    losses = np.array(
        [
            protocol.loss(conclude(protocol, protocol.query.draw_summary(users, rng)).value, truth)
            for _ in range(400)
        ]
    )
    assert bound.exact
    assert bound.loss == "squared l2"
    assert abs(losses.mean() - bound.expected) < 5 * losses.std() / math.sqrt(len(losses))
    assert losses.std() / math.sqrt(len(losses)) < 0.1 * bound.expected


@pytest.mark.parametrize("changes", [c for c in CONFIGURATIONS if "geometry" not in c], ids=label)
def test_the_error_by_the_enumerated_law(changes: dict[str, Any]) -> None:
    """The formula against the laws of the channels, output by output, for every user or item."""
    protocol = replace(BASE, **changes)
    users, d = ragged_users(protocol.dimension), protocol.dimension
    channel, middle = protocol.channel, protocol.low + protocol.half_width
    z = channel.alphabet() / channel.gain
    fold = fold_of(users.ids, salt_of_folds(protocol.salt), d)
    samples = users.reals
    laws: list[tuple[int, np.ndarray]] = []
    for i, j in enumerate(fold):
        x = samples.values[samples.indptr[i] : samples.indptr[i + 1], j]
        u = (np.clip(x, protocol.low, protocol.high) - middle) / protocol.half_width
        if protocol.method == "user-mean":
            one = u.mean() if len(u) and not np.isnan(u).any() else 0.0
            laws.append((j, channel.law(np.array([one]))[0]))
            continue
        law = channel.law(np.nan_to_num(u)) if len(u) else channel.law(np.zeros(1))
        if protocol.method == "one-item":
            laws.append((j, law.mean(axis=0)))
        else:
            laws += [(j, row) for row in law[: len(u)]]
    mse, truth = 0.0, protocol.truth(users)
    for j in range(d):
        mine = [law for k, law in laws if k == j]
        means = np.array([law @ z for law in mine])
        second = np.array([law @ z**2 for law in mine])
        noise = (second - means**2).sum() / len(mine) ** 2
        bias = middle + protocol.half_width * means.mean() - truth[j]
        mse += protocol.half_width**2 * noise + bias**2
    assert protocol.error(users).expected == pytest.approx(mse, rel=1e-9)


@each
def test_the_aggregate_path_has_the_law_of_the_reports(changes: dict[str, Any]) -> None:
    """Means of the summed reports within 5 standard errors (5e-5 for all cases).

    Variances are compared in tests/channels/test_summed_reports.py.
    """
    protocol = replace(BASE, **changes)
    query, users = protocol.query, ragged_users(protocol.dimension)
    rng, repeats = np.random.default_rng(3), 250
    a = [query.draw_summary(users, rng) for _ in range(repeats)]
    b = [
        query.answer_folded(users, lambda c, s=seed: SeededStreams(c.ids, s, "test"))
        for seed in range(repeats)
    ]
    for x, y in zip(a, b, strict=True):
        assert x.n_users == y.n_users
        for name in x.sums.keys() - {"reports"}:
            assert np.array_equal(x.sums[name], y.sums[name])
        assert x.sums["reports"].dtype == y.sums["reports"].dtype
        query.check_summary(x)
    first, second = (np.array([s.sums["reports"] for s in part], dtype=float) for part in (a, b))
    spread = np.sqrt((first.var(axis=0) + second.var(axis=0)) / repeats)
    assert (np.abs(first.mean(axis=0) - second.mean(axis=0)) <= 5 * spread).all()


def test_spec_figures() -> None:
    """The baselines of the specification, section G, at the midpoint of [-1, 1]."""
    n, T, d = 1000, 64, 16
    common = {"n_users": n, "samples_per_user": T, "epsilon": 1.0}
    coth2 = 1 / math.tanh(0.5) ** 2
    laplace = NaiveMean(kind="laplace", **common)
    assert laplace.planned_mse == pytest.approx(8 / n)
    assert replace(laplace, dimension=d).planned_mse == pytest.approx(8 * d**2 / n)
    onebit = NaiveMean(kind="onebit", method="item-level", **common)
    assert onebit.planned_mse == pytest.approx(coth2 / (n * T))
    box = replace(onebit, dimension=d)
    assert box.planned_mse == pytest.approx(d**2 * coth2 / (n * T))
    ball = NaiveMean(geometry="l2", dimension=d, radius=2.0, **common)
    assert ball.planned_mse == pytest.approx(4 * math.pi * d / 2 * coth2 / n, rel=0.04)
    assert replace(ball, method="item-level").planned_mse == pytest.approx(ball.planned_mse / T)
    item = naive_mse(
        geometry="linf", kind="laplace", epsilon=1.0, dimension=1, scale=1.0,
        n_reports=n * T, item_variance=0.3,
    )  # fmt: skip
    assert item == pytest.approx((0.3 + 8) / (n * T))


def test_more_samples_help_item_level_privacy_only() -> None:
    """The error of the user-level methods keeps its size from T = 1 to T = 256."""
    rng = np.random.default_rng(0)
    for method, least, most in (
        ("user-mean", 0.9, 1.1),
        ("one-item", 0.9, 1.1),
        ("item-level", 200, 310),
    ):
        for geometry, d in (("linf", 1), ("l2", 4)):
            found = []
            for T in (1, 256):
                values = np.clip(rng.normal(0.1, 0.3, (400 * T, d)), -0.5, 0.5)
                users = Users.from_samples(np.arange(400), np.arange(401) * T, values)
                protocol = NaiveMean(
                    1.0, 400, d, method, geometry, kind="onebit", samples_per_user=T
                )
                found.append(protocol.error(users).expected)
            assert least < found[0] / found[1] < most


def test_standard_errors_cover() -> None:
    """Of 400 runs with users of like means at least 93% (99% expected) lie within 2.6 of them."""
    users = Users.from_samples(np.arange(200), np.arange(201) * 2, np.full((400, 3), 0.2))
    rng = np.random.default_rng(5)
    for changes in ({"kind": "onebit"}, {"geometry": "l2"}, {"method": "one-item"}):
        protocol = replace(BASE, dimension=3, **changes)
        inside = []
        for _ in range(400):
            e = conclude(protocol, protocol.query.draw_summary(users, rng))
            inside.append(np.abs(e.value - 0.2) <= 2.6 * e.stderr)
        assert np.mean(inside) > 0.93


# -- what is promised ------------------------------------------------------------------------


def test_user_level_guarantees() -> None:
    for method in ("user-mean", "one-item"):
        for geometry in ("linf", "l2"):
            protocol = replace(BASE, method=method, geometry=geometry)
            assert protocol.guarantee == Guarantee(1.0, 0.0, Trust.LOCAL, Adjacency.REPLACE_USER)
            assert protocol.query.release == pure(1.0)
            assert protocol.query.exact
            Guard(Policy(epsilon=1.0)).admit(
                Question(protocol.query, 0, "d", True), np.arange(3, dtype=np.uint64)
            )


@pytest.mark.parametrize("geometry", ["linf", "l2"])
def test_item_level_privacy_is_named(geometry: str, tmp_path: Path) -> None:
    """The guarantee, the ledger and the estimate say so; real clients and caps refuse it."""
    protocol = replace(BASE, method="item-level", geometry=geometry, samples_per_user=50)
    assert protocol.guarantee.unit == "item"
    assert "per item (NOT user-level)" in str(protocol.guarantee)
    assert "NOT a user-level guarantee" in protocol.guarantee.adjacency.in_words
    estimate = run(protocol, ragged_users(1), seed=1)
    assert any("NOT for a user" in w and "is 50 for" in w for w in estimate.warnings)
    assert estimate.public["user_level_epsilon"] == 50.0
    assert estimate.ledger is not None
    assert [e.label.startswith("item-level") for e in estimate.ledger.entries] == [True]
    with pytest.raises(Refusal):
        Guard(Policy(epsilon=9.0)).admit(
            Question(protocol.query, 0, "d", True), np.arange(3, dtype=np.uint64)
        )
    ledger = DataLedger(tmp_path / "ledger.json")
    with pytest.raises(CapExceeded, match="per item"):
        ledger.reserve("x", protocol.guarantee)
    assert ledger.read()[1] == []


def test_units_and_adjacencies_go_together() -> None:
    with pytest.raises(ValueError, match="got 'group'"):
        Guarantee(1.0, 0.0, Trust.LOCAL, Adjacency.REPLACE_USER, unit="group")
    for unit, adjacency in (("item", Adjacency.REPLACE_USER), ("user", Adjacency.REPLACE_ITEM)):
        with pytest.raises(ValueError, match="does not go with"):
            Guarantee(1.0, 0.0, Trust.LOCAL, adjacency, unit=unit)


def absurd_users() -> Users:
    records = [[[1e300, 1e300]] * 2, [[np.inf, 0.0]], [[np.nan, 1.0]], [], [[0.1, 0.2]] * 7]
    indptr = np.cumsum([0, *map(len, records)])
    return Users.from_samples(
        np.arange(5), indptr, np.concatenate([np.reshape(r, (-1, 2)) for r in records])
    )


@pytest.mark.parametrize("geometry", ["linf", "l2"])
@pytest.mark.parametrize("method", ["user-mean", "one-item"])
def test_messages_do_not_depend_on_the_number_of_samples(geometry: str, method: str) -> None:
    """Absurd and empty records give reports like any other, of one shape and within the bounds."""
    query = replace(BASE, geometry=geometry, method=method, dimension=2).query
    users = absurd_users()
    report = query.answer(users, SeededStreams(users.ids, 0, "x"))
    query.check(report)
    assert report.arrays.keys() == {"reports"}
    assert not report.ragged


def test_item_level_reports_are_sums_over_the_items() -> None:
    """One bit: as odd as the number of items, and no larger; an empty record sends 0 of 0."""
    query = replace(BASE, method="item-level", kind="onebit", dimension=2).query
    users = absurd_users()
    report = query.answer(users, SeededStreams(users.ids, 0, "x"))
    query.check(report)
    assert report.arrays["items"].tolist() == [2, 1, 1, 0, 7]
    assert ((report.arrays["reports"] - report.arrays["items"]) % 2 == 0).all()
    sphere = replace(BASE, method="item-level", geometry="l2", dimension=2).query
    rows = sphere.answer(users, SeededStreams(users.ids, 0, "x")).arrays["reports"]
    length = sphere_length(2, 1.0)
    assert np.linalg.norm(rows, axis=1)[1:4] == pytest.approx([length, length, 0.0])


# -- messages --------------------------------------------------------------------------------


def refused(query: Query, **arrays: np.ndarray) -> None:
    with pytest.raises(WireError):
        query.check(Report(np.arange(2, dtype=np.uint64), arrays))


def test_reports_are_checked() -> None:
    two = np.array([1, 1], dtype=np.int64)
    items = replace(BASE, method="item-level", kind="onebit").query
    refused(items, reports=two)
    refused(items, reports=two + 1, items=two)
    refused(items, reports=two, items=-two)
    refused(items, reports=two * 1.0, items=two)
    refused(items, reports=two, items=two * 1.0)
    ball = replace(BASE, geometry="l2", dimension=2).query
    length = ball.channel.length
    on = np.array([[length, 0.0], [0.0, -length]])
    ball.check(Report(np.arange(2, dtype=np.uint64), {"reports": on}))
    refused(ball, reports=on * 1.001)
    refused(ball, reports=on * 0.999)
    refused(ball, reports=on[:, :1])
    refused(ball, reports=on * np.nan)
    refused(ball, other=on)
    sums = replace(BASE, geometry="l2", dimension=2, method="item-level").query
    sums.check(Report(np.arange(2, dtype=np.uint64), {"reports": on * 0.3, "items": two}))
    refused(sums, reports=on * 1.001, items=two)
    refused(sums, reports=on, items=np.array([1, 0]))
    with pytest.raises(WireError):
        sums.check_summary(Summary(2, {"reports": on[0] * 3, "items": np.array([2])}))
    scalars = {"reports": np.array([2]), "items": np.array([3])}
    items.check_summary(Summary(2, scalars | {"users": np.array([2])}))
    for people in (1, 3):
        with pytest.raises(WireError):
            items.check_summary(Summary(2, scalars | {"users": np.array([people])}))


def test_samples_of_another_dimension_are_refused() -> None:
    for changes in CONFIGURATIONS:
        query = replace(BASE, **changes).query
        users = ragged_users(9)
        with pytest.raises(PopulationError, match="dimension"):
            query.answer(users, SeededStreams(users.ids, 0, "x"))


def test_few_or_no_users() -> None:
    """Without answers it fails; a coordinate without users is its midpoint, and says so."""
    none = ragged_users(4).slice(0, 0)
    for method in ("user-mean", "item-level"):
        for geometry in ("linf", "l2"):
            protocol = replace(BASE, dimension=4, geometry=geometry, method=method)
            rng = np.random.default_rng(0)
            assert conclude(protocol, protocol.query.draw_summary(none, rng)).status == "failed"
    protocol = replace(BASE, dimension=4, low=1.0, high=5.0)
    estimate = run(protocol, ragged_users(4).slice(2, 3), seed=0)
    assert np.isinf(estimate.stderr).sum() == 3
    assert (estimate.value[np.isinf(estimate.stderr)] == 3.0).all()
    assert "3 coordinates have no reports" in estimate.warnings[0]
    nobody = Users.from_samples([1, 2], [0, 0, 0], np.zeros((0, 1)))
    item = replace(BASE, method="item-level")
    assert run(item, nobody, seed=0).reason == "nobody has an item"


@pytest.mark.parametrize(
    "bad",
    [
        {"epsilon": 0.0},
        {"n_users": 0},
        {"dimension": 0},
        {"dimension": 0, "geometry": "l2"},
        {"method": "both"},
        {"geometry": "l1"},
        {"low": 1.0},
        {"radius": 0.0, "geometry": "l2"},
        {"kind": "gauss"},
        {"samples_per_user": 0.5},
        {"samples_per_user": math.inf},
        {"samples_per_user": None, "method": "item-level"},
        {"samples_per_user": "many"},
        {"salt": -1},
    ],
    ids=str,
)
def test_bad_parameters(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="got"):
        replace(BASE, **bad)
