"""One vote and windows of two bins, against the paper's three votes and single bins.

The specification measured how often the winner is in the wrong place at n1 = 200 voters, N = 64
bins and epsilon = 1: .018 against .227. It does not say when a place is wrong, nor for which means
of the users. It is N = sqrt(T), where the plans stop to take more bins: users' means have the
standard deviation of half a bin; and wrong as in the paper's proof, the winner more than two bins
off, in distances: the middle of the winner more than 2.5 bins from the common mean.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from fedhist.channels.bits import UnaryChannel
from server.localize.choice import best_window

VOTERS, BINS, EPSILON = 200, 64, 1.0
WIDTH = 2 / BINS
RUNS = 20_000


def failures(seed: int) -> tuple[float, float]:
    """Shares of wrong places, one vote and three, for common means anywhere in [-3/4, 3/4].

    Sums of votes are drawn from their exact law, see :mod:`tests.server.test_localize`.
    """
    rng = np.random.default_rng(seed)
    theta = rng.uniform(-0.75, 0.75, RUNS)
    edges = np.linspace(-1, 1, BINS + 1)
    mass = np.diff(ndtr((edges - theta[:, None]) / (WIDTH / 2)), axis=1)
    held = rng.multinomial(VOTERS, mass / mass.sum(axis=1, keepdims=True))
    around = np.pad(held, ((0, 0), (1, 1)))
    with_neighbours = around[:, :-2] + around[:, 1:-1] + around[:, 2:]

    def frequencies(votes: np.ndarray, channel: UnaryChannel) -> np.ndarray:
        kept = rng.binomial(votes, 1 - channel.flip)
        return channel.debias(kept + rng.binomial(VOTERS - votes, channel.flip), VOTERS)

    place, _ = best_window(frequencies(held, UnaryChannel(EPSILON)), -1.0, 1.0)
    winner = frequencies(with_neighbours, UnaryChannel(EPSILON, ones=3)).argmax(axis=1)
    places = place, -1 + (winner + 0.5) * WIDTH
    one, three = ((np.abs(x - theta) > 2.5 * WIDTH).mean() for x in places)
    return float(one), float(three)


def test_windows_of_two_bins_fail_far_less_often_than_three_votes() -> None:
    """.018 and .227 in the specification, whose runs are not counted: 3 errors of 1,000 runs."""
    one, three = failures(seed=1)
    assert one == pytest.approx(0.018, abs=3 * (0.018 / 1000) ** 0.5)
    assert three == pytest.approx(0.227, abs=3 * (0.227 / 1000) ** 0.5)
    assert 15 * one < three
