import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import fedhist as fh
from fedhist.channels.scalar import scalar_channel
from fedhist.model.protocol import Estimate
from fedhist.users.batch import Users
from server.means.sparse_mean import (
    NOT_LOST,
    SparseMean,
    VoteLaw,
    keep_largest,
    pick_support,
    vote_gain,
    vote_threshold,
)
from server.printed.means import paper_threshold
from tests.running import one_sample


def population(
    n: int, d: int, T: int, theta: dict[int, float], seed: int = 1
) -> tuple[np.ndarray, Users]:
    """Users with T samples in {-1, 1} each, kept as one row: their mean."""
    rng = np.random.default_rng(seed)
    truth = np.zeros(d)
    truth[list(theta)] = list(theta.values())
    means = rng.binomial(T, (1 + truth) / 2, (n, d)) * (2 / T) - 1
    return truth, one_sample(means)


def signals(k: int, amplitude: float, step: int = 7) -> dict[int, float]:
    return {step * i: amplitude * (-1) ** i for i in range(k)}


def sse(estimate: Estimate, truth: np.ndarray) -> float:
    return float(((estimate.value - truth) ** 2).sum())


def settings(n: int, d: int, T: int, s: int, **more: Any) -> SparseMean:
    """One of the paper's two procedures."""
    more = {"epsilon": 1.0, "method": "select", **more}
    return SparseMean(n_users=n, dimension=d, samples_per_user=T, sparsity=s, **more)


@pytest.fixture(scope="module")
def wide() -> tuple[np.ndarray, Users]:
    return population(8000, 1000, 200, signals(4, 0.5, 211))


@pytest.mark.parametrize("changes", [{}, {"vote": "laplace", "epsilon": 2.0}], ids=str)
def test_selection_where_dimension_is_above_what_folds_reach(
    wide: tuple[np.ndarray, Users], changes: dict[str, Any]
) -> None:
    """SSE below 2e-3 at n = 8000, d = 1000, T = 200, s = 4 and amplitude 1/2.

    8 users a fold cannot do that: thresholding is refused. Scores lead by
    10 deviations or more; the SSE has mean 5e-4 and spread 3e-4. False alarm below 1e-3. Sums with
    Laplace noise get budget 2: at 1 they lead by 5.5 and miss a signal in one run of ten.
    """
    truth, users = wide
    protocol = replace(settings(8000, 1000, 200, 4), **changes)
    assert protocol.law.lead(4000) > 10
    assert protocol.procedure == "select"
    assert replace(protocol, method="threshold").useless()
    for seed in (1, 2):
        estimate = fh.run(protocol, users, seed=seed)
        assert sse(estimate, truth) < 2e-3
        assert set(np.flatnonzero(estimate.value)) == set(np.flatnonzero(truth))
        assert np.array_equal(estimate.stderr > 0, truth != 0)


def test_users_on_both_sides_of_zero_are_no_signal() -> None:
    """Half of the users at .6 and half at -.6 in one column: its mean is 0, which votes say."""
    rng = np.random.default_rng(3)
    means = 0.02 * rng.normal(size=(8000, 40))
    means[:, 5] += 0.5
    means[:, 9] += rng.choice([-0.6, 0.6], 8000)
    users = one_sample(means)
    estimate = fh.run(settings(8000, 40, 2500, 2, method="select"), users, seed=1)
    assert 9 not in np.flatnonzero(estimate.value)
    assert 5 in np.flatnonzero(estimate.value)


def test_nothing_to_select_gives_zero_with_a_warning() -> None:
    _, users = population(3000, 100, 50, {})
    estimates = [fh.run(settings(3000, 100, 50, 2), users, seed=k) for k in range(8)]
    empty = [e for e in estimates if not e.value.any()]
    assert len(empty) >= 4  # 100 scores of no signal, each above 3 deviations once in 740
    for estimate in empty:
        assert estimate.status == "ok"
        assert estimate.warnings
        assert estimate.public["selected"] == 0
        assert not estimate.stderr.any()
        assert estimate.ledger.spent(0.0).epsilon == pytest.approx(1.0)


def test_with_s_of_d_all_users_estimate_all_coordinates() -> None:
    truth, users = population(4000, 3, 100, {0: 0.5, 1: -0.2, 2: 0.7})
    for s in (3, 9):
        protocol = settings(4000, 3, 100, s)
        assert (protocol.procedure, protocol.max_rounds) == ("select", 2)
        estimate = fh.run(protocol, users, seed=1)
        assert "n_select" not in estimate.public
        assert sse(estimate, truth) < 0.01
    assert fh.run(settings(3, 3, 1, 3), users, seed=1).status == "refused"


def test_refuses_where_zero_is_better() -> None:
    users = population(100, 50, 5, {})[1]
    for changes in ({}, {"method": "select"}, {"method": "threshold"}):
        estimate = fh.run(settings(100, 50, 5, 2, **changes), users, seed=1)
        assert estimate.status == "refused"
        assert "100" in estimate.reason
        assert estimate.ledger.spent(0.0).epsilon == 0


def test_the_query_of_selection() -> None:
    vote = settings(9000, 1000, 500, 9).vote_query
    assert (vote.vote, vote.max_votes, vote.max_items) == ("sign", 9, 0)
    assert vote.threshold == pytest.approx(0.5 * math.sqrt(2 * math.log(4000 / 9) / 500))


def test_mode_paper() -> None:
    """(39)-(42): no cap on the votes, first T* samples, sums of signs with Laplace noise."""
    protocol = settings(40_000, 40, 200, 2, mode="paper", method="select")
    vote = protocol.vote_query
    assert (vote.vote, vote.max_votes) == ("laplace", 40)
    assert vote.reach == pytest.approx(2 * math.sqrt(2))
    assert (vote.max_items, vote.threshold) == (
        200,
        pytest.approx(math.sqrt(2 * math.log(80) / 200)),
    )
    truth, users = population(40_000, 40, 200, signals(2, 0.7))
    assert sse(fh.run(protocol, users, seed=1), truth) < 0.05
    for n, d, by_rule in ((400, 400, "select"), (40_000, 40, "threshold")):
        assert settings(n, d, 200, 2, mode="paper", method="vectors").procedure == by_rule


def test_radius_scales_everything() -> None:
    truth, users = population(6000, 40, 100, signals(2, 0.6))
    scaled = Users.from_samples(
        users.ids, users.reals.indptr, 8 * users.reals.values, unusable=True
    )
    one = settings(6000, 40, 100, 2)
    eight = replace(one, radius=8.0)
    for method in ("vectors", "select", "threshold"):
        small, large = (replace(p, method=method).missable for p in (one, eight))
        assert large == pytest.approx(8 * small)
    assert eight.vote_query.threshold == pytest.approx(8 * one.vote_query.threshold)
    assert sse(fh.run(one, users, seed=1), truth) < 0.01
    assert sse(fh.run(eight, scaled, seed=1), 8 * truth) < 0.64


def test_mean_scale_for_users_whose_own_means_differ() -> None:
    """A wider scale is a wider vote threshold and a wider interval: no clipping bias."""
    rng = np.random.default_rng(4)
    truth = np.zeros(40)
    truth[[0, 7]] = 0.5, -0.5
    means = truth + np.where(truth != 0, 0.2, 0.02) * rng.normal(size=(8000, 40))
    users = one_sample(means)
    protocol = settings(8000, 40, 2500, 2, mean_scale=0.2, method="select", max_votes=2)
    narrow = replace(protocol, mean_scale=None)
    assert protocol.vote_query.threshold == pytest.approx(10 * narrow.vote_query.threshold)
    estimate = fh.run(protocol, users, seed=1)
    assert sse(estimate, truth) < 0.01
    assert estimate.public["half_width"] > 0.2


PLACES = [1, 13, 20, 39]
SIGNS = np.array([1, -1, 1, -1])


def placed(at: float) -> dict[int, float]:
    return dict(zip(PLACES, (at * SIGNS).tolist(), strict=True))


def by_vectors(n: int, d: int, T: int, epsilon: float, **more: Any) -> SparseMean:
    given = {"epsilon": epsilon, "n_users": n, "dimension": d, "samples_per_user": T}
    return SparseMean(**{**given, "sparsity": 4, **more})


def test_when_vectors_are_reported() -> None:
    protocol = by_vectors(5000, 40, 30, 2.0)
    assert (protocol.procedure, protocol.max_rounds) == ("vectors", 10)
    for other in ({"dimension": 4097}, {"epsilon": math.inf}, {"sparsity": 40}):
        assert replace(protocol, **other).procedure != "vectors"
    assert by_vectors(5000, 40, 30, 2.0, mode="paper").procedure in ("select", "threshold")


def test_estimates_stay_in_the_box() -> None:
    """Of hardly enough users: without it they went out to 2.3 radii, for a fifth of the error."""
    _, users = population(570, 40, 30, placed(0.9))
    for k in range(6):
        result = fh.run(by_vectors(570, 40, 30, 1.0, salt=k), users, seed=k)
        assert result.status == "ok"
        assert np.abs(result.value).max() <= 1.0


def test_which_columns_are_refined() -> None:
    """s sure ones are all; with one of them in doubt there is room for one more."""
    protocol = by_vectors(5000, 40, 30, 2.0)
    z = np.zeros(40)
    z[[3, 5, 7]], z[[9, 11, 13]] = protocol.level + NOT_LOST, (-4.0, 2.0, -1.6)
    assert protocol.candidates(z).tolist() == [3, 5, 7, 9, 11]
    z[9] = -9.0
    assert protocol.candidates(z).tolist() == [3, 5, 7, 9]
    assert not len(protocol.candidates(np.full(40, 1.4)))


def test_no_signal_gives_zero_and_few_users_are_refused() -> None:
    _, users = population(3000, 40, 30, placed(0.0))
    ran = [fh.run(by_vectors(3000, 40, 30, 2.0), users, seed=k) for k in range(12)]
    empty = [e for e in ran if not e.value.any()]
    assert len(empty) >= 6  # a column of no signal passes in a run of four
    assert all(e.warnings for e in empty)
    refused = fh.run(by_vectors(60, 40, 30, 0.5), population(60, 40, 30, placed(0.5))[1], seed=1)
    assert refused.status == "refused"


@pytest.mark.parametrize("method", ["vectors", "select", "threshold"])
def test_what_signals_that_are_lost_may_cost_is_stated(method: str) -> None:
    """Signals half as strong as those that may be lost are, within the bound; stronger ones hardly.

    Planned: 1 of 40 is lost. More than 6 of 48 have a probability of 1e-3.
    """
    protocol, n = by_vectors(20_000, 40, 30, 2.0, method=method), 20_000
    assert 0.05 < protocol.missable < 0.5
    truth, users = population(n, 40, 30, placed(0.45 * protocol.missable))
    result = [fh.run(replace(protocol, salt=k), users, seed=k) for k in range(12)]
    values = np.array([e.value for e in result])
    gone = 4 - np.count_nonzero(values, axis=1)
    assert (values[:, PLACES] == 0).sum() >= 10
    stated = np.array([np.square(np.asarray(e.stderr)).sum() for e in result])
    unseen = np.array([e.public["unseen"] for e in result])
    assert (unseen >= protocol.missable * np.sqrt(gone) * (1 - 1e-12)).all()
    off = np.square(values - truth).sum(axis=1)
    assert 1.3 * stated.mean() < off.mean() < 1.3 * stated.mean() + np.square(unseen).mean()
    _, users = population(n, 40, 30, placed(1.1 * protocol.missable))
    result = [fh.run(replace(protocol, salt=k), users, seed=k) for k in range(12)]
    assert (np.array([e.value for e in result])[:, PLACES] == 0).sum() <= 6


@pytest.mark.parametrize("s", range(1, 10))
def test_gains_by_enumerating_all_signs(s: int) -> None:
    """An even number of votes has the gain of one vote MORE (not one less)."""
    patterns = np.array(list(product((-1, 1), repeat=s)))
    total = patterns.sum(axis=1)
    assert vote_gain(s) == pytest.approx((patterns[:, 0] * np.sign(total)).mean(), abs=1e-15)
    for reach in (0.5, 1.0, 2.0, 2 * math.sqrt(s)):
        clipped = np.clip(total, -reach, reach)
        assert vote_gain(s, reach) == pytest.approx((patterns[:, 0] * clipped).mean(), abs=1e-14)
    if s % 2 == 0:
        assert vote_gain(s) == pytest.approx(vote_gain(s + 1))
        assert vote_gain(s) < vote_gain(s - 1)


def test_gain_for_many_votes() -> None:
    assert vote_gain(10**6) == pytest.approx(math.sqrt(2 / math.pi / 10**6), rel=1e-3)
    assert vote_gain(10**4, 1e9) == pytest.approx(1.0)
    assert vote_gain(0) == vote_gain(0, 1.0) == 0.0


def test_deviation_of_a_score_of_no_vote() -> None:
    """Sums of four votes with Laplace noise, 100,000 users: 2 percent are eight deviations."""
    rng, law = np.random.default_rng(3), VoteLaw(scalar_channel("laplace", 4.0), 4, 4.0)
    total = rng.choice([-1, 1], (100_000, 4)).sum(axis=1)
    noise = 4.0 * rng.laplace(0, 2 / 4.0, 100_000)
    assert (total + noise).std() == pytest.approx(law.deviation, rel=0.02)


def test_sign_needs_fewer_users_than_clipped_sums() -> None:
    """Erratum 5: 2 to 5 times fewer for epsilon up to 2 (more still for an odd s)."""
    for epsilon in (0.5, 1.0, 2.0):
        for s in (2, 4, 8):
            sign = VoteLaw(scalar_channel("onebit", epsilon), s)
            clipped = VoteLaw(scalar_channel("laplace", epsilon), s, 2 * math.sqrt(s))
            assert 2 < (sign.lead(1.0) / clipped.lead(1.0)) ** 2 < 5


def test_pick_support() -> None:
    scores = np.array([3.0, 0.5, 7.0, 3.0, -9.0, 5.0])
    assert pick_support(scores, 2, 1.0).tolist() == [2, 5]
    assert pick_support(scores, 3, 1.0).tolist() == [0, 2, 5]  # of equal ones the lowest
    assert pick_support(scores, 2, 1.0, first=True).tolist() == [0, 2]
    assert pick_support(scores, 9, 4.0).tolist() == [2, 5]
    assert pick_support(scores, 2, 8.0).tolist() == []


def test_keep_largest() -> None:
    stderr = np.full(5, 0.1)
    level = 0.1 * math.sqrt(2 * math.log(10))
    value = np.array([0.9, level * 0.99, -0.8, level * 1.01, 0.7])
    assert keep_largest(value, stderr, 5).tolist() == [0.9, 0.0, -0.8, value[3], 0.7]
    assert keep_largest(value, stderr, 2).tolist() == [0.9, 0.0, -0.8, 0.0, 0.0]
    # a fold without reports has an infinite standard error
    assert keep_largest(value, np.array([np.inf] * 5), 5).tolist() == [0.0] * 5
    # other evidence counts as well
    sure = np.array([False, True, False, False, False])
    assert keep_largest(value, stderr, 5, sure)[1] == value[1]


def test_thresholds() -> None:
    expected = 0.5 * math.sqrt(2 * math.log(1000) / 200)
    assert vote_threshold(200**-0.5, 1000, 4) == pytest.approx(expected)
    assert vote_threshold(3 * 200**-0.5, 1000, 4) == pytest.approx(3 * expected)
    assert vote_threshold(1.0, 5, 9) == vote_threshold(1.0, 5, 5)
    least, items = paper_threshold(400, 10**6, 50, 2, 1.0, 1.0)
    assert items == math.floor(math.exp(0.01 * 400 / 2))  # T* below T
    assert least == pytest.approx(math.sqrt(2 * math.log(100) / items))
    assert paper_threshold(10**6, 64, 50, 2, 2.0, math.inf)[1] == 64
