"""Which users' balls hold a proposed point: the arithmetic of the few-users sampler."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from fedhist.base.arrays import Floats


def reduce_dimension(rows: Floats) -> tuple[Floats | None, Floats]:
    """Rotate points into their span, where that is smaller: (basis or None, coordinates).

    Distances between the points stay what they are, up to rounding relative to each point's own
    norm: Householder's factorization is stable column by column, so that no user's point can spoil
    the coordinates of another.

    Returns
    -------
    basis : (d, n) float64 or None
        Orthonormal columns; None if d <= n.
    coordinates : (n, min(n, d)) float64
    """
    n, d = rows.shape
    if d <= n:
        return None, np.ascontiguousarray(rows)
    basis, coordinates = np.linalg.qr(rows.T)
    return basis, np.ascontiguousarray(coordinates.T)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def balls_around(points: Any, start: Any, scale: Any, g: Any, outside: Any, squared: Any) -> Any:
    """Count the points within a squared distance of each proposal; its own owner counts anyway.

    Proposal b of owner i is points[i] + scale[b] g[b], and outside[b] is added to every squared
    distance. Distances are taken from the owner, |x_i - x_j|^2 + 2 s g (x_i - x_j) + |s g|^2: what
    rounding does to one user's ball depends on that user and the owner only, and is relative to
    their distance. No loop ends early and none branches on a point: the amount of work does not
    depend on the points.

    Parameters
    ----------
    points : (n, k) float64
    start : (n + 1,) int64
        Proposals start[i] to start[i + 1] belong to owner i.
    scale, outside : (B,) float64
    g : (B, k) float64
    squared : float

    Returns
    -------
    (B,) int64
    """
    n, k = points.shape
    f = np.ones(len(scale), dtype=np.int64)
    away = np.empty((n, k))
    apart = np.empty(n)
    for i in range(n):
        a, z = start[i], start[i + 1]
        if a == z:
            continue
        for j in range(n):
            total = 0.0
            for t in range(k):
                x = points[i, t] - points[j, t]
                away[j, t] = x
                total += x * x
            apart[j] = total
        cross = np.dot(away, g[a:z].T)
        own, twice = np.empty(z - a), np.empty(z - a)
        for b in range(z - a):
            total = 0.0
            for t in range(k):
                total += g[a + b, t] * g[a + b, t]
            own[b] = squared - outside[a + b] - scale[a + b] ** 2 * total
            twice[b] = 2.0 * scale[a + b]
        for j in range(n):
            if j != i:
                for b in range(z - a):  # no branch on what the comparison says
                    f[a + b] += np.int64(apart[j] + twice[b] * cross[j, b] <= own[b])
    return f
