"""Central means: null records, sensitivities, floors, what hides the number of users, truths."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fedhist.base.errors import WireError
from fedhist.model.query import Report
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Adjacency
from fedhist.protocols import (
    BoxCentre,
    BoxMean,
    CentralMean,
    HuberMean,
    IntervalMean,
    Mean,
    WeightedMean,
)
from fedhist.protocols.central_means.bin_queries import AwayBins, MeanBins, SizeBins
from fedhist.protocols.central_means.queries import ClippedMeans, WeightedMeans
from fedhist.session.session import Session
from fedhist.users.batch import Users
from fedhist.users.streams import SeededStreams
from server.central_means.noise import COUNTED_STEPS, STEPS, sum_noise
from server.noise import SimulatedNoise
from simulations.runtimes.inline import InlinePopulation
from tests.protocols.running import run

LINE: dict[str, Any] = {"epsilon": 1.0, "low": -1.0, "high": 1.0, "delta": 0.0}
EVERY = (BoxMean, BoxCentre, IntervalMean, HuberMean, WeightedMean, CentralMean)


def some(n: int, mean: float = 0.3, spread: float = 0.1, d: int = 1, seed: int = 1) -> Users:
    rows = mean + spread * np.random.default_rng(seed).standard_normal((n, d))
    return Users.from_samples(np.arange(n), np.arange(n + 1), np.clip(rows, -1, 1))


def asked(query: Any, users: Users) -> Report:
    report: Report = query.answer(users, SeededStreams(users.ids, 0, "test"))
    query.check(report)
    return report


# -- what users send -------------------------------------------------------------------------------


def test_records_that_cannot_be_used_are_null_and_huge_ones_are_clipped() -> None:
    records = {"a": [], "b": [np.nan, 0.1], "c": [np.inf], "d": [1e308], "e": [-1e308], "f": [0.2]}
    users = Users.from_records(records)
    report = asked(ClippedMeans(np.array([0.1]), 0.5), users)
    points, weight = report.arrays["points"][:, 0], report.arrays["weight"]
    found = sorted(zip(points.tolist(), weight.tolist(), strict=True))
    near = int(0.2 * STEPS)
    assert found[0] == (-STEPS, STEPS)
    assert found[1:4] == [(0, 0)] * 3
    assert found[4][0] == pytest.approx(near, abs=1)
    assert found[5] == (STEPS, STEPS)
    for bins in (MeanBins(-1.0, 1.0, 8), AwayBins(np.zeros(1), np.array([0.5, 1.0])), SizeBins(4)):
        assert sorted(asked(bins, users).arrays["bins"][:, 0].tolist())[:3] == [-1, -1, -1]


@pytest.mark.filterwarnings("error")
def test_whose_mean_is_huge_is_not_told_by_a_warning() -> None:
    rows = np.array([[1.7e308] * 3, [-1.7e308, 1.7e308, 0.0], [0.1] * 3])
    users = Users.from_samples(np.arange(3), np.arange(4), rows)
    far = AwayBins(np.full(3, 0.5), np.array([0.5, 1.0]))
    assert asked(far, users).arrays["bins"][:, 0].tolist() == [1, 1, 1]
    for centre in (np.full(3, 1e308), np.full(3, -1e308)):
        asked(AwayBins(centre, np.array([0.5, 1.0])), users)
        asked(ClippedMeans(centre, 0.5), users)


@pytest.mark.parametrize("n_looks", [2, 3])
def test_looks_that_find_noise_alone_say_so(n_looks: int) -> None:
    """Five users in two dimensions at epsilon 1/2: the noise is several times the range."""
    p = BoxCentre(epsilon=0.5, n_users=5, box=1.0, dimension=2, n_looks=n_looks)
    told = run(p, some(5, d=2)).estimate.warnings
    assert any("more than half of the range" in why for why in told)


def test_a_first_look_that_saw_hardly_any_users_weighs_as_little_in_predictions() -> None:
    """One first look in ninety divides by next to nothing, and states as much noise.

    300 runs: most of the error is that of few of them, so that its relative standard error is a
    quarter; a factor of 3 is five of them.
    """
    p = CentralMean(epsilon=0.5, n_users=300, box=1.0, delta=0.0, adjacency="add-remove-user")
    users = some(300, 0.2, 0.01)
    truth = float(users.reals.values.mean())
    errors = [(np.ravel(run(p, users, seed).estimate.value)[0] - truth) ** 2 for seed in range(300)]
    assert 1 / 3 < p.error(users).expected / np.mean(errors) < 3


@pytest.mark.parametrize("d", [1, 3])
def test_no_record_moves_the_sum_by_more_than_is_charged(d: int) -> None:
    """Extreme, ordinary and empty records against each other: 2 radii, or 1 from the empty one."""
    rng = np.random.default_rng(2)
    rows = np.concatenate([
        rng.standard_normal((40, d)) * 10.0 ** rng.integers(-8, 9, (40, 1)),
        np.full((1, d), 1e300), np.full((1, d), -1e300),
    ])  # fmt: skip
    indptr = np.append(np.arange(len(rows) + 1), len(rows))
    users = Users.from_samples(np.arange(len(rows) + 1), indptr, rows)
    for query in (
        ClippedMeans(np.full(d, 0.25), 0.5),
        WeightedMeans(np.full(d, 0.25), 0.5, between=0.1, within=1.0, most=64.0),
    ):
        report = asked(query, users)
        points = report.arrays["points"].astype(np.float64)
        counted = 0.2 * report.arrays["weight"].astype(np.float64)
        whole = np.column_stack([points, counted])
        apart = np.linalg.norm(whole[:, None] - whole[None], axis=2)
        assert np.linalg.norm(points, axis=1).max() <= STEPS * (1 + 1e-9)
        assert np.linalg.norm(whole, axis=1).max() <= STEPS * math.sqrt(1.04) * (1 + 1e-9)
        assert apart.max() <= 2 * STEPS * math.sqrt(1.04) * (1 + 1e-9)
    assert np.linalg.norm(points, axis=1).max() > 0


def test_weights_and_clips_of_users_with_many_samples() -> None:
    """In fractions: between 0, so that w = min(m, 4) / 4 and the clip is 2 / sqrt(min(m, 4))."""
    sizes = [1, 4, 16]
    values = np.full(sum(sizes), 9.0)
    users = Users.from_samples(np.arange(3), np.cumsum([0, *sizes]), values)
    report = asked(WeightedMeans(np.zeros(1), 1.0, between=0.0, within=2.0, most=4.0), users)
    assert report.arrays["weight"].tolist() == [STEPS // 4, STEPS, STEPS]
    # radius 1 at 4 samples is 2 at one, times the weight 1/4
    assert report.arrays["points"][:, 0].tolist() == [STEPS // 2, STEPS, STEPS]
    assert asked(SizeBins(4), users).arrays["bins"][:, 0].tolist() == [0, 2, 3]


def test_what_a_weight_is_worth_moves_by_whole_steps() -> None:
    """Whatever the others weigh, a user moves the rounded sum by .2 in whole steps at most."""
    rng = np.random.default_rng(5)
    others = rng.integers(0, 2**40, 5000)
    own = np.append(rng.integers(0, STEPS + 1, 4999), STEPS)
    moved = (others + own) * COUNTED_STEPS // STEPS - others * COUNTED_STEPS // STEPS
    assert moved.max() == COUNTED_STEPS == math.floor(0.2 * STEPS)
    noise = sum_noise(1.0, 0.0, 1, Adjacency.ADD_REMOVE_USER)
    assert noise.l1 * STEPS >= STEPS + COUNTED_STEPS


def test_a_vector_that_is_too_long_is_refused() -> None:
    query = ClippedMeans(np.zeros(2), 1.0)
    good = asked(query, some(3, d=2))
    for points, weight in (([[STEPS, STEPS]] * 3, [STEPS] * 3), ([[1, 0]] * 3, [0] * 3),
                           ([[0, 0]] * 3, [1] * 3)):  # fmt: skip
        arrays = {"points": np.array(points, np.int32), "weight": np.array(weight, np.int32)}
        with pytest.raises(WireError):
            query.check(Report(good.ids, arrays))


# -- privacy ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("adjacency", "moved"), [("replace-user", 2), ("zero-out-user", 1)])
def test_the_declared_epsilon_suffices_and_a_smaller_one_does_not(
    adjacency: str, moved: int
) -> None:
    """Laplace noise: the largest log-ratio is the distance of the two sums over the scale."""
    protocol = BoxMean(n_users=10, adjacency=adjacency, **LINE)
    ends = [np.full(10, 1.0), np.full(10, 1.0)]
    ends[1][0] = -1.0 if moved == 2 else 0.0
    sums = []
    for x in ends:
        users = Users.from_samples(np.arange(10), np.arange(11), x)
        query = run(protocol, users).queries[0]
        sums.append(query.fold(asked(query, users)).sums["points"][0])
    scale = protocol.noise().std() / math.sqrt(2) * STEPS
    assert abs(int(sums[0]) - int(sums[1])) / scale == pytest.approx(1.0, rel=1e-8)


@pytest.mark.parametrize("cls", EVERY)
def test_a_hidden_number_of_users_is_not_published(cls: Any) -> None:
    more = {"radius": 0.5} if cls is HuberMean else {"within": 0.1} if cls is WeightedMean else {}
    given = {**LINE, "epsilon": 8.0, "adjacency": "add-remove-user", "n_users": 300, **more}
    found = run(cls(**given), some(301)).estimate
    assert found.status == "ok"
    assert 301.0 not in found.public.values()
    assert found.ledger is not None
    assert found.ledger.spent().epsilon == pytest.approx(8.0, rel=1e-6)


# -- choices from public numbers -------------------------------------------------------------------


@pytest.mark.parametrize("cls", EVERY)
def test_nobody_and_somebody_without_samples_look_alike(cls: Any) -> None:
    """Where n is hidden: none at all are no users fewer than one with an empty record."""
    more = {"between": 0.1, "within": 0.3} if cls is WeightedMean else {}
    more = {"radius": 0.3} if cls is HuberMean else more
    protocol = cls(**LINE, **more, n_users=4000, adjacency="add-remove-user")
    ended = []
    for n in (0, 1):
        users = Users.from_samples(np.arange(n), np.zeros(n + 1, np.int64), np.zeros((0, 1)))
        session = Session(protocol, lambda i: SimulatedNoise(3, i))
        estimate = session.run(InlinePopulation([users], 1).ask)
        assert estimate.status == "ok"
        ended.append((estimate.value.tolist(), dict(estimate.public), estimate.warnings))
    assert ended[0] == ended[1]


def test_below_the_floor_the_whole_range_is_released() -> None:
    wide = {**LINE, "low": -100.0, "high": 100.0}
    few, many = (IntervalMean(n_users=n, **wide) for n in (200, 500))
    assert (few.enough, few.max_rounds) == (False, 1)
    assert (many.enough, many.max_rounds) == (True, 3)
    found = run(few, some(200)).estimate
    assert found.public["radius"] == 100.0
    assert few.error(some(200)).expected == pytest.approx(2 * (200 / 200) ** 2, rel=1e-3)


def test_noise_beyond_half_of_the_range_is_told() -> None:
    assert "half of the range" in run(BoxMean(n_users=2, **LINE), some(2)).estimate.warnings[0]
    assert not run(BoxMean(n_users=100, **LINE), some(100)).estimate.warnings
    assert WeightedMean(n_users=50, within=1.0, **LINE).plan.floor > 50
    refused = run(WeightedMean(n_users=50, within=1.0, **LINE), some(50)).estimate
    assert refused.status == "refused"
    assert "box-mean" in refused.reason


def test_noise_longer_than_the_mean_costs_no_more_than_the_middle() -> None:
    """Where plain noise has the mean square 250, and the middle is off by 9 in square.

    By |x|^2 a mixture of chi^2 the error is at most that of the middle and 2 std^2 = 7.8 [Efron &
    Morris 1973]. The mean of 200 has a relative standard deviation of about .03: 5 of them.
    """
    given: dict[str, Any] = {"epsilon": 3.0, "delta": 1e-6, "n_users": 50, "box": 32.0}
    users = some(50, mean=3 / 8, spread=0.001, d=64)
    for cls in (BoxMean, BoxCentre):
        protocol = cls(dimension=64, **given)
        truth, stated = protocol.truth(users), protocol.error(users).expected
        found = (run(protocol, users, seed).estimate for seed in range(200))
        losses = [protocol.loss_of(estimate, users, truth) for estimate in found]
        assert stated < 9 + 8
        assert np.mean(losses) == pytest.approx(stated, rel=0.15)


@pytest.mark.parametrize("adjacency", ["replace-user", "zero-out-user", "add-remove-user"])
def test_three_looks_see_users_who_are_closer_than_the_first_mean_is_good(adjacency: str) -> None:
    """A tenth of the error of two looks, as predicted, within the budget.

    The mean of 60 squared lengths in 16 dimensions has a relative standard deviation of about .08,
    with drawn radii and 48 followed draws about .15 : 3 of them.
    """
    given = {**LINE, "delta": 1e-6, "n_users": 2000, "dimension": 16, "box": 1.0}
    users = some(2000, mean=0.1, spread=0.001, d=16)
    two, three = (BoxCentre(adjacency=adjacency, n_looks=n, **given) for n in (2, 3))
    assert CentralMean(adjacency=adjacency, **given).chosen == three
    truth, stated = three.truth(users), three.error(users).expected
    assert stated < two.error(users).expected / 10
    found = [run(three, users, seed).estimate for seed in range(60)]
    losses = [three.loss_of(estimate, users, truth) for estimate in found]
    assert np.mean(losses) == pytest.approx(stated, rel=0.45)
    assert found[0].ledger is not None
    spent = found[0].ledger.spent()
    assert spent.epsilon <= 1.0 + 1e-9
    assert spent.delta <= 1e-6 * (1 + 1e-9)


def test_looks_are_two_or_three_and_a_public_radius_is_that_of_two() -> None:
    with pytest.raises(ValueError, match="n_looks must be 2 or 3, got 4"):
        BoxCentre(n_users=300, n_looks=4, **LINE)
    with pytest.raises(ValueError, match="set n_looks = 2"):
        BoxCentre(n_users=300, n_looks=3, radius=0.1, **LINE)


def test_few_users_are_told_that_far_ones_would_not_be_seen() -> None:
    """300 users by two looks, 600 by medians; 20,000 would show one in twenty."""
    for n, name in ((300, "box-centre"), (600, "interval-mean")):
        protocol = CentralMean(n_users=n, **LINE)
        assert protocol.chosen.name == name
        found = run(protocol, some(n, spread=0.01)).estimate
        assert "would not be seen" in found.warnings[0]
        assert "box-mean sees all" in found.warnings[0]
    assert not run(CentralMean(n_users=20_000, **LINE), some(20_000)).estimate.warnings


def test_a_long_tail_that_a_drawn_radius_does_not_hold_is_told_beforehand() -> None:
    """At epsilon 8 noise on the whole range is less than what one far user brings."""
    n = 10_000
    rows = 0.03 * np.random.default_rng(2).standard_t(2.5, (n, 1))
    users = Users.from_samples(np.arange(n), np.arange(n + 1), np.clip(rows, -1, 1))
    given = {"epsilon": 8.0, "low": -1.0, "high": 1.0, "n_users": n, "adjacency": "zero-out-user"}
    tails = CentralMean(**given).error(users)
    assert tails.is_close
    assert "box-mean would err" in tails.source
    assert BoxMean(**given).error(users).expected < tails.expected / 1.5
    assert not CentralMean(**given).error(some(n)).is_close


def test_the_wrong_range_shows_in_the_truth_and_in_the_prediction() -> None:
    users = some(400, mean=0.9, spread=0.01)
    wrong = BoxMean(epsilon=8.0, n_users=400, low=-0.5, high=0.5, delta=0.0)
    assert wrong.error(users).expected == pytest.approx(0.4**2, rel=0.05)
    found = run(wrong, users).estimate
    assert wrong.loss_of(found, users) == pytest.approx(0.4**2, rel=0.1)


# -- truths ----------------------------------------------------------------------------------------


def test_sizes_that_go_with_the_mean_separate_the_average_of_users_from_the_pooled_mean() -> None:
    """Half of the users have one sample at 0, half have nine at 0.5: .25, and pooled .45."""
    n = 2000
    sizes = np.where(np.arange(n) % 2, 9, 1)
    values = np.repeat(np.where(np.arange(n) % 2, 0.5, 0.0), sizes)
    users = Users.from_samples(np.arange(n), np.concatenate([[0], np.cumsum(sizes)]), values)
    given = {**LINE, "epsilon": 8.0, "n_users": n}
    for cls in (BoxMean, BoxCentre, IntervalMean, CentralMean):
        protocol = cls(**given)
        found = run(protocol, users).estimate
        assert found.value is not None
        assert found.value[0] == pytest.approx(0.25, abs=0.01)  # noise of .00018, and a clip
        assert protocol.estimates is Truth.AVERAGE_OF_USERS
    weighted = WeightedMean(within=0.5, **given)
    assert weighted.estimates is Truth.COMMON
    found = run(weighted, users).estimate
    assert found.value is not None
    assert found.value[0] > 0.3
    local = Mean(epsilon=1.0, n_users=n, samples_per_user=5, low=-1.0, high=1.0)
    assert local.truth(users) == pytest.approx(BoxMean(**given).truth(users), rel=1e-12)


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_weights_among_outliers_err_by_what_the_clip_around_the_median_takes(share: float) -> None:
    """30 runs; the mean loss lies within 5 standard errors, a false alarm has probability 1e-6."""
    rng = np.random.default_rng(2)
    sizes = np.exp(rng.uniform(0.0, 5.3, 1000)).astype(np.int64)
    own = np.repeat(np.where(rng.random(1000) < share, 0.5, 0.0), sizes)
    values = own + 0.1 * rng.standard_normal(own.size)
    users = Users.from_samples(np.arange(1000), np.append(0, np.cumsum(sizes)), values)
    protocol = WeightedMean(within=0.1, n_users=1000, **LINE)
    losses = [protocol.loss_of(run(protocol, users, seed=s).estimate, users) for s in range(30)]
    scatter = float(np.std(losses, ddof=1)) / math.sqrt(30)
    assert abs(protocol.error(users).expected - np.mean(losses)) <= 5 * scatter
    assert scatter < 0.06 * np.mean(losses)


def test_users_without_samples_count_as_the_middle_unless_users_are_hidden() -> None:
    indptr = np.minimum(np.arange(4001), 2000)
    users = Users.from_samples(np.arange(4000), indptr, np.full(2000, 0.5))
    seen = run(BoxMean(n_users=4000, **LINE), users).estimate
    hidden = run(BoxMean(n_users=4000, adjacency="add-remove-user", **LINE), users).estimate
    assert seen.value is not None
    assert hidden.value is not None
    assert seen.value[0] == pytest.approx(0.25, abs=0.02)
    assert hidden.value[0] == pytest.approx(0.5, abs=0.05)


def test_ranges_that_no_query_takes_are_refused_before_anything_is_spent() -> None:
    for wide in ({"high": 1e300}, {"low": -1e-300, "high": 1e-300}, {"box": 1e-118}):
        with pytest.raises(ValueError, match=r"(high - low|box) must be .* in \[2\^-340, 2\^340\]"):
            IntervalMean(n_users=2000, **{**LINE, **wide})
    edge = IntervalMean(n_users=2000, **{**LINE, "low": -1e102, "high": 1e102})
    assert run(edge, some(2000)).estimate.status == "ok"


def test_predictions_of_users_at_the_centre_and_of_none_raise_no_warning() -> None:
    same = Users.from_samples(np.arange(2), np.arange(3), np.full(2, 0.3))
    box = {**LINE, "low": -1e9, "high": 1e9, "epsilon": 1000.0, "n_users": 2}
    assert WeightedMean(within=1e9, **box).error(same).expected > 0
    none = Users.from_samples(np.arange(1), np.zeros(2, np.int64), np.zeros((0, 1)))
    assert BoxCentre(n_users=300, **LINE).error(none).expected == 0.0


def test_a_prediction_knows_the_noise_on_a_hidden_number_of_users() -> None:
    """It moves the second mean along its own length: 2.4 times the error without it.

    The mean of 40 squared lengths in 20 dimensions, of which the first mean's is a half: it has a
    relative standard deviation of about .12, and the radius another .1: 4 of them.
    """
    given = {**LINE, "delta": 1e-6, "n_users": 600, "dimension": 20, "box": 1.0}
    protocol = BoxCentre(adjacency="add-remove-user", **given)
    users = some(600, mean=0.2, spread=0.005, d=20)
    truth = protocol.truth(users)
    losses = [protocol.loss_of(run(protocol, users, s).estimate, users, truth) for s in range(40)]
    assert np.mean(losses) == pytest.approx(protocol.error(users).expected, rel=0.6)


def test_noise_in_an_empty_bin_of_sizes_is_hardly_ever_taken_for_users() -> None:
    """2,000 users of two samples: of 2,000 draws .2 are taken for more; 3 of them by 1 in 1000."""
    protocol = WeightedMean(n_users=2000, within=0.1, **LINE)
    sizes = np.where(np.arange(24) == 1, 2000.0, 0.0)
    noise = np.random.default_rng(4).laplace(scale=2 / 0.1, size=(2000, 24))
    assert sum(protocol.best_cap(sizes + row) > 4 for row in noise) < 3


@pytest.mark.parametrize("cls", [BoxCentre, IntervalMean, HuberMean])
def test_predictions_hold(cls: Any) -> None:
    """The mean of 250 squared errors against the prediction: within a factor of 1.7.

    A squared Laplace variable has a relative standard deviation of sqrt(5), with a drawn radius of
    about 4: the mean of 250 passes 1.7 with a probability below 1 %; the seeds are fixed.
    """
    more = {"radius": 0.4} if cls is HuberMean else {}
    protocol = cls(n_users=1500, **LINE, **more)
    users = some(1500)
    truth = protocol.truth(users)
    losses = [protocol.loss_of(run(protocol, users, s).estimate, users, truth) for s in range(250)]
    assert 1 / 1.7 < np.mean(losses) / protocol.error(users).expected < 1.7
