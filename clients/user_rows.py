"""A user's record as one row: the mean of its samples, or the shares of its items.

A record that cannot be used (no samples, NaN or infinite values, no known item) becomes the null
record, the zero vector. It is never dropped: the number of users is public and stays what it is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from clients.kernels import Lookup
from fedhist.users import Items, Samples

Floats = NDArray[np.float64]


def mean_rows(samples: Samples, box: float) -> Floats:
    """Average each user's samples and shorten the mean to the norm ``box``: (n, d) float64.

    Examples
    --------
    >>> s = Samples(np.array([0, 2, 2, 3]), np.array([[1.0, 0.0], [3.0, 0.0], [np.nan, 1.0]]))
    >>> mean_rows(s, box=1.0)
    array([[1., 0.],
           [0., 0.],
           [0., 0.]])
    """
    n, d = len(samples.indptr) - 1, samples.values.shape[1]
    if not n:
        return np.zeros((0, d))
    sizes = np.diff(samples.indptr)
    # one row more, so that the end of the last user is an index too
    x = np.concatenate([samples.values, np.zeros((1, d))])
    edges = np.stack((samples.indptr[:-1], samples.indptr[1:]), axis=1).reshape(-1)
    with np.errstate(all="ignore"):  # infinities and NaN are dealt with below
        rows = np.add.reduceat(x, edges, axis=0)[::2] / np.maximum(sizes, 1)[:, None]
        largest = np.abs(rows).max(axis=1)
    usable = (sizes > 0) & np.isfinite(largest)
    rows[~usable] = 0.0
    return shorten(rows, box)


def shorten(rows: Floats, box: float) -> Floats:
    """Scale rows of norm above ``box`` down to it; finite rows of any size."""
    largest = np.maximum(np.abs(rows).max(axis=1, initial=0.0), 1e-300)
    # squares of the scaled entries can neither overflow nor vanish
    unit = rows / largest[:, None]
    root = np.sqrt(np.square(unit).sum(axis=1))
    with np.errstate(over="ignore"):
        long = root > box / largest
    rows[long] = unit[long] * (box / np.maximum(root[long], 1.0))[:, None]
    return rows


def share_rows(items: Items, lookup: Lookup, d: int) -> Floats:
    """Divide each user's counts of the known items by their sum: (n, d) float64.

    Parameters
    ----------
    items : Items
    lookup : (vocabulary,) int32 or None
        Position of every item of the vocabulary in the domain, negative for unknown ones; None:
        the two are the same.
    d : int
        Size of the domain.
    """
    n = len(items.indptr) - 1
    item = items.item.astype(np.int64)
    place = item if lookup is None else lookup[item]
    known = place >= 0
    user = np.repeat(np.arange(n), np.diff(items.indptr))[known]
    rows = np.zeros((n, d))
    rows[user, place[known]] = items.count[known]  # items are distinct within a user
    return np.asarray(rows / np.maximum(rows.sum(axis=1, keepdims=True), 1.0))
