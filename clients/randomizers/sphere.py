"""Vectors in an l2 ball: users' means, and reports on a sphere [1]_.

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

from fedhist.base.arrays import Floats, Integers, Words
from fedhist.base.hashing import GOLDEN, mix, unit1
from fedhist.channels.sphere import SphereChannel
from fedhist.users.columns import Samples
from fedhist.users.streams import Streams


def ball_means(samples: Samples, radius: float) -> Floats:
    """Average each user's samples, every sample scaled onto the ball first.

    Parameters
    ----------
    samples : Samples
    radius : float

    Returns
    -------
    (n, d) float64
        Norms at most radius, up to rounding; zero, the null record, for a user without samples or
        with a sample that is not finite.

    Examples
    --------
    >>> x = np.array([[3.0, 4.0], [0.0, 1.0], [np.nan, 0.0]])
    >>> ball_means(Samples(np.array([0, 2, 3]), x), 1.0)
    array([[0.3, 0.9],
           [0. , 0. ]])
    """
    out = np.zeros((len(samples.indptr) - 1, samples.values.shape[1]))
    _ball_means(samples.indptr, samples.values, float(radius), out)
    return out


def duchi_l2(x: Floats, channel: SphereChannel, rng: Streams) -> Floats:
    """Report vectors of a ball as points of a sphere: (n, d) float64, unbiased for x.

    Parameters
    ----------
    x : (n, d) float64
        Of norm at most ``channel.radius``; a longer one keeps its direction only.
    channel : SphereChannel
    rng : Streams

    Returns
    -------
    (n, d) float64
        Of norm ``channel.length``; x itself without noise.

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
    return duchi_sums(x, np.arange(len(x) + 1), channel, rng)


def duchi_sums(x: Floats, indptr: Integers, channel: SphereChannel, rng: Streams) -> Floats:
    """Report every row of x by :func:`duchi_l2` and add up the reports of each group of rows.

    Parameters
    ----------
    x : (m, d) float64
    indptr : (n + 1,) int64
        Group g owns rows ``indptr[g]`` to ``indptr[g + 1]``.
    channel : SphereChannel
    rng : Streams
        One stream per row.

    Returns
    -------
    (n, d) float64
    """
    out = np.zeros((len(indptr) - 1, channel.dimension))
    if math.isinf(channel.epsilon):
        _add_rows(x, indptr, out)
        return out
    share = np.minimum(_norms(x) / channel.radius, 1.0)
    near = rng.substream("end").bernoulli((1.0 + share) / 2)
    lie = rng.substream("flip").bernoulli(np.full(len(x), channel.flip))
    words = rng.substream("point").words(1)[:, 0]
    _reports(x, indptr, near ^ lie, words, channel.length, out)
    return out


def _norms(x: Floats) -> Floats:
    """Norms of finite rows, whose squares need not be finite."""
    largest = np.abs(x).max(axis=1, initial=0.0)
    scale = np.where(largest > 0, largest, 1.0)
    return np.asarray(scale * np.sqrt(np.square(x / scale[:, None]).sum(axis=1)))


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _ball_means(indptr: Integers, values: Floats, radius: float, out: Floats) -> None:
    d = values.shape[1]
    for u in range(indptr.shape[0] - 1):
        start, stop = indptr[u], indptr[u + 1]
        usable = True
        for k in range(start, stop):
            largest = 0.0
            for j in range(d):
                size = abs(values[k, j])
                usable = usable and size < math.inf  # False for NaN
                largest = max(largest, size)
            if not usable:
                break
            if largest == 0.0:
                continue
            squares = 0.0
            for j in range(d):
                squares += (values[k, j] / largest) ** 2
            root = math.sqrt(squares)
            if root > radius / largest:
                for j in range(d):
                    out[u, j] += values[k, j] / largest * (radius / root)
            else:
                for j in range(d):
                    out[u, j] += values[k, j]
        for j in range(d):
            out[u, j] = out[u, j] / (stop - start) if usable and stop > start else 0.0


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _reports(
    x: Floats, indptr: Integers, agree: Any, words: Words, length: float, out: Floats
) -> None:
    """Add b y for every row: y from the row's word by Box-Muller, b its side, agreed with or not.

    A normal of zero does not occur: the uniforms are midpoints of 2^52 cells.
    """
    d = x.shape[1]
    y = np.empty(d + 1)
    for u in range(indptr.shape[0] - 1):
        for k in range(indptr[u], indptr[u + 1]):
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
                out[u, j] += scale * y[j]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_rows(x: Floats, indptr: Integers, out: Floats) -> None:
    for u in range(indptr.shape[0] - 1):
        for k in range(indptr[u], indptr[u + 1]):
            for j in range(x.shape[1]):
                out[u, j] += x[k, j]
