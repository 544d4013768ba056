"""A user's mean, against the sum written out; the cell of a box, against its formula."""

import numpy as np
import pytest

from clients.records.user_rows import user_points
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
    result = user_points(samples)
    np.testing.assert_array_equal(np.signbit(result[wanted == 0]), np.signbit(wanted[wanted == 0]))
    np.testing.assert_array_equal(result, wanted)
