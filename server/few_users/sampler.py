"""DP-Estimate-1: a private point near most of a few users' points, in any dimension [1]_.

Every user's point is the centre of a ball of radius R. A point p is drawn with density
proportional to w(f(p)), where f(p) counts the balls that hold p; two "garbage buckets" take what is
left. Rejection sampling draws from that law without ever computing a volume.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Algorithm 1, Lemma 18, Propositions 14 to 17.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fedhist.base.arrays import Floats
from fedhist.base.checks import check_count, check_scale
from fedhist.privacy.guarantee import Release, check_budget
from fedhist.privacy.noise_source import Sampler

POINT, FIRST_BUCKET, LAST_BUCKET = 0, 1, 2
"""What a draw is: a point, G1 (chosen in a round) or G2 (no round accepted)."""

BATCH_NUMBERS = 1 << 23
"""Random numbers held at a time."""

GRID_BITS = 24
"""A drawn point is rounded to about R / sqrt(d) times 2^-24 in every coordinate."""


@dataclass(frozen=True)
class Buckets:
    """The constants of the law; all public."""

    n_users: int
    epsilon0: float  # exponent per user of the weight w(f) = exp(epsilon0 min(f, F))
    ceiling: float  # F: from here on more users add no weight
    log_garbage: float  # of G, the weight of the first bucket in units of a ball's volume
    acceptance: float  # c: scale of the acceptance probabilities; none exceeds 1/2
    release: Release  # what one draw costs

    @property
    def garbage_share(self) -> float:
        """Probability G / (E + G) that a round proposes the bucket, E = exp(epsilon0 F)."""
        return float(
            1 / (1 + math.exp(min(700.0, self.epsilon0 * self.ceiling - self.log_garbage)))
        )

    def accept(self, f: NDArray[np.int64]) -> Floats:
        """Probability c (n / f) exp(epsilon0 (min(f, F) - F)) of keeping a point, f >= 1."""
        x = np.asarray(f, dtype=np.float64)
        weight = np.exp(self.epsilon0 * (np.minimum(x, self.ceiling) - self.ceiling))
        return np.asarray(self.acceptance * self.n_users / x * weight)


BucketsOf = Callable[[int, float, float, float], Buckets]
"""Sets the constants of a draw: by n, epsilon, delta and kappa."""


def bucket_params(n_users: int, epsilon: float, delta: float, kappa: float) -> Buckets:
    """Set the constants for (epsilon, delta)-DP of one draw.

    epsilon0 = epsilon / 2, F = ceil(kappa n), G = max(e^epsilon0 / delta, e^epsilon0 /
    (e^epsilon0 - 1)), c = half the smallest (f / n) exp(epsilon0 (F - min(f, F))).

    Corrected against the paper: Proposition 15 forgets that the normalizer moves by e^epsilon too
    (epsilon0 = epsilon gives 2 epsilon), and for small epsilon n the printed acceptance
    probability (n / (3 f)) exp(...) can exceed 1.

    Examples
    --------
    >>> b = bucket_params(100, 1.0, 1e-6, 0.6)
    >>> b.ceiling, round(b.acceptance, 3), round(b.log_garbage, 3)
    (60.0, 0.3, 14.316)
    """
    check_shape(n_users, kappa)
    check_budget(epsilon, delta)
    if not delta > 0 or math.isinf(epsilon):
        raise ValueError(f"need delta > 0 and a finite epsilon, got {delta} and {epsilon}")
    half = epsilon / 2
    ceiling = float(least_inside(n_users, kappa))
    # e^half / delta, or e^half / (e^half - 1) = 1 / (1 - e^-half) where that is more
    garbage = max(half - math.log(delta), -math.log(-math.expm1(-half)))
    cost = Release(epsilon, delta, epsilon * epsilon / 8, delta)
    return Buckets(n_users, half, ceiling, garbage, _half_of_least(n_users, half, ceiling), cost)


def paper_params(n_users: int, epsilon: float, delta: float) -> Buckets:
    """Set the constants as printed in Algorithm 1: epsilon0 = epsilon, F = 2n/3, G = 4/delta, 1/3.

    NOT what it claims: the draw is (2 epsilon, e^epsilon delta / 4)-DP, and that is what it costs.
    The proof needs acceptance probabilities of at most 1/2 and G >= e^epsilon / (e^epsilon - 1).

    Raises
    ------
    ValueError
        Where the printed constants break those two conditions.
    """
    check_shape(n_users, 2 / 3)
    check_budget(epsilon, delta)
    if not delta > 0 or math.isinf(epsilon):
        raise ValueError(f"need delta > 0 and a finite epsilon, got {delta} and {epsilon}")
    ceiling = 2 * n_users / 3
    if 2 * _half_of_least(n_users, epsilon, ceiling) * (1 + 1e-12) < 2 / 3:
        raise ValueError(
            f"with epsilon = {epsilon:g} and {n_users} users the printed procedure accepts with "
            "probabilities above 1/2; its proof does not hold"
        )
    if math.log(4 / delta) < -math.log(-math.expm1(-epsilon)):
        raise ValueError(f"the printed bucket 4 / delta is too small at epsilon = {epsilon:g}")
    slack = math.exp(min(epsilon, 700.0)) * delta / 4
    if slack >= 1:
        raise ValueError(f"at epsilon = {epsilon:g} the printed procedure guarantees nothing")
    cost = Release(2 * epsilon, slack, epsilon * epsilon / 2, slack)
    return Buckets(n_users, epsilon, ceiling, math.log(4 / delta), 1 / 3, cost)


def least_inside(n_users: int, kappa: float) -> int:
    """F = ceil(kappa n), where kappa n is a whole number up to rounding."""
    return math.ceil(kappa * n_users * (1 - 1e-12))


def check_shape(n_users: int, kappa: float) -> None:
    """Raise ValueError unless there are users and kappa lies in (1/2, 1)."""
    check_count("n_users", n_users)
    if not 0.5 < kappa < 1:
        raise ValueError(f"kappa must lie in (1/2, 1), got {kappa}")


def _half_of_least(n_users: int, epsilon0: float, ceiling: float) -> float:
    """Half the smallest (f / n) exp(epsilon0 (F - min(f, F))), f = 1, ..., n."""
    f = np.arange(1, n_users + 1, dtype=np.float64)
    logs = np.log(f / n_users) + epsilon0 * (ceiling - np.minimum(f, ceiling))
    return float(np.exp(logs.min()) / 2)


@dataclass(frozen=True)
class BallSampler(Sampler):
    """One draw of DP-Estimate-1.

    Parameters
    ----------
    rows : (n, d) float64
        The users' points; every user has one. NOT PRIVATE.
    radius : float
        R, positive.
    buckets : Buckets
    n_rounds : int
        N: the number of rounds X is geometric with mean N. No part of privacy.
    early_exit : bool
        Stop at the first accepted round. UNSAFE AGAINST TIMING: how long a draw takes then depends
        on the data. Otherwise all X rounds are executed; X does not depend on the data.

    Privacy
    -------
    (epsilon, delta)-DP under replacement of one user for all data, every n and every N, and
    delta-approximate epsilon^2/8-zCDP. Let a ball have volume 1, M be the integral of w(f), q =
    c (M + G) / (E + G) the probability that a round accepts, T = (N - 1) q + 1. The law has density
    (c N / (E + G)) w(f(p)) / T, P(G1) = c N G / ((E + G) T), P(G2) = (1 - q) / T. Replacing a user
    changes f by at most 1, so that w changes by e^epsilon0 at most wherever f, f' >= 1; where f
    becomes positive it adds at most e^epsilon0 to M, which G >= e^epsilon0 / (e^epsilon0 - 1)
    absorbs: M' + G <= e^epsilon0 (M + G), and so T'/T <= e^epsilon0. With u = q'/q > 1 and
    q' <= 1/2, (1 - q) / (1 - q') <= 2 - 1/u <= u. All log-ratios thus lie within epsilon0 of log
    T'/T, so in a range of 2 epsilon0 = epsilon and within epsilon of 0, except on {f = 1, f' = 0},
    whose probability is at most e^epsilon0 / (M + G) <= delta.

    Cost
    ----
    O(n^2 d) once if d > n (a rotation into the span of the points), then O(X n min(n, d)). Every
    round is executed. A round is kept with probability 1/2 at most: where its coin says more than
    any count would allow, which is nobody's data, the count is not needed and not made.
    """

    rows: Floats
    radius: float
    buckets: Buckets
    n_rounds: int
    early_exit: bool = False

    def __post_init__(self) -> None:
        if self.rows.ndim != 2 or not self.rows.shape[1]:
            raise ValueError(f"rows must be (n, d) with d > 0, got shape {self.rows.shape}")
        if len(self.rows) != self.buckets.n_users:
            raise ValueError(f"{len(self.rows)} rows for {self.buckets.n_users} users")
        check_scale("radius", self.radius, 2.0**480)
        check_count("n_rounds", self.n_rounds)

    @property
    def release(self) -> Release:
        """What the constants cost."""
        return self.buckets.release

    def draw(self, rng: np.random.Generator) -> Floats:
        """Draw: (d + 1,) float64, the kind (0 point, 1 G1, 2 G2), then the point or zeros."""
        with threadpool_limits(1, "blas"):  # threads that wait for small products take ten times as
            return self._drawn(rng)

    def _drawn(self, rng: np.random.Generator) -> Floats:
        n, d = self.rows.shape
        basis, small = reduce_dimension(self.rows)
        left = int(rng.geometric(1 / self.n_rounds))
        share, size = self.buckets.garbage_share, max(64, BATCH_NUMBERS // small.shape[1])
        most = float(self.buckets.accept(np.arange(1, n + 1)).max())
        kind: int | None = None  # what the first accepted round proposed
        proposal: tuple[int, float, Floats, float] | None = None  # owner, scale, direction, tail
        while left > 0:
            k = min(size, left)
            left -= k
            bucket, coin = rng.random(k) < share, rng.random(k)
            # a coin that no count would keep needs no proposal: how many there are is nobody's data
            made = np.flatnonzero(~bucket & (coin < most))
            owner = rng.integers(0, n, len(made))
            g = rng.standard_normal((len(made), small.shape[1]))
            tail = np.zeros(len(made))
            if basis is not None:
                tail = rng.chisquare(d - small.shape[1], len(made))
            # a uniform point of the ball: a random direction at distance R U^(1/d)
            length = np.sqrt(np.einsum("ij,ij->i", g, g) + tail)
            scale = self.radius * rng.random(len(made)) ** (1 / d) / length
            kept = bucket & (coin < self.buckets.acceptance)
            kept[made] = coin[made] < self.buckets.accept(self._count(small, owner, scale, g, tail))
            first = int(np.argmax(kept))
            b = int(np.searchsorted(made, first)) % max(1, len(made))
            if kind is None and len(made):  # any proposal at first: a bucket takes as long
                proposal = int(owner[b]), float(scale[b]), g[b].copy(), float(tail[b])
            if kind is None and kept[first]:
                kind = FIRST_BUCKET if bucket[first] else POINT
                if self.early_exit:
                    break
        point = np.zeros(d) if proposal is None else self._point(rng, basis, *proposal)
        out = np.zeros(d + 1)
        out[0] = LAST_BUCKET if kind is None else kind
        if kind == POINT:
            out[1:] = point
        return out

    def _count(
        self, points: Floats, owner: NDArray[np.int64], scale: Floats, g: Floats, tail: Floats
    ) -> NDArray[np.int64]:
        """Count the balls that hold each proposal: (B,) int64."""
        order = np.argsort(owner, kind="stable")
        start = np.searchsorted(owner[order], np.arange(len(points) + 1))
        s, f = scale[order], np.empty(len(owner), dtype=np.int64)
        outside = s**2 * tail[order]
        f[order] = balls_around(points, start, s, g[order], outside, self.radius**2)
        return f

    def _point(
        self,
        rng: np.random.Generator,
        basis: Floats | None,
        owner: int,
        scale: float,
        g: Floats,
        tail: float,
    ) -> Floats:
        """Make the proposed point in all d coordinates, on a public grid."""
        if basis is None:
            p = self.rows[owner] + scale * g
        else:
            # the part outside the span has a uniform direction there; twice is enough [Kahan]
            h = rng.standard_normal(len(basis))
            for _ in range(2):
                h -= basis @ (basis.T @ h)
            h *= math.sqrt(tail) / math.sqrt(float(h @ h))
            p = self.rows[owner] + scale * (basis @ g + h)
        step = 2.0 ** (
            math.floor(math.log2(self.radius / math.sqrt(self.rows.shape[1]))) - GRID_BITS
        )
        return np.asarray(np.rint(p / step) * step)


# -- which balls hold a proposed point


def reduce_dimension(rows: Floats) -> tuple[Floats | None, Floats]:
    """Rotate points into their span, where that is smaller: (basis or None, coordinates).

    Distances between the points stay what they are, up to rounding relative to each point's own
    norm: Householder's factorization is stable column by column, so that no user's point can spoil
    the coordinates of another.
    The basis is (d, n), or None if d <= n; the coordinates are (n, min(n, d)).
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
