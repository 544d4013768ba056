"""Draws of synthetic users: words by counter, and laws as functions of a word.

Word j of user u is ``mix64(key + (u 2^32 + j + 1) GOLDEN)``, so that 2^32 users of 2^32 draws share
no word. A law that needs more than one word goes on from its word as a stream of its own: a user is
the same in any slice.

References
----------
.. [1] Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied
   Statistics 37(3), 1988.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import int64, uint64
from numba.cpython.unsafe.numbers import trailing_zeros
from numpy.typing import ArrayLike

from fedhist.base.arrays import Array, Floats, Integers, Words, read_only
from fedhist.base.hashing import GOLDEN, MASK64, mix, unit1
from fedhist.base.lazy import kernel

CENTRAL = 0.425
"""Distance from the median, in probability, up to which one rational function will do [1]_."""
FAR = 5.0
"""Depth of a tail, sqrt(-log) of its probability, up to which a second one will do [1]_."""
SIDE_BY_SIDE = 1024
"""Users, or numbers, that go through one step of a computation before the next."""


def words(key: np.uint64, first: int, indptr: Integers, width: int = 1, *, after: int = 0) -> Words:
    """Draw ``width`` words for each row of users first, first + 1, ...: (indptr[-1], width).

    A user's first ``after`` words are left out.
    """
    out = np.empty((int(indptr[-1]), width), dtype=np.uint64)
    begin = np.uint64((int(key) + after * GOLDEN) & MASK64)
    _words_kernel(begin, np.uint64(first), indptr, width, out.reshape(-1))
    return out


def each(n: int, size: int = 1) -> Integers:
    """Return offsets of n users with equally many rows: (n + 1,) int64."""
    return np.arange(n + 1, dtype=np.int64) * size


@kernel(inline="always")
def start_of(key: Any, user: Any) -> Any:
    """Return the counter before a user's first word."""
    return uint64(key) + (uint64(user) << uint64(32)) * uint64(GOLDEN)


@kernel()
def _words_kernel(key: Any, first: Any, indptr: Integers, width: int, out: Words) -> None:
    n, single = uint64(len(indptr) - 1), True
    for u in range(n):
        single &= indptr[u + uint64(1)] * width == int64(u) + 1
    if single:  # a loop over users, which is vectorised as that over a user's words is
        for u in range(n):
            out[u] = mix(start_of(key, first + u) + uint64(GOLDEN))
        return
    for u in range(n):
        begin, stop = uint64(indptr[u] * width), uint64(indptr[u + uint64(1)] * width)
        counter = start_of(key, first + u)
        for i in range(stop - begin):
            out[begin + i] = mix(counter + (i + uint64(1)) * uint64(GOLDEN))


# -- the normal quantile [1]_: SciPy's takes five times as long ------------------------------------


@kernel(error_model="numpy")
def normal1(p: Any) -> Any:
    """Return the p-quantile of the standard normal law, to about 16 digits [1]_."""
    if abs(p - 0.5) <= CENTRAL:
        return central(p - 0.5)
    r = tail_depth(p)
    x = tail(r) if r <= FAR else _far_tail(r)
    return x if p >= 0.5 else -x


@kernel(inline="always")
def central(q: Any) -> Any:
    """Return the (q + 1/2)-quantile, for q of at most CENTRAL in size."""
    r = 0.180625 - q * q
    a = 2.5090809287301226727e3 * r + 3.3430575583588128105e4
    a = (a * r + 6.7265770927008700853e4) * r + 4.5921953931549871457e4
    a = (a * r + 1.3731693765509461125e4) * r + 1.9715909503065514427e3
    a = (a * r + 1.3314166789178437745e2) * r + 3.3871328727963666080e0
    b = 5.2264952788528545610e3 * r + 2.8729085735721942674e4
    b = (b * r + 3.9307895800092710610e4) * r + 2.1213794301586595867e4
    b = (b * r + 5.3941960214247511077e3) * r + 6.8718700749205790830e2
    b = (b * r + 4.2313330701600911252e1) * r + 1.0
    return a * q / b


@kernel(forceinline=True)
def tail_depth(p: Any) -> Any:
    """Return sqrt(-log) of the probability of the tail in which the p-quantile lies."""
    return math.sqrt(-math.log(p if p < 0.5 else 1.0 - p))


@kernel(inline="always")
def tail(r: Any) -> Any:
    """Return the size of a quantile where :func:`central` does not hold, at a depth up to FAR."""
    r -= 1.6
    a = 7.74545014278341407640e-4 * r + 2.27238449892691845833e-2
    a = (a * r + 2.41780725177450611770e-1) * r + 1.27045825245236838258e0
    a = (a * r + 3.64784832476320460504e0) * r + 5.76949722146069140550e0
    a = (a * r + 4.63033784615654529590e0) * r + 1.42343711074968357734e0
    b = 1.05075007164441684324e-9 * r + 5.47593808499534494600e-4
    b = (b * r + 1.51986665636164571966e-2) * r + 1.48103976427480074590e-1
    b = (b * r + 6.89767334985100004550e-1) * r + 1.67638483018380384940e0
    b = (b * r + 2.05319162663775882187e0) * r + 1.0
    return a / b


@kernel()
def _far_tail(r: Any) -> Any:
    r -= 5.0
    a = 2.01033439929228813265e-7 * r + 2.71155556874348757815e-5
    a = (a * r + 1.24266094738807843860e-3) * r + 2.65321895265761232930e-2
    a = (a * r + 2.96560571828504891230e-1) * r + 1.78482653991729133580e0
    a = (a * r + 5.46378491116411436990e0) * r + 6.65790464350110377720e0
    b = 2.04426310338993978564e-15 * r + 1.42151175831644588870e-7
    b = (b * r + 1.84631831751005468180e-5) * r + 7.86869131145613259100e-4
    b = (b * r + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1
    b = (b * r + 5.99832206555887937690e-1) * r + 1.0
    return a / b


# -- laws of one number --------------------------------------------------------------------------


def elementwise(loop: Callable[..., None], *arguments: ArrayLike) -> Floats:
    """Run a compiled loop over the elements of arrays, and numbers, broadcast together."""
    # no ufunc: each is linked anew in every process, which takes ten times what loading a loop does
    arrays = [np.asarray(a) for a in arguments]
    out = np.empty(np.broadcast_shapes(*(a.shape for a in arrays)))
    loop(*(read_only(np.broadcast_to(a, out.shape).ravel()) for a in arrays), out.reshape(-1))
    return out


def unit(word: Words) -> Floats:
    """Return the middle of one of 2^52 cells of (0, 1)."""
    return elementwise(_units, word)


@kernel()
def _units(word: Words, out: Floats) -> None:
    for i in range(len(out)):
        out[i] = unit1(word[i])


def normal_of(drawn: Words) -> Floats:
    """Draw N(0, 1): the quantile at one of 2^52 levels, at most 8.2 in size, to 16 digits."""
    return elementwise(_normals, drawn)


@kernel(error_model="numpy")
def _normals(drawn: Words, out: Floats) -> None:
    lane = np.empty(SIDE_BY_SIDE, dtype=np.int64)
    depth = np.empty(SIDE_BY_SIDE, dtype=np.float64)
    for start in range(0, len(drawn), SIDE_BY_SIDE):
        stop = min(start + SIDE_BY_SIDE, len(drawn))
        _some_normals(drawn[start:stop], lane, depth, out[start:stop])


@kernel(error_model="numpy")
def _some_normals(drawn: Words, lane: Integers, depth: Floats, out: Floats) -> None:
    # loops without branches, which are vectorised: for all, then for the 15 % in the tails
    for i in range(len(drawn)):
        out[i] = central(unit1(drawn[i]) - 0.5)
    n = uint64(0)
    for i in range(len(drawn)):
        lane[n] = i
        n += uint64(abs(unit1(drawn[i]) - 0.5) > CENTRAL)
    for k in range(n):
        depth[k] = unit1(drawn[lane[k]])
    for k in range(n):
        depth[k] = tail_depth(depth[k])
    far = False
    for k in range(n):
        far |= depth[k] > FAR
        depth[k] = tail(depth[k])
    for k in range(n):
        i = uint64(lane[k])
        out[i] = depth[k] if drawn[i] >> uint64(63) else -depth[k]
    if far:
        for i in range(len(drawn)):
            out[i] = normal1(unit1(drawn[i]))


@kernel()
def _log_gamma(word: Any, shape: Any) -> Any:
    """Draw the logarithm of a Gamma(shape) variable by Marsaglia and Tsang's exact rejection."""
    counter, boost = uint64(word), 0.0
    if shape < 1.0:  # Gamma(a) = Gamma(a + 1) U^(1/a)
        counter += uint64(GOLDEN)
        boost = math.log(unit1(mix(counter))) / shape
        shape += 1.0
    d = shape - 1.0 / 3.0
    scale = 1.0 / math.sqrt(9.0 * d)
    while True:
        counter += uint64(GOLDEN)
        x = normal1(unit1(mix(counter)))
        counter += uint64(GOLDEN)
        u = unit1(mix(counter))
        v = 1.0 + scale * x
        if v > 0.0:
            v = v * v * v
            of_v = math.log(v)
            if math.log(u) < 0.5 * x * x + d * (1.0 - v + of_v):
                return math.log(d) + of_v + boost


def gamma_of(word: Words, shape: float | Floats) -> Floats:
    """Draw Gamma(shape), of mean shape."""
    return elementwise(_gammas, word, shape)


@kernel()
def _gammas(word: Words, shape: Floats, out: Floats) -> None:
    for i in range(len(out)):
        out[i] = math.exp(_log_gamma(word[i], shape[i]))


def beta_of(word: Words, a: float | Floats, b: float | Floats) -> Floats:
    """Draw Beta(a, b), as the share of one of two gamma variables."""
    return elementwise(_betas, word, a, b)


@kernel()
def _betas(word: Words, a: Floats, b: Floats, out: Floats) -> None:
    for i in range(len(out)):
        other = mix(word[i] ^ uint64(GOLDEN))
        out[i] = 1.0 / (1.0 + math.exp(_log_gamma(other, b[i]) - _log_gamma(word[i], a[i])))


@kernel()
def _log_factorial(k: Any) -> Any:
    """Return log k! by Stirling's series from 8 on, to some 1e-12."""
    z, below = k + 1.0, 1.0
    while z < 8.0:
        below *= z
        z += 1.0
    w = 1.0 / (z * z)
    series = (1 / 12 - w * (1 / 360 - w * (1 / 1260 - w * (1 / 1680)))) / z
    return (z - 0.5) * math.log(z) - z + 0.9189385332046728 + series - math.log(below)


def poisson_of(word: Words, rate: float | Floats) -> Integers:
    """Draw Poi(rate): by inversion below 10, above by Hoermann's exact rejection (PTRS)."""
    return elementwise(_poissons, word, rate).astype(np.int64)


@kernel()
def _poissons(word: Words, rate: Floats, out: Floats) -> None:
    for i in range(len(out)):
        out[i] = _poisson(word[i], rate[i])


@kernel()
def _poisson(word: Any, rate: Any) -> Any:
    counter = uint64(word)
    rate = min(rate, 2.0**40)  # callers refuse what is larger than a count can be
    if rate < 10.0:
        u, p, k = unit1(mix(counter + uint64(GOLDEN))), math.exp(-rate), 0.0
        while u > p and k < 1000:
            u -= p
            k += 1.0
            p *= rate / k
        return k
    b = 0.931 + 2.53 * math.sqrt(rate)
    a = -0.059 + 0.02483 * b
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    inside = 0.9277 - 3.6224 / (b - 2.0)
    of_rate = math.log(rate)
    while True:
        counter += uint64(GOLDEN)
        u = unit1(mix(counter)) - 0.5
        counter += uint64(GOLDEN)
        v = unit1(mix(counter))
        s = 0.5 - abs(u)
        k = math.floor((2.0 * a / s + b) * u + rate + 0.43)
        if s >= 0.07 and v <= inside:
            return float(k)
        if k < 0 or (s < 0.013 and v > s):
            continue
        here = math.log(v * inverse / (a / (s * s) + b))
        if here <= k * of_rate - rate - _log_factorial(k):
            return float(k)


# -- users' items: laws as tables, and items by user, counted --------------------------------------

GUIDE = 16, 18
"""Logarithms of the cells of the least and the largest guide into a table: the first for some 1,000
items; at 10^5 the last spares a third of the time. Draws do not depend on it."""


class Choice:
    """A law over d items, as tables: item j has its probability rounded to a multiple of 2^-32.

    ``weights``: (d,) float64, not negative, in proportion to the probabilities. ``last``: (d,)
    uint32, the last of 2^32 steps that belongs to each item; ``guide``: (2^16 to 2^18,) uint32, the
    item of the first step of equal cells: where the search begins.
    """

    def __init__(self, weights: Floats) -> None:
        below = np.cumsum(weights)
        upto = np.floor(below * (2.0**32 / below[-1]) + 0.5)
        upto[-1] = 2.0**32
        self.weights = weights
        self.last = (np.clip(upto, 1.0, 2.0**32) - 1.0).astype(np.uint32)
        bits = min(max(len(weights).bit_length() + 3, GUIDE[0]), GUIDE[1])
        steps = np.arange(1 << bits, dtype=np.uint32) << np.uint32(32 - bits)
        self.guide = np.searchsorted(self.last, steps).astype(np.uint32)

    def of(self, words: Words) -> Array:
        """Return the items at the upper halves of words: uint32, of their shape."""
        out = np.empty(words.shape, dtype=np.uint32)
        _choice_kernel(words.reshape(-1), self.last, self.guide, out.reshape(-1))
        return out


@kernel(inline="always")
def _shift(guide: Any) -> Any:
    """Return how many bits of a step lie within a cell."""
    return uint64(32) - uint64(trailing_zeros(uint64(len(guide))))


@kernel(inline="always")
def _item(step: Any, last: Any, guide: Any, shift: Any) -> Any:
    """Return the item that one of 2^32 steps belongs to."""
    j = guide[step >> shift]
    while last[j] < step:
        j += np.uint32(1)
    return j


@kernel()
def _choice_kernel(drawn: Words, last: Any, guide: Any, out: Any) -> None:
    shift = _shift(guide)
    for i in range(len(drawn)):
        out[i] = _item(drawn[i] >> uint64(32), last, guide, shift)


@kernel()
def urn_kernel(key: Any, first: Any, indptr: Integers, concentration: float, values: Any) -> None:
    """Make users' independent draws those of own laws, Dirichlet around the common one; in place.

    Draw i stays what it is with probability a / (a + i), and otherwise repeats one of the i
    draws before it: Polya's urn, whose shares are Dirichlet(a p).
    """
    for u in range(len(indptr) - 1):
        _urn(start_of(key, first + uint64(u)), concentration, values[indptr[u] : indptr[u + 1]])


@kernel()
def _urn(counter: Any, concentration: float, row: Any) -> None:
    for i in range(1, len(row)):
        counter += uint64(GOLDEN)
        before = unit1(mix(counter)) * (concentration + i)
        if before < i:  # compared as it is: beyond 2^63 there is no integer of it
            row[i] = row[int(before)]


@kernel()
def items_kernel(
    keys: Words,
    first: Any,
    sizes: Integers,
    last: Any,
    guide: Any,
    concentration: float,
    indptr: Integers,
    item: Any,
    count: Any,
) -> None:
    """Draw and count users' items, two draws a word.

    ``keys``: (2,) uint64, of the draws and of the urn; ``first``: number of the first user;
    ``sizes``: (n,) int64, draws of each user; ``last``, ``guide``: see :class:`Choice`;
    ``concentration``: of users' own Dirichlet laws; 0: they are alike; ``indptr``: (n + 1,) int64;
    ``item``, ``count``: (sum of min(sizes, d),) uint32, filled up to indptr[n].
    """
    d, shift, most = len(last), _shift(guide), max(1, sizes.max())
    drawn = np.empty(most // 2 + 1, dtype=np.uint64)
    row = np.empty(2 * len(drawn), dtype=np.uint32)
    tally = np.zeros(d, dtype=np.uint32)
    # of items, and of words of marks; two sides: what was just written is not read again at once
    marks = np.zeros(((d >> 6) + 1, 2), dtype=np.uint64)
    tops = np.zeros(((d >> 12) + 1, 2), dtype=np.uint64)
    end = uint64(0)
    indptr[0] = 0
    for u in range(len(sizes)):
        size = uint64(sizes[u])
        half = (size + uint64(1)) >> uint64(1)
        counter = start_of(keys[0], first + uint64(u))
        for i in range(uint64(0), half):  # apart from the search, so that it is vectorised
            drawn[i] = mix(counter + (i + uint64(1)) * uint64(GOLDEN))
        for i in range(uint64(0), half):
            row[i + i] = _item(drawn[i] >> uint64(32), last, guide, shift)
            row[i + i + uint64(1)] = _item(drawn[i] & uint64(0xFFFFFFFF), last, guide, shift)
        if concentration > 0.0:
            _urn(start_of(keys[1], first + uint64(u)), concentration, row[:size])
        end = _count_marks(row, size, tally, marks, tops, item, count, end)
        indptr[u + 1] = end


@kernel(forceinline=True)
def _count_marks(
    row: Any, size: Any, tally: Any, marks: Any, tops: Any, item: Any, count: Any, end: Any
) -> Any:
    """Write a row's items and their counts from ``end`` on, found by marks; clear these."""
    for i in range(uint64(0), size):  # unsigned, which spares a test an access
        j, side = uint64(row[i]), i & uint64(1)
        high = j >> uint64(6)
        tally[j] += np.uint32(1)
        marks[high, side] |= uint64(1) << (j & uint64(63))
        tops[high >> uint64(6), side] |= uint64(1) << (high & uint64(63))
    for a in range(uint64(len(tops))):
        top = tops[a, 0] | tops[a, 1]
        tops[a] = uint64(0)
        while top:
            b = (a << uint64(6)) + uint64(trailing_zeros(top))
            top &= top - uint64(1)
            mark = marks[b, 0] | marks[b, 1]
            marks[b] = uint64(0)
            while mark:
                j = (b << uint64(6)) + uint64(trailing_zeros(mark))
                mark &= mark - uint64(1)
                item[end] = j
                count[end] = tally[j]
                tally[j] = np.uint32(0)
                end += uint64(1)
    return end
