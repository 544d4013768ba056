"""Medians that predictions follow, against the law of the released ones."""

import numpy as np
import pytest

from server.central_means.medians import median_scores, some_medians


def test_bins_are_followed_as_often_as_the_law_says() -> None:
    """By quantiles: no bin, nor any range of them, is off by more than one draw."""
    counts, epsilon, n = np.array([[3, 9, 0, 7, 2, 0], [0, 0, 30, 1, 0, 0]]), 0.4, 500
    for times in (1.0, 2.5):
        wanted = np.exp(epsilon / 2 * times * median_scores(counts))
        upto = np.cumsum(wanted / wanted.sum(axis=1, keepdims=True), axis=1)
        drawn, law = some_medians(counts, epsilon, n, np.random.default_rng(1), times)
        found = np.einsum("i,ijk->jk", law, drawn[:, :, None] <= np.arange(6))
        assert law.sum() == pytest.approx(1)
        # the tails are in one coordinate at a time: what that leaves out of the other is .02 twice
        assert np.abs(found - upto).max() <= 1 / n + 0.02


def test_bins_that_one_run_in_thousands_draws_are_followed() -> None:
    """Sixty users in the first bin: by the law one median in some thousands lies beyond 100."""
    counts = np.zeros((1, 4096), dtype=np.int64)
    counts[0, 0] = 60
    wanted = np.exp(0.25 * median_scores(counts)[0])
    far = wanted[100:].sum() / wanted.sum()
    drawn, law = some_medians(counts, 0.5, 48, np.random.default_rng(1))
    assert 1e-4 < far < 2e-3
    assert far / 4 < law[drawn[:, 0] >= 100].sum() < 4 * far
