"""Exact laws of channels, as :class:`~fedhist.model.finite.FiniteChannel`.

A randomizer of n independent bits is such a channel with 2^n outputs, but the bits in which two
inputs agree have the same law under both and cancel; so the functions below enumerate the few bits,
or indices, in which two inputs can differ, and lose nothing.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from fedhist.model.finite import FiniteChannel

if TYPE_CHECKING:
    from fedhist.channels.catalogue import ScalarChannel, UnaryChannel
    from fedhist.channels.sphere import SphereChannel
    from fedhist.channels.votes import OptimalUnaryChannel


def unary_law(channel: UnaryChannel, n_bits: int) -> FiniteChannel | None:
    """Enumerate the bits in which two vectors of at most s ones can differ: 2 s of them.

    The others have equal laws under both, independent of these, and cancel in every ratio and in
    every divergence. None without noise.
    """
    t = channel.flip_threshold
    if t == 0:
        return None
    n, keep = min(n_bits, 2 * channel.ones), (1 << 64) - t
    held = [c for k in range(channel.ones + 1) for c in combinations(range(n), k)]
    masks = [sum(1 << b for b in c) for c in held]
    rows = [
        [t**f * keep ** (n - f) for f in ((mask ^ z).bit_count() for z in range(1 << n))]
        for mask in masks
    ]
    labels = [f"bits {list(c)} set" if c else "no bit set" for c in held]
    scope = f"all vectors of at most {channel.ones} ones on {n} bits; the other bits cancel"
    return FiniteChannel.of(np.array(rows, dtype=object), labels, scope)


def scalar_law(channel: ScalarChannel) -> FiniteChannel | None:
    """All inputs of the lattice and all reports; None without noise.

    Rounding to the lattice mixes the laws of two neighbouring inputs, and a mixture's ratios are no
    larger than its parts'.
    """
    if math.isinf(channel.epsilon):
        return None
    inputs = channel.inputs()
    labels = [f"u = {x}/{channel.steps}" for x in inputs.tolist()]
    scope = "all inputs and outputs of the lattice; rounding to it only mixes laws"
    return FiniteChannel(labels, lambda rows: channel.weights(inputs[rows]), 1 << 64, scope)


def optimal_unary_law(channel: OptimalUnaryChannel) -> FiniteChannel | None:
    """Two symbols and none, on two bits: other bits have equal laws and cancel."""
    if math.isinf(channel.epsilon):
        return None
    small = type(channel)(channel.epsilon, min(channel.n_symbols, 2))
    labels = ["no symbol", *(f"symbol {x}" for x in range(small.n_symbols))]
    return FiniteChannel.of(
        small.weights(), labels, "any two votes, and none, on the bits in which they differ"
    )


def sphere_law(channel: SphereChannel) -> FiniteChannel | None:
    """Give the law of the side of the sphere; the rest of a report is free of data.

    A report is a uniform point or its opposite, and one bit says which: of all data it tells that
    bit alone, also as it is rounded, because rounding is symmetric.
    """
    t = channel.flip_threshold
    if t == 0:
        return None
    keep = (1 << 64) - t
    labels = ["this end of the diameter", "the other end"]
    rows = np.array([[keep, t], [t, keep]], dtype=object)
    return FiniteChannel.of(rows, labels, "the one bit that depends on data: point or opposite")
