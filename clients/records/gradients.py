"""A user's average gradient, clipped around a public centre: the client half of descent.

One compiled walk over the samples, with no copy of them. A user's row depends on that user's own
samples alone, to the last bit, in whatever batch it is computed.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from clients.records.user_rows import shrink
from fedhist.base.arrays import Floats
from fedhist.base.errors import PopulationError
from fedhist.base.lazy import kernel
from fedhist.users.shards import Samples

Model = Literal["least-squares", "logistic"]


def user_gradients(
    samples: Samples, model: str, theta: Floats, centre: Floats, clip: float
) -> Floats:
    """Average each user's gradients, and clip the offset of the average from a centre: (n, d).

    A sample is d features x and a response y, the last column. The loss is (x theta - y)^2 / 2 for
    "least-squares" and log(1 + exp(-s x theta)) for "logistic", where s = 1 for y = 1 and s = -1
    for y = 0 and for y = -1. A row is gradient minus centre, of l2 norm ``clip`` at most (inf clips
    nothing); zero, which says that the gradient is the centre, for a user without samples, with
    another label, or with a gradient that is not finite.

    >>> one = Samples(np.array([0, 1, 1]), np.array([[3.0, 4.0, 5.0]]))
    >>> zero = np.zeros(2)
    >>> user_gradients(one, "least-squares", zero, zero, np.inf)
    array([[-15., -20.],
           [  0.,   0.]])
    """
    d = len(theta)
    if samples.values.shape[1] != d + 1:
        raise PopulationError(
            f"this needs samples of {d} features and a response, got "
            f"{samples.values.shape[1]} columns"
        )
    out = np.zeros((len(samples.indptr) - 1, d))
    _walk(samples.indptr, samples.values, model == "logistic", theta, centre, float(clip), out)
    return out


def user_products(samples: Samples) -> Floats:
    """Average the products of each user's features and all columns: (n, d, d + 1).

    Times (theta, -1) they are the user's average least-squares gradient. NaN without samples.

    >>> user_products(Samples(np.array([0, 1]), np.array([[3.0, 4.0, 5.0]]))).tolist()
    [[[9.0, 12.0, 15.0], [12.0, 16.0, 20.0]]]
    """
    width = samples.values.shape[1]
    out = np.zeros((len(samples.indptr) - 1, width - 1, width))
    _products(samples.indptr, samples.values, out)
    return out


@kernel()
def _products(indptr: NDArray[np.int64], values: Floats, out: Floats) -> None:
    """Fill ``out``; it comes in as zeros."""
    for u in range(out.shape[0]):
        start, stop = indptr[u], indptr[u + 1]
        for j in range(out.shape[1]):
            for i in range(start, stop):
                for k in range(out.shape[2]):
                    out[u, j, k] += values[i, j] * values[i, k]
        out[u] *= 1.0 / (stop - start) if stop > start else np.nan


@kernel()
def _walk(
    indptr: NDArray[np.int64],
    values: Floats,
    logistic: bool,
    theta: Floats,
    centre: Floats,
    clip: float,
    out: Floats,
) -> None:
    """Fill ``out``; it comes in as zeros."""
    d, a, b = theta.shape[0], 1.0, 1.0
    for u in range(indptr.shape[0] - 1):
        start, stop = indptr[u], indptr[u + 1]
        usable = stop > start
        for i in range(start, stop):
            z = 0.0
            for k in range(d):
                z += values[i, k] * theta[k]
            y = values[i, d]
            if logistic:
                if y != 1.0 and y != 0.0 and y != -1.0:
                    usable = False
                    break
                s = 1.0 if y == 1.0 else -1.0
                slope = -s / (1.0 + math.exp(s * z))
            else:
                slope = z - y
            for k in range(d):
                out[u, k] += slope * values[i, k]
        if usable:
            for k in range(d):
                out[u, k] = out[u, k] / (stop - start) - centre[k]
            a, b = shrink(out, u, clip * (1.0 - 2.0**-30))  # rounding never takes it beyond
            usable = not np.isnan(a)
        for k in range(d):
            out[u, k] = a * (b * out[u, k]) if usable else 0.0
