"""A mean that all users share, from users with different numbers of samples: weights and clips.

Users with many samples know the common mean better, so they weigh more, up to a number of samples
that is chosen from a private histogram of sizes. The estimate is about the common mean: it is the
average of the users' own means only where sizes say nothing about means.

References
----------
.. [1] Cummings, Feldman, McMillan & Talwar, "Mean estimation with user-level privacy under data
   heterogeneity", NeurIPS 2022: the model; weights and clips are own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from clients.records.functionals import samples_of
from fedhist.base.arrays import Array, Floats
from fedhist.base.checks import check_integer, check_size
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.losses import SQUARED_L2
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.model.truths import Truth
from fedhist.privacy.guarantee import Adjacency
from fedhist.protocols.central_means.bin_queries import MOST_COUNTS, MeanBins, SizeBins
from fedhist.protocols.central_means.protocol import CentralMeans, Steps
from fedhist.protocols.central_means.queries import WeightedMeans, check_spreads, variances
from fedhist.protocols.shared.seen import Seen
from fedhist.users.batch import Users
from server.central_means.medians import (
    BINS,
    IntervalPlan,
    draw_medians,
    few_counted,
    plan_interval,
    some_medians,
)
from server.central_means.settling import Look, Settling

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

SIZE_SHARE = 0.1
"""Share of epsilon that the histogram of sizes gets."""

SIZE_BINS = 24
MISTAKES = 5000
"""Noise passes for users in an empty bin of sizes once in twice as many runs. Beside users of 2^20
samples whom nobody is, the others weigh next to nothing: once in twenty was what errors were."""

FOLLOWED = 64
"""Draws of the noise on sizes, and of medians, that a prediction follows."""

SCALES = 3.0
"""Radius of a user's clip, in its own standard deviations."""


@register_protocol
@dataclass(frozen=True, kw_only=True)
class WeightedMean(CentralMeans):
    """Mean that all users share, weighted by what each user's number of samples is worth.

    Parameters
    ----------
    epsilon, delta, n_users, low, high, dimension, box, adjacency, discrete
        As for ``box-mean``.
    within : float
        Public: standard deviation of one sample around its user's mean, in each coordinate.
    between : float
        Public: standard deviation of the users' true means; 0 where they share one. Where it is
        large or unknown, equal weights are better.

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record, by basic composition: a tenth of epsilon for
    Laplace noise on the counts of sizes (l1 1, or 2 under "replace-user"); exponential mechanisms
    for medians, as in ``interval-mean``; and one release of the weighted sum, whose vectors are at
    most the radius long, with .2 times the sum of weights: l2 sqrt(1.04), under "replace-user"
    twice that. The estimate is their ratio, settled as that of ``box-mean``.

    Error
    -----
    sum w^2 v / (sum w)^2 around the common mean, v a user's variance, and noise of radius over sum
    w: samples beyond the number that minimises it, under the released histogram, count no more.
    Refuses where there are too few users for medians; fails, before anything is spent, if too few
    answer, and warns if noisy sizes tell of fewer with samples. NOT the average of the users' own
    means where sizes and means go together. ``stderr`` holds the noise only, and takes ``within``
    and ``between`` at their word: where users differ more, what the clip takes is not in it.

    Examples
    --------
    >>> p = WeightedMean(epsilon=1.0, n_users=2000, low=-10.0, high=10.0, within=1.0)
    >>> p.best_cap(2000 / 2.0 ** np.arange(1, 25))  # as many users with twice the samples: half
    4.0
    """

    name: ClassVar[str] = "weighted-mean"
    paper: ClassVar[str] = "the model: Cummings et al., NeurIPS 2022; weights and clips are own"
    revision: ClassVar[int] = 3
    max_rounds: ClassVar[int] = 3
    divisor: ClassVar[str] = "weights, with noise"

    within: float
    between: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("dimension", self.dimension, MOST_COUNTS // BINS)
        check_size("within", self.within)
        check_spreads(self.between, self.within)

    @property
    def estimates(self) -> Truth:
        """The mean that users share; without noise the average of their own means."""
        return Truth.COMMON if self.guarantee.private else Truth.AVERAGE_OF_USERS

    @property
    def counted(self) -> bool:
        """Always: weights are private."""
        return True

    @property
    def sizes(self) -> SizeBins:
        """The question about sizes."""
        return SizeBins(SIZE_BINS, self.dimension)

    @property
    def size_noise(self) -> float:
        """Scale of the noise on the number of users in a bin of sizes."""
        replaced = self.adjacency == Adjacency.REPLACE_USER.value
        return (2.0 if replaced else 1.0) / (SIZE_SHARE * self.epsilon)

    @property
    def bins(self) -> MeanBins:
        """The question about medians."""
        return MeanBins(*self.edges, BINS, self.dimension)

    @cached_property
    def plan(self) -> IntervalPlan:
        """Budgets of medians and mean; from public numbers only."""
        return plan_interval(
            (1 - SIZE_SHARE) * self.epsilon,
            self.delta,
            self.n_users,
            self.dimension,
            BINS,
            Adjacency(self.adjacency),
            scale_known=True,
            discrete=self.discrete,
            counted=True,
        )

    def radius(self, most: float) -> float:
        """Radius of the clip of a user with so many samples."""
        v = float(variances(np.array([most]), self.between, self.within, most)[0])
        return min(SCALES * math.sqrt(self.dimension * v), self.half)

    def spread_and_noise(self, counts: Floats, sizes: Floats, most: float) -> float:
        """Mean squared error in a coordinate, around the common mean, at one cap."""
        v = variances(sizes, self.between, self.within, most)
        real = variances(sizes, self.between, self.within, math.inf)
        w = variances(np.array([most]), self.between, self.within, most) / v
        total = max(float(counts @ w), 1e-100)
        noise = self.radius(most) * self.plan.noise.std()
        return float(counts @ (w**2 * real) + noise**2) / total**2

    def best_cap(self, counts: Floats) -> float:
        """Choose the number of samples beyond which they count no more.

        At most what the largest bin holds that is no mere noise.
        """
        known, sizes = np.maximum(counts, 0.0), self.sizes.sizes
        seen = np.flatnonzero(known > self.size_noise * math.log(MISTAKES * SIZE_BINS))
        known[(seen[-1] if len(seen) else 0) + 1 :] = 0.0
        caps = 2.0 ** np.arange((seen[-1] if len(seen) else 0) + 2)
        return float(min(caps, key=lambda most: self.spread_and_noise(known, sizes, float(most))))

    def steps(self, server: Curator) -> Script:
        """Count sizes, find medians, release the weighted mean around them."""
        if self.n_users < self.plan.floor:
            return Estimate.refused(
                f"{self.n_users} users are too few for medians at epsilon = {self.epsilon:g}: "
                f"{math.ceil(self.plan.floor)} at least; box-mean has equal weights and no floor"
            )
        summary = yield self.sizes
        n = summary.n_users
        if not self.hidden and n < self.plan.floor:  # nothing is spent yet
            return Estimate.failed(
                f"{n} users answered; at least {math.ceil(self.plan.floor)} are needed",
                public={"n_users": float(n)},
            )
        add = server.discrete_laplace if self.discrete else server.laplace
        counts = add(
            summary.sums["counts"][0],
            l1_sensitivity=2.0 if self.adjacency == Adjacency.REPLACE_USER.value else 1.0,
            epsilon=SIZE_SHARE * self.epsilon,
            label="sizes",
        )
        summary = yield self.bins
        at = draw_medians(server, summary.sums["counts"], self.plan.median_epsilon)
        most = self.best_cap(np.asarray(counts, dtype=np.float64))
        steps = Steps(self, server, self.plan.noise, (1.0,))
        query = WeightedMeans(
            self.bins.middles[at],
            self.radius(most),
            between=float(self.between),
            within=float(self.within),
            most=most,
        )
        found = yield from steps.ask_for(query)
        if isinstance(found, Estimate):
            return found
        value, std = found
        public = steps.public | {"radius": query.radius, "samples that count, at most": most}
        value, stderr = self.settled(value, std), np.hypot(std, steps.along)
        told = few_counted(float(np.sum(counts)), self.plan.floor) + self.drowned(std)
        return Estimate.ok(value, stderr=stderr, public=public, warnings=told)

    def risk(self, seen: Seen) -> tuple[float, bool]:
        """Return that of equal weights, without noise: :meth:`error` knows the sizes."""
        return self.whole_risk(seen)

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Count users by the powers of two of their sizes, and by the bins of means, too."""
        at = np.log2(np.maximum(self._sizes(users), 1)).astype(np.int64)
        table = np.bincount(np.minimum(at, SIZE_BINS - 1), minlength=SIZE_BINS)
        placed = self.bins.place(self.own_means(users)).T
        bins = np.stack([np.bincount(at[at >= 0], minlength=BINS) for at in placed])
        return {**super().sums(users), "powers": table, "bins": bins}

    def _sizes(self, users: Users) -> Floats:
        """Count the samples of those who have a usable mean."""
        sizes = np.diff(samples_of(users, self.dimension).indptr)
        return sizes[~np.isnan(self.own_means(users)).any(axis=1)].astype(np.float64)

    def error_of(self, seen: Seen) -> ErrorBound:
        """Predict the mean squared l2 error around the average of users' means. NOT PRIVATE.

        With the sizes and means of these users, clipped around their medians.
        """
        if not self.guarantee.private:
            return super().error_of(seen)
        rng = np.random.default_rng(20)
        at, law = some_medians(seen["bins"], self.plan.median_epsilon, FOLLOWED, rng)
        centres = self.bins.middles[at]
        caps = np.resize(self._caps(seen["powers"].astype(np.float64), rng), len(law))
        least = variances(caps, self.between, self.within, math.inf)
        radii = np.array([self.radius(most) for most in caps.tolist()])

        def weighted(users: Users) -> Mapping[str, Array]:
            means, sizes = self.own_means(users), self._sizes(users)
            means = means[~np.isnan(means).any(axis=1)]
            weight, total = np.zeros(len(law)), np.zeros(centres.shape)
            for i in range(len(law)):
                w = least[i] / variances(sizes, self.between, self.within, caps[i])
                away, reach = means - centres[i], radii[i] / np.sqrt(w)
                kept = w * (reach / np.maximum(np.linalg.norm(away, axis=1), reach))
                weight[i], total[i] = w.sum(), kept @ away
            return {"weight": weight, "away": total}

        found = seen.again(weighted)
        total = np.maximum(found["weight"], 1e-300)
        mean = found["away"] / total[:, None]
        noise, middle = self.plan.noise, self.middle
        settling = Settling(noise.kind, self.dimension, self.half)
        errors = [
            settling.look_error(
                Look(centre, away, radius, noise.std() / by, least=1 / by), seen.truth, middle
            )
            for centre, away, radius, by in zip(centres, mean, radii, total, strict=True)
        ]
        expected = float(law @ errors)
        source = "weights of these users around medians by their law, and the noise of the ratio"
        return ErrorBound(SQUARED_L2, expected, False, source)

    def _caps(self, counts: Floats, rng: np.random.Generator) -> Floats:
        """Draw the caps that noisy sizes lead to: (FOLLOWED,)."""
        noise = rng.laplace(0.0, self.size_noise, (FOLLOWED, len(counts)))
        return np.array([self.best_cap(row) for row in counts + noise])

    @classmethod
    def example(cls) -> Self:
        """Build a small instance."""
        return cls(epsilon=40.0, n_users=120, low=-1.0, high=1.0, within=0.1, delta=0.0)

    @classmethod
    def example_users(cls) -> Users:
        """Make users of two to six samples around .3."""
        rng = np.random.default_rng(11)
        sizes = np.tile([2, 2, 3, 6], 30)
        indptr = np.concatenate([[0], np.cumsum(sizes)])
        values = 0.3 + 0.1 * rng.uniform(-1, 1, indptr[-1])
        return Users.from_samples(np.arange(120, dtype=np.uint64), indptr, values)
