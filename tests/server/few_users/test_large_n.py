"""The large-n branch: medians by their exact law, the clip, the composition, the error."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust, zcdp_rho
from fedhist.privacy.ledger import Ledger
from server.central_means.localizing import median_scores
from server.few_users.draws import clip_to_grid, counted, release_large_n
from server.few_users.plan import (
    FewUsersPlan,
    Wishes,
    choose_branch,
    large_n_min,
    large_n_noise,
    n_bins,
)
from server.noise import SimulatedNoise
from server.session.curator import Curator
from server.session.journal import Journal


def test_medians_have_the_scores_of_the_definition() -> None:
    """-max(#below, #above) of each bin, by counting."""
    bins = np.random.default_rng(2).integers(0, 9, (3, 41))
    slow = [[-max((row < b).sum(), (row > b).sum()) for b in range(9)] for row in bins]
    assert median_scores(counted(bins, 9)).tolist() == slow


def planned(n: int, d: int, corrupted: float = 0.0) -> FewUsersPlan:
    wishes = Wishes(method="large-n", corrupted=corrupted)
    return choose_branch(n, d, 0.1, 0.4, 1.0, 1e-6, wishes)


def rows_of(n: int, d: int, seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return 0.2 / math.sqrt(d) + rng.standard_normal((n, d)) * 0.1 / math.sqrt(d)


def server(seed: int) -> Curator:
    limit = Guarantee(1.0, 1e-6, Trust.CENTRAL, Adjacency.REPLACE_USER)
    return Curator(Ledger(limit), lambda i: SimulatedNoise(seed, i), Journal())


def test_printed_numbers_of_users() -> None:
    for d, n in ((64, 1619), (256, 3788), (1024, 8677), (10_000, 43_514)):
        assert large_n_min(1.0, 1e-6, d, 0.1, 0.4) == n
    assert n_bins(0.1, 0.4, 64) == 32
    assert planned(1618, 64).feasible is False
    assert planned(1619, 64).feasible is True


@pytest.mark.parametrize("d", [64, 50])
def test_the_error_is_the_noise(d: int) -> None:
    """20 runs around the average of the rows: chi with 20 d degrees, so within 8% (7 deviations).

    The clip touches hardly anyone: it adds less than that.
    """
    n, squares = 2000, []
    rows = rows_of(n, d, 3)
    plan = planned(n, d)
    for seed in range(20):
        curator = server(seed)
        released = release_large_n(curator, rows, plan)
        squares.append(float(((released.value - rows.mean(axis=0)) ** 2).sum()))
    expected = large_n_noise(plan) * math.sqrt(d)
    assert math.sqrt(np.mean(squares)) == pytest.approx(expected, rel=0.08)
    rho = zcdp_rho(1.0, 1e-6)
    spread = 0.1 * math.sqrt(1 / n + 3.2**2 * d / (1.4 * rho * n**2))
    assert plan.error == pytest.approx(spread, rel=1e-3)
    total = curator.ledger.spent()
    assert 0.999 < total.epsilon <= 1 + 1e-9
    assert total.rho == pytest.approx(rho)
    medians = curator.ledger.entries[0].release
    assert medians.rho == pytest.approx(0.3 * rho)
    assert medians.epsilon == pytest.approx(64 * plan.part_epsilon)


def test_corrupted_users_shift_it_by_a_few_radii_at_most() -> None:
    """40% of the rows lie on one far point: the error is within (1.6 + z) eta r + noise."""
    plan = planned(9000, 64, corrupted=0.4)
    assert plan.feasible
    rows = rows_of(9000, 64, 4)
    rows[:3600] = -0.05
    released = release_large_n(server(1), rows, plan)
    assert np.linalg.norm(released.value - 0.2 / 8) < plan.error


@pytest.mark.parametrize("radius", [2.0**-400, 1e-160 * 1e40, 1.0, 2.0**400])
def test_rows_of_any_size_are_clipped(radius: float) -> None:
    """Squares of extreme rows over- or underflow; the clip must not notice."""
    rows = radius * np.array([[1e12, -1e12, 0.0], [3.0, 4.0, 0.0], [0.1, 0.0, 0.2]])
    whole, step = clip_to_grid(rows.copy(), radius)
    size = np.linalg.norm(whole * (step / radius), axis=1)
    assert (size <= 1 + 1e-9).all()
    np.testing.assert_allclose(size, [1.0, 1.0, math.hypot(0.1, 0.2)], rtol=1e-6)


@pytest.mark.parametrize("radius", [0.0, 1e-170, 5e-324, 1e308, math.nan])
def test_lengths_whose_squares_are_no_doubles_are_refused(radius: float) -> None:
    """Distances would read as 0, and every user would lie in every ball."""
    with pytest.raises(ValueError, match="radius"):
        choose_branch(100, 2, radius, None, 1.0, 1e-6)
    with pytest.raises(ValueError, match=r"lam = 0\.02"):
        choose_branch(100, 64, 1.0, None, 1.0, 1e-6, Wishes(lam=0.02))
