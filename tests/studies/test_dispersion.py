"""How much users differ: closed forms on Dirichlet and multinomial populations, slow versions."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from fedhist.users.batch import Users
from fedhist.users.columns import Samples
from fedhist.users.keys import Keys
from simulations.studies.decide.dispersion import (
    SURE,
    dispersion_of_counts,
    dispersion_of_means,
)


def draw(
    n_users: int, d: int, concentration: float | None, seed: int, most: int = 40
) -> tuple[Users, np.ndarray]:
    """Draw users of uneven sizes, from one multinomial or each from a Dirichlet of its own."""
    rng = np.random.default_rng(seed)
    p = 1.0 / np.arange(1, d + 1)
    p /= p.sum()
    sizes = rng.integers(1, most, n_users)
    own = p[None, :].repeat(n_users, 0)
    if concentration is not None:
        own = rng.dirichlet(concentration * p, n_users)
    table = rng.multinomial(sizes, own)
    user, item = np.nonzero(table)
    users = Users.from_counts(
        np.arange(n_users, dtype=np.uint64), user, item, table[user, item], Keys.range(d)
    )
    return users, table


@pytest.mark.parametrize("concentration", [0.5, 3.0, 19.0])
def test_the_correlation_of_dirichlet_users(concentration: float) -> None:
    """It is 1 / (1 + concentration), whatever the common distribution and the sizes.

    Within five standard deviations (1.6 percent at most, over 40 seeds): false alarm below 1e-6.
    """
    users, _ = draw(4000, 30, concentration, seed=1)
    found = dispersion_of_counts(users)
    assert found.correlation == pytest.approx(1 / (1 + concentration), rel=0.08)
    assert found.differ


def test_the_score_of_multinomial_users_is_a_standard_normal() -> None:
    """Mean 0 and standard deviation 1 over 200 populations.

    The mean of 200 lies within 4 / sqrt(200), their deviation within 20 %: false alarm below 1e-4.
    """
    scores = [dispersion_of_counts(draw(150, 12, None, s)[0]).score for s in range(200)]
    assert abs(np.mean(scores)) < 4 / np.sqrt(200)
    assert np.std(scores) == pytest.approx(1, rel=0.2)
    assert max(scores) < SURE


def test_collisions_are_those_of_all_pairs() -> None:
    """Both chances, against a walk over every pair of events."""
    users, table = draw(12, 5, 2.0, seed=3, most=7)
    table = table[table.sum(axis=1) > 1]
    events = [np.repeat(np.arange(5), row) for row in table]
    within = [float(np.mean([x == y for x, y in combinations(own, 2)])) for own in events]
    sizes = [len(own) for own in events]
    between = np.concatenate(
        [(a[:, None] == b[None, :]).ravel() for a, b in combinations(events, 2)]
    )
    found = dispersion_of_counts(users)
    assert found.n_users == len(table)
    assert found.within == pytest.approx(np.average(within, weights=sizes))
    assert found.between == pytest.approx(between.mean())


def test_only_entries_inside_count() -> None:
    """A mask is the same as users without the other entries."""
    users, table = draw(200, 8, 2.0, seed=4)
    kept = table * (np.arange(8) < 5)
    user, item = np.nonzero(kept)
    fewer = Users.from_counts(users.ids, user, item, kept[user, item], Keys.range(8))
    found = dispersion_of_counts(users, users.counts.item < 5)
    assert found == dispersion_of_counts(fewer)


def ragged(rng: np.random.Generator, n: int, apart: float) -> Samples:
    """Draw normal samples around users' own normal means."""
    sizes = rng.integers(1, 12, n)
    ptr = np.concatenate(([0], np.cumsum(sizes)))
    means = np.repeat(apart * rng.normal(size=n), sizes)
    return Samples(ptr, (5 + means + rng.normal(size=ptr[-1]))[:, None])


@pytest.mark.parametrize("apart", [0.5, 1.0, 3.0])
def test_the_correlation_of_normal_users(apart: float) -> None:
    """It is the share of the variance that lies between users: a^2 / (1 + a^2).

    Within five standard deviations (2.6 percent at most, over 40 seeds).
    """
    found = dispersion_of_means(ragged(np.random.default_rng(2), 6000, apart))
    assert found.correlation == pytest.approx(apart**2 / (1 + apart**2), rel=0.13)
    assert found.within == pytest.approx(1, rel=0.05)
    assert found.differ


def test_the_score_of_users_who_share_a_mean() -> None:
    """Mean 0, standard deviation 1 over 200 populations, as above."""
    rng = np.random.default_rng(5)
    scores = [dispersion_of_means(ragged(rng, 300, 0.0)).score for _ in range(200)]
    assert abs(np.mean(scores)) < 4 / np.sqrt(200)
    assert np.std(scores) == pytest.approx(1, rel=0.25)
    assert max(scores) < SURE


def test_the_analysis_of_variance_of_a_textbook() -> None:
    """Three users of two samples: MSB = 38/3, MSW = 1/2, worked by hand."""
    samples = Samples(np.array([0, 2, 4, 6]), np.array([[1.0], [2], [4], [5], [6], [7]]))
    found = dispersion_of_means(samples)
    assert found.within == pytest.approx(0.5)
    assert found.between == pytest.approx((38 / 3 - 0.5) / 2)


def test_users_with_what_is_no_number_are_left_out() -> None:
    """And users without samples."""
    x = np.array([[1.0], [2], [np.nan], [9], [4], [5], [6], [7]])
    found = dispersion_of_means(Samples(np.array([0, 2, 4, 4, 6, 8]), x))
    clean = dispersion_of_means(Samples(np.array([0, 2, 4, 6]), np.delete(x, [2, 3], axis=0)))
    assert found == clean


@pytest.mark.parametrize("records", [{}, {"a": {"x": 1}}, {"a": {"x": 5}}, {"a": {}, "b": {}}])
def test_too_few_users_say_nothing(records: dict[str, dict[str, int]]) -> None:
    """NaN, never a warning."""
    found = dispersion_of_counts(Users.from_records(records or {"a": {}}))
    assert np.isnan(found.correlation)
    assert not found.differ
    assert found.effective(7) == 7
