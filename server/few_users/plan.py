"""The branch for a mean from few users, and its constants, chosen from public numbers only [1]_.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Theorems 4, 6 and 7, Corollaries 5 and 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

from scipy.special import ndtri

from fedhist.base.checks import check_choice, check_count, check_scale, check_within
from fedhist.channels.hadamard import next_power_of_two
from fedhist.privacy.guarantee import check_budget, zcdp_rho
from server.few_users.box_plan import BOXES, drawn_error, drawn_looks, look_noise, looks
from server.few_users.limits import (
    CLIP_RADII,
    MEDIAN_SHARE,
    clip_bias,
    few_n_min,
    finite_volume,
    large_epsilon,
    large_n_min,
    n_bins,
    part_budget,
    rounds_needed,
)
from server.few_users.sampler import BucketsOf, bucket_params

Method = Literal["auto", "ball", "blocks", "boosted", "large-n", "box", "box-centre", "drawn"]
METHODS = get_args(Method)

LEAST_VOLUME = 1e-9
"""Share of proposals in a crowd below which a draw would take 10^9 rounds and more."""

SEEING = ("box", "drawn")
"""Branches that take users as they are; the others fail, or err more than they say, where users
differ more than the public radius."""

WARY = 1.5
"""By how much the least predicted error may be passed for one of those."""

SMALL_BLOCK = 16
"""Below this dimension the radius is not shrunk: distances do not concentrate yet."""

MOST_BINS = 1 << 20
MOST_SCORES = 1 << 24  # of all coordinates' bins together, where noise is secure


@dataclass(frozen=True)
class FewUsersPlan:
    """A branch and its public numbers; without noise (epsilon = inf) only ``method`` matters.

    Attributes
    ----------
    method : {"ball", "blocks", "boosted", "large-n", "box", "box-centre", "drawn"}
    n_users, dimension : int
    radius : float
        r: typical distance of a user's mean from the common mean.
    box : float
        Public bound on the norm of a user's mean.
    epsilon, delta : float
        The whole budget.
    n_parts : int
        Draws: 1, blocks K, or runs; 0 for the other branches.
    part_epsilon, part_delta : float
        Budget of each draw; of each median (a pure epsilon) in the large-n branch; of the radius.
    part_radius : float
        R of the balls of a draw; the width of a bin in the large-n branch; the last clip's radius.
    kappa : float
        Share of the users whose balls must meet.
    n_rounds : int
        N of a draw.
    least_users : int
        Fewest users with which the branch succeeds with probability 1 - failure.
    error : float
        Predicted l2 distance.
    buckets : callable
        Sets the constants of a draw, by n, epsilon, delta and kappa.
    """

    method: str
    n_users: int
    dimension: int
    radius: float
    box: float
    epsilon: float
    delta: float
    n_parts: int
    part_epsilon: float
    part_delta: float
    part_radius: float
    kappa: float
    n_rounds: int
    least_users: int
    error: float
    buckets: BucketsOf = bucket_params

    @property
    def feasible(self) -> bool:
        """Whether there are enough users."""
        return self.n_users >= self.least_users

    @property
    def own_error(self) -> float:
        """Predicted l2 distance from the average of the users' own means: branches differ in that.

        What this average is away from the common mean, r / sqrt(n), is the same for all.
        """
        return math.sqrt(max(self.error**2 - self.radius**2 / self.n_users, 0.0))

    @property
    def padded(self) -> int:
        """D, the smallest power of two that is at least d."""
        return next_power_of_two(self.dimension)

    @property
    def secure(self) -> bool:
        """Whether secure noise can serve it: nothing real is drawn, all scores fit in memory."""
        if self.method != "large-n" or math.isinf(self.epsilon):
            return math.isinf(self.epsilon) or self.method in BOXES
        return n_bins(self.radius, self.box, self.padded) * self.padded <= MOST_SCORES


@dataclass(frozen=True)
class Wishes:
    """What a caller may fix; None leaves it to the plan.

    Attributes
    ----------
    method : {"auto", "ball", "blocks", "boosted", "large-n", "box", "box-centre", "drawn"}
    n_blocks : int or None
        K, a power of two.
    n_runs : int
        Draws of the boosted branch.
    kappa : float or None
        Default .6, or .51 where more than 35% may be corrupted.
    lam : float or None
        R = lam r sqrt(d). Default .5 from dimension 16 on, else 1; 1 with kappa = .51.
    n_rounds : int or None
        Default 2 / (failure (kappa / 2) v).
    corrupted : float
        Share of users whose rows may be anything, below 1/2.
    failure : float
        Probability of no value, or of a wrong one, that the plan accepts.
    buckets : callable
        Sets the constants of a draw.
    plain : bool
        Whether "auto" may take "box" and "box-centre", which never refuse, or, where a radius can
        be drawn, "drawn" in place of "box-centre" and "large-n", which take ``radius`` at its word.
    """

    method: Method = "auto"
    n_blocks: int | None = None
    n_runs: int = 5
    kappa: float | None = None
    lam: float | None = None
    n_rounds: int | None = None
    corrupted: float = 0.0
    failure: float = 0.01
    buckets: BucketsOf = bucket_params
    plain: bool = False

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        k = self.n_blocks
        if k is not None and (k < 1 or k & (k - 1)):
            raise ValueError(f"n_blocks must be a power of two, got {k}")
        check_count("n_runs", self.n_runs)
        if self.kappa is not None and not 0.5 < self.kappa < 1:
            raise ValueError(f"kappa must lie in (1/2, 1), got {self.kappa}")
        if self.lam is not None and not 0 < self.lam < math.inf:
            raise ValueError(f"lam must be positive and finite, got {self.lam}")
        if self.n_rounds is not None and self.n_rounds < 1:
            raise ValueError(f"n_rounds must be positive, got {self.n_rounds}")
        if not 0 <= self.corrupted < 0.5:
            raise ValueError(f"corrupted must lie in [0, 1/2), got {self.corrupted}")
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
    """Take the feasible branch of least predicted error, from public numbers only.

    Rather than one that takes the radius at its word, one that does not and errs little more.
    Where none is feasible, return the one that needs the fewest users; its ``least_users`` says
    how many would do. Without a ``box`` the large-n branch is out.
    """
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
    plans = list(_branches(base, w, boxed=box is not None))
    if not plans:
        raise ValueError(f"method {w.method!r} needs a box, and fewer than {MOST_BINS} bins")
    good = sorted((p for p in plans if p.feasible), key=lambda p: p.own_error)
    if not good:
        return min(plans, key=lambda p: p.least_users)
    seeing = (p for p in good if p.method in SEEING and p.own_error <= WARY * good[0].own_error)
    return next(seeing, good[0])


def _branches(base: FewUsersPlan, w: Wishes, *, boxed: bool) -> Iterator[FewUsersPlan]:
    d, r, padded = base.dimension, base.radius, base.padded
    if w.method in ("auto", "ball"):
        yield _draws(base, w, "ball", 1, d, r)
    if w.method == "boosted":
        yield _draws(base, w, "boosted", w.n_runs, d, r)
    if w.method in ("auto", "blocks"):
        every = [2**j for j in range(1, padded.bit_length())]
        some = every if w.method == "blocks" else [k for k in every if padded // k >= SMALL_BLOCK]
        wanted = some if w.n_blocks is None else [w.n_blocks]
        if w.n_blocks is not None and w.n_blocks > padded:
            raise ValueError(f"n_blocks must be at most {padded}, got {w.n_blocks}")
        for k in wanted:
            yield _draws(base, w, "blocks", k, padded // k, r / math.sqrt(k))
    if not boxed:
        return
    asked = {w.method}
    if w.method == "auto":
        asked = {"large-n"}
        if w.plain:
            two = drawn_looks(base.n_users, d, r, base.box, base.epsilon, base.delta)
            asked = {"box", "drawn"} if two.worthwhile else {"large-n", "box", "box-centre"}
    if "large-n" in asked and n_bins(r, base.box, padded) <= MOST_BINS:
        yield _large(base, w)
    for method in BOXES:
        if method in asked:
            yield _plain(base, w, method)


def _plain(base: FewUsersPlan, w: Wishes, method: str) -> FewUsersPlan:
    d, r, least, part = base.dimension, base.radius, 1, base.epsilon
    if method == "drawn":
        two = drawn_looks(base.n_users, d, r, base.box, base.epsilon, base.delta)
        last, error = drawn_error(two, r, w.corrupted)
        part = two.choice.epsilon
        least = 1 if two.worthwhile else max(base.n_users, math.ceil(two.choice.least_users)) + 1
    else:
        noise = look_noise(method, base.epsilon, base.delta, d)
        last, error = looks(method, base.n_users, d, r, base.box, noise, w.corrupted)
    error /= math.sqrt(1 + (error / base.box) ** 2)  # of a mean of the box no more is kept
    return replace(
        base,
        method=method,
        n_parts=0,
        part_epsilon=part,
        part_radius=last,
        least_users=least,
        error=error,
    )


def _draws(
    base: FewUsersPlan, w: Wishes, method: str, parts: int, block: int, radius: float
) -> FewUsersPlan:
    """Plan one draw, or several that share the budget."""
    kappa, lam, n = w.share, w.size(block), base.n_users
    failure = w.failure / parts
    if finite_volume(lam, kappa, w.corrupted, n) < LEAST_VOLUME:
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


def _large(base: FewUsersPlan, w: Wishes) -> FewUsersPlan:
    d, r = base.dimension, base.radius
    plan = replace(
        base,
        method="large-n",
        n_parts=0,
        part_epsilon=large_epsilon(base.epsilon, base.delta, base.padded),
        part_delta=0.0,
        part_radius=2 * r / math.sqrt(base.padded),
        least_users=large_n_min(
            base.epsilon, base.delta, d, r, base.box, corrupted=w.corrupted, failure=w.failure
        ),
    )
    noise = large_n_noise(plan) * math.sqrt(d)
    spread, bias = r / math.sqrt(base.n_users), clip_bias(base.padded) * r
    # corrupted users move every median to this quantile of the others, and pull from the clip
    away = float(ndtri(0.5 / (1 - w.corrupted))) if w.corrupted else 0.0
    pull = w.corrupted * (CLIP_RADII + away) * r
    return replace(plan, error=math.hypot(noise, spread, bias) + pull)
