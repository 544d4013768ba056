"""Medians that predictions follow, against the law of the released ones."""

import numpy as np

from server.central_means.medians import median_scores, some_medians


def test_bins_are_followed_as_often_as_the_law_says() -> None:
    """By quantiles: no bin, nor any range of them, is off by more than one draw."""
    counts, epsilon, n = np.array([[3, 9, 0, 7, 2, 0], [0, 0, 30, 1, 0, 0]]), 0.4, 500
    for times in (1.0, 2.5):
        weight = np.exp(epsilon / 2 * times * median_scores(counts))
        law = np.cumsum(weight / weight.sum(axis=1, keepdims=True), axis=1)
        drawn = some_medians(counts, epsilon, n, np.random.default_rng(1), times)
        upto = (drawn[:, :, None] <= np.arange(6)).sum(axis=0)
        assert np.abs(upto - n * law).max() <= 1
