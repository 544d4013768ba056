"""One truth and one scale: exact answers by hand, known biases, trivial answers as rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedhist.model.registry import protocol_class
from fedhist.model.truths import Truth
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.studies.compared import Compared, run_study
from simulations.studies.levels import with_common
from simulations.studies.losses import item_measures, trivial_answers
from simulations.studies.study import load_study, study_of
from simulations.studies.truths import exact_of, known_truths

EVENTS = {  # ann has four teas, bob one coffee, eve a tea and a coffee, dan nothing of the domain
    "ann": {"tea": 4},
    "bob": {"coffee": 1},
    "eve": {"tea": 1, "coffee": 1},
    "dan": {"milk": 2},
}
DOMAIN = ["coffee", "tea"]
SHARES = {
    Truth.AVERAGE_OF_USERS: [1.5 / 3, 1.5 / 3],
    Truth.POOLED: [2 / 7, 5 / 7],
    Truth.ONE_ITEM: [1.5 / 4, 1.5 / 4],
}
COUNTS = {Truth.TOTAL: [2, 5], Truth.ONE_ITEM: [1.5, 1.5]}


def rows() -> list[tuple[str, str, int]]:
    return [(u, i, n) for u, items in EVENTS.items() for i, n in items.items()]


@pytest.fixture(scope="module")
def users() -> Users:
    import polars as pl

    table = pl.DataFrame(rows(), schema=["user", "item", "n"], orient="row")
    return Users.from_frame(table, user="user", item="item", count="n")


@pytest.mark.parametrize(
    ("name", "expected"), [("frequency-oracle", SHARES), ("local-histogram", COUNTS)]
)
def test_truths_of_items_by_hand(
    name: str, expected: dict[Truth, list[float]], users: Users
) -> None:
    protocol = protocol_class(name).example()
    domain = Keys.of(DOMAIN)
    assert set(known_truths(protocol)) == set(expected)
    for truth, value in expected.items():
        exact, judged = exact_of(truth, protocol, users, domain)
        assert exact.value == pytest.approx(value)
        assert (exact.keys, judged) == (domain, users)
    with pytest.raises(
        ValueError, match="cannot be held against the truth 'average risk of users'"
    ):
        exact_of(Truth.AVERAGE_RISK, protocol, users, domain)


def test_truths_of_samples_by_hand() -> None:
    """Users with the samples 0, 0, 0 and 1: 1/2 on average, 1/4 pooled."""
    protocol = protocol_class("box-mean").example()
    x = np.repeat([[0.0], [0.0], [0.0], [1.0]], 3, axis=1)
    users = Users.from_samples(np.arange(2, dtype=np.uint64), np.array([0, 3, 4]), x)
    found = {
        t: exact_of(t, protocol, users, None)[0].value.tolist() for t in known_truths(protocol)
    }
    assert found == {Truth.AVERAGE_OF_USERS: [0.5] * 3, Truth.POOLED: [0.25] * 3}


FILE = """
[run]
runtime = "inline"
seed = 1
[compare]
epsilon = {epsilon}
seeds = 2
{more}
protocols = [
    {{ name = "local-distribution", label = "all items", samples_per_user = 6 }},
    {{ name = "frequency-oracle", label = "one item" }},
]
[population]
kind = "events"
path = "{path}"
user = "user"
item = "item"
count = "n"
domain = "{domain}"
"""


def compared(folder: Path, more: str, epsilon: str = "4.0") -> Compared:
    """Every user of the file above 500 times."""
    lines = [f"{u}{k},{i},{n}" for k in range(500) for u, i, n in rows()]
    (folder / "events.csv").write_text("\n".join(["user,item,n", *lines]))
    (folder / "domain.txt").write_text("\n".join(DOMAIN))
    path = folder / "truths.toml"
    path.write_text(
        FILE.format(
            epsilon=epsilon, more=more, path=folder / "events.csv", domain=folder / "domain.txt"
        )
    )
    return run_study(load_study(path))


def shown(found: Compared) -> str:
    return found.written("txt").decode()


OFF = {  # l1 distances of what each of the two estimates from the truth that is asked
    "average of users": {"all items": None, "one item": 1 / 4},
    "pooled": {"all items": 3 / 7, "one item": 3.0 / 8 - 2.0 / 7 + 5.0 / 7 - 3.0 / 8},
    "one item a user": {"all items": 1 / 4, "one item": None},
}


@pytest.mark.parametrize("truth", OFF)
def test_every_row_is_held_against_the_truth_that_is_asked(truth: str, tmp_path: Path) -> None:
    """With hardly any noise the measured error is the distance of the two truths."""
    found = compared(tmp_path, f'truth = "{truth}"', "30.0")
    assert found.about["truth"] == truth
    assert not found.about["left_out"]
    sizes = {"average of users": 1.0, "pooled": 1.0, "one item a user": 0.75}
    for row in found.lines:
        off = OFF[truth][row.label]
        assert row.rank is not None
        assert row.off == (None if off is None else pytest.approx(off))
        assert row.mean == pytest.approx(off or 0.0, abs=0.06)
        assert row.relative == pytest.approx((row.mean or 0.0) / sizes[truth])
        assert row.records[0].size == pytest.approx(sizes[truth])
    text = shown(found)
    assert f"truth: {truth} (compare.truth may be" in text
    assert max(map(len, text.splitlines())) <= 80
    assert found.document()["truth"] == truth


def test_theory_is_about_a_rows_own_truth(tmp_path: Path) -> None:
    """Its ratio does not see the other truth, which is far beyond the noise."""
    own = {r.label: r for r in compared(tmp_path, "").lines}
    other = {r.label: r for r in compared(tmp_path, 'truth = "pooled"').lines}
    for label in own:
        assert other[label].predicted == own[label].predicted
        assert other[label].ratio == pytest.approx(own[label].ratio)
        assert (other[label].mean or 0) > (own[label].mean or 0)


def test_what_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"compare.truth must be one of .*got 'poled'"):
        compared(tmp_path, 'truth = "poled"')
    with pytest.raises(ValueError, match="held against 'average of users', 'pooled', 'one item"):
        compared(tmp_path, 'truth = "total"')


def test_trivial_answers_are_rows_and_what_is_worse_is_marked(tmp_path: Path) -> None:
    """At epsilon = 0.01 2,000 local users say nothing."""
    found = compared(tmp_path, "", "0.01")
    assert found.lines[0].trivial == {
        "all zeros": pytest.approx(1.0),
        "uniform": pytest.approx(0.0),
    }
    worst = max(found.lines, key=lambda r: r.mean or 0.0)
    assert worst.worse == "uniform"
    text = " ".join(shown(found).split())
    assert "all zeros 1 - 100%" in text, text
    assert "†: worse than uniform, an answer without any data" in text
    frame = found.table
    assert frame["protocol"].to_list()[:3] == ["no privacy (exact)", "uniform", "all zeros"]
    assert dict(frame.select("protocol", "worse than").rows())[worst.label] == "uniform"
    assert {"rounds", "bytes", "l2", "theory", "at least", "estimates"} <= set(frame.columns)


def test_measures_of_items_by_hand() -> None:
    truth = np.array([50.0, 40, 30, 20, 10, 0])
    value = np.array([55.0, 10, 33, 0, 50, 1])
    found = item_measures(value, truth)
    assert found["per item"] == pytest.approx((5 + 30 + 3 + 20 + 40 + 1) / 6)
    assert (found["k"], found["recall"]) == (3, pytest.approx(2 / 3))  # items 0, 4, 2
    assert found["top off"] == pytest.approx(0.1)  # of 0.1, 0.75, 0.1
    assert item_measures(np.zeros(1), np.zeros(1)) == {"per item": 0.0, "k": 1.0, "recall": 1.0}


def test_recall_does_not_look_at_the_order_of_the_domain() -> None:
    """An estimate of zeros finds what chance finds, though domains come by frequency."""
    truth = np.arange(20.0)[::-1]
    assert item_measures(np.zeros(20), truth)["recall"] == pytest.approx(0.5)
    value = np.zeros(20)
    value[[3, 15]] = 7.0, 7.0  # one of the ten largest; chance adds 9 of 18, of which 9 are so
    assert item_measures(value, truth)["recall"] == pytest.approx((1 + 8 * 9 / 18) / 10)
    assert item_measures(np.full(20, np.nan), truth)["recall"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bounded-histogram", {"all zeros": 0.0, "uniform": 2.0}),
        ("frequency-oracle", {"all zeros": 0.0, "uniform": 0.5}),
        ("central-density", {"all zeros": 0.0, "uniform": 1.0}),
    ],
)
def test_answers_that_need_no_data(name: str, expected: dict[str, float]) -> None:
    found = trivial_answers(protocol_class(name).example(), np.array([1.0, 3.0]))
    assert {k: v.tolist() for k, v in found.items()} == {k: [v, v] for k, v in expected.items()}


def test_a_mean_has_the_midpoint_of_its_range() -> None:
    protocol = protocol_class("box-mean").example()
    found = trivial_answers(protocol, np.array([1.0]))
    assert found["midpoint of the range"] == pytest.approx((protocol.low + protocol.high) / 2)  # type: ignore[attr-defined]
    quantiles = protocol_class("quantiles").example()
    assert "all zeros" not in trivial_answers(quantiles, np.zeros(len(quantiles.levels)))  # type: ignore[attr-defined]


def test_a_sweep_takes_the_adjacency_of_comparisons() -> None:
    """Only where nothing is said, and where the protocol's own is another."""
    people = {"kind": "zipf", "n_users": 200, "d": 5, "mean_items": 3, "seed": 1}
    plain = {"name": "bounded-histogram", "epsilon": 1.0, "delta": 0, "clip": 5.0}
    run = {"runtime": "inline"}
    for table, expected in (
        (plain, "replace-user"),
        ({**plain, "adjacency": "zero-out-user"}, "zero-out-user"),
    ):
        tables = {"sweep": {}, "protocol": table, "population": people, "run": run}
        swept = study_of(tables, "", "s")
        assert [c.protocol["adjacency"] for _, c in swept.grid] == [expected]
    local = {"name": "local-histogram", "epsilon": 1.0, "clip": 2}
    assert with_common(local) == local


@pytest.mark.parametrize(
    ("told", "taken"),
    [
        ("adjacency must be one of zero-out-user, got 'replace-user'", True),
        ("n_users is hidden, which 'replace-user' is not about", True),
        ("pair must be a list, got 3", False),
    ],
)
def test_only_a_refused_adjacency_is_left_as_it_is(
    told: str, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else is wrong is said: under another adjacency nobody would know."""

    def refuse(self: object) -> None:
        raise ValueError(told)

    cls, plain = protocol_class("bounded-histogram"), {"name": "bounded-histogram", "epsilon": 1.0}
    example = cls.example()
    monkeypatch.setattr(cls, "example", lambda: example)
    monkeypatch.setattr(cls, "__post_init__", refuse)
    if taken:
        assert with_common(plain) == plain
    else:
        with pytest.raises(ValueError, match="pair must be a list"):
            with_common(plain)


def test_of_more_items_those_of_the_domain_count(tmp_path: Path) -> None:
    """Milk is outside of the domain: what unbounded-histogram says of it is no error."""
    (tmp_path / "plain.csv").write_text(
        "user,item,n\n" + "ann,tea,3\nbob,milk,2\neve,coffee,1\n" * 9
    )
    (tmp_path / "domain.txt").write_text("\n".join(DOMAIN))
    rows = [
        '{ name = "bounded-histogram", clip = 300, epsilon = inf }',
        '{ name = "unbounded-histogram", clip = 300, epsilon = inf }',
    ]
    path = tmp_path / "more.toml"
    tables = FILE.format(
        epsilon="1.0\ndelta = 1e-6", more="", path=tmp_path / "plain.csv",
        domain=tmp_path / "domain.txt",
    )  # fmt: skip
    head, _, tail = tables.partition("protocols = [")
    path.write_text(
        f"{head}protocols = [{','.join(rows)}]\n[population]{tail.partition('[population]')[2]}"
    )
    found = run_study(load_study(path))
    bounded, unbounded = sorted(found.lines, key=lambda r: r.label)
    assert (bounded.off, unbounded.off) == (None, 0.0)
    assert unbounded.mean == pytest.approx(0.0, abs=1e-6)
    assert {r.more["entries"] for r in found.records} == {2}
    assert "of more items, these count" in " ".join(shown(found).split())
