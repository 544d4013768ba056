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
from numba import njit, uint64
from numpy.typing import NDArray

from fedhist.base.arrays import Floats, Integers, Words
from fedhist.base.hashing import GOLDEN, mix, unit1
from fedhist.channels.layers import draw_layers
from fedhist.channels.rank_unit import RankUnit, Table, normal_cells, point_keys
from fedhist.channels.sphere import SphereChannel
from fedhist.users.streams import Streams


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
    the first coordinate of y that is not zero (so that x = 0 reads as the end e_1). Hence the law
    of the report has two levels for a given end: twice the keep-probability relative to the law
    of y on one side, twice the flip-probability on the other.
    """
    if math.isinf(channel.epsilon):
        return x.copy()
    share = np.minimum(_norms(x) / channel.radius, 1.0)
    near = rng.substream("end").bernoulli((1.0 + share) / 2)
    lie = rng.substream("flip").bernoulli(np.full(len(x), channel.flip))
    words = rng.substream("point").words(1)[:, 0]
    out = np.empty(x.shape)
    _reports(x, near ^ lie, words, channel.length, out)
    return out


def _norms(x: Floats) -> Floats:
    """Norms of finite rows, whose squares need not be finite."""
    largest = np.abs(x).max(axis=1, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    return np.asarray(scale * np.sqrt(np.square(x / scale[:, None]).sum(axis=1)))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _reports(x: Floats, agree: Any, words: Words, length: float, out: Floats) -> None:
    """Write b y for every row: y from its word by Box-Muller, b its side, agreed with or not.

    A normal of zero does not occur: the uniforms are midpoints of 2^52 cells.
    """
    d = x.shape[1]
    y = np.empty(d + 1)
    for k in range(x.shape[0]):
        counter = words[k]
        squares = 0.0
        for j in range(0, d, 2):
            radius = math.sqrt(-2.0 * math.log(unit1(mix(counter + uint64(GOLDEN)))))
            counter += uint64(GOLDEN) + uint64(GOLDEN)
            angle = 2.0 * math.pi * unit1(mix(counter))
            y[j] = radius * math.cos(angle)
            y[j + 1] = radius * math.sin(angle)
            squares += y[j] * y[j]
            if j + 1 < d:
                squares += y[j + 1] * y[j + 1]
        product = 0.0
        for j in range(d):
            product += y[j] * x[k, j]
        for j in range(d):
            if product != 0.0:
                break
            product = y[j]
        scale = length / math.sqrt(squares)
        if (product > 0.0) != agree[k]:
            scale = -scale
        for j in range(d):
            out[k, j] = scale * y[j]


_FINITE = 1e300
"""Larger entries count as infinite: their squares are scaled, but not their quotients."""


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
    finite = np.asarray((np.abs(x) < _FINITE).all(axis=1))
    x = np.where(finite[:, None], x, 0.0)
    largest = np.abs(x).max(axis=1, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    unit = x / scale[:, None]
    root = np.sqrt(np.square(unit).sum(axis=1))
    unit /= np.where(largest > 0, root, 1.0)[:, None]
    unit[largest == 0, 0] = 1.0
    near = rng.substream("end").bernoulli((1.0 + np.minimum(scale * root, 1.0)) / 2)
    unit[~near] *= -1.0
    return unit.astype(np.float32)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
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


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
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
