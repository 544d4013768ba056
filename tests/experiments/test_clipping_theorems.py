"""Parts of the experiment on theorems of contribution bounding, against slow versions."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from fedhist.protocols.histograms.unbounded_histogram import KeyRelease
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.experiments import clipping_theorems as theorems
from simulations.experiments.algorithm3 import alg3_expected
from simulations.experiments.clipping_theorems import Clipped, Rates


def test_clipping_keeps_nested_tokens_of_every_user() -> None:
    """C tokens of each, chosen evenly: the means of 4,000 draws are within 4.5 standard errors."""
    domain = Keys.of(["a", "b", "c"])
    ids = np.arange(2, dtype=np.uint64)
    user, item, count = np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([3, 1, 2])
    users = Users.from_counts(ids, user, item, count, domain)
    seen = np.zeros((3, 2))
    for seed in range(4000):
        found = list(theorems.randomly_clipped(users, [1, 2, 4], seed))
        assert [f.lost for f in found] == [4.0, 2.0, 0.0]
        assert found[0].truth.tolist() == [3.0, 3.0]  # item "c" does not occur
        seen += np.array([f.kept for f in found])
        assert all((b.kept >= a.kept).all() for a, b in pairwise(found))
    # one of four tokens, and one of two: 3/4 and 1/4 + 1; two of four and both: 3/2 and 1/2 + 2
    expected = np.array([[0.75, 1.25], [1.5, 2.5], [3.0, 3.0]])
    assert seen / 4000 == pytest.approx(expected, abs=4.5 * 0.5 / math.sqrt(4000))


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 5.0])
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
