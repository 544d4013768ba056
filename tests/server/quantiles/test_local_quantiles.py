"""Quantiles under local privacy: privacy of reports and transcripts, disjoint cohorts, and errors.

Statistical tests have fixed seeds and say how often a correct program would fail under a fresh one.
"""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

import fedhist as fh
from clients.quantiles.queries import RankCells
from fedhist.protocols import LocalQuantiles
from simulations.runs.options import Options
from simulations.runs.run import execute
from tests.running import one_each, one_sample, p_value, sampled

QUARTILES = (0.25, 0.5, 0.75)


def protocol(**more: Any) -> LocalQuantiles:
    given: dict[str, Any] = {"epsilon": 1.0, "levels": QUARTILES, "low": 0.0, "high": 1.0}
    return LocalQuantiles(**(given | {"n_users": 20_000} | more))


def numbers(n: int, seed: int = 1) -> fh.Users:
    return one_sample(np.clip(np.random.default_rng(seed).normal(0.4, 0.1, (n, 1)), 0, 1))


def question(epsilon: float = 1.0, upto: Any = ((1, 3), (2, 2)), **more: Any) -> RankCells:
    given = {"low": 0.0, "high": 1.0, "n_bins": 5, "of": "samples"}
    levels = np.array([[0.25, 0.75], [0.5, 0.5]])[: len(upto), : len(upto[0])]
    return RankCells(**(given | {"epsilon": epsilon, "upto": np.array(upto), "levels": levels}
                        | more))  # fmt: skip


def law(query: RankCells, group: int, bin_: int | None) -> list[Fraction]:
    """Probabilities of every report of one group, as drawn; of no bin, by mixing cells."""
    layers = query.channel.layers
    m = query.upto.shape[1]
    rows = layers.weights(np.arange(m + 1)[:, None]).tolist()
    if bin_ is not None:
        mixed = {int((query.upto[group] < bin_).sum()): Fraction(1)}
    else:
        parts = np.diff([Fraction(0), *map(Fraction, query.levels[group].tolist()), Fraction(1)])
        mixed = dict(enumerate(parts.tolist()))
    return [
        sum((share * rows[cell][y] for cell, share in mixed.items()), Fraction(0)) / 2**64
        for y in range(m + 2)
    ]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
def test_no_record_makes_a_report_likelier_than_e_to_the_epsilon(epsilon: float) -> None:
    """Every report of every record, the null record too, in fractions; the bound is attained."""
    query, most = question(epsilon), Fraction(1)
    assert query.exact
    for group in range(2):
        laws = [law(query, group, b) for b in (*range(5), None)]
        assert all(sum(one) == 1 for one in laws)
        for one, other in product(laws, laws):
            most = max(most, *(a / b for a, b in zip(one, other, strict=True)))
    assert math.log(most) <= epsilon * (1 + 1e-15)
    assert math.log(most) > 0.999 * epsilon
    known = query.finite_channel()
    assert known is not None
    assert known.worst().log_ratio == pytest.approx(math.log(most))


@pytest.mark.parametrize("record", [[0.1], [0.5], [0.9], [], [math.nan, 0.1]])
def test_reports_are_drawn_by_that_law_on_both_paths(record: list[float]) -> None:
    """Pearson's test of clients' reports and of summed ones by group; false alarm 1e-6 a test."""
    query, n = question(1.0), 60_000
    users = sampled(np.full(n, len(record)), np.tile(record, n))
    bin_ = int(record[0] * 5) if len(record) == 1 else None
    report = query.answer(users, fh.SeededStreams(users.ids, 4, "test"))
    query.check(report)
    by_clients = query.fold(report)
    for summary in (by_clients, query.draw_summary(users, np.random.default_rng(3))):
        query.check_summary(summary)
        for group, counts in enumerate(summary.sums["cell"].tolist()):
            size = sum(counts)
            assert abs(size - n / 2) < 1000
            expected = [size * float(p) for p in law(query, group, bin_)]
            assert p_value(counts, expected) > 1e-6
    blocks = query.answer_folded(users, lambda chunk: fh.SeededStreams(chunk.ids, 4, "test"))
    assert (blocks.sums["cell"] == by_clients.sums["cell"]).all()


def test_every_user_answers_once() -> None:
    asked: list[fh.Query] = []
    ours, users = protocol(n_users=4000), numbers(4000)
    outcome = execute(ours, users, Options(seed=1, watch=asked.append))
    assert outcome.estimate.status == "ok"
    assert len(asked) == ours.max_rounds
    inside = np.sum([q.cohort.contains(users.ids) for q in asked if q.cohort], axis=0)
    assert (inside == 1).all()
    assert all(a.cohort.disjoint(b.cohort) for a, b in pairwise(asked) if a.cohort and b.cohort)
    assert outcome.estimate.public["n_report"] == 4000


def test_empty_records_and_empty_cohorts_are_no_error() -> None:
    for users in (one_each(*[[]] * 50), numbers(3)):
        assert fh.run(protocol(), users, seed=1).status == "ok"


def test_ranks_are_as_sure_as_there_were_answers() -> None:
    """20,000 were planned and 200 answered."""
    estimate = fh.run(protocol(), numbers(200), seed=1)
    assert estimate.public["n_report"] == 200
    expected = math.sqrt(protocol().variances.max() / 200)
    assert estimate.public["rank_stderr"] == pytest.approx(expected)
    assert estimate.warnings


def test_too_few_users_are_not_asked() -> None:
    """The figures of the specification: a standard error of a quarter, and of a tenth."""
    for epsilon, tenth in ((0.5, 1251), (1.0, 277), (2.0, 67), (4.0, 29)):
        ours = protocol(epsilon=epsilon)
        assert math.ceil(ours.variances.max() / 0.1**2) == tenth
        assert ours.least_users == math.ceil(ours.variances.max() * 16)
        few = replace(ours, n_users=ours.least_users - 1)
        assert fh.run(few, numbers(30), seed=1).status == "refused"
        assert len(fh.run(ours, numbers(tenth - 1), seed=1).warnings) == 1
        assert fh.run(ours, numbers(tenth), seed=1).warnings == ()
    for tiny in (1e-6, 5e-324):
        assert fh.run(protocol(epsilon=tiny), numbers(30), seed=1).status == "refused"


FIVE = np.zeros(1024)
FIVE[[102, 204, 512, 716, 921]] = 0.1, 0.2, 0.4, 0.2, 0.1


@pytest.mark.parametrize(
    ("data", "n", "epsilon", "most"),
    [(np.full(1024, 1 / 1024), 2000, 1.0, 0.046), (FIVE, 2000, 1.0, 0.098)],
)
def test_the_errors_that_are_promised_and_stated(
    data: fh.Array, n: int, epsilon: float, most: float
) -> None:
    """Quartiles over 1,024 bins: errors within 15% of the specification's, and true intervals.

    5 standard errors of the mean of 20 runs are allowed, a false alarm in about 10^6. value +- 1.96
    stderr holds a true quantile in 90% of runs and levels, less 4 standard errors of that count.
    """
    K = len(data)
    ours, losses, inside = protocol(epsilon=epsilon, n_bins=K, n_users=n), [], []
    for seed in range(20):
        x = np.random.default_rng(seed).choice(K, n, p=data)
        users = one_sample((x[:, None] + 0.5) / K)
        estimate = execute(ours, users, Options(seed=seed, clients="aggregate")).estimate
        losses.append(ours.loss_of(estimate, users))
        assert estimate.stderr is not None
        away = np.abs(np.asarray(estimate.value) - ours.truth(users))
        inside.append(away <= 1.96 * estimate.stderr + 1e-9)
    assert np.mean(losses) <= 1.15 * most + 5 * np.std(losses) / math.sqrt(20)
    assert np.mean(inside) >= 0.9 - 4 * math.sqrt(0.09 / np.size(inside))


def test_messages_are_checked() -> None:
    ids, query = np.arange(1, dtype=np.uint64), question()
    with pytest.raises(fh.WireError):
        query.check(fh.Report(ids, {"cell": np.array([4], dtype=np.uint32)}))
    for total in ([[1, 0, 0, 0], [1, 0, 0, 0]], [[1, 0, 0, 0]], [[-1, 1, 1, 0], [0, 0, 0, 0]]):
        with pytest.raises(fh.WireError):
            query.check_summary(fh.Summary(1, {"cell": np.array(total)}))
    with pytest.raises(ValueError, match="1024"):
        protocol(levels=tuple((np.arange(1025) + 1) / 1026))
