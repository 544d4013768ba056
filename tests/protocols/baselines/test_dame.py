from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import fedhist
from fedhist.base.errors import WireError
from fedhist.model.query import Report, Summary
from fedhist.protocols.baselines.dame import Dame
from fedhist.protocols.baselines.sized_votes import SizedVotes
from fedhist.users.batch import Users
from tests.protocols.running import streams

QUERY = SizedVotes(-1.0, 1.0, 6, 10, 1.0)


def crowd(n: int, size: int, mean: float, first: int = 0) -> Users:
    """n users of so many samples +-1 each, of one and the same mean."""
    ups = round(size * (1 + mean) / 2)
    values = np.tile(np.where(np.arange(size) < ups, 1.0, -1.0), n)
    return Users.from_samples(np.arange(first, first + n), np.arange(n + 1) * size, values)


# -- the vote -------------------------------------------------------------------------


def test_votes_have_the_law_of_their_bin() -> None:
    """100,000 users of enough samples, and as many of too few, empty or NaN records.

    Counts of six bins within 5 deviations of k-ary randomized response, and of uniform votes, each:
    false alarm 1e-5.
    """
    n, k, e = 100_000, QUERY.n_bins, math.e
    many = crowd(n, 10, 0.4)  # .4 lies in bin 4 of [-1, 1]
    sent = QUERY.answer(many, streams(many, 1)).arrays["votes"]
    p = np.full(k, 1 / (e + k))  # one symbol more stands for none
    p[4] *= e
    counts = np.bincount(sent, minlength=k + 2)[:k]
    assert np.abs((counts - n * p) / np.sqrt(n * p * (1 - p))).max() < 5
    few = crowd(n, 9, 0.4)
    sent = QUERY.answer(few, streams(few, 1)).arrays["votes"]
    p = np.full(k, (e + k - 1) / (e + k) / k)
    counts = np.bincount(sent, minlength=k + 2)[:k]
    assert np.abs((counts - n * p) / np.sqrt(n * p * (1 - p))).max() < 5


def test_who_votes_at_random() -> None:
    """Too few samples, none, a NaN; values outside of the range are clipped, absurd ones too."""
    enough = 10
    records = [
        np.full(enough, 0.9), np.full(enough - 1, 0.9), np.zeros(0),
        np.append(np.full(enough, 0.9), np.nan), np.full(enough, 1e300), np.full(enough, -np.inf),
    ]  # fmt: skip
    indptr = np.concatenate(([0], np.cumsum([len(r) for r in records])))
    users = Users.from_samples(np.arange(6), indptr, np.concatenate(records))
    assert QUERY.own_bins(users).tolist() == [5, -1, -1, -1, 5, 0]
    report = QUERY.answer(users, streams(users, 3))
    QUERY.check(report)
    for i in range(6):  # a batch changes nothing
        one = users.slice(i, i + 1)
        assert QUERY.answer(one, streams(one, 3)).arrays["votes"] == report.arrays["votes"][i]


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
def test_privacy_is_two_sided(epsilon: float) -> None:
    """In integers of 2^-64: the largest ratio of two bins is at most e^epsilon, and 0.98 not."""
    layers = replace(QUERY, epsilon=epsilon).channel.layers
    inside, outside = layers.lower + layers.upper, layers.lower
    assert layers.chosen == 1
    assert Fraction(inside, outside) <= Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**52))
    assert Fraction(inside, outside) > Fraction(math.exp(0.98 * epsilon))


def test_bad_messages_are_refused() -> None:
    ids = np.arange(3, dtype=np.uint64)
    QUERY.check(Report(ids, {"votes": np.array([0, 5, 8], dtype=np.uint32)[:3] % 7}))
    for bad in (
        {"votes": np.array([0, 1, 99], dtype=np.uint32)},
        {"votes": np.array([0, 1, 2])},
        {"votes": np.array([0, 1], dtype=np.uint32)},
        {"other": np.array([0, 1, 2], dtype=np.uint32)},
    ):
        with pytest.raises(WireError):
            QUERY.check(Report(ids, bad))
    counts = QUERY.fold(Report(ids, {"votes": np.array([0, 1, 2], dtype=np.uint32)}))
    QUERY.check_summary(counts)
    with pytest.raises(WireError, match="adds up to 3, expected 2"):
        QUERY.check_summary(Summary(2, counts.sums))


# -- the protocol ---------------------------------------------------------------------


def ragged(n: int, mean: float, seed: int) -> Users:
    """Log-uniform sizes of 10 to 1000, one sample standing for the mean of all but its number."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(rng.uniform(math.log(10), math.log(1000), n)).astype(np.int64)
    owner = np.repeat(np.arange(n), sizes)
    values = np.where(rng.random(len(owner)) < (1 + mean) / 2, 1.0, -1.0)
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    return Users.from_samples(np.arange(n, dtype=np.uint64), indptr, values)


def test_few_samples_do_not_move_the_vote() -> None:
    """Half of the users hold 4 samples around 0, the others 400 around .6: theirs is the bin."""
    users = fedhist.Users.from_samples
    a, b = crowd(3000, 400, 0.6), crowd(3000, 4, 0.0, first=3000)
    both = users(
        np.concatenate((a.ids, b.ids)),
        np.concatenate((a.reals.indptr, a.reals.indptr[-1] + b.reals.indptr[1:])),
        np.concatenate((a.reals.values, b.reals.values)),
    )
    protocol = Dame(1.0, 6000, 100.0, least_samples=100)
    estimate = fedhist.run(protocol, both, seed=1)
    winner = protocol.vote.own_bins(a)[0]
    low = protocol.centre(int(winner)) - protocol.half_width
    # the others' reports are clipped to the interval of the winner: the mean lies inside
    assert low - 4 * estimate.stderr[0] < estimate.value[0] < 0.6
    assert estimate.public["winning_share"] > 0.4


def test_error_and_the_threshold() -> None:
    """Twelve runs over the prediction, which a threshold at 10 samples makes larger.

    The mean of twelve squared normals has relative spread .41: false alarm below 1e-3.
    """
    users = ragged(4000, 0.3, 1)
    base = Dame(1.0, 4000, 46.0, least_samples=200)
    losses = [
        base.loss_of(fedhist.run(replace(base, salt=k), users, seed=k), users) for k in range(12)
    ]
    assert 0.25 < np.mean(losses) / base.error(users).expected < 2.6
    assert base.error(users).expected < replace(base, least_samples=10).error(users).expected


def test_few_bins_are_not_worth_a_vote() -> None:
    one = Dame(1.0, 500, 6.0)
    assert (one.n_bins, one.max_rounds, one.half_width) == (1, 1, 1.0)
    assert one.report(one.centre(0)).cohort is None
    two = Dame(1.0, 500, 500.0, low=2.0, high=6.0)
    assert two.max_rounds == 2
    assert two.half_width == pytest.approx(2 * 3 / two.n_bins)
    assert two.centre(0) - two.half_width == pytest.approx(2.0)  # moved into the range
    assert two.centre(two.n_bins - 1) + two.half_width == pytest.approx(6.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": 0.0}, "epsilon must be positive, got 0"),
        ({"n_users": 0}, "n_users.*got 0"),
        ({"samples_per_user": 0.5}, "samples_per_user must be a number of at least 1, got 0.5"),
        ({"least_samples": 0}, "least_samples.*got 0"),
        ({"low": 1.0, "high": 1.0}, "need finite low < high"),
        ({"salt": -1}, "salt must be an integer in"),
    ],
)
def test_bad_fields(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(Dame.example(), **changes)


def test_what_cannot_be_asked_is_refused_before_anybody_votes() -> None:
    with pytest.raises(ValueError, match="laplace"):
        Dame(epsilon=1e-6, n_users=1000, samples_per_user=1000)
    with pytest.raises(ValueError, match="least_samples"):
        Dame(epsilon=1.0, n_users=1000, samples_per_user=1e300)


def test_a_prediction_of_the_largest_samples_does_not_raise() -> None:
    users = Users.from_samples(np.arange(1), np.arange(2), np.array([np.finfo(np.float64).max]))
    assert Dame(epsilon=1.0, n_users=300, samples_per_user=1).error(users).expected == math.inf
