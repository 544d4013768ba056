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
    columns = np.ascontiguousarray(points.T)
    away = np.empty((k, n))
    apart = np.empty(n)
    for i in range(n):
        a, z = start[i], start[i + 1]
        if a == z:
            continue
        apart[:] = 0.0
        for t in range(k):  # users side by side: every sum keeps its order, and fills a vector
            own_t = points[i, t]
            for j in range(n):
                x = own_t - columns[t, j]
                away[t, j] = x
                apart[j] += x * x
        cross = np.dot(g[a:z], away)
        for b in range(z - a):
            total = 0.0
            for t in range(k):
                total += g[a + b, t] * g[a + b, t]
            own = squared - outside[a + b] - scale[a + b] ** 2 * total
            twice = 2.0 * scale[a + b]
            inside = np.int64(0)
            for j in range(n):  # no branch on what the comparison says
                inside += np.int64(apart[j] + twice * cross[b, j] <= own)
            # the owner's own ball counts anyway, whatever rounding says of it
            f[a + b] += inside - np.int64(apart[i] + twice * cross[b, i] <= own)
    return f
