"""Several few-users draws for one mean: blocks after a random rotation, and medians of runs [1]_.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few users",
   ICML 2022, Algorithms 2 and 3, Lemma 20, Theorem 6, Corollary 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.channels.hadamard import fwht, next_power_of_two
from server.few_users.plan import FewUsersPlan
from server.few_users.sampler import FIRST_BUCKET, POINT, BallSampler

if TYPE_CHECKING:
    from fedhist.session.curator import Curator


MEDIAN_QUORUM = 3 / 5
"""Share of the runs that must have returned points for their median to count."""


@dataclass(frozen=True)
class Released:
    """What a branch has released: no value, and the reason, where a garbage bucket was drawn."""

    value: Floats | None
    reason: str
    public: dict[str, float]


@dataclass(frozen=True)
class Rotation:
    """The orthogonal map x -> H diag(s) x / sqrt(D), random signs s, d padded to D = 2^j.

    It spreads every fixed vector evenly over the coordinates [1, Lemma 20]. The signs are public,
    made of ``salt``; the data do not depend on them; privacy never needs them.

    Examples
    --------
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


def release_ball(
    server: Curator,
    rows: Floats,
    plan: FewUsersPlan,
    *,
    early_exit: bool = False,
) -> Floats | int:
    """Draw once with a part's budget: the point, or the number of the bucket."""
    n = len(rows)
    buckets = plan.buckets(n, plan.part_epsilon, plan.part_delta, plan.kappa)
    sampler = BallSampler(rows, plan.part_radius, buckets, plan.n_rounds, early_exit)
    drawn = server.sample(sampler, label="ball")
    return np.asarray(drawn[1:]) if drawn[0] == POINT else int(drawn[0])


def release_draws(
    server: Curator,
    rows: Floats,
    plan: FewUsersPlan,
    *,
    salt: int = 1,
    early_exit: bool = False,
) -> Released:
    """Release the mean of (n, d) rows by the branch "ball", "blocks" or "boosted" of a plan.

    Privacy
    -------
    The plan's (epsilon, delta) under replacement: each draw costs (part_epsilon, part_delta) and is
    part_delta-approximate part_epsilon^2/8-zCDP; all of them read all users. The rotation and the
    choice of coordinates are the same for all data.

    Error
    -----
    "blocks": K draws of dimension D / K around r / sqrt(K) give lam r sqrt(D / K) in all; any
    garbage bucket fails the whole. "boosted": the coordinate-wise median of the runs that returned
    points, where at least 3/5 did. (The paper's listing takes the median over the buckets too.)
    """
    if plan.method == "blocks":
        rotation = Rotation(plan.dimension, salt)
        turned = rotation.turn(rows)
        size = plan.padded // plan.n_parts
        parts = [
            np.ascontiguousarray(turned[:, k * size : (k + 1) * size]) for k in range(plan.n_parts)
        ]
    else:
        parts = [rows] * plan.n_parts
    drawn = [release_ball(server, p, plan, early_exit=early_exit) for p in parts]
    points = [p for p in drawn if not isinstance(p, int)]
    first = sum(isinstance(p, int) and p == FIRST_BUCKET for p in drawn)
    public = {
        "draws": float(len(drawn)),
        "points": float(len(points)),
        "first_bucket": float(first),
        "last_bucket": float(len(drawn) - len(points) - first),
    }
    needed = math.ceil(MEDIAN_QUORUM * len(drawn)) if plan.method == "boosted" else len(drawn)
    if len(points) < needed:
        garbage = len(drawn) - len(points)
        return Released(
            None,
            f"{garbage} of {len(drawn)} draws gave a garbage bucket ({first} G1, "
            f"{garbage - first} G2): too few users are close together for radius {plan.radius:g}",
            public,
        )
    if plan.method == "blocks":
        return Released(rotation.back(np.concatenate(points)[None])[0], "", public)
    return Released(np.asarray(np.median(np.stack(points), axis=0)), "", public)
