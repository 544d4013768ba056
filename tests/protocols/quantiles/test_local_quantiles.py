"""Quantiles under local privacy: privacy of the reports, disjoint cohorts, and predicted errors.

Statistical tests have fixed seeds and say how often a correct program would fail under a fresh one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import fedhist as fh
from fedhist.base.arrays import Array
from fedhist.model.query import Query
from fedhist.model.truths import Truth
from fedhist.protocols import LocalQuantiles
from fedhist.protocols.quantiles.choice import planned
from fedhist.protocols.quantiles.quantile_votes import QuantileVotes
from fedhist.protocols.quantiles.rank_bits import RankBits
from fedhist.protocols.quantiles.search import Search
from fedhist.protocols.quantiles.votes import Votes
from fedhist.users.streams import SeededStreams
from simulations.runs.run import Options, execute
from tests.protocols.quantiles.test_quantiles import one_each

QUARTILES = (0.25, 0.5, 0.75)


def protocol(**more: Any) -> LocalQuantiles:
    given: dict[str, Any] = {"epsilon": 1.0, "levels": QUARTILES, "low": 0.0, "high": 1.0}
    return LocalQuantiles(**(given | {"n_users": 20_000} | more))


def numbers(n: int, seed: int = 1) -> fh.Users:
    x = np.clip(np.random.default_rng(seed).normal(0.4, 0.1, n), 0, 1)
    return fh.Users.from_samples(np.arange(n, dtype=np.uint64), np.arange(n + 1), x)


# -- privacy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_a_bit_keeps_epsilon_and_no_less(epsilon: float) -> None:
    """The odds of the threshold that is drawn against, as fractions."""
    query = RankBits(0.0, 1.0, 8, "samples", epsilon, np.array([3]))
    lie = query.channel.flip_threshold
    odds = Fraction(2**64 - lie, lie)
    assert math.log(odds) <= epsilon * (1 + 1e-15)
    assert math.log(odds) > 0.999 * epsilon
    assert query.exact
    law = query.finite_channel()
    assert law is not None


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
@pytest.mark.parametrize("width", [1, 4])
def test_a_vote_keeps_epsilon_and_no_less(epsilon: float, width: int) -> None:
    """How often each message is sent of each record; false alarm below 1e-6 per comparison."""
    query = QuantileVotes(0.0, 1.0, 8, "samples", epsilon, width)
    n, ids = 40_000, np.arange(40_000, dtype=np.uint64)
    found = []
    for key, record in enumerate(([0.1], [0.9], [], [math.nan])):
        users = fh.Users.from_samples(
            ids, np.arange(n + 1) * len(record), np.tile(np.array(record, dtype=float), n)
        )
        report = query.answer(users, SeededStreams(ids, key, "test"))
        query.check(report)
        found.append(query.fold(report).sums["bin"] / n)
    sent = np.max(found, axis=0) > 0
    ratios = [np.log(a[sent] / b[sent]).max() for a in found for b in found]
    noise = 8 * math.sqrt(math.exp(epsilon) * query.channel.size / n)
    assert max(ratios) <= epsilon + noise
    assert max(ratios) >= epsilon - noise


@pytest.mark.parametrize("kind", ["votes", "search"])
def test_every_user_answers_once(kind: Any) -> None:
    asked: list[Query] = []
    ours, users = protocol(kind=kind, n_users=4000), numbers(4000)
    outcome = execute(ours, users, Options(seed=1, watch=asked.append))
    assert outcome.estimate.status == "ok"
    assert len(asked) == ours.max_rounds
    inside = np.sum([q.cohort.contains(users.ids) for q in asked if q.cohort], axis=0)
    assert (inside == 1).all()
    assert all(a.cohort.disjoint(b.cohort) for a, b in pairwise(asked) if a.cohort and b.cohort)
    assert outcome.estimate.public["n_report"] == 4000


# -- what is estimated -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["votes", "search"])
def test_samples_means_and_pooled_samples_have_other_medians(kind: Any) -> None:
    """4,000 users with [0.1, 0.1, 0.9], 400 with a hundred times 0.9: pooled, the median is 0.9."""
    records = [[0.1, 0.1, 0.9]] * 4000 + [[0.9] * 100] * 400
    users = one_each(*records)
    assert np.median(users.reals.values) == 0.9
    wanted = (
        ("samples", 0.1, Truth.AVERAGE_OF_USERS),
        ("user-means", 1.1 / 3, Truth.OWN_MEANS),
    )
    for of, median, truth in wanted:
        ours = protocol(kind=kind, of=of, levels=(0.5,), epsilon=4.0, n_users=4400, n_bins=64)
        assert ours.truth(users) == pytest.approx([median])
        assert ours.estimates is truth
        estimate = fh.run(ours, users, seed=1)
        assert estimate.value == pytest.approx([median], abs=1 / 64)


@pytest.mark.parametrize("kind", ["votes", "search"])
@pytest.mark.parametrize("of", ["samples", "user-means"])
def test_without_noise_only_the_draw_is_left(kind: Any, of: str) -> None:
    for K in (2, 13, 100):
        ours = protocol(kind=kind, of=of, epsilon=math.inf, n_users=3000, n_bins=K)
        users = numbers(3000)
        assert ours.loss_of(fh.run(ours, users, seed=1), users) <= ours.resolution(users)


def test_users_without_numbers_are_left_out_of_votes() -> None:
    """A third of the users has none, or NaN: the quartiles of the others, false alarm 1e-6."""
    rng = np.random.default_rng(3)
    records = [[x] for x in rng.random(4000)] + [[], [0.1, math.nan]] * 1000
    users, ours = one_each(*records), protocol(kind="votes", epsilon=6.0, n_users=6000, n_bins=32)
    bound = ours.error(users)
    losses = [ours.loss_of(fh.run(ours, users, seed=s), users) for s in range(5)]
    assert np.mean(losses) <= 3 * bound.expected
    assert bound.expected < 0.05
    assert ours.diagnostics(users) == {"unusable records": 2000.0}


@pytest.mark.parametrize("kind", ["votes", "search"])
def test_empty_records_and_empty_cohorts_are_no_error(kind: Any) -> None:
    for users in (one_each(*[[]] * 50), numbers(3)):
        assert fh.run(protocol(kind=kind), users, seed=1).status == "ok"


# -- messages --------------------------------------------------------------------------------------


def test_messages_and_settings_are_checked() -> None:
    ids = np.arange(1, dtype=np.uint64)
    bits = RankBits(0.0, 1.0, 8, "samples", 1.0, np.array([3]))
    for sent in (0, 2):
        with pytest.raises(fh.WireError):
            bits.check(fh.Report(ids, {"reports": np.array([sent], dtype=np.int8)}))
    votes = QuantileVotes(0.0, 1.0, 8, "samples", 1.0)
    with pytest.raises(fh.WireError):
        votes.check(fh.Report(ids, {"bin": np.array([10**6], dtype=np.uint32)}))
    for upto in (np.array([8]), np.array([-1]), np.zeros(0, dtype=np.int64), np.array([0.5])):
        with pytest.raises(ValueError, match="upto"):
            replace(bits, upto=upto)
    for name, value in (("of", "items"), ("n_bins", 1), ("low", 1.0), ("epsilon", 0.0)):
        with pytest.raises(ValueError, match=str(value)):
            replace(votes, **{name: value})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="got 'em'"):
        protocol(kind="em")


def test_too_few_users_are_not_asked() -> None:
    for kind in ("auto", "votes", "search"):
        ours = protocol(kind=kind, n_users=30, epsilon=0.5)
        refused = fh.run(ours, numbers(30), seed=1)
        assert refused.status == "refused"
        assert str(ours.plan.least_users) in refused.reason


def test_large_errors_are_warned_of() -> None:
    few = protocol(n_users=1600, kind="votes", n_bins=64)
    (warning,) = fh.run(few, numbers(1600), seed=1).warnings
    assert f"{few.plan.error:.2f}" in warning
    assert fh.run(protocol(n_users=20_000, levels=(0.5,)), numbers(20_000), seed=1).warnings == ()


# -- error -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "J", "of", "m"),
    [("search", 1, "samples", 1), ("search", 3, "user-means", 8), ("votes", 9, "samples", 8)],
)
def test_errors_are_predicted(kind: Any, J: int, of: str, m: int) -> None:
    """Aggregate runs on 40 populations against the mean prediction on some: within 5 standard
    errors of both. False alarm about 1e-6.
    """
    n, levels = 4000, tuple(np.arange(1, J + 1) / (J + 1))
    ours = protocol(kind=kind, of=of, levels=levels, epsilon=2.0, n_users=n, n_bins=128)
    expected, losses = [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        x = (rng.normal(0.4, 0.1, (n, 1)) + rng.normal(0, 0.05, (n, m))).ravel()
        users = fh.Users.from_samples(np.arange(n, dtype=np.uint64), np.arange(n + 1) * m, x)
        outcome = execute(ours, users, Options(seed=seed, clients="aggregate"))
        losses.append(ours.loss_of(outcome.estimate, users))
        if seed < 3:
            expected.append(ours.error(users).expected)
    half = 5 * float(np.std(losses)) * math.sqrt(1 / 40 + 1 / 600)
    assert abs(np.mean(losses) - np.mean(expected)) <= half


def test_auto_searches_for_one_level_and_votes_for_many() -> None:
    many = tuple(np.arange(1, 32) / 32)
    assert isinstance(planned("auto", 20_000, 1.0, (0.5,), 256).method, Search)
    assert isinstance(planned("auto", 20_000, 1.0, many, 256).method, Votes)


def test_cohorts_of_a_search_grow_and_end() -> None:
    plan = Search(1.0, np.array([0.5]), 2048, 10_000)
    steps: Array = np.diff(np.log2(plan.weights))
    assert plan.n_rounds <= 11
    assert ((steps >= -1e-12) & (steps <= 0.5 + 1e-12)).all()
    assert plan.weights.sum() == pytest.approx(1)
    assert Search(1.0, np.array([0.5]), 2, 10).n_rounds == 1
