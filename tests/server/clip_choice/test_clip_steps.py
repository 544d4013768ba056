"""Steps and regularized minimisers against obvious versions."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from fedhist.privacy.guarantee import Adjacency
from server.clip_choice.by_paper import log_step, regularized_minimum
from server.printed.histograms import proof_step

ZERO, REPLACE = Adjacency.ZERO_OUT_USER, Adjacency.REPLACE_USER

# -- steps ---------------------------------------------------------------------------------------


def test_steps_go_against_the_slope_and_stay_in_the_range():
    ends = (0.0, 5.0)
    assert log_step(2.0, 1, 0.0, 3.0, ends) == 2.0
    assert log_step(2.0, 9, -1.5, 3.0, ends) == pytest.approx(2.0 + 0.5 / 3)
    assert log_step(2.0, 4, 1e300, 3.0, ends) == 1.5
    assert log_step(0.2, 1, 5.0, 3.0, ends) == 0.0
    assert log_step(4.9, 1, -5.0, 3.0, ends) == 5.0
    assert proof_step(2.0, 1, -1e9, 1.0, ends) == 5.0
    assert proof_step(2.0, 1, 1e9, 1.0, ends) == 0.0
    assert proof_step(2.0, 25, 3.0, 10.0, ends) == pytest.approx(2.0 - 0.3)


# -- regularized minimisers ----------------------------------------------------------------------

steps = st.lists(st.integers(0, 40), min_size=1, max_size=5)


def pieces(weights, gaps):
    tails = np.cumsum(np.array(weights)[::-1])[::-1].astype(np.int64)
    lower = np.cumsum([0, *gaps[: len(weights) - 1]]).astype(np.int64)
    return tails, lower


@settings(max_examples=80, deadline=None)
@given(steps, st.lists(st.integers(1, 15), min_size=4, max_size=4), st.integers(0, 60))
def test_the_minimum_minimises(weights, gaps, level):
    """Nowhere on a grid of halves is level C + C^2 / 2 - integral of S smaller."""
    tails, lower = pieces(weights, gaps)

    def objective(c):
        width = np.clip(c - lower, 0, np.append(np.diff(lower), np.inf))
        return level * c + c * c / 2 - float((width * tails).sum())

    best = regularized_minimum(tails, lower, level)
    grid = np.arange(0, 2 * (int(tails[0]) + int(lower[-1]) + 2)) / 2
    assert objective(best) == pytest.approx(min(objective(c) for c in grid), abs=1e-9)


def test_the_objective_of_the_test_is_the_integral_of_the_slope():
    tails, lower = pieces([4, 3, 2], [2, 5])

    def slope(c):
        return 1 + c - tails[np.searchsorted(lower, c, side="right") - 1]

    width = np.clip(6.0 - lower, 0, np.append(np.diff(lower), np.inf))
    assert quad(slope, 0, 6.0, points=[2.0])[0] == pytest.approx(
        1 * 6.0 + 18.0 - float((width * tails).sum())
    )


@pytest.mark.parametrize("adjacency", [ZERO, REPLACE])
def test_the_sensitivity_of_the_minimum_is_one_weight(adjacency):
    """Every population of 3 users of weight up to 3 in 3 bins or none, every change of one."""
    lower, level, most = np.array([0, 2, 3]), 2, 3
    user = [(0, 0), *itertools.product(range(3), range(1, most + 1))]
    worst = 0
    for others in itertools.combinations_with_replacement(user, 2):
        base = np.zeros(3, dtype=np.int64)
        for j, w in others:
            base[j] += w
        found = []
        for j, w in user:
            x = base.copy()
            x[j] += w
            found.append(regularized_minimum(np.cumsum(x[::-1])[::-1], lower, level))
        pairs = (
            itertools.combinations(found, 2)
            if adjacency is REPLACE
            else ((found[0], f) for f in found)
        )
        worst = max(worst, *(abs(a - b) for a, b in pairs))
    assert worst == most
