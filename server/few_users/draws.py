"""DP-Estimate-1 and what is made of it: draws near most of a few users' points [1]_.

Every user's point is the centre of a ball of radius R. A point p is drawn with density
proportional to w(f(p)), where f(p) counts the balls that hold p; two "garbage buckets" take what is
left. Rejection sampling draws from that law without ever computing a volume.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Algorithms 1 to 3, Lemmas 18, 20, Propositions 14 to 17, Theorem 6, Corollaries 5, 8.
.. [2] Levy, Sun, Amin, Kale, Kulesza, Mohri & Suresh, "Learning with user-level privacy",
   NeurIPS 2021, Algorithms 1 and 2, Corollary 1: many users, by medians and a clipped mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fedhist.base.arrays import Floats, Integers, next_power_of_two
from fedhist.base.checks import check_count, check_scale
from fedhist.base.hashing import digest64
from fedhist.base.lazy import kernel
from fedhist.channels.hadamard import fwht
from fedhist.privacy.guarantee import Release, zcdp_rho
from fedhist.privacy.noise_law import Sampler
from server.central_means.localizing import median_scores
from server.few_users.plan import CLIP_RADII, MEDIAN_SHARE, Buckets, FewUsersPlan, n_bins

if TYPE_CHECKING:
    from server.session.curator import Curator

POINT, FIRST_BUCKET, LAST_BUCKET = 0, 1, 2
"""What a draw is: a point, G1 (chosen in a round) or G2 (no round accepted)."""

BATCH_NUMBERS = 1 << 23
"""Random numbers held at a time."""


@dataclass(frozen=True)
class BallSampler(Sampler):
    """One draw of DP-Estimate-1.

    Every user has one of the (n, d) ``rows``, the centre of a ball of the ``radius`` R. The number
    of rounds X is geometric with the mean ``n_rounds``, N, which is no part of privacy. All of them
    are executed, so that how long a draw takes does not depend on the data.

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
    O(n^2 d) once if d > n (a rotation into the span of the points), then O(X n min(n, d)). A round
    is kept with probability 1/2 at most: where its coin says more than any count would allow, which
    is nobody's data, the count is not needed and not made.
    """

    rows: Floats
    radius: float
    buckets: Buckets
    n_rounds: int

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
            accepted = bucket & (coin < self.buckets.acceptance)
            near = self._count(small, owner, scale, g, tail)
            accepted[made] = coin[made] < self.buckets.accept(near)
            first = int(np.argmax(accepted))
            b = int(np.searchsorted(made, first)) % max(1, len(made))
            if kind is None and len(made):  # any proposal at first: a bucket takes as long
                proposal = int(owner[b]), float(scale[b]), g[b].copy(), float(tail[b])
            if kind is None and accepted[first]:
                kind = FIRST_BUCKET if bucket[first] else POINT
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
        # about R / sqrt(d) times 2^-24
        step = 2.0 ** (math.floor(math.log2(self.radius / math.sqrt(self.rows.shape[1]))) - 24)
        return np.asarray(np.rint(p / step) * step)


# -- which balls hold a proposed point


def reduce_dimension(rows: Floats) -> tuple[Floats | None, Floats]:
    """Rotate points into their span, where that is smaller: (basis or None, coordinates).

    Householder's factorization is stable column by column: no user's point can spoil the
    coordinates of another.
    """
    n, d = rows.shape
    if d <= n:
        return None, np.ascontiguousarray(rows)
    basis, coordinates = np.linalg.qr(rows.T)
    return basis, np.ascontiguousarray(coordinates.T)


@kernel()
def balls_around(points: Any, start: Any, scale: Any, g: Any, outside: Any, squared: Any) -> Any:
    """Count the points within a squared distance of each proposal; its own owner counts anyway.

    Proposal b of owner i is points[i] + scale[b] g[b], b from start[i] to start[i + 1]; outside[b]
    is added to its squared distances. Distances are taken from the owner, |x_i - x_j|^2 + 2 s g
    (x_i - x_j) + |s g|^2: what rounding does to one user's ball depends on that user and the owner
    only. No loop ends early and none branches on a point: the work does not depend on the points.
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


# -- several draws


@dataclass(frozen=True)
class Released:
    """What a branch has released: no value, and the reason, where a garbage bucket was drawn."""

    value: Floats | None
    reason: str
    public: dict[str, float]


@dataclass(frozen=True)
class Rotation:
    """The orthogonal map x -> H diag(s) x / sqrt(D), public signs s, d padded to D = 2^j.

    It spreads every fixed vector evenly over the coordinates [1, Lemma 20]; privacy needs no signs.

    >>> r = Rotation(3, salt=1)
    >>> bool(np.allclose(r.back(r.turn(np.eye(3))), np.eye(3)))
    True
    """

    dimension: int
    salt: int

    @property
    def padded(self) -> int:
        """D, the smallest power of two that is at least d."""
        return next_power_of_two(self.dimension)

    @property
    def signs(self) -> Floats:
        """The signs: (D,) float64."""
        rng = np.random.Generator(np.random.Philox(key=digest64("fedhist.rotation", self.salt)))
        return np.asarray(1.0 - 2.0 * rng.integers(0, 2, self.padded))

    def turn(self, rows: Floats) -> Floats:
        """Rotate (n, d) to (n, D)."""
        padded = np.zeros((len(rows), self.padded))
        padded[:, : self.dimension] = rows
        padded *= self.signs
        return np.asarray(fwht(padded) / math.sqrt(self.padded))

    def back(self, rows: Floats) -> Floats:
        """Rotate (n, D) back to (n, d); what the padding holds is dropped."""
        out = fwht(rows) / math.sqrt(self.padded) * self.signs
        return np.asarray(out[:, : self.dimension])


def release_draws(server: Curator, rows: Floats, plan: FewUsersPlan, salt: int = 1) -> Released:
    """Release the mean of (n, d) rows by the branch "ball", "blocks" or "boosted" of a plan.

    Privacy
    -------
    The plan's (epsilon, delta) under replacement: each draw costs (part_epsilon, part_delta) and is
    part_delta-approximate part_epsilon^2/8-zCDP; all of them read all users. The rotation and the
    choice of coordinates are the same for all data.

    "blocks": any garbage bucket fails the whole. "boosted": the coordinate-wise median of the runs
    that returned points, where at least 3/5 did. (The paper takes it over the buckets too.)
    """
    if plan.method == "blocks":
        rotation = Rotation(plan.dimension, salt)
        turned = rotation.turn(rows)
        size = plan.padded // plan.n_parts
        cuts = [turned[:, k * size : (k + 1) * size] for k in range(plan.n_parts)]
        parts = [np.ascontiguousarray(part) for part in cuts]
    else:
        parts = [rows] * plan.n_parts
    drawn = []
    for part in parts:
        buckets = plan.buckets(len(rows), plan.part_epsilon, plan.part_delta, plan.kappa)
        sampler = BallSampler(part, plan.part_radius, buckets, plan.n_rounds)
        drawn.append(server.sample(sampler, label="ball"))
    points = [p[1:] for p in drawn if p[0] == POINT]
    first = sum(int(p[0] == FIRST_BUCKET) for p in drawn)
    garbage = len(drawn) - len(points)
    public = {
        "draws": float(len(drawn)),
        "points": float(len(points)),
        "first_bucket": float(first),
        "last_bucket": float(garbage - first),
    }
    needed = math.ceil(3 / 5 * len(drawn)) if plan.method == "boosted" else len(drawn)
    if len(points) < needed:
        reason = (
            f"{garbage} of {len(drawn)} draws gave a garbage bucket ({first} G1, "
            f"{garbage - first} G2): too few users are close together for radius {plan.radius:g}"
        )
        return Released(None, reason, public)
    if plan.method == "blocks":
        return Released(rotation.back(np.concatenate(points)[None])[0], "", public)
    return Released(np.asarray(np.median(np.stack(points), axis=0)), "", public)


# -- many users: medians, then a clipped mean around them


def counted(places: Integers, n_bins: int) -> Integers:
    """Count the users in every bin of each coordinate: (D, n) to (D, n_bins)."""
    at = places + n_bins * np.arange(len(places))[:, None]
    return np.bincount(at.ravel(), minlength=len(places) * n_bins).reshape(-1, n_bins)


def clip_to_grid(rows: Floats, radius: float) -> tuple[NDArray[np.int64], float]:
    """Scale rows into the l2 ball and round them towards zero: (n, D) steps, and the step."""
    step = 2.0 ** (math.floor(math.log2(radius / math.sqrt(rows.shape[1]))) - 20)
    inside = rows / radius  # squares of what matters cannot vanish
    scale = 1 / np.maximum(np.sqrt(np.einsum("ij,ij->i", inside, inside)), 1.0)
    return np.trunc(rows * scale[:, None] / step).astype(np.int64), step


def release_large_n(server: Curator, rows: Floats, plan: FewUsersPlan, salt: int = 1) -> Released:
    """Release the mean of (n, d) rows of norm at most ``plan.box`` by medians and a clipped mean.

    Privacy
    -------
    rho-zCDP with the rho of (epsilon, delta), under replacement: .3 rho for the medians and .7 rho
    for the mean. Replacing a user moves the number of users on one side of a bin by 1 at most, in
    each of D coordinates: D exponential mechanisms of bounded range, each epsilon^2 / 8-zCDP. Rows
    are clipped to 1.6 r around the released centre, so that the sum moves by at most 3.2 r in l2;
    on a grid with discrete Gaussian noise. (The paper winsorizes every coordinate.)
    """
    rotation = Rotation(plan.dimension, salt)
    turned = rotation.turn(rows)
    count, width = n_bins(plan.radius, plan.box, plan.padded), plan.part_radius
    # the bins are centred; rounding and norms beyond the box end in the outermost ones
    low = -count * width / 2
    places = np.clip(np.floor((turned.T - low) / width), 0, count - 1).astype(np.int64)
    medians = server.exponential_rows(
        median_scores(counted(places, count)),
        sensitivity=1.0,
        epsilon_each=plan.part_epsilon,
        changed=plan.padded,
        label="large-n: medians",
    )
    centre = low + (medians + 0.5) * width
    clip = CLIP_RADII * plan.radius
    whole, step = clip_to_grid(turned - centre, clip)
    total = server.gaussian_zcdp(
        whole.sum(axis=0),
        l2_sensitivity=2 * clip / step * (1 + 1e-9),
        rho=(1 - MEDIAN_SHARE) * zcdp_rho(plan.epsilon, plan.delta),
        discrete=True,
        label="large-n: mean",
    )
    value = rotation.back((centre + total * (step / len(rows)))[None])[0]
    return Released(value, "", {"bins": float(count)})
