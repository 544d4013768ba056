"""Measures: users walked once while they answer, or by themselves; how protocols are evaluated."""

from __future__ import annotations

import numpy as np
import pytest
from walked_users import Walked

import fedhist as fh
from fedhist.model import evaluation
from fedhist.model.evaluation import check_rows, first_pass, measured, walked
from fedhist.model.registry import protocol_class
from fedhist.protocols import BoundedHistogram
from server import predictor
from simulations.runs.options import Options
from simulations.runs.run import execute

USERS = BoundedHistogram.example_users()


def total(users: fh.Users) -> fh.Summary:
    items = users.counts
    count = np.bincount(items.item, items.count, len(items.vocabulary)).astype(np.int64)
    return fh.Summary(len(users), {"count": count})


def total_of(facts: fh.Facts) -> float:
    average = float(facts["count"].sum() / facts.n_users)

    def above(users: fh.Users) -> dict[str, fh.Array]:
        items = users.counts
        owner = np.repeat(np.arange(len(users)), np.diff(items.indptr))
        size = np.bincount(owner, items.count, len(users))
        return {"events": np.array([size[size > average].sum()])}

    return float(facts.walk(above).sums["events"][0])


class Averse(BoundedHistogram):
    """Has a truth of two passes."""

    def sums(self, users: fh.Users) -> dict[str, fh.Array]:
        return dict(total(users).sums)

    def truth_of(self, facts: fh.Facts) -> fh.Array:
        return np.array([total_of(facts)])


def averse() -> Averse:
    p = BoundedHistogram.example()
    return Averse(p.domain, epsilon=1.0, clip=3.0)


def slow(users: fh.Users) -> float:
    sizes = [float(u.counts.count.sum()) for u in users.blocks(1)]
    return sum(s for s in sizes if s > sum(sizes) / len(sizes))


def test_a_second_pass_where_the_truth_asks_for_one() -> None:
    Walked.made = Walked.held = 0
    facts = fh.measured(averse(), Walked(USERS, 7))
    assert facts.truth.tolist() == [slow(USERS)]
    assert (Walked.made, Walked.held) == (2 * -(-len(USERS) // 7), 0)
    first = walked(first_pass(averse()), USERS)
    assert fh.measured(averse(), Walked(USERS, 7), first).truth.tolist() == [slow(USERS)]
    assert Walked.made == 3 * -(-len(USERS) // 7)


@pytest.mark.parametrize("more", [{"nodes": 3}, {"fold": False}, {"clients": "aggregate"}])
def test_a_run_measures_its_users_as_they_answer(more: dict[str, object]) -> None:
    Walked.made = 0
    protocol, users = BoundedHistogram.example(), Walked(USERS, 7)
    outcome = execute(protocol, users, Options(seed=1, beside=total, **more))
    assert np.array_equal(outcome.measured.sums["count"], total(USERS).sums["count"])
    assert outcome.seconds.keys() == {"run", "measure"}
    plain = execute(protocol, users, Options(seed=1, **more))
    assert (plain.measured, plain.seconds.keys()) == (None, {"run"})
    assert np.array_equal(np.asarray(plain.estimate.value), np.asarray(outcome.estimate.value))
    blocks = sum(-(-len(n) // 7) for n in users.split(int(str(more.get("nodes", 1)))))
    assert Walked.made == 2 * blocks, "measuring made users anew"


def test_all_records_at_once_are_refused_above_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    class Rows(BoundedHistogram):
        adds_up = False

    p, users = BoundedHistogram.example(), USERS
    protocol = Rows(p.domain, epsilon=1.0, clip=3.0)
    monkeypatch.setattr(evaluation, "MOST_ROWS", len(users))
    check_rows(protocol, len(users))
    monkeypatch.setattr(evaluation, "MOST_ROWS", len(users) - 1)
    for call in (lambda p, u: check_rows(p, len(u)), fh.measured):
        with pytest.raises(
            fh.PopulationError, match=f"bounded-histogram needs all.*got {len(users)}"
        ):
            call(protocol, users)
    check_rows(averse(), len(USERS))


def test_a_protocol_says_a_part_from_records_or_from_sums() -> None:
    """The most derived class decides; a class with neither gets an error that says what to do."""

    class FromRecords(BoundedHistogram):
        def truth(self, users: fh.Users) -> fh.Array:
            return 2 * super().truth(users)

    class Neither(BoundedHistogram):
        truth_of = fh.Protocol.truth_of

    p = BoundedHistogram.example()
    usual = fh.measured(p, USERS).truth
    derived = FromRecords(p.domain, epsilon=1.0, clip=3.0)
    assert np.array_equal(fh.measured(derived, USERS).truth, 2 * usual)
    assert np.array_equal(derived.truth(USERS), 2 * usual)
    with pytest.raises(TypeError, match="needs the method truth"):
        _ = fh.measured(Neither(p.domain, epsilon=1.0, clip=3.0), USERS).truth


SEARCH = {"local-quantiles", "quantiles"}
"""Their truth takes more passes, which look for quantiles."""


def test_how_every_protocol_is_evaluated(
    protocol_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cls = protocol_class(protocol_name)
    protocol, users = cls.example(), cls.example_users()
    if protocol_name.startswith("throwaway-"):
        assert not protocol.adds_up
        return
    assert protocol.adds_up
    walk = Walked(users, 50)
    blocks = sum(1 for _ in walk.blocks())

    def passes(name: str) -> float:
        Walked.made = 0
        _ = getattr(known, name)
        return Walked.made / blocks

    monkeypatch.setattr(predictor, "_predicted", {})  # other tests may have asked before
    Walked.made = 0
    known = measured(protocol, walk)
    assert Walked.made == blocks
    assert passes("diagnostics") == passes("support") == 0
    assert (passes("truth") > 0) == (protocol_name in SEARCH)
    error = passes("error")
    assert (error == 0) == (known.error.kind != "simulated")
    assert passes("lower_bounds") <= 1
    assert passes("resolution") <= (protocol_name in SEARCH)
    whole = measured(protocol, users)
    assert known.diagnostics == pytest.approx(whole.diagnostics)
    np.testing.assert_allclose(known.truth, whole.truth, rtol=1e-9)
