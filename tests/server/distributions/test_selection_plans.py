"""Exact privacy of both kinds of scores, on all tiny data sets."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.special import log_softmax

from server.distributions.binomial_scores import KSPlan, PHSPlan, SelectionPlan


@pytest.mark.parametrize(
    ("plan", "s"),
    [
        *((KSPlan.of(m, 0.15), s) for m, s in [(1, 1), (1, 4), (2, 3), (3, 2), (5, 2)]),
        *((PHSPlan.of(m, 0.1, 0.2), s) for m, s in [(1, 1), (1, 4), (2, 3), (3, 2)]),
    ],
    ids=lambda v: f"{type(v).__name__}-{v.grid.m}" if isinstance(v, SelectionPlan) else str(v),
)
def test_exact_privacy_on_all_data_sets(plan: SelectionPlan, s: int) -> None:
    """Sensitivity 1, never passed by a single bit; log-ratios within epsilon, and so their range.

    By KS scores it is attained, and so is half of the range; a single user's tent is c high.
    """
    m, epsilon, ks = plan.grid.m, 0.7, isinstance(plan, KSPlan)

    def below(held: tuple[int, ...]) -> np.ndarray:
        return np.array([[(np.asarray(held) <= t).sum() for t in plan.thresholds]])

    every = itertools.product(range(m + 1), repeat=s)
    scores = {x: plan.scores(below(x), s)[0] for x in every}
    largest, worst, widest = 0.0, 0.0, 0.0
    for x, score in scores.items():
        for u, other in itertools.product(range(s), range(m + 1)):
            change = scores[(*x[:u], other, *x[u + 1 :])] - score
            ratio = log_softmax(epsilon / 2 * (score + change)) - log_softmax(epsilon / 2 * score)
            largest = max(largest, np.abs(change).max())
            worst, widest = max(worst, np.abs(ratio).max()), max(widest, np.ptp(ratio))
    assert largest == 1.0 or (largest < 1.0 and s == 1 and not ks)
    assert worst <= epsilon + 1e-12
    assert widest <= epsilon + 1e-12
    assert widest > 0.5 * epsilon or not ks
