"""Central means: null records, sensitivities, what hides the number of users, stated errors."""

import math
from typing import Any

import numpy as np
import pytest

import fedhist as fh
from clients.central_means.queries import STEPS, ClippedMeans, MeanBins
from fedhist.protocols import BoxMean, CentralMean
from tests.running import one_sample, run, sampled

LINE: dict[str, Any] = {"epsilon": 1.0, "low": -1.0, "high": 1.0, "delta": 0.0}
WIDE: dict[str, Any] = {"epsilon": 1.0, "n_users": 1000, "low": -100.0, "high": 100.0}


def some(n: int, mean: float = 0.3, spread: float = 0.1, d: int = 1, seed: int = 1) -> fh.Users:
    rows = mean + spread * np.random.default_rng(seed).standard_normal((n, d))
    return one_sample(np.clip(rows, -1, 1))


def asked(query: Any, users: fh.Users) -> fh.Report:
    report: fh.Report = query.answer(users, fh.SeededStreams(users.ids, 0, "test"))
    query.check(report)
    return report


def test_records_that_cannot_be_used_are_null_and_huge_ones_are_clipped() -> None:
    records = {"a": [], "b": [np.nan, 0.1], "c": [np.inf], "d": [1e308], "e": [-1e308], "f": [0.2]}
    users = fh.Users.from_records(records, unusable=True)
    report = asked(ClippedMeans(np.array([0.1]), 0.5), users)
    points, weight = report.arrays["points"][:, 0], report.arrays["weight"]
    result = sorted(zip(points.tolist(), weight.tolist(), strict=True))
    near = int(0.2 * STEPS)
    assert result[0] == (-STEPS, STEPS)
    assert result[1:4] == [(0, 0)] * 3
    assert result[4][0] == pytest.approx(near, abs=1)
    assert result[5] == (STEPS, STEPS)
    bins = asked(MeanBins(np.zeros(1), 1.0, 8, signed=True), users).arrays["bins"]
    assert sorted(bins.tolist()) == [-1, -1, -1, 0, 4, 7]
    bins = asked(MeanBins(np.zeros(1), 1.0, 5), users).arrays["bins"]  # from 1/4 on in steps
    assert sorted(bins.tolist()) == [-1, -1, -1, 0, 4, 4]


@pytest.mark.filterwarnings("error")
def test_whose_mean_is_huge_is_not_told_by_a_warning() -> None:
    rows = np.array([[1.7e308] * 3, [-1.7e308, 1.7e308, 0.0], [0.1] * 3])
    users = fh.Users.from_samples(np.arange(3), np.arange(4), rows, unusable=True)
    assert asked(MeanBins(np.full(3, 0.5), 0.7, 3), users).arrays["bins"].tolist() == [2, 2, 2]
    for centre in (np.full(3, 1e308), np.full(3, -1e308)):
        asked(MeanBins(centre, 1.0, 2), users)
        asked(ClippedMeans(centre, 0.5), users)


def test_a_vector_that_is_too_long_is_refused() -> None:
    query = ClippedMeans(np.zeros(2), 1.0)
    good = asked(query, some(3, d=2))
    for points, weight in (([[STEPS, STEPS]] * 3, [STEPS] * 3), ([[1, 0]] * 3, [0] * 3),
                           ([[0, 0]] * 3, [1] * 3)):  # fmt: skip
        arrays = {"points": np.array(points, np.int32), "weight": np.array(weight, np.int32)}
        with pytest.raises(fh.WireError):
            query.check(fh.Report(good.ids, arrays))


def test_means_of_two_dimensions_have_no_sign() -> None:
    with pytest.raises(ValueError, match="2 dimensions"):
        MeanBins(np.zeros(2), 1.0, 3, signed=True)


@pytest.mark.parametrize(
    ("n", "d", "epsilon", "gain"), [(350, 1, 0.95, 2), (2000, 1, 1.0, 30), (3000, 16, 1.0, 30)]
)
def test_users_who_are_close_are_found(n: int, d: int, epsilon: float, gain: float) -> None:
    """A half or a thirtieth of the error over the range, by two looks, medians and three looks."""
    given = {"n_users": n, "dimension": d, "box": 1.0, "epsilon": epsilon}
    users = some(n, mean=0.1, spread=0.001, d=d)
    near, whole = (cls(**given).error(users) for cls in (CentralMean, BoxMean))
    assert (near.kind, whole.kind) == ("simulated", "exact")
    assert near.expected < whole.expected / gain**2
    planned = CentralMean(**given).planned_error(0.001 * math.sqrt(d))
    assert 0.4 < planned / math.sqrt(near.expected) < 1.5


def test_a_public_radius_is_not_drawn() -> None:
    """Users within .1 of each other: 1.2 times that, and half a bin or the first mean's error."""
    for n in (300, 2000):
        protocol = CentralMean(**WIDE | {"n_users": n}, radius=0.1)
        ran = run(protocol, some(n, spread=0.03))
        assert not any(isinstance(q, MeanBins) and not q.signed for q in ran.queries)
        error = 100 / 4096 if n == 2000 else math.sqrt(2) * 200 / (0.25 * n)
        assert ran.estimate.public["radius"] == pytest.approx(math.hypot(0.12, error))


@pytest.mark.parametrize("adjacency", ["replace-user", "zero-out-user"])
def test_steps_are_planned_for_those_who_answer(adjacency: str) -> None:
    """Medians of 50 users would be drawn from anywhere; the whole budget is left for one look."""
    protocol = CentralMean(**WIDE | {"adjacency": adjacency})
    ran, whole = run(protocol, some(50)), run(BoxMean(**WIDE | {"adjacency": adjacency}), some(50))
    assert isinstance(ran.queries[0], MeanBins)
    assert ran.estimate.public == whole.estimate.public
    assert len(ran.queries) == 2 <= protocol.max_rounds
    entries = [e.ledger.entries for e in (ran.estimate, whole.estimate) if e.ledger is not None]
    assert [e.label for e in entries[0]] == [e.label for e in entries[1]] == ["clipped means"]
    assert run(protocol, some(1000)).estimate.public["radius"] < 10


def test_noise_longer_than_the_mean_costs_no_more_than_the_middle() -> None:
    """Where plain noise has the mean square 250, and the middle is off by 9 in square."""
    given: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-6, "n_users": 50, "box": 32.0}
    users = some(50, mean=3 / 8, spread=0.001, d=64)
    protocol = CentralMean(dimension=64, **given)
    assert protocol.plan is None
    assert protocol.error(users).expected < 9 + 8


def test_it_is_told_that_far_users_may_go_unseen() -> None:
    """What they would make is published, and told where it is more than the stated error."""
    estimate = run(CentralMean(n_users=900, **LINE), some(900, spread=0.001)).estimate
    assert estimate.public["unseen"] > estimate.stderr[0]
    assert "box-mean" in estimate.warnings[0]
    wide = one_sample(np.linspace(-1, 1, 900)[:, None])
    estimate = run(CentralMean(n_users=900, **LINE), wide).estimate
    assert estimate.public["unseen"] <= estimate.stderr[0]
    assert not estimate.warnings


def test_an_interval_ends_with_the_range() -> None:
    """Users near an end have half the noise: a look is no wider than what lies in the range."""
    protocol = CentralMean(n_users=2000, **LINE)
    query = protocol.around(np.array([0.9]), 0.3)
    assert (query.centre[0], query.radius) == (pytest.approx(0.8), pytest.approx(0.2))
    assert protocol.around(np.array([0.1]), 0.3).radius == pytest.approx(0.3)


def test_ranges_that_no_query_takes_are_refused_before_anything_is_spent() -> None:
    for wide in ({"high": 1e300}, {"low": -1e-300, "high": 1e-300}, {"box": 1e-118}):
        with pytest.raises(ValueError, match=r"2\^-340"):
            CentralMean(n_users=2000, **{**LINE, **wide})
    edge = CentralMean(n_users=2000, **{**LINE, "low": -1e102, "high": 1e102})
    assert run(edge, some(2000)).estimate.status == "ok"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "d", "epsilon"),
    [(6000, 1, 0.0233), (200, 1, 4.0), (2000, 1, 1.0), (2000, 4, 0.5), (1000, 20, 1.0)],
)
def test_stated_intervals_hold_the_truth(n: int, d: int, epsilon: float) -> None:
    """At least 90% of 300 runs and their coordinates, at every setting.

    A tenth of the users lie far away: the truth may be off by what "unseen" says, too. Laplace
    noise lies within 1.96 of its standard deviations with probability .9375, Gaussian noise with
    .95: without any bias fewer than 270 of 300 hold with probability 0.5% at most in one dimension;
    the seeds are fixed.
    """
    rows = 300 + 20 * np.random.default_rng(7).standard_normal((n, d))
    rows[: n // 10] = 900
    users = one_sample(np.clip(rows, 0, 1000))
    protocol = CentralMean(epsilon=epsilon, n_users=n, low=0.0, high=1000.0, dimension=d)
    truth, held = protocol.truth(users), 0.0
    for seed in range(300):
        estimate = run(protocol, users, seed).estimate
        wide = 1.96 * estimate.stderr + estimate.public.get("unseen", 0.0)
        held += float(np.mean(np.abs(estimate.value - truth) <= wide))
    assert held >= 270


def test_a_noisy_number_of_users_takes_no_mean_out_of_the_range() -> None:
    """A sum over a number of users that noise has made 1 would be 50 times what it is."""
    users = one_sample(np.full((50, 1), 0.3))
    few = BoxMean(
        epsilon=0.5, n_users=50, low=-1.0, high=1.0, delta=0.0, adjacency="add-remove-user"
    )
    values = [float(run(few, users, seed).estimate.value[0]) for seed in range(60)]
    assert max(map(abs, values)) <= 1.0


@pytest.mark.parametrize("d", [1, 3])
def test_prepared_sums_are_those_of_the_answers(d: int) -> None:
    """Up to a step a user of a cohort; one has a NaN, one nothing, and one is far away."""
    values = np.random.default_rng(3).normal(0.3, 0.1, (6000, d))
    values[1, 0], values[5] = np.nan, 40.0
    users = sampled(np.append(0, np.full(3000, 2)), values)
    kept: dict[str, Any] = {}
    centre, cohort = np.full(d, 0.25), fh.Cohort(1, 0.0, 0.9)
    for query in (ClippedMeans(centre, 0.1, cohort), MeanBins(centre, 2.0, 12, cohort=cohort)):
        asked = users.select(cohort)
        told = query.summary_law(asked, kept)(np.random.default_rng(0))
        wanted = query.draw_summary(asked, np.random.default_rng(0))
        query.check_summary(told)
        assert told.n_users == wanted.n_users
        assert told.sums.keys() == wanted.sums.keys()
        for name, sums in wanted.sums.items():
            most = told.n_users if name == "points" else 0
            assert np.abs(told.sums[name] - sums).max() <= most
    assert len(kept) == 1
