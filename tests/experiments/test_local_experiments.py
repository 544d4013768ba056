"""Experiments on sparse means, densities and distributions under local privacy; real data."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from clients.localize.queries import BinVotes
from clients.means.queries import HashedVotes
from clients.records.functionals import Fourier
from fedhist.users.folds import fold_of
from simulations.experiments import asked_users as asked
from simulations.experiments import density_error as density
from simulations.experiments import rate_tables as tables

# -- users whose records are drawn when they are asked -------------------------------------------


def test_successes_are_bernoulli_trials() -> None:
    """Counts and places of 400 draws; each deviation below 5 standard errors (6e-7 a side)."""
    rng = np.random.default_rng(1)
    drawn = [asked.successes(500, 0.03, rng) for _ in range(400)]
    counts = np.array([len(x) for x in drawn])
    assert abs(counts.mean() - 15) < 5 * math.sqrt(500 * 0.03 * 0.97 / 400)
    assert counts.var() == pytest.approx(500 * 0.03 * 0.97, rel=0.35)
    places = np.concatenate(drawn)
    assert all((np.diff(x) > 0).all() for x in drawn)
    assert abs(places.mean() - 249.5) < 5 * 500 / math.sqrt(12 * len(places))
    assert len(asked.successes(10, 0.0, rng)) == 0


def test_votes_have_the_law_of_whole_records() -> None:
    """Votes per null coordinate: Bin(n, P(|mean| >= threshold)); 64 of them, z < 5 (4e-5)."""
    n, T, theta = 4000, 20, np.zeros(65)
    theta[7] = 0.5
    query = HashedVotes(65, 1.0, 0.4, 65, 1.0)
    users = asked.SparseCoins(n, T, theta).draw(
        query, np.arange(n, dtype=np.uint64), np.random.default_rng(2)
    )
    _, columns = query.votes(users)
    votes = np.bincount(columns, minlength=65)
    ups = np.arange(T + 1)
    far = np.abs(2 * ups / T - 1) >= 0.4
    for p, j in ((0.5, np.delete(np.arange(65), 7)), (0.75, np.array([7]))):
        share = float(binom.pmf(ups[far], T, p).sum())
        z = (votes[j] - n * share) / math.sqrt(n * share * (1 - share))
        assert np.abs(z).max() < 5
    assert np.isin(users.reals.values[:, 7] * T + T, 2 * ups).all()


def test_a_coefficient_has_the_law_of_so_many_samples() -> None:
    """Mean theta_j / sqrt(2), variance that of one sample over T by quadrature (z < 5)."""
    theta, T, n = density.rough(6, 1.2), 8, 60_000
    population = asked.SeriesUsers(n, T, theta, 64)
    query = BinVotes(Fourier(6), 8, 1.0, fold_salt=9)
    ids = np.arange(n, dtype=np.uint64)
    fold = fold_of(ids, 9, 6)
    x = query.functional.scalars(population.draw(query, ids, np.random.default_rng(4)), fold)
    at = (np.arange(4096) + 0.5) / 4096
    f = population.density.evaluate(at)
    for j in range(6):
        wave = (np.sin if j % 2 else np.cos)(2 * np.pi * (1 + j // 2) * at)
        mean, mine = float((f * wave).mean()), x[fold == j]
        deviation = math.sqrt(float((f * wave**2).mean() - mean**2) / T)
        assert mean == pytest.approx(theta[j + 1] / math.sqrt(2), abs=1e-12)
        assert abs(mine.mean() - mean) < 5 * deviation / math.sqrt(len(mine))
        assert mine.std() == pytest.approx(deviation, rel=0.05)


# -- sparse means ---------------------------------------------------------------------------------


# -- densities ------------------------------------------------------------------------------------


def test_the_rough_density_lies_on_the_edge_of_its_ellipsoid() -> None:
    """sum_j j^2 theta_j^2 = energy^2, theta_j^2 falls as j^-3; it is a density."""
    theta = density.rough(48, 1.45)
    j = np.arange(2, len(theta) + 1)
    assert float(np.square(j * theta[1:]).sum()) == pytest.approx(1.45**2)
    power = theta[1::2] ** 2 + theta[2::2] ** 2
    np.testing.assert_allclose(power[1:] / power[0], np.arange(2, 49) ** -3.0)
    assert asked.SeriesUsers(1, 1, theta).density.on_grid(4096).min() > 0


def test_the_item_level_formula_is_the_best_level() -> None:
    """2 (J - 1)^2 coth^2 / (n T) + the tail, by a loop over odd J."""
    theta = density.rough(20, 1.4)
    one = density.Task(1.0, 500, 40, 1.0, 1.5)
    slow = min(
        2 * (J - 1) ** 2 * 2.163953414**2 / 20_000 + sum(x * x for x in theta[J:])
        for J in range(1, 60, 2)
    )
    assert one.item_level(theta, 500 * 40) == pytest.approx(slow)


def test_losses_are_integrals() -> None:
    """By Parseval: the distance of two series is that of their coefficients."""
    theta = density.rough(5, 1.0)
    population = asked.SeriesUsers(1, 1, theta)
    assert density.loss(np.ones(1024), population) == pytest.approx(np.square(theta[1:]).sum())


def test_rates_by_hand() -> None:
    """n = 1000, T = 10, epsilon = 1/2: n epsilon^2 = 250."""
    assert tables.rate_box(1000, 10, 0.5, 4) == pytest.approx(16 / 2500)
    assert tables.rate_box(10, 10, 0.5, 4) == 4 * math.exp(-2.5 / 4)  # the plateau
    assert tables.rate_ball(1000, 10, 0.5, 4) == pytest.approx(4 / 2500)
    assert tables.rate_ball(1, 1, 0.01, 4) == 4.0  # the squared diameter
    assert tables.rate_sparse(1000, 10, 0.5, 100, 3) == pytest.approx(0.3 * math.log(1.4))
    assert tables.rate_density(1000, 10, 0.5, 1.0) == pytest.approx(2500**-0.5)
    assert tables.rate_density(1000, 10**9, 0.5, 1.0) == pytest.approx(250.0**-2)
