"""A user's mean, against the sum written out; the cell of a box, against its formula."""

from __future__ import annotations

import numpy as np
import pytest

from clients.records.user_rows import user_points
from fedhist.channels.covers import BoxGrid
from fedhist.users.columns import Samples

STRANGE = (-0.0, 0.0, np.inf, -np.inf, np.nan, 1e308, 5e-324)


def slow(samples: Samples) -> np.ndarray:
    rows = []
    for a, b in zip(samples.indptr[:-1], samples.indptr[1:], strict=True):
        total = np.zeros(samples.values.shape[1])
        for row in samples.values[a:b]:
            total = total + row
        mean = total / (b - a) if b > a else np.full(len(total), np.nan)
        rows.append(mean if np.isfinite(mean).all() else np.full(len(total), np.nan))
    return np.array(rows)


@pytest.mark.parametrize("d", [1, 3])
@pytest.mark.parametrize("most", [1, 4])
def test_means_are_those_of_a_sum_in_order(d: int, most: int) -> None:
    rng = np.random.default_rng(7)
    sizes = np.ones(200, dtype=np.int64) if most == 1 else rng.integers(0, most + 1, 200)
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    values = rng.normal(size=(int(indptr[-1]), d))
    values[rng.integers(0, len(values), 40), rng.integers(0, d, 40)] = rng.choice(STRANGE, 40)
    samples = Samples(indptr, values)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = slow(samples)
    found = user_points(samples)
    np.testing.assert_array_equal(np.signbit(found[wanted == 0]), np.signbit(wanted[wanted == 0]))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(("d", "m", "bound"), [(1, 16, 1.0), (2, 7, 0.3), (3, 1, 2.5)])
def test_the_cell_of_a_box_is_that_of_its_formula(d: int, m: int, bound: float) -> None:
    rng = np.random.default_rng(8)
    points = rng.normal(size=(500, d)) * bound
    points[:60] = rng.choice([bound, -bound, 0.0, np.inf, -np.inf, np.nan, -0.0], (60, d))
    points[60:160] = (2 * rng.integers(0, m + 1, (100, d)) / m - 1) * bound  # on faces
    inside = np.clip(points, -bound, bound)
    unusable = np.isnan(points).any(axis=1)
    place = np.ceil((np.where(unusable[:, None], 0, inside) + bound) * (m / (2 * bound))) - 1
    cells = np.clip(place, 0, m - 1).astype(np.int64) @ m ** np.arange(d)[::-1]
    np.testing.assert_array_equal(BoxGrid(d, bound, m).cells(points), np.where(unusable, -1, cells))
