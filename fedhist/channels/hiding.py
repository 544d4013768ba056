"""How well reports of a channel hide among others of the same channel.

What :mod:`fedhist.privacy.shuffling` wants to know of a randomizer beside its epsilon, from the
integers that are drawn: closed forms here, enumerations of small channels beside them.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import Any

import numpy as np

from fedhist.channels.bits import UnaryChannel
from fedhist.channels.layers import WORD_VALUES
from fedhist.channels.oracles import KrrOracle, OracleChannel
from fedhist.channels.scalar import OneBitChannel, scalar_law
from fedhist.model.finite import FiniteChannel
from fedhist.privacy.shuffling import Hiding


def hiding_of(channel: Any) -> Hiding:
    """Say what is known of a channel: of one that is not listed here, its epsilon alone.

    One bit: the extremes, as an input between them draws one first, and mixtures are not worse.
    Unary: 1 to 2 s bits that differ; of one and of two, the total variation is the same. Bound (C)
    is that of disjoint sets of one symbol: a report is more likely for one of three at most, and
    B (e + 1) >= B + (B + X) because X <= B (e - 1); larger sets overlap. Scalars in a window
    (piecewise, Laplace) have pairs of every total variation up to the largest; the near ones are
    worst for bound (B), which says nothing for them.

    >>> hiding_of(OneBitChannel(1.0)).mixes, hiding_of(UnaryChannel(1.0)).mixes
    (True, False)
    """
    if isinstance(channel, UnaryChannel):
        return Hiding(distances=tuple(_flips(channel, h) for h in range(1, 2 * channel.ones + 1)))
    law, mixes = None, isinstance(channel, OneBitChannel | KrrOracle)
    if isinstance(channel, OneBitChannel):
        law = scalar_law(channel)
    elif isinstance(channel, OracleChannel):
        law = channel.law()
    return Hiding() if law is None else Hiding(mixes=mixes, distances=distances(law))


def _flips(channel: UnaryChannel, h: int) -> float:
    """Total variation of h bits, all 0 or all 1, each turned with the channel's probability."""
    t = channel.flip_threshold
    keep, total = WORD_VALUES - t, WORD_VALUES**h
    apart = sum(
        math.comb(h, j) * abs(keep**j * t ** (h - j) - t**j * keep ** (h - j)) for j in range(h + 1)
    )
    return _up(apart, 2 * total)[0]


def _up(numerator: int, denominator: int) -> tuple[float]:
    """Divide, rounded up."""
    return (min(math.nextafter(numerator / denominator, math.inf), 1.0),)


def distances(law: FiniteChannel) -> tuple[float, ...]:
    """List the total variations of all pairs of inputs of a law, rounded up."""
    rows = law.weights(np.arange(len(law.labels))).tolist()
    sums = {
        sum(abs(a - b) for a, b in zip(one, other, strict=True))
        for one, other in combinations(rows, 2)
    }
    return tuple(_up(apart, 2 * law.total)[0] for apart in sorted(sums) if apart)
