"""A vector of the unit ball by ranks: the index of one of N public points of the sphere.

PrivUnit [1]_ [2]_ sends a uniform point of a cap around the record with some probability, and else
a uniform point of the sphere. Here the points are public, N for each user and drawn anew for every
one, the cap is the c of them that are nearest to the record, and a report is the index of a point:
a symbol of N by :class:`~fedhist.channels.layers.Layers`, of 9 or 11 bits. That the cap has exactly
c points, whoever the record is, takes the place of a density's normalization.

References
----------
.. [1] Bhowmick, Duchi, Freudiger, Kapoor & Rogers, "Protection against reconstruction and its
   applications in private federated learning", arXiv 1812.00984, 2018 (PrivUnit).
.. [2] Asi, Feldman & Talwar, "Optimal algorithms for mean estimation under local differential
   privacy", ICML 2022. Own idea: ranks among public points in place of a threshold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, gammaln, ndtri, roots_legendre

from fedhist.base.arrays import Floats, Integers, Words
from fedhist.base.checks import check_within
from fedhist.base.hashing import GOLDEN, digest64, mix
from fedhist.base.lazy import kernel
from fedhist.channels.layers import Layers
from fedhist.channels.sphere import MAX_DIMENSION
from fedhist.model.finite import FiniteChannel
from fedhist.privacy.guarantee import check_budget
from fedhist.users.keys import keyed_hash

UNIT = 1 << 30
"""A coordinate of a point in a sum: 2^33 of them are below 2^63."""

Table = NDArray[np.float32]


@dataclass(frozen=True)
class RankUnit:
    """A vector x of norm at most 1 in, the index of one of N public points out; E z = x.

    x is rounded to an end of its diameter, +x/|x| with probability (1 + |x|) / 2 (x = 0: e_1 or
    -e_1), and its set is that of the c points of largest scalar product with the end, equal ones by
    their index. The server adds z = y / g for every report of a point y, and nothing for an
    erasure. In one dimension the points are +1 and -1: randomized response. Without noise
    (epsilon = inf) x itself is sent. Over the public points E z = x, and E |z - x|^2 = 1 / g^2 -
    |x|^2 (less than a millionth off: see :func:`normal_cells`).

    Privacy
    -------
    epsilon-LDP exactly as drawn, for EVERY choice of the points and whatever rounding does to their
    scalar products: see :class:`~fedhist.channels.layers.Layers`. What it rests on is that every
    record has c members; they are picked by a total order of N distinct integers.

    >>> channel = RankUnit(1.0, 64)
    >>> channel.size, channel.law_of_symbols.bits, round(channel.v, 1)
    (256, 9, 405.1)
    """

    epsilon: float
    dimension: int

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_within("dimension", self.dimension, 1, MAX_DIMENSION)
        if not math.isinf(self.epsilon):
            _ = self.law_of_symbols

    @property
    def size(self) -> int:
        """N: the number of points; more where the cap is small, and a few points are coarse."""
        if self.dimension == 1:
            return 2
        return 1024 if self.epsilon >= 6 else 256

    @property
    def law_of_symbols(self) -> Layers:
        """The law of the index: c maximises g."""
        return best_law(self.epsilon, self.size, self.dimension)

    @property
    def chosen(self) -> int:
        """c: the points of a record's set."""
        return self.law_of_symbols.chosen

    @cached_property
    def gain(self) -> float:
        """g: the mean of <y, end> over the reports, an erasure being 0; 1 without noise."""
        if math.isinf(self.epsilon):
            return 1.0
        means = top_means(self.size, self.dimension)
        return float(self.law_of_symbols.gain * means[self.chosen - 1])

    @property
    def v(self) -> float:
        """1 / g^2: the total variance at x = 0; 0 without noise."""
        return 0.0 if math.isinf(self.epsilon) else 1 / self.gain**2

    def variance(self, norm: ArrayLike) -> Floats:
        """Total variance 1 / g^2 - |x|^2 of a report, all coordinates added, at norm |x|."""
        if math.isinf(self.epsilon):
            return np.zeros(np.shape(norm))
        # an erasure is a report of norm 0
        return np.asarray(self.v * (1 - self.law_of_symbols.erased) - np.square(norm))

    def law(self) -> FiniteChannel | None:
        """Return the law of a report for two records whose sets differ; None without noise."""
        return self.law_of_symbols.law()


@lru_cache(maxsize=256)
def best_law(epsilon: float, size: int, dimension: int) -> Layers:
    """Find the law of an index with the c that maximises g; kept, as it costs more than reports."""
    if math.isinf(epsilon):
        return Layers(epsilon, size, 1)
    held = np.arange(1, size)
    more = held * math.expm1(min(epsilon, 64.0))
    gains = more / (size + more) * top_means(size, dimension)[:-1]
    return Layers(epsilon, size, int(held[np.argmax(gains)]))


@lru_cache(maxsize=256)
def top_means(size: int, dimension: int) -> Floats:
    """Return the expected mean of the c largest of N first coordinates of uniform points: (N,).

    For c = 1, ..., N, read-only. The mean of the k-th largest is an integral over the quantile
    function Q(u) = 2 I^-1_u((d-1)/2, (d-1)/2) - 1 with the density of the k-th largest of N
    uniforms; the substitution u = sin^2 t smooths its ends. In one dimension the N points are not
    random: one half is +1, the other -1.

    >>> top_means(2, 1).tolist()
    [1.0, 0.0]
    >>> round(float(top_means(256, 3)[0]), 6) == round(255 / 257, 6)  # Archimedes: uniform heights
    True
    """
    k = np.arange(1, size + 1)
    if dimension == 1:
        means = np.minimum(1.0, (size - k) / k)
    else:
        nodes, weights = roots_legendre(256)
        t = (nodes + 1) * (math.pi / 4)
        half = (dimension - 1) / 2
        upper = t >= math.pi / 4  # by symmetry, so that Q is odd to the last bit
        t, weights = t[upper], weights[upper] * (math.pi / 4)
        low = np.cos(t) ** 2  # 1 - u
        height = 1 - 2 * betaincinv(half, half, low)
        binomial = gammaln(size + 1) - gammaln(k) - gammaln(size - k + 1)
        logs = np.log(np.sin(t)), np.log(np.cos(t))

        def integral(above: Any, below: Any) -> Any:
            # u^(N-k) (1-u)^(k-1) du, for u and for 1 - u
            log = binomial + np.multiply.outer(logs[0], 2 * above + 1)
            return np.exp(log + np.multiply.outer(logs[1], 2 * below + 1))

        density = integral(size - k, k - 1) - integral(k - 1, size - k)
        kth = 2 * (weights * height) @ density
        means = np.cumsum(kth) / k
    means = np.asarray(means, dtype=np.float64)
    means.setflags(write=False)
    return means


# -- the public points -----------------------------------------------------------------------------


@lru_cache(maxsize=1)
def normal_cells() -> Table:
    """Return the values of a coordinate: (2^16,) float32, read-only; a word has four of them.

    A standard normal variable is rounded to its mean over one of 2^16 intervals of equal
    probability, which takes 1.5e-6 of its variance; the rest is scaled to variance 1. The points
    are vectors of such coordinates, divided by their norms: as far from uniform ones of the sphere
    as this rounding, so that E z = x and the constant g hold to about a millionth.
    """
    n = 1 << 16
    edges = ndtri(np.arange(n // 2, n + 1) / n)
    density = np.exp(-np.square(edges) / 2) / math.sqrt(2 * math.pi)
    upper = -np.diff(density) * n
    upper /= math.sqrt(np.mean(np.square(upper)))
    table = np.concatenate((-upper[::-1], upper)).astype(np.float32)
    table.setflags(write=False)
    return table


def point_keys(ids: Words, salt: int) -> Words:
    """Return the public key of every user's points, from its id and a public salt: (n,) uint64.

    Points must differ between users, else their errors would not average out. Where reports are
    shuffled and come without ids, a client would draw the key and send it with its symbol.
    """
    return keyed_hash(ids, digest64("fedhist.points", salt) >> 1)


def sum_points(ids: Words, salt: int, symbols: NDArray[np.uint16], channel: RankUnit) -> Integers:
    """Add up the points that were reported, (d,) int64; erasures, symbol N, add nothing.

    The sum of unit vectors whose coordinates are rounded to multiples of 1 / UNIT, in these units:
    it has the same bits however users are grouped. Divided by UNIT g n it is unbiased for the
    records' mean.
    """
    out = np.zeros(channel.dimension, dtype=np.int64)
    if channel.dimension == 1:
        out[0] = UNIT * (np.count_nonzero(symbols == 0) - np.count_nonzero(symbols == 1))
    else:
        point = np.empty(channel.dimension, dtype=np.float32)
        keys = point_keys(ids, salt)
        _sum_points(keys, symbols.astype(np.int64), channel.size, normal_cells(), point, out)
    return out


@kernel()
def _sum_points(
    keys: Words, symbols: Integers, size: int, table: Table, point: Table, out: Integers
) -> None:
    blocks = size // 4
    step = uint64(blocks) * uint64(GOLDEN)
    for u in range(keys.shape[0]):
        if symbols[u] >= size:
            continue
        shift = uint64(16 * (symbols[u] // blocks))
        counter = keys[u] + uint64(symbols[u] % blocks + 1) * uint64(GOLDEN)
        squares = 0.0
        for k in range(point.shape[0]):
            point[k] = table[(mix(counter) >> shift) & uint64(0xFFFF)]
            y = np.float64(point[k])
            squares += y * y
            counter += step
        scale = UNIT / math.sqrt(squares)
        for k in range(point.shape[0]):
            out[k] += np.int64(np.rint(scale * np.float64(point[k])))
