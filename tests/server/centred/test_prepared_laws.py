"""Sums that predictions prepare once, against those that are drawn user by user."""

from __future__ import annotations

import numpy as np
import pytest

from clients.centred import queries
from clients.centred.queries import RadiusVotes, RankReports
from clients.frequency_oracles.oracle_votes import OracleReports, OracleSlots
from clients.records.functionals import BallMean, CentredShares
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from tests.running import table_users

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
    found = [draw(rng) for _ in range(RUNS)]  # type: ignore[operator]
    rows = np.array([s.sums[name] for s in found], dtype=np.float64)
    return rows.mean(axis=0), rows.var(axis=0), found[0].n_users


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
        users = Users.from_samples(np.arange(60), np.arange(61) * 2, values)
        part = BallMean(3, 1.0)  # type: ignore[assignment]
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
