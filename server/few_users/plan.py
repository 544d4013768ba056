"""The branch for a mean from few users, and its constants, chosen from public numbers only [1]_.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Algorithm 1, Propositions 14 to 17, Theorems 4, 6 and 7, Corollaries 5 and 8.
.. [2] Levy, Sun, Amin, Kale, Kulesza, Mohri & Suresh, "Learning with user-level privacy",
   NeurIPS 2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtr, ndtri

from fedhist.base.arrays import Floats, next_power_of_two
from fedhist.base.checks import check_choice, check_count, check_scale, check_within
from fedhist.base.search import fewest_users
from fedhist.privacy.guarantee import Release, check_budget, zcdp_rho

Method = Literal["auto", "ball", "blocks", "boosted", "large-n"]

SMALL_BLOCK = 16
"""Below this dimension the radius is not shrunk: distances do not concentrate yet."""

CLIP_RADII = 1.6
"""Radius of the large-n branch's clip, in typical distances r."""

MEDIAN_SHARE = 0.3
"""Share of rho that the large-n branch spends on the medians."""


# -- the constants of a draw


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
    (e^epsilon0 - 1)), c = half the smallest (f / n) exp(epsilon0 (F - min(f, F))). Corrected
    against the paper: Proposition 15 forgets that the normalizer moves by e^epsilon too (epsilon0 =
    epsilon gives 2 epsilon), and the printed acceptance probability can exceed 1.

    >>> b = bucket_params(100, 1.0, 1e-6, 0.6)
    >>> b.ceiling, round(b.acceptance, 3), round(b.log_garbage, 3)
    (60.0, 0.3, 14.316)
    """
    _check(n_users, epsilon, delta, kappa)
    half = epsilon / 2
    ceiling = float(least_inside(n_users, kappa))
    # e^half / delta, or e^half / (e^half - 1) = 1 / (1 - e^-half) where that is more
    garbage = max(half - math.log(delta), -math.log(-math.expm1(-half)))
    cost = Release(epsilon, delta, epsilon * epsilon / 8, delta)
    return Buckets(n_users, half, ceiling, garbage, _half_of_least(n_users, half, ceiling), cost)


def paper_params(n_users: int, epsilon: float, delta: float) -> Buckets:
    """Set the constants as printed in Algorithm 1: epsilon0 = epsilon, F = 2n/3, G = 4/delta, 1/3.

    NOT what it claims: the draw is (2 epsilon, e^epsilon delta / 4)-DP, and that is what it costs.
    ValueError where they break what the proof needs: acceptance probabilities of at most 1/2 and
    G >= e^epsilon / (e^epsilon - 1).
    """
    _check(n_users, epsilon, delta, 2 / 3)
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


def _check(n_users: int, epsilon: float, delta: float, kappa: float) -> None:
    check_count("n_users", n_users)
    check_within("kappa", kappa, 0.5, 1, "()")
    check_budget(epsilon, delta)
    if not delta > 0 or math.isinf(epsilon):
        raise ValueError(f"need delta > 0 and a finite epsilon, got {delta} and {epsilon}")


def _half_of_least(n_users: int, epsilon0: float, ceiling: float) -> float:
    """Half the smallest (f / n) exp(epsilon0 (F - min(f, F))), f = 1, ..., n."""
    f = np.arange(1, n_users + 1, dtype=np.float64)
    logs = np.log(f / n_users) + epsilon0 * (ceiling - np.minimum(f, ceiling))
    return float(np.exp(logs.min()) / 2)


# -- the branch


@dataclass(frozen=True)
class FewUsersPlan:
    """A branch and its public numbers; without noise (epsilon = inf) only ``method`` matters."""

    method: Method
    n_users: int
    dimension: int
    radius: float  # r: typical distance of a user's mean from the common mean
    box: float  # bound on the norm of a user's mean
    epsilon: float
    delta: float
    n_parts: int  # draws: 1, blocks K, or runs; 0 for large n
    part_epsilon: float  # of each draw; of each median, with no delta, for large n
    part_delta: float
    part_radius: float  # R of the balls of a draw; the width of a bin for large n
    kappa: float  # share of the users whose balls must meet
    n_rounds: int  # N of a draw
    least_users: float  # with whom the branch succeeds with probability 1 - failure
    error: float  # l2 distance, predicted
    buckets: BucketsOf = bucket_params

    @property
    def feasible(self) -> bool:
        """Whether there are enough users."""
        return self.n_users >= self.least_users

    @property
    def padded(self) -> int:
        """D, the smallest power of two that is at least d."""
        return next_power_of_two(self.dimension)

    @property
    def secure(self) -> bool:
        """Whether secure noise can serve it: nothing real is drawn."""
        return self.method == "large-n" or math.isinf(self.epsilon)


@dataclass(frozen=True)
class Wishes:
    """What a caller may fix, as the protocols document it; None leaves it to the plan."""

    method: Method = "auto"
    n_blocks: int | None = None
    n_runs: int = 5
    kappa: float | None = None
    lam: float | None = None
    n_rounds: int | None = None
    corrupted: float = 0.0
    failure: float = 0.01
    buckets: BucketsOf = bucket_params

    def __post_init__(self) -> None:
        check_choice("method", self.method, get_args(Method))
        k = self.n_blocks
        if k is not None and (k < 1 or k & (k - 1)):
            raise ValueError(f"n_blocks must be a power of two, got {k}")
        check_count("n_runs", self.n_runs)
        if self.kappa is not None:
            check_within("kappa", self.kappa, 0.5, 1, "()")
        if self.lam is not None:
            check_within("lam", self.lam, 0, math.inf, "()")
        if self.n_rounds is not None:
            check_count("n_rounds", self.n_rounds)
        check_within("corrupted", self.corrupted, 0, 0.5, "[)")
        check_within("failure", self.failure, 0, 1, "()")
        if self.share + self.corrupted > 1 + 1e-12:
            raise ValueError(
                f"kappa = {self.share:g} is more than the {1 - self.corrupted:g} of the users that "
                "are not corrupted"
            )

    @property
    def share(self) -> float:
        """The kappa in use."""
        return self.kappa or (0.6 if self.corrupted <= 0.35 else 0.51)

    def size(self, dimension: int) -> float:
        """Return the lam in use for balls of a dimension."""
        if self.lam is not None:
            return self.lam
        return 1.0 if dimension < SMALL_BLOCK or self.share < 0.55 else 0.5


def large_n_noise(plan: FewUsersPlan) -> float:
    """Std of the noise on each coordinate of the large-n mean, 2 (1.6 r) / (n sqrt(1.4 rho))."""
    rho = (1 - MEDIAN_SHARE) * zcdp_rho(plan.epsilon, plan.delta)
    return 2 * CLIP_RADII * plan.radius / plan.n_users / math.sqrt(2 * rho)


def choose_branch(
    n_users: int,
    dimension: int,
    radius: float,
    box: float | None,
    epsilon: float,
    delta: float,
    wishes: Wishes | None = None,
) -> FewUsersPlan:
    """Take the feasible branch of least predicted error, from public numbers only."""
    w = wishes or Wishes()
    check_budget(epsilon, delta)
    check_count("n_users", n_users)
    check_count("the dimension", dimension)
    check_scale("the radius", radius)
    if box is not None:
        check_scale("the box", box)
    if not delta > 0:
        raise ValueError(f"delta must be positive: a garbage bucket needs it, got {delta}")
    base = FewUsersPlan(
        w.method, n_users, dimension, radius, math.inf if box is None else box, epsilon, delta,
        1, epsilon, delta, radius, w.share, 1, 1, 0.0, w.buckets,
    )  # fmt: skip
    if math.isinf(epsilon):
        return base
    d, r, padded, plans = dimension, radius, base.padded, list[FewUsersPlan]()
    if w.method in ("auto", "ball"):
        plans.append(_draws(base, w, "ball", 1, d, r))
    if w.method == "boosted":
        plans.append(_draws(base, w, "boosted", w.n_runs, d, r))
    if w.method in ("auto", "blocks"):
        least = 1 if w.method == "blocks" else SMALL_BLOCK
        every = [2**j for j in range(1, padded.bit_length()) if padded >> j >= least]
        if w.n_blocks is not None and w.n_blocks > padded:
            raise ValueError(f"n_blocks must be at most {padded}, got {w.n_blocks}")
        for k in every if w.n_blocks is None else [w.n_blocks]:
            plans.append(_draws(base, w, "blocks", k, padded // k, r / math.sqrt(k)))
    if w.method in ("auto", "large-n"):
        fewest = large_n_min(
            epsilon, delta, d, r, base.box, corrupted=w.corrupted, failure=w.failure
        )
        plans += [_large(base, w, fewest)] if math.isfinite(fewest) else []
    if not plans:
        raise ValueError(f"method {w.method!r} needs a box, and at most 2^24 bins")
    good = [p for p in plans if p.feasible]
    return min(good or plans, key=lambda p: p.error if good else p.least_users)


def _draws(
    base: FewUsersPlan, w: Wishes, method: Method, parts: int, block: int, radius: float
) -> FewUsersPlan:
    """Plan one draw, or several that share the budget."""
    kappa, lam, n = w.share, w.size(block), base.n_users
    failure = w.failure / parts
    if finite_volume(lam, kappa, w.corrupted, n) < 1e-9:  # of 10^9 rounds and more
        raise ValueError(f"lam = {lam:g} is too small: balls of that radius hardly ever meet")
    eps, delta = part_budget(base.epsilon, base.delta, parts)
    least = few_n_min(
        eps, delta, w.buckets, kappa=kappa, lam=lam, corrupted=w.corrupted, failure=failure
    )
    v = finite_volume(lam, kappa, w.corrupted, max(n, least))
    size = lam * radius * math.sqrt(block)
    return replace(
        base,
        method=method,
        n_parts=parts,
        part_epsilon=eps,
        part_delta=delta,
        part_radius=size,
        kappa=kappa,
        n_rounds=w.n_rounds or rounds_needed(v, kappa, failure),
        least_users=least,
        # of the error in D coordinates a share d / D stays when the padding is cut off
        error=size * math.sqrt(parts * base.dimension / base.padded)
        if method == "blocks"
        else size,
    )


def _large(base: FewUsersPlan, w: Wishes, least: float) -> FewUsersPlan:
    d, r = base.dimension, base.radius
    plan = replace(
        base,
        method="large-n",
        n_parts=0,
        part_epsilon=large_epsilon(base.epsilon, base.delta, base.padded),
        part_delta=0.0,
        part_radius=2 * r / math.sqrt(base.padded),
        least_users=least,
    )
    noise = large_n_noise(plan) * math.sqrt(d)
    spread, bias = r / math.sqrt(base.n_users), clip_bias(base.padded) * r
    # corrupted users move every median to this quantile of the others, and pull from the clip
    away = float(ndtri(0.5 / (1 - w.corrupted))) if w.corrupted else 0.0
    pull = w.corrupted * (CLIP_RADII + away) * r
    return replace(plan, error=math.hypot(noise, spread, bias) + pull)


# -- how many users are needed, and what each draw gets


def ball_volume(lam: float, kappa: float, corrupted: float = 0.0) -> float:
    """Share v(lam, kappa) of the proposals that lie within R of a share kappa of all users.

    For users at distance r from their mean and R = lam r sqrt(d), as d grows: E exp(-((a + z) /
    lam + 1 / lam^2)_+) with a standard normal and z the quantile of kappa / (1 - corrupted). The
    volume of all such points, in balls, is between v and v / kappa, in any dimension.

    >>> [round(ball_volume(*x), 3) for x in ((0.5, 0.6), (1.0, 0.6), (0.35, 0.6))]
    [0.061, 0.388, 0.006]
    """
    share = kappa / (1 - corrupted)
    if not 0 < share < 1:
        return 0.0 if share >= 1 else 1.0
    z = float(ndtri(share))
    return float(ndtr(-z - 1 / lam) + math.exp(-z / lam - 0.5 / lam**2) * ndtr(z))


def finite_volume(lam: float, kappa: float, corrupted: float, n_users: int) -> float:
    """:func:`ball_volume` for so many users, of whom kappa takes all but the largest at most."""
    honest = n_users - math.floor(corrupted * n_users * (1 + 1e-12))
    most = 1 - 1 / (honest + 1)
    return ball_volume(lam, min(kappa / (1 - corrupted), most))


def few_n_min(
    epsilon: float,
    delta: float,
    buckets: BucketsOf = bucket_params,
    *,
    kappa: float = 0.6,
    lam: float = 0.5,
    corrupted: float = 0.0,
    failure: float = 0.01,
) -> int:
    """Fewest users with which one draw succeeds with probability about 1 - failure.

    n >= ln(G / (v failure)) / (kappa epsilon0), and with corrupted users also n >=
    ln(1 / (v failure)) / ((kappa - corrupted) epsilon0).

    >>> few_n_min(1.0, 1e-6)
    73
    """
    if kappa <= corrupted:
        raise ValueError(f"kappa = {kappa:g} must exceed the corrupted share, {corrupted:g}")

    def enough(n: int) -> bool:
        v = finite_volume(lam, kappa, corrupted, n)
        b = buckets(1, epsilon, delta, kappa)
        first = (b.log_garbage - math.log(v * failure)) / (kappa * b.epsilon0)
        wrong = -math.log(v * failure) / ((kappa - corrupted) * b.epsilon0) if corrupted else 0.0
        return n >= max(first, wrong) and least_inside(n, kappa) <= n - math.floor(corrupted * n)

    return fewest_users(enough)


def rounds_needed(v: float, kappa: float, failure: float) -> int:
    """N = ceil(2 / (failure (kappa / 2) v)): then P(G2) <= failure / 2.

    >>> rounds_needed(ball_volume(0.5, 0.6), 0.6, 0.01)
    10922
    """
    return math.ceil(min(2 / (failure * (kappa / 2) * v), 2.0**40))


def part_budget(epsilon: float, delta: float, parts: int) -> tuple[float, float]:
    """Budget of each of several draws that are (epsilon, delta)-DP together.

    delta / 2 goes to the draws' own slack; the better of basic composition and of rho(epsilon,
    delta / 2) shared by draws that are delta-approximate epsilon^2/8-zCDP.
    """
    if parts == 1:
        return epsilon, delta
    each = max(epsilon / parts, math.sqrt(8 * zcdp_rho(epsilon, delta / 2) / parts))
    return each, delta / (2 * parts)


def large_epsilon(epsilon: float, delta: float, padded: int) -> float:
    """Budget of each coordinate's median: sqrt(8 * .3 rho / D), epsilon-bounded-range."""
    return math.sqrt(8 * MEDIAN_SHARE * zcdp_rho(epsilon, delta) / padded)


def n_bins(radius: float, box: float, padded: int) -> int:
    """Bins of width 2 r / sqrt(D) that cover [-box, box]."""
    return max(1, math.ceil(box * math.sqrt(padded) / radius * (1 - 1e-12)))


def large_n_min(
    epsilon: float,
    delta: float,
    dimension: int,
    radius: float,
    box: float | None,
    *,
    corrupted: float = 0.0,
    failure: float = 0.01,
) -> float:
    """Fewest users of the large-n branch: (4 / epsilon1) ln(bins D / failure) / (1 - 2 corrupted).

    Infinite without a box, or where it has too many bins. Below it nothing shows a wrong median.

    >>> large_n_min(1.0, 1e-6, 64, 0.25, 1.0)
    1619
    """
    padded = next_power_of_two(dimension)
    if box is None or math.isinf(box) or n_bins(radius, box, padded) * padded > 1 << 24:
        return math.inf
    each = large_epsilon(epsilon, delta, padded)
    needed = 4 / each * math.log(n_bins(radius, box, padded) * padded / failure)
    return math.ceil(needed / (1 - 2 * corrupted))


@lru_cache(maxsize=8)
def clip_bias(padded: int) -> float:
    """Return what the large-n branch's clip moves the mean by at most, in r.

    E (1 - c / |y|)_+ y_1 with y = x - v, x ~ N(0, I / D), |v| = 1, the end of a bin, c = 1.6; by
    quadrature over quantiles.

    >>> [round(clip_bias(d), 3) for d in (1, 2, 4, 8, 128)]
    [0.167, 0.106, 0.063, 0.035, 0.0]
    """
    if padded >= 128:  # below 2e-4 r
        return 0.0
    y = (ndtri(_middles(512)) / math.sqrt(padded))[:, None] - 1
    across = 2 * gammaincinv((padded - 1) / 2, _middles(64)) / padded if padded > 1 else np.zeros(1)
    away = np.maximum(1 - CLIP_RADII / np.sqrt(y**2 + across), 0.0)
    return abs(float((away * y).mean()))


def _middles(n: int) -> NDArray[np.float64]:
    """Middles of n equal parts of [0, 1]."""
    return np.asarray((np.arange(n) + 0.5) / n)
