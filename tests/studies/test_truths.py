"""One truth and one scale: who answers about it, trivial answers as rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedhist as fh
from simulations.studies.compared import plan_of
from simulations.studies.losses import item_measures
from simulations.studies.study import study_of

EVENTS = {  # ann has four teas, bob one coffee, eve a tea and a coffee, dan nothing of the domain
    "ann": {"tea": 4},
    "bob": {"coffee": 1},
    "eve": {"tea": 1, "coffee": 1},
    "dan": {"milk": 2},
}
ROWS: Any = [
    {"name": "local-distribution", "label": "all items", "samples_per_user": 6},
    {"name": "frequency-oracle", "label": "one item"},
]


def compared(epsilon: float = 4.0, **more: Any) -> Any:
    users = fh.Users.from_records({f"{u}{k}": x for k in range(500) for u, x in EVENTS.items()})
    domain = ["coffee", "tea"]
    return fh.compare(data=users, domain=domain, epsilon=epsilon, seeds=2, protocols=ROWS, **more)


@pytest.mark.parametrize(
    ("truth", "kept", "left"),
    [
        ("", "all items", "one item"),
        ("one item a user", "one item", "all items"),
    ],
)
def test_a_comparison_has_one_truth(truth: str, kept: str, left: str) -> None:
    """Three of four users have an item of the domain: shares of 1/2 each, or of 3/8."""
    result = compared(30.0, **{"truth": truth} if truth else {})
    assert [(r.label, r.rank) for r in result.lines] == [(kept, 1)]
    assert result.about["truth"] == (truth or "average of users")
    (out,) = result.about["left_out"]
    assert out[0] == left
    assert "0.125" in out[1]
    assert result.lines[0].records[0].size == pytest.approx(0.75 if "one" in truth else 1.0)
    for unknown in ("poled", "total"):
        with pytest.raises(ValueError, match=unknown):
            compared(truth=unknown)


@pytest.mark.parametrize("loss", ["l1", "squared l2"])
def test_shares_beside_counts_are_counts(loss: str) -> None:
    """One oracle tells both of 2,000 users of one item each: their errors are alike."""
    users = fh.Users.from_records({str(u): {"ab"[u % 2]: 1} for u in range(2000)})
    rows: Any = [{"name": "local-histogram", "clip": 1}, {"name": "frequency-oracle"}]
    given = {"data": users, "domain": ["a", "b"], "protocols": rows, "seeds": 40, "loss": loss}
    result = fh.compare(epsilon=1.0, **given)
    counts, shares = sorted(result.lines, key=lambda line: line.label, reverse=True)
    assert shares.trivial == pytest.approx(counts.trivial)
    assert shares.records[0].size == pytest.approx(2000 if loss == "l1" else 2 * 1000**2)
    assert shares.first.more["items"]["per item"] > 1
    power = 1 if loss == "l1" else 2
    for line in (counts, shares):
        assert 0.6**power < line.mean / shares.predicted < 1.6**power
    with pytest.raises(ValueError, match="another target"):
        fh.compare(epsilon=1.0, **(given | {"protocols": rows[::-1]}))


def test_trivial_answers_are_rows_and_what_is_worse_is_marked() -> None:
    """At epsilon = 0.01 2,000 local users say nothing."""
    result = compared(0.01, truth="one item a user")
    assert result.lines[0].trivial == {
        "all zeros": pytest.approx(0.75),
        "uniform": pytest.approx(0.25),
    }
    worst = max(result.lines, key=lambda r: r.mean or 0.0)
    assert worst.worse == "uniform"
    frame = result.table
    assert frame["protocol"].to_list()[:3] == ["no privacy (exact)", "uniform", "all zeros"]
    assert dict(frame.select("protocol", "worse than").rows())[worst.label] == "uniform"


def test_measures_of_items_by_hand() -> None:
    truth = np.array([50.0, 40, 30, 20, 10, 0])
    value = np.array([55.0, 10, 33, 0, 50, 1])
    result = item_measures(value, truth)
    assert result["per item"] == pytest.approx((5 + 30 + 3 + 20 + 40 + 1) / 6)
    assert (result["k"], result["recall"]) == (3, pytest.approx(2 / 3))  # items 0, 4, 2
    assert result["precision"] == 1.0  # of 0, 4 and 2
    assert item_measures(value[::-1], truth)["precision"] == 2 / 3  # nobody has the last
    assert result["off"] == pytest.approx(0.1)  # the median of .1, .75, .1
    made_up = item_measures(value, truth, np.array([52.0, 34.0, 2.0, 0.0]))
    assert (made_up["precision"], made_up["invented"]) == (2 / 3, 3.0)  # 0 and 4, not 52
    assert item_measures(np.zeros(1), np.zeros(1)) == {"per item": 0.0, "k": 1.0, "recall": 1.0}
    many = item_measures(np.arange(60.0), np.arange(60.0)[::-1])
    assert (many["many"], many["recall"], many["recall of many"]) == (30, 0.0, 0.0)
    assert item_measures(np.arange(200.0), np.roll(np.arange(200.0), 10))["recall of many"] == 0.8


def test_recall_does_not_look_at_the_order_of_the_domain() -> None:
    """An estimate of zeros finds what chance finds, though domains come by frequency."""
    truth = np.arange(20.0)[::-1]
    assert item_measures(np.zeros(20), truth)["recall"] == pytest.approx(0.5)
    value = np.zeros(20)
    value[[3, 15]] = 7.0, 7.0  # one of the ten largest; chance adds 9 of 18, of which 9 are so
    assert item_measures(value, truth)["recall"] == pytest.approx((1 + 8 * 9 / 18) / 10)
    assert item_measures(np.full(20, np.nan), truth)["recall"] == pytest.approx(0.5)


def test_a_grid_takes_the_adjacency_of_comparisons() -> None:
    """Only where nothing is said."""
    people = {"kind": "zipf", "n_users": 200, "d": 5, "mean_items": 3, "seed": 1}
    plain = {"name": "bounded-histogram", "epsilon": 1.0, "delta": 0, "clip": 5.0}
    for table, expected in (
        (plain, "replace-user"),
        ({**plain, "adjacency": "zero-out-user"}, "zero-out-user"),
    ):
        swept = study_of({"sweep": {}, "protocol": table, "population": people}, "", "s")
        assert [c.protocol["adjacency"] for c in plan_of(swept)[2]] == [expected]
