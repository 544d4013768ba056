"""Regression populations have the law that they state."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit

from simulations.populations import population
from simulations.populations.regression import Regression

BASE = {"n_users": 400, "samples_per_user": 50, "dimension": 4, "theta": [1.0, -0.5], "seed": 3}


def rows(**change: object) -> np.ndarray:
    return population("regression", **{**BASE, **change}).load().users.reals.values


def test_features_have_the_stated_variances() -> None:
    """20,000 samples: the std of a relative variance is 1%; four of them, 4 at 5 std: 1e-6."""
    spec = Regression(**{**BASE, "condition": 8.0})
    assert spec.variances == pytest.approx([1, 0.5, 0.25, 0.125])
    x = rows(condition=8.0)[:, :-1]
    assert np.cov(x.T) == pytest.approx(np.diag(spec.variances), abs=0.05)


def test_linear_responses() -> None:
    """The residual around the parameters is noise of the stated size; 5 std: 1e-6."""
    values = rows(noise=0.3)
    residual = values[:, -1] - values[:, :-1] @ [1.0, -0.5, 0.0, 0.0]
    assert residual.std() == pytest.approx(0.3, rel=5 / np.sqrt(2 * len(values)))
    assert np.abs(residual @ values[:, :-1]).max() / len(values) < 5 * 0.3 / np.sqrt(len(values))
    exact = rows(noise=0.0)
    assert exact[:, -1] == pytest.approx(exact[:, :-1] @ [1.0, -0.5, 0.0, 0.0])


def test_logistic_labels() -> None:
    """Calibrated in ten bins of the score, each within 5 std: false alarm 1e-5."""
    values = rows(model="logistic")
    assert set(np.unique(values[:, -1])) == {-1.0, 1.0}
    p = expit(values[:, :-1] @ [1.0, -0.5, 0.0, 0.0])
    edges = np.quantile(p, np.linspace(0, 1, 11)[1:-1])
    which = np.searchsorted(edges, p)
    for b in range(10):
        inside = which == b
        gap = (values[inside, -1] == 1).mean() - p[inside].mean()
        assert abs(gap) < 5 * np.sqrt(0.25 / inside.sum())
