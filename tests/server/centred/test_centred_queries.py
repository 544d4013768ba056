"""What users answer about a centre: bins of a distance, and what is left of their vector."""

import math

import numpy as np
import pytest

from clients.centred import queries
from clients.centred.queries import RadiusVotes, RankReports
from clients.frequency_oracles.oracle_votes import OracleReports, OracleSlots
from clients.records.functionals import BallMean, CentredShares
from fedhist.base.errors import WireError
from fedhist.model.query import Report
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.streams import SeededStreams, SystemStreams
from tests.running import one_sample, streams, table_users

PART = BallMean(3, 1.0)
CENTRE = np.array([0.1, -0.2, 0.3])
EDGES = np.array([0.8, 0.4, 0.2])


def rows(n: int, seed: int = 0) -> np.ndarray:
    x = np.random.default_rng(seed).normal(size=(n, 3)) / 2
    return x / np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]


def test_bins_are_those_of_the_distance() -> None:
    x = rows(300)
    x[5] = np.nan
    query = RadiusVotes(PART, CENTRE, EDGES, math.inf)
    assert query.n_bins == 4
    bins = query.answer(one_sample(x), streams(one_sample(x))).arrays["bin"]
    for row, result in zip(x, bins, strict=True):
        distance = math.dist(row, CENTRE)
        naive = sum(distance <= e for e in EDGES)
        assert result == (4 if math.isnan(distance) else naive)


def test_hostile_reports_and_queries() -> None:
    query = RankReports(PART, CENTRE, 0.5, 1.0)
    ids = np.arange(2, dtype=np.uint64)
    size = query.channel.size
    query.check(Report(ids, {"points": np.array([0, size], dtype=np.uint16)}))
    for points in (np.array([1, 2], np.uint32), np.array([1, size + 1], np.uint16)):
        with pytest.raises(WireError):
            query.check(Report(ids, {"points": points}))
    free = RankReports(PART, CENTRE, 0.5, math.inf)
    with pytest.raises(WireError, match="norm"):
        free.check(Report(ids, {"points": np.full((2, 3), 0.9)}))


@pytest.mark.parametrize("epsilon", [1.0, math.inf])
def test_long_vectors_are_walked_in_parts(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same answers, bit for bit, and never more of the vectors at a time."""
    x = np.random.default_rng(3).normal(size=(50, 3)) * 0.4
    users = Users.from_samples(np.arange(50, dtype=np.uint64), np.arange(51), x, unusable=True)
    edges = np.array([0.8, 0.5, 0.2])
    votes = RadiusVotes(BallMean(3, 1.0), np.zeros(3), edges, epsilon)
    asked = [votes, RankReports(BallMean(3, 1.0), np.full(3, 0.1), 0.7, epsilon)]
    whole = [q.answer(users, SeededStreams(users.ids, 2, "test")).arrays for q in asked]
    most, vectors = [], BallMean.vectors

    def counted(self: BallMean, some: Users) -> np.ndarray:
        most.append(len(some))
        return vectors(self, some)

    monkeypatch.setattr(queries, "MOST_ENTRIES", 21)
    monkeypatch.setattr(BallMean, "vectors", counted)
    for query, before in zip(asked, whole, strict=True):
        parts = query.answer(users, SeededStreams(users.ids, 2, "test"))
        assert parts.arrays.keys() == before.keys()
        assert all((parts.arrays[name] == a).all() for name, a in before.items())
        query.check(query.answer(users, SystemStreams(50)))
    assert max(most) == 7


DOMAIN = Keys.of(["rye", "tea", "chai", "maté"])
RUNS = 400


def drinkers(n: int = 60) -> Users:
    """Users of one drink, of several, of none, and of one outside the domain."""
    cups = np.random.default_rng(5).multinomial(3, [0.5, 0.2, 0.1, 0.1, 0.1], n)
    cups[::7] = 0
    cups[3::7, 1:] = 0
    return table_users(cups, Keys.of(["rye", "tea", "chai", "maté", "milk"]))


def moments(draw: object, name: str) -> tuple[np.ndarray, np.ndarray, int]:
    rng = np.random.default_rng(6)
    result = [draw(rng) for _ in range(RUNS)]
    rows = np.array([s.sums[name] for s in result], dtype=np.float64)
    return rows.mean(axis=0), rows.var(axis=0), result[0].n_users


@pytest.mark.parametrize("query", [OracleReports(DOMAIN, 2.0), OracleSlots(DOMAIN, 2.0, padding=2)])
def test_prepared_votes_have_the_law_of_the_reports(query: OracleReports) -> None:
    """Means of 400 draws within 4.5 standard errors, 12 counts in all: false alarm 8e-5."""
    users = drinkers()
    law = query.summary_law(users, {})
    mean, variance, n = moments(law, query.sent)
    rng = np.random.default_rng(7)

    def by_words(rng: np.random.Generator) -> np.ndarray:
        words = rng.integers(1 << 64, size=(len(users), query.n_words), dtype=np.uint64)
        symbols = query.drawn(users, words)
        return np.bincount(np.where(symbols < 0, 4, symbols), minlength=5)

    true = np.mean([by_words(rng) for _ in range(RUNS)], axis=0)
    channel = query.channel
    expected = np.append(n * channel.q + (channel.p - channel.q) * true, 0.0)
    assert n == len(users)
    assert (np.abs(mean - expected) < 4.5 * np.sqrt((variance + 1) / RUNS)).all()


@pytest.mark.parametrize("shares", [True, False])
def test_prepared_sums_of_points_have_their_mean_and_total_variance(
    monkeypatch: pytest.MonkeyPatch, shares: bool
) -> None:
    """Means within 4.5 standard errors; total variances, of 400 draws each, within a fifth."""
    monkeypatch.setattr(queries, "MOST_POINTS", 0)
    if shares:
        users, part = drinkers(), CentredShares(DOMAIN)
    else:
        values = np.random.default_rng(1).normal(0.2, 0.4, (120, 3))
        values[7, 1] = np.nan
        users = Users.from_samples(np.arange(60), np.arange(61) * 2, values, unusable=True)
        part = BallMean(3, 1.0)
    centre = np.array([0.1, -0.2, 0.05])
    query = RankReports(part, centre, 0.5, 3.0, salt=4)
    law = query.summary_law(users, {})
    mean, variance, n = moments(law, "points")
    wanted, spread, n_wanted = moments(lambda rng: query.draw_summary(users, rng), "points")
    assert n == n_wanted
    assert (np.abs(mean - wanted) < 4.5 * np.sqrt((variance + spread) / RUNS)).all()
    assert variance.sum() == pytest.approx(spread.sum(), rel=0.2)


def test_prepared_distances_are_those_of_the_vectors() -> None:
    users = drinkers()
    query = RadiusVotes(
        CentredShares(DOMAIN), np.array([0.1, 0.0, 0.0]), np.array([0.9, 0.4]), 50.0
    )
    law = query.summary_law(users, {})
    for seed in range(3):
        a, b = (
            draw(np.random.default_rng(seed)).sums["bin"]
            for draw in (law, lambda rng: query.draw_summary(users, rng))
        )
        assert a.tolist() == b.tolist()
