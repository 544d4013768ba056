"""Votes of many bins by one symbol: the steps of a vote, and how often another bin wins."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracle_laws import sets_of
from scipy.special import ndtr
from scipy.stats import binom

from fedhist.channels.catalogue import UnaryChannel
from fedhist.channels.layers import WORDS
from fedhist.channels.oracles import KrrOracle, ProjectiveOracle
from fedhist.channels.wide_votes import Steps, is_wide, wide_channel, wide_steps

PAGE = {0.5: (0.177, 0.176, 2), 1.0: (0.357, 0.355, 3), 2.0: (0.737, 0.727, 3)}
PAGE[4.0] = (1.662, 1.648, 7)


def exact_failure(found: Steps, n: int) -> float:
    """P(the sum of n steps is not positive), by the number of steps that are not zero."""
    moved = np.arange(n + 1)
    behind = binom.sf(np.ceil(moved / 2) - 1, moved, found.down / (found.up + found.down))
    return float(binom.pmf(moved, n, found.up + found.down) @ behind)


@pytest.mark.parametrize("epsilon", PAGE)
def test_separations_of_the_page(epsilon: float) -> None:
    """z for a million cells: bits, and the projective space of largest z."""
    bits, projective, q = PAGE[epsilon]
    tau = UnaryChannel(epsilon).tau
    assert tau * math.sqrt(2 / (1 - tau**2)) == pytest.approx(bits, abs=6e-4)
    found, space = wide_steps(epsilon, 10**6 - 1)
    assert found.z == pytest.approx(projective, abs=6e-4)
    assert space is not None
    assert space.q == q


@pytest.mark.parametrize(("epsilon", "n_bins"), [(0.5, 10), (1.0, 12), (2.0, 30), (6.0, 5)])
def test_steps_are_those_of_the_integer_law(epsilon: float, n_bins: int) -> None:
    """Over all pairs and thirds: up and down for each; the third by its average over triples."""
    channel = wide_channel(epsilon, n_bins)
    found, sets = wide_steps(epsilon, n_bins)[0], sets_of(channel)
    law = channel.layers.weights(sets).astype(np.float64)[:, :-1] / WORDS
    member = np.zeros(law.shape, dtype=bool)
    np.put_along_axis(member, sets, True, axis=1)
    for x in range(n_bins):
        for y in range(n_bins):
            if x != y:
                only = member[x] & ~member[y]
                assert law[x][only].sum() == pytest.approx(found.up, rel=1e-9)
                assert law[y][only].sum() == pytest.approx(found.down, rel=1e-9)
                third = [law[s][only].sum() for s in range(n_bins) if s not in (x, y)]
                assert min(third) * (1 - 1e-9) <= found.aside <= max(third) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.0, 4.0])
def test_the_failure_of_a_pair(epsilon: float) -> None:
    """Within 3% of the exact sum, 1% from 100 users on, where a normal tail is far off."""
    found, _ = wide_steps(epsilon, 10**5)
    for n in (20, 50, 100, 300):
        exact = exact_failure(found, n)
        if exact > 1e-290:
            near = 0.03 if n < 100 else 0.01
            assert math.exp(found.log_failure(n)) == pytest.approx(exact, rel=near)
            assert math.exp(-n * found.decay) >= exact
    assert found.log_failure(1) < 0
    if epsilon == 4.0:
        assert ndtr(-found.z * math.sqrt(20)) < 1e-3 * exact_failure(found, 20)


def test_which_vote_is_asked_for() -> None:
    for epsilon in (0.5, 1.0, 2.0):
        assert [is_wide(epsilon, n) for n in (1, 25, 4096, 4097, 1 << 22)] == [False] * 3 + [
            True
        ] * 2
    assert is_wide(8.0, 16)
    assert isinstance(wide_channel(8.0, 16), KrrOracle)
    assert isinstance(wide_channel(1.0, 5000), ProjectiveOracle)
    assert not is_wide(math.inf, 16)
    assert isinstance(wide_channel(math.inf, 5000), KrrOracle)
    assert wide_channel(1.0, 1 << 22).bits <= 24
    quiet = wide_steps(math.inf, 5000)[0]
    assert (quiet.up, quiet.down, quiet.log_failure(3)) == (1.0, 0.0, -math.inf)
    assert 0 >= wide_steps(1e-300, 5000)[0].log_failure(10) > -1


@pytest.mark.parametrize("epsilon", [70.0, 76.0, 700.0, 740.0, 1000.0])
def test_votes_without_doubt(epsilon: float) -> None:
    for n_bins in (2, 40, 10_000):
        assert is_wide(epsilon, n_bins) in (True, False)
        assert wide_steps(epsilon, n_bins)[0].log_failure(1) < -30
