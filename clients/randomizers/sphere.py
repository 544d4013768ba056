"""Vectors of a ball: reported as points of a sphere [1]_, or as the index of a public point.

References
----------
.. [1] Duchi, Jordan & Wainwright, "Minimax optimal procedures for locally private estimation",
   JASA 2018, Section 4.2.3.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from clients.records.user_rows import norms, norms_and_units
from fedhist.base.arrays import Floats, Integers, Words
from fedhist.base.hashing import GOLDEN, counter_words, mix
from fedhist.base.lazy import kernel
from fedhist.channels.layers import draw_layers
from fedhist.channels.rank_unit import RankUnit, Table, normal_cells, point_keys
from fedhist.channels.sphere import SphereChannel
from fedhist.users.streams import Streams, unit_interval


def duchi_l2(x: Floats, channel: SphereChannel, rng: Streams) -> Floats:
    """Report vectors of a ball as points of a sphere: (n, d) float64, unbiased for x.

    A row longer than ``channel.radius`` keeps its direction only. Reports have the norm
    ``channel.length``; without noise they are x itself.

    Privacy
    -------
    epsilon-LDP exactly as drawn, in doubles. A point y of the sphere is drawn first, and nothing
    about it depends on x. The report is y or -y: b y, where the bit b is a data-dependent sign
    answered by randomized response with a constant keep-probability (an integer threshold, rounded
    towards 1/2). Given y, the two values of b have the same odds of at most e^epsilon whatever the
    record is, and the report is a function of (y, b). No rounding of x, of its norm or of a scalar
    product can change that.

    The sign is that of <y, x~>, where x~ is the end that x is rounded to. As computed it is odd in
    y: a product, a sum and their roundings are, in one fixed order, and a tie goes to the side of
    the first coordinate of y, which is never zero (so that x = 0 reads as the end e_1). Hence the
    law of the report has two levels for a given end: twice the keep-probability relative to the law
    of y on one side, twice the flip-probability on the other.
    """
    if math.isinf(channel.epsilon):
        return x.copy()
    share = np.minimum(norms(x) / channel.radius, 1.0)
    near = rng.substream("end").bernoulli((1.0 + share) / 2)
    lie = rng.substream("flip").bernoulli(np.full(len(x), channel.flip))
    d = channel.dimension
    # by Box-Muller; a normal of zero does not occur: uniforms are midpoints of 2^52 cells
    uniforms = unit_interval(counter_words(rng.substream("point").words(1)[:, 0], d + d % 2))
    radius, angle = np.sqrt(-2.0 * np.log(uniforms[:, ::2])), 2.0 * math.pi * uniforms[:, 1::2]
    y = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=2)
    y = y.reshape(uniforms.shape)[:, :d]
    product = (y * x).sum(axis=1)
    above = np.where(product != 0, product, y[:, 0]) > 0
    y *= (channel.length / np.sqrt(np.square(y).sum(axis=1)))[:, None]
    y[above != (near ^ lie)] *= -1.0
    return y


def rank_symbols(
    x: Floats, ids: Words, salt: int, channel: RankUnit, rng: Streams, *, every: bool = True
) -> NDArray[np.uint16]:
    """Report vectors as symbols: (n,) uint16 in [0, N], N being the erasure.

    x is in units of the ball's radius; a longer vector keeps its direction only, and one with an
    entry that is not finite is the null record, the zero vector. The points follow from ids and
    salt, which are public. With ``every`` the points of every user are looked at, which takes the
    same time whoever it is and whatever it draws; a simulation leaves out those whose symbol does
    not depend on them. ArithmeticError if a set did not have exactly c members; it always has.

    Privacy
    -------
    epsilon-LDP exactly as drawn, see :class:`~fedhist.channels.layers.Layers`. Private words decide
    what is said: any symbol, nothing, or member r of the record's set, r < c. Member r is the point
    that comes r-th in the order of (scalar product, index), which is a total order of N distinct
    pairs of integers: the bits of a product as computed, whatever they are, and the index. So c
    different ranks are c different points. The coin that rounds a vector to an end of its diameter
    is drawn before, and mixes two such laws.
    """
    ends = ends_of(x, rng)
    words = rng.substream("symbol").words(1)[:, 0]
    drawn = draw_layers(words, channel.law_of_symbols)
    if channel.dimension == 1:
        # the points +1 and -1, of which a set has one
        nearest = (ends[:, 0] < 0).astype(np.int64)
        return np.where(drawn < 0, nearest, drawn).astype(np.uint16)
    table = normal_cells()
    ranks = np.where(drawn < 0, -1 - drawn, -1)
    wanted = np.maximum(ranks, 0) if every else ranks
    member = np.full(len(x), -1, dtype=np.int64)
    _members(ends, point_keys(ids, salt), wanted, channel.size, table, member)
    if (member[wanted >= 0] < 0).any():
        raise ArithmeticError(f"a set did not have {channel.chosen} members")
    return np.where(drawn < 0, member, drawn).astype(np.uint16)


def ends_of(x: Floats, rng: Streams) -> NDArray[np.float32]:
    """Round vectors to the ends of their diameters, without bias: (n, d) float32 unit vectors."""
    # larger entries count as infinite: their squares are scaled, but not their quotients
    finite = np.asarray((np.abs(x) < 1e300).all(axis=1))
    x = np.where(finite[:, None], x, 0.0)
    norm, unit = norms_and_units(x)
    unit[norm == 0, 0] = 1.0
    near = rng.substream("end").bernoulli((1.0 + np.minimum(norm, 1.0)) / 2)
    unit[~near] *= -1.0
    return unit.astype(np.float32)


@kernel()
def _members(
    ends: Any, keys: Words, ranks: Integers, size: int, table: Table, out: Integers
) -> None:
    """Find the point that comes ranks[u]-th; -1 where no rank is wanted."""
    d, blocks = ends.shape[1], size // 4
    products = np.empty((4, blocks), dtype=np.float32)
    squares = np.empty((4, blocks), dtype=np.float32)
    words = np.empty(blocks, dtype=np.uint64)
    for u in range(keys.shape[0]):
        if ranks[u] < 0:
            continue
        products[:] = 0.0
        squares[:] = 0.0
        counter = keys[u]
        for k in range(d):
            # along the points: every sum has one fixed order, and the loops are vectorised
            for b in range(blocks):
                words[b] = mix(counter + uint64(b + 1) * uint64(GOLDEN))
            counter += uint64(blocks) * uint64(GOLDEN)
            for lane in range(4):
                shift = uint64(16 * lane)
                for b in range(blocks):
                    y = table[(words[b] >> shift) & uint64(0xFFFF)]
                    products[lane, b] += ends[u, k] * y
                    squares[lane, b] += y * y
        for lane in range(4):
            for b in range(blocks):
                products[lane, b] /= math.sqrt(squares[lane, b])
        out[u] = pick(products.reshape(size), ranks[u])


@kernel()
def pick(heights: Any, rank: int) -> int:
    """Return the index of the height that comes ``rank``-th from the top, equal ones by index.

    Heights are (N,) float32 of any bits: infinities and NaNs have their place in the order, too.
    Different ranks have different indices; -1 if none comes at that rank, which cannot be.
    """
    bits = heights.view(np.uint32)
    order = np.empty(bits.shape[0], dtype=np.uint32)
    for i in range(bits.shape[0]):
        # integers in the order of the floats: a negative number's bits fall as it grows
        order[i] = ~bits[i] if bits[i] >> np.uint32(31) else bits[i] | np.uint32(0x80000000)
    value = np.uint32(0)  # the largest one that more than ``rank`` of them reach
    for level in range(31, -1, -1):
        trial = value | (np.uint32(1) << np.uint32(level))
        reached = 0
        for i in range(order.shape[0]):
            reached += order[i] >= trial
        if reached > rank:
            value = trial
    before = 0
    for i in range(order.shape[0]):
        before += order[i] > value
    for i in range(order.shape[0]):
        if order[i] == value:
            if before == rank:
                return i
            before += 1
    return -1
