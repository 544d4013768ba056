"""Parts of the experiment on theorems of contribution bounding, against slow versions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from server.histograms.unbounded_histogram import KeyRelease
from simulations.experiments import clipping_theorems as theorems
from simulations.experiments.algorithm3 import alg3_expected
from simulations.experiments.clipping_theorems import Clipped, Rates


@pytest.mark.parametrize("epsilon", [0.2, 5.0])
def test_the_constants_of_b1_are_those_of_its_proof(epsilon: float) -> None:
    """Single items, for which nothing averages out: in [1/6, 1], and near both ends of it."""
    clip, delta = 3, 1e-3
    b = clip / epsilon
    t = clip + b * math.log(clip / (2 * delta))
    law = KeyRelease(b, t, discrete=False, raw_support=True)
    ratios = []
    for truth in np.unique(np.rint(np.geomspace(1, 40 * t, 60))):
        for kept in {0.0, float(round(truth / 3)), float(truth)}:
            one = Clipped(np.array([kept]), np.array([truth]), truth - kept)
            exact = float(alg3_expected(one.kept, one.truth, law)[0])
            ratios.append(exact / theorems.theorem_b1(one, clip, epsilon, t))
    assert 1 / 6 <= min(ratios) < 0.55
    assert 0.7 < max(ratios) <= 1


def test_c2_is_the_difference_of_its_proof() -> None:
    """alpha = 1, users alike: all of the bias, (gamma - 1) / (gamma - 1) of its square."""
    alike = Rates(np.array([0.7]), np.ones(1))
    bias = 0.7 - alike.clipped(2)
    assert theorems.theorem_c2(alike, 2) == pytest.approx(bias**2)
    assert theorems.gap_without_noise(alike, 2) == pytest.approx(bias**2)
    assert theorems.theorem_c2(Rates(np.array([1.2]), np.ones(1)), 2) is None
    # the last line of the proof, before h-bar is written by alpha
    some = Rates(np.array([0.2, 1.0]), np.array([0.5, 0.5]))
    kept, mean = some.clipped(2), 0.6
    h = float(theorems.clipped_mean(mean, 2))
    gamma = 1 / (2 * math.exp(-1))
    direct = (mean - kept) ** 2 - gamma**2 * (h - kept) ** 2
    assert theorems.theorem_c2(some, 2) == pytest.approx(direct)


def test_c3_as_printed_is_too_small() -> None:
    """One user in a hundred with a large rate: the share alone does not bound what is lost."""
    few = Rates(np.array([0.0, 60.0]), np.array([0.99, 0.01]))
    bias = float(theorems.clipped_mean(0.6, 40)) - few.clipped(40)
    printed, corrected = theorems.theorem_c3(few, 40)
    assert 100 * printed < bias <= corrected
