"""Framed shares: against the obvious version, in the ball, and what empty users have."""

import numpy as np
import pytest

from clients.records.whitened import FRAME_STEPS, row_norms, scaled_rows

K = 5
CENTRE = np.array([0.4, 0.3, 0.2, 0.1, 0.0])
SPREAD = np.sqrt(np.maximum(CENTRE, 0.02))


def rows_of(table):
    user, item = np.nonzero(table)
    indptr = np.searchsorted(user, np.arange(len(table) + 1))
    return indptr, item.astype(np.uint32), table[user, item].astype(np.uint64)


def obvious(table, whole):
    """Float rows: zero for empty users."""
    sizes = table.sum(axis=1, keepdims=True)
    shares = table / (whole or np.maximum(sizes, 1))
    return np.where(sizes > 0, (shares - CENTRE) / SPREAD, 0.0)


@pytest.mark.parametrize("whole", [0, 12])
def test_norms_and_rows_are_those_of_the_obvious_version(whole):
    rng = np.random.default_rng(1)
    table = rng.multinomial(12, [0.5, 0.2, 0.1, 0.1, 0.1], 300) * rng.integers(0, 2, (300, K))
    table[:3] = 0
    rows, frame = rows_of(table), (CENTRE, SPREAD, whole)
    want = obvious(table, whole)
    norms = np.linalg.norm(want, axis=1)
    assert row_norms(rows, frame) == pytest.approx(norms, rel=1e-12)
    for radius in (0.1, 1.0, 50.0):
        result = scaled_rows(rows, frame, radius)
        scaled = want * np.minimum(1, radius / np.maximum(norms, 1e-300))[:, None]
        assert np.abs(result * (radius / FRAME_STEPS) - scaled).max() <= radius / FRAME_STEPS * (
            1 + 1e-6
        )
        assert (
            np.abs(result) <= np.abs(scaled) / (radius / FRAME_STEPS) + 1e-6
        ).all()  # towards zero
        assert ((result.astype(np.int64) ** 2).sum(axis=1) <= FRAME_STEPS**2).all()
    assert not scaled_rows(rows, frame, 1.0)[:3].any()


def test_huge_counts_stay_in_the_ball():
    table = np.array([[1 << 61, 0, 0, 0, 0], [0, 0, 0, 0, 1 << 61], [1 << 61, 1 << 61, 0, 0, 1]])
    result = scaled_rows(rows_of(table), (CENTRE, SPREAD, 0), 0.5).astype(np.int64)
    square = (result**2).sum(axis=1)
    assert (square <= FRAME_STEPS**2).all()
    assert (square > 0.99 * FRAME_STEPS**2).all()  # and reach it
