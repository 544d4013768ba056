"""What users send for a central mean: their clipped vector, and what it weighs.

Everything is integers: sums are exact in any order, as secure noise needs them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.records.functionals import samples_of
from clients.records.user_rows import shorten, user_points
from fedhist.base.arrays import Bounds, Floats, Integers
from fedhist.base.checks import check_scale
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import Streams
from server.central_means.noise import ROUNDING, STEPS, ball_sensitivities

MOST_DIMENSIONS = 1 << 20
MOST_SAMPLES = 1 << 53


def check_centre(centre: Floats) -> None:
    """Raise ValueError unless it is a finite vector."""
    if centre.dtype != np.float64 or centre.ndim != 1 or not 1 <= len(centre) <= MOST_DIMENSIONS:
        raise ValueError(f"centre must be (d,) float64, got {centre.dtype} {centre.shape}")
    if not np.isfinite(centre).all():
        raise ValueError(f"centre must be finite, got {centre[~np.isfinite(centre)][0]}")


def means_of(users: Users, d: int) -> Floats:
    """Average each user's samples: (n, d); a row of NaN where there is nothing usable."""
    return user_points(samples_of(users, d))


@register_query
@dataclass(frozen=True)
class ClippedMeans(Query):
    """Each user sends its own mean less a centre, clipped to a radius, in whole steps of it.

    Parameters
    ----------
    centre : (d,) float64
        Public, or from releases before.
    radius : float
        A longer vector is shortened to it.
    cohort : Cohort, optional

    Privacy
    -------
    None by itself: the server must be trusted with the sums. A step is 2^-24 of the radius and a
    number is rounded towards zero, so that no vector is longer than the radius. A user without
    samples, or with a NaN or an infinity among them, sends zeros and has weight 0.
    """

    wire_name: ClassVar[str] = "clipped-means"
    trust: ClassVar[Trust] = Trust.CENTRAL
    centre: Floats
    radius: float
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_centre(self.centre)
        check_scale("radius", self.radius)

    @property
    def d(self) -> int:
        """Dimension of the samples."""
        return len(self.centre)

    def weights(self, users: Users) -> Floats:
        """Weigh the users, in [0, 1]: all alike."""
        return np.ones(len(users))

    def radii(self, users: Users) -> Floats:
        """Radius of every user's clip, as a share of the one that steps are counted in."""
        return np.ones(len(users))

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send vector and weight; uses no randomness."""
        with np.errstate(over="ignore"):  # who overflows is private
            away = means_of(users, self.d) - self.centre
        usable = np.isfinite(away).all(axis=1)
        away[~usable] = 0.0
        radii = self.radius * self.radii(users)[:, None]
        largest = np.maximum(np.abs(away).max(axis=1, keepdims=True), 1e-300)
        with np.errstate(over="ignore"):
            times = np.minimum(largest / radii, 1e100)
        scaled = shorten(away / largest * times, 1.0)
        weight = np.where(usable, self.weights(users), 0.0)
        scaled *= (weight * self.radii(users))[:, None]
        arrays = {
            "points": np.trunc(scaled * STEPS).astype(np.int32),
            "weight": np.trunc(weight * STEPS).astype(np.int32),
        }
        return Report(users.ids, arrays)

    def fold(self, report: Report) -> Summary:
        """Add up vectors and weights."""
        sums = {k: v.sum(axis=0, dtype=np.int64) for k, v in report.arrays.items()}
        return Summary(report.n_users, {k: np.atleast_1d(v) for k, v in sums.items()})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row is a clipped vector, or null."""
        if report.arrays.keys() != {"points", "weight"} or report.ragged:
            found = [*report.arrays, *report.ragged]
            raise WireError(f"'points' and 'weight' are expected, got {found}")
        points, weight = report.arrays["points"], report.arrays["weight"]
        Bounds((report.n_users, self.d), "i", -STEPS, STEPS).check("points", points)
        Bounds((report.n_users,), "i", 0, STEPS).check("weight", weight)
        self.check_norms(points, weight)

    def check_norms(self, points: Integers, weight: Integers) -> None:
        """Raise WireError if a vector is too long for a user's weight."""
        if not np.isin(weight, (0, STEPS)).all():
            raise WireError(f"a weight is 0 or {STEPS}, got {weight.max()}")
        size = np.sqrt(np.square(points.astype(np.float64)).sum(axis=1))
        if (size > weight * ROUNDING).any():
            raise WireError(f"a vector has norm {size.max():g}, more than its weight")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Bound every coordinate by everybody's radius."""
        most = n_users * STEPS
        return {
            "points": Bounds((self.d,), "i", -most, most),
            "weight": Bounds((1,), "i", 0, most),
        }

    def check_summary(self, summary: Summary) -> None:
        """See that the sum is no longer than all vectors together."""
        super().check_summary(summary)
        points, weight = summary.sums["points"].astype(np.float64), int(summary.sums["weight"][0])
        norm = math.sqrt(np.square(points).sum())
        if norm > self.longest(weight, summary.n_users) * ROUNDING:
            raise WireError(f"the sum has norm {norm:g}, more than weights of {weight} in all")

    def longest(self, weight: int, n_users: int) -> float:
        """Longest sum of vectors with weights of so much in all, in steps."""
        return float(weight)


@register_query
@dataclass(frozen=True)
class SummedMeans(ClippedMeans):
    """The same without the weights: one sum, which nodes can add noise to.

    For where the number of users is public and all weigh the same.

    Privacy
    -------
    None by itself. A vector has l2 norm 2^24 at most and l1 norm sqrt(d) times that, up to
    :data:`~server.central_means.noise.ROUNDING`; numbers are rounded towards zero. A user's vector
    may become any other: twice as much under replacement.
    """

    wire_name: ClassVar[str] = "summed-means"

    def integer_sensitivity(self, norm: int, adjacency: Adjacency) -> float:
        """Return that of vectors in a ball, in steps."""
        return STEPS * ball_sensitivities(self.d, adjacency)[norm - 1]

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the vector; uses no randomness."""
        return Report(users.ids, {"points": super().answer(users, rng).arrays["points"]})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row is a clipped vector."""
        points = only_array(report, "points")
        weight = np.full(report.n_users, STEPS, dtype=np.int32)
        super().check(Report(report.ids, {"points": points, "weight": weight}))

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Bound every coordinate by everybody's radius."""
        return {"points": super().bounds(n_users)["points"]}

    def check_summary(self, summary: Summary) -> None:
        """See that the sum is no longer than all vectors together."""
        Query.check_summary(self, summary)
        norm = math.sqrt(np.square(summary.sums["points"].astype(np.float64)).sum())
        if norm > summary.n_users * STEPS * ROUNDING:
            raise WireError(
                f"the sum has norm {norm:g}, more than {summary.n_users} users' vectors"
            )


@register_query
@dataclass(frozen=True)
class WeightedMeans(ClippedMeans):
    """Each user sends its own mean, clipped and weighted by what its number of samples is worth.

    Parameters
    ----------
    centre : (d,) float64
    radius : float
        T of a user with ``most`` samples or more.
    between, within : float
        Standard deviation of users' true means, and of one sample around its user's.
    most : float
        Samples beyond so many count no more.
    cohort : Cohort, optional

    Privacy
    -------
    None by itself. With v = between^2 + within^2 / min(m, most) a user of m samples has the weight
    v(most) / v and is clipped to radius sqrt(v / v(most)): weight times vector is at most the
    radius, and the weight at most 1.
    """

    wire_name: ClassVar[str] = "weighted-means"
    between: float = 0.0
    within: float = 1.0
    most: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_spreads(self.between, self.within)
        if not 1 <= self.most <= MOST_SAMPLES:
            raise ValueError(f"most must lie in [1, 2^53], got {self.most}")

    def variance(self, sizes: Floats) -> Floats:
        """Variance of the means of users with so many samples, in each coordinate."""
        return variances(sizes, self.between, self.within, self.most)

    def _shares(self, users: Users) -> Floats:
        sizes = np.maximum(np.diff(samples_of(users, self.d).indptr), 1).astype(np.float64)
        return self.variance(np.array([self.most])) / self.variance(sizes)

    def weights(self, users: Users) -> Floats:
        """Weigh the users by the inverse of their variance: in (0, 1]."""
        return self._shares(users)

    def radii(self, users: Users) -> Floats:
        """Clip at as many standard deviations."""
        return np.asarray(1 / np.sqrt(self._shares(users)))

    def check_norms(self, points: Integers, weight: Integers) -> None:
        """Raise WireError if a vector is longer than the root of a user's weight."""
        size = np.sqrt(np.square(points.astype(np.float64)).sum(axis=1))
        most = np.minimum(weight + 1.0, STEPS)  # a weight was rounded down
        if (size > np.sqrt(most * STEPS) * ROUNDING).any():
            raise WireError(f"a vector has norm {size.max():g}, more than its weight allows")

    def longest(self, weight: int, n_users: int) -> float:
        """At most the root of n times the weights, by Cauchy and Schwarz."""
        return math.sqrt((float(weight) + n_users) * STEPS * n_users)


def variances(sizes: Floats, between: float, within: float, most: float) -> Floats:
    """Return between^2 + within^2 / min(m, most) for every number of samples m."""
    return np.asarray(between**2 + within**2 / np.minimum(sizes, most))


def check_spreads(between: float, within: float) -> None:
    """Raise ValueError unless both are standard deviations, the second one positive."""
    if between != 0:
        check_scale("between", between)
    check_scale("within", within)
