"""From noisy statistics to a discrete distribution: post-processing, which costs no privacy.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020.
.. [2] Duchi, Shalev-Shwartz, Singer & Chandra, "Efficient projections onto the l1-ball", ICML
   2008, Algorithm 1.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from fedhist.base.arrays import Floats

CMAX = 4.0
"""Largest m p that presence is read as: few users then lack the symbol, and noise drowns them."""


def project_simplex(x: ArrayLike) -> Floats:
    """Return the point of the probability simplex nearest to ``x`` in l2, row by row [2].

    >>> project_simplex([0.9, 0.4, -0.3])
    array([0.75, 0.25, 0.  ])
    """
    v = np.asarray(x, dtype=np.float64)
    if not (v.ndim and v.shape[-1]) or not np.isfinite(v).all():
        raise ValueError(f"finite vectors are needed, got shape {v.shape}: {v.ravel()[:5]}")
    v = v - v.max(axis=-1, keepdims=True)  # it ignores a common shift; sums then do not cancel
    k = v.shape[-1]
    down = np.sort(v, axis=-1)[..., ::-1]
    level = (np.cumsum(down, axis=-1) - 1) / np.arange(1, k + 1)
    last = k - 1 - np.argmax((down > level)[..., ::-1], axis=-1, keepdims=True)
    return np.asarray(np.maximum(v - np.take_along_axis(level, last, axis=-1), 0.0))


def project_shares(x: Floats) -> Floats:
    """Return the nearest shares to (k,) ``x`` in l2: none is negative, they add up to 1 at most.

    >>> project_shares(np.array([0.5, 0.2, -0.3])).tolist()
    [0.5, 0.2, 0.0]
    """
    positive = np.maximum(x, 0.0)
    return project_simplex(x) if positive.sum() > 1 else positive


def presence_to_probability(present: ArrayLike, n_users: float, m: int) -> Floats:
    """Read the number of users that have a symbol as the symbol's probability [1, Algorithm 4].

    q = 1 - present / n_users estimates (1 - p)^m, so p = 1 - clip(q, e^-CMAX, 1)^(1/m). Corrected
    against the paper, which clips at 0: noise would then give p = 1.

    >>> presence_to_probability([0, 75, 120], 100, 2)
    array([0.        , 0.5       , 0.86466472])
    """
    if not (n_users > 0 and m >= 1):
        raise ValueError(f"n_users and m must be positive, got {n_users}, {m}")
    q = 1 - np.asarray(present, dtype=np.float64) / n_users
    return np.asarray(0.0 - np.expm1(np.log(np.clip(q, math.exp(-CMAX), 1.0)) / m))
