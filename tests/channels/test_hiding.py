"""How well channels hide: closed forms against enumerated laws, and who may use bound (C)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracle_laws import enumerated

from fedhist.channels.bits import UnaryChannel, unary_law
from fedhist.channels.hiding import distances, hiding_of
from fedhist.channels.oracles import oracle_channel
from fedhist.model.finite import FiniteChannel
from fedhist.privacy.shuffling import Hiding


def whole(kind: str, epsilon: float, k: int) -> FiniteChannel:
    rows, _ = enumerated(oracle_channel(kind, epsilon, k))
    return FiniteChannel.of(np.array(rows, dtype=object), [str(x) for x in range(k + 1)])


def mixes(law: FiniteChannel, epsilon: float) -> bool:
    """Check bound (C)'s condition: (e^epsilon + 1) R(x)(y) >= R(x0)(y) + R(x1)(y)."""
    rows = [*{tuple(row) for row in law.weights(np.arange(len(law.labels))).tolist()}]
    if len(rows) < 2:
        return True
    factor = (math.exp(epsilon) + 1) * (1 + 1e-12)
    return all(
        sum(sorted(column)[-2:]) <= factor * min(column) for column in zip(*rows, strict=True)
    )


ORACLES = [("krr", 2), ("krr", 5), ("hadamard", 2), ("hadamard", 6), ("projective", 5)]
ORACLES += [("subset", 5), ("unary", 3)]


@pytest.mark.parametrize(("kind", "k"), ORACLES)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_distances_of_oracles_against_all_pairs(kind: str, k: int, epsilon: float) -> None:
    law, known = whole(kind, epsilon, k), hiding_of(oracle_channel(kind, epsilon, k))
    result = distances(law)
    assert len(known.distances) == 1
    assert known.distances[0] >= max(result) * (1 - 1e-15)
    # the null symbol's row of a subset, too, is as far as another symbol's
    np.testing.assert_allclose(result, known.distances[0], rtol=1e-12)


@pytest.mark.parametrize("ones", [1, 2, 3])
def test_distances_of_bits_against_all_pairs(ones: int) -> None:
    channel = UnaryChannel(1.5, ones=ones)
    law = unary_law(channel, 7)
    known = hiding_of(channel).distances
    for t in distances(law):
        assert min(abs(t / x - 1) for x in known) < 1e-12


@pytest.mark.parametrize("kind", ["krr", "hadamard", "projective", "subset", "unary"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_nobody_claims_to_mix_who_does_not(kind: str, epsilon: float) -> None:
    for k in (2, 5):
        channel = oracle_channel(kind, epsilon, k)
        assert mixes(whole(kind, epsilon, k), epsilon) or not hiding_of(channel).mixes
    assert hiding_of(oracle_channel("krr", epsilon, 5)).mixes


def test_others_are_known_by_their_epsilon_alone() -> None:
    assert hiding_of(object()) == Hiding()
