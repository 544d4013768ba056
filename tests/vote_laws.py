"""Exact laws of unary votes that tests compare with; no fedhist module knows them."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from fedhist.channels.bits import UnaryChannel
from fedhist.channels.scalar import ScalarChannel

REACH = 20.0


def unary_inputs(channel: UnaryChannel, n_bits: int) -> NDArray[np.uint8]:
    held = [c for k in range(channel.ones + 1) for c in combinations(range(n_bits), k)]
    rows = np.zeros((len(held), n_bits), dtype=np.uint8)
    for row, positions in zip(rows, held, strict=True):
        row[list(positions)] = 1
    return rows


def unary_law(channel: UnaryChannel, n_bits: int) -> NDArray[np.float64]:
    flip = channel.flip_threshold / 2.0**64
    out = (np.arange(1 << n_bits)[:, None] >> np.arange(n_bits)) & 1
    flips = (unary_inputs(channel, n_bits)[:, None, :] != out[None, :, :]).sum(axis=2)
    return np.asarray(flip**flips * (1.0 - flip) ** (n_bits - flips))


def scalar_probabilities(channel: ScalarChannel, u: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probability of every report given u, rounding to the lattice included: (k, m)."""
    x, top = channel.inputs(), channel.steps
    width = (x[-1] - x[0]) // (len(x) - 1)  # 2 for one bit, whose lattice is {-1, 1}
    low = np.minimum(np.floor((u * top - x[0]) / width), len(x) - 2).astype(np.int64)
    up = ((u * top - x[low]) / width)[:, None]
    p = channel.weights(x[low]) * (1.0 - up) + channel.weights(x[low + 1]) * up
    return np.asarray(p * 2.0**-64)


def exact_failure(n_users: int, n_cells: int, flip: float, cell: int) -> float:
    """P(the wrong cell wins) where all users vote for ``cell``; ties go to the lowest index."""
    deviation = math.sqrt(n_users * flip * (1 - flip))
    centre = n_users * (1 - flip)
    low = max(0, math.floor(centre - REACH * deviation - 40))
    high = min(n_users, math.ceil(centre + REACH * deviation + 40))
    k = np.arange(low, high + 1)
    # a cell before the true one must stay below its total, one after it may reach it
    with np.errstate(divide="ignore", invalid="ignore"):
        before = np.log1p(-binom.sf(k - 1, n_users, flip)) * cell if cell else np.zeros(len(k))
        after = n_cells - 1 - cell
        behind = np.log1p(-binom.sf(k, n_users, flip)) * after if after else np.zeros(len(k))
    loses = -np.expm1(before + behind)
    tail = float(binom.cdf(low - 1, n_users, 1 - flip))
    return min(1.0, tail + float(binom.pmf(k, n_users, 1 - flip) @ loses))
