"""Blocks, boosting and large n: what is composed, what fails, what the error is."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import hadamard

from server.few_users.draws import Rotation, clip_to_grid, release_draws, release_large_n
from server.few_users.plan import FewUsersPlan, Wishes, choose_branch, large_n_min, n_bins
from tests.running import curator


def gathered(n: int, d: int, r: float) -> NDArray[np.float64]:
    return 0.3 + np.random.default_rng(5).standard_normal((n, d)) * r / math.sqrt(d)


def test_the_rotation_is_its_matrix() -> None:
    rng = np.random.default_rng(1)
    for d in (1, 3, 8, 20):
        rotation = Rotation(d, salt=9)
        D = rotation.padded
        assert D >= d > D // 2
        assert set(rotation.signs.tolist()) <= {-1.0, 1.0}
        matrix = hadamard(D) @ np.diag(rotation.signs) / math.sqrt(D)
        x = rng.standard_normal((4, d))
        padded = np.hstack([x, np.zeros((4, D - d))])
        np.testing.assert_allclose(rotation.turn(x), padded @ matrix.T, atol=1e-12)
        np.testing.assert_allclose(rotation.back(rotation.turn(x)), x, atol=1e-12)
    assert (Rotation(64, 1).signs != Rotation(64, 2).signs).any()


def test_more_blocks_need_more_users_and_err_less() -> None:
    plans = [
        choose_branch(10**5, 1024, 0.1, None, 1.0, 1e-6, Wishes(method="blocks", n_blocks=k))
        for k in (1, 4, 16, 64)
    ]
    assert [p.least_users for p in plans] == [73, 331, 857, 1884]
    assert [p.error for p in plans] == pytest.approx([1.6, 0.8, 0.4, 0.2])


def drawn(kinds: list[int], plan: FewUsersPlan) -> tuple[object, str]:
    """Release with a server whose draws are given."""

    @dataclass
    class Given:
        left: list[int] = field(default_factory=lambda: list(kinds))

        def sample(self, sampler: object, *, label: str) -> NDArray[np.float64]:
            kind = self.left.pop(0)
            size = len(sampler.rows[0])
            point = np.full(size, float(len(self.left))) if not kind else np.zeros(size)
            return np.concatenate([[float(kind)], point])

    released = release_draws(Given(), gathered(400, 64, 0.1), plan)
    return released.value, released.reason


def test_a_garbage_bucket_never_becomes_a_value() -> None:
    blocks = choose_branch(400, 64, 0.1, None, 4.0, 1e-6, Wishes(method="blocks", n_blocks=4))
    value, reason = drawn([0, 0, 2, 0], blocks)
    assert value is None
    assert reason.startswith("1 of 4 ")
    assert drawn([0, 0, 0, 0], blocks)[0] is not None
    one = choose_branch(400, 64, 0.1, None, 4.0, 1e-6, Wishes(method="ball"))
    assert drawn([1], one)[0] is drawn([2], one)[0] is None


def test_boosting_takes_the_median_of_points_only() -> None:
    """Three fifths must be points; a bucket's zeros do not enter the median."""
    plan = choose_branch(400, 64, 0.1, None, 4.0, 1e-6, Wishes(method="boosted", n_runs=5))
    value, _ = drawn([0, 1, 0, 2, 0], plan)  # the points are 4, 2 and 0
    np.testing.assert_array_equal(value, np.full(64, 2.0))
    assert drawn([0, 1, 0, 2, 2], plan)[0] is None


def planned(n: int, d: int, corrupted: float = 0.0) -> FewUsersPlan:
    wishes = Wishes(method="large-n", corrupted=corrupted)
    return choose_branch(n, d, 0.1, 0.4, 1.0, 1e-6, wishes)


def rows_of(n: int, d: int, seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return 0.2 / math.sqrt(d) + rng.standard_normal((n, d)) * 0.1 / math.sqrt(d)


def test_printed_numbers_of_users() -> None:
    for d, n in ((64, 1619), (256, 3788), (1024, 8677), (10_000, 43_514)):
        assert large_n_min(1.0, 1e-6, d, 0.1, 0.4) == n
    assert n_bins(0.1, 0.4, 64) == 32
    assert planned(1618, 64).feasible is False
    assert planned(1619, 64).feasible is True


def test_corrupted_users_shift_it_by_a_few_radii_at_most() -> None:
    """40% of the rows lie on one far point: the error is within (1.6 + z) eta r + noise."""
    plan = planned(9000, 64, corrupted=0.4)
    assert plan.feasible
    rows = rows_of(9000, 64, 4)
    rows[:3600] = -0.05
    released = release_large_n(curator(), rows, plan)
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
