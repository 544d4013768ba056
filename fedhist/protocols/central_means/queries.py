"""What users send for a central mean: a clipped vector, or the bin that something of it lies in.

Everything is integers: sums are exact in any order, as secure noise needs them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.records.functionals import samples_of
from clients.records.user_rows import shorten, user_points
from fedhist.base.arrays import Bounds, Floats, Integers
from fedhist.base.checks import check_integer, check_range, check_scale
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import Streams
from server.central_means.localizing import MOST_COUNTS
from server.central_means.noise import ROUNDING, STEPS, ball_sensitivities

MOST_DIMENSIONS = 1 << 20
MOST_BINS = 1 << 12


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

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send vector and weight; uses no randomness."""
        with np.errstate(over="ignore"):  # who overflows is private
            away = means_of(users, self.d) - self.centre
        usable = np.isfinite(away).all(axis=1)
        away[~usable] = 0.0
        largest = np.maximum(np.abs(away).max(axis=1, keepdims=True), 1e-300)
        with np.errstate(over="ignore"):
            times = np.minimum(largest / self.radius, 1e100)
        scaled = shorten(away / largest * times, 1.0)
        arrays = {
            "points": np.trunc(scaled * STEPS).astype(np.int32),
            "weight": np.where(usable, STEPS, 0).astype(np.int32),
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
        if norm > weight * ROUNDING:
            raise WireError(f"the sum has norm {norm:g}, more than weights of {weight} in all")


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


# -- bins


class _Bins(Query):
    """Each user says in which bin each of some numbers lies; the server counts users in bins."""

    trust: ClassVar[Trust] = Trust.CENTRAL

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """How many numbers a user has, and how many bins there are."""

    @abstractmethod
    def bins(self, users: Users) -> Integers:
        """Bin of every number: (n, numbers) int64; -1 of a record that cannot be used."""

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the bins; uses no randomness."""
        return Report(users.ids, {"bins": self.bins(users).astype(np.int32)})

    def fold(self, report: Report) -> Summary:
        """Count the users in every bin: (numbers, K) int64."""
        numbers, K = self.shape
        bins = report.arrays["bins"].astype(np.int64)
        counts = np.bincount((bins + np.arange(numbers) * K)[bins >= 0], minlength=numbers * K)
        return Summary(report.n_users, {"counts": counts.reshape(numbers, K).astype(np.int64)})

    def check(self, report: Report) -> None:
        """Raise WireError unless every number has a bin, or the record none."""
        rows = only_array(report, "bins")
        numbers, K = self.shape
        Bounds((report.n_users, numbers), "i", -1, K - 1).check("bins", rows)
        if ((rows < 0).any(axis=1) != (rows < 0).all(axis=1)).any():
            raise WireError("a record has a bin for each number, or none at all")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """At most everybody in a bin."""
        return {"counts": Bounds(self.shape, "i", 0, n_users)}

    def check_summary(self, summary: Summary) -> None:
        """See that every number counts the same users, at most all."""
        super().check_summary(summary)
        seen = summary.sums["counts"].sum(axis=1)
        if (seen != seen[0]).any() or seen[0] > summary.n_users:
            raise WireError(f"{seen.max()} users are in bins, of {summary.n_users}")


@register_query
@dataclass(frozen=True)
class MeanBins(_Bins):
    """Each user says in which bin of a public range every coordinate of its own mean lies.

    Parameters
    ----------
    low, high : float
        What lies outside counts in the bin at that end.
    n_bins : int
        K, of equal width.
    d : int
        Dimension of the samples.
    cohort : Cohort, optional

    Privacy
    -------
    None by itself. A user without a usable mean is in no bin.
    """

    wire_name: ClassVar[str] = "mean-bins"
    low: float
    high: float
    n_bins: int
    d: int = 1
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_range(self.low, self.high)
        check_integer("n_bins", self.n_bins, MOST_BINS, least=2)
        check_integer("d", self.d, MOST_DIMENSIONS)
        if self.d * self.n_bins > MOST_COUNTS:
            raise ValueError(f"d times n_bins must be at most 2^24, got {self.d * self.n_bins}")

    @property
    def shape(self) -> tuple[int, int]:
        """A number for each coordinate."""
        return self.d, self.n_bins

    @property
    def width(self) -> float:
        """Width of a bin."""
        return (self.high - self.low) / self.n_bins

    @property
    def middles(self) -> Floats:
        """What each bin stands for: (K,) float64."""
        return np.asarray(self.low + self.width * (np.arange(self.n_bins) + 0.5))

    def bins(self, users: Users) -> Integers:
        """Place the means."""
        return self.place(means_of(users, self.d))

    def place(self, means: Floats) -> Integers:
        """Find the bins of means: (n, d) in and out; -1 for NaN."""
        means = np.clip(means, self.low, self.high)
        at = np.floor((means - self.low) / (self.high - self.low) * self.n_bins)
        at = np.where(np.isnan(at), -1.0, np.clip(at, 0.0, self.n_bins - 1.0))
        return at.astype(np.int64)


@register_query
@dataclass(frozen=True)
class AwayBins(_Bins):
    """Each user says between which of some radii around a centre its own mean lies.

    Parameters
    ----------
    centre : (d,) float64
        From releases before.
    radii : (K,) float64
        Increasing. Bin j holds what is within radius j and not within a smaller one; the last one
        also what is beyond all.
    cohort : Cohort, optional

    Privacy
    -------
    None by itself. A user without a usable mean is in no bin.
    """

    wire_name: ClassVar[str] = "away-bins"
    centre: Floats
    radii: Floats
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_centre(self.centre)
        r = self.radii
        if r.dtype != np.float64 or r.ndim != 1 or not 1 <= len(r) <= MOST_BINS:
            raise ValueError(f"radii must be (K,) float64, at most {MOST_BINS}, got {r.shape}")
        if not (np.isfinite(r).all() and r[0] > 0 and (np.diff(r) > 0).all()):
            raise ValueError(f"radii must be positive and increasing, got {r}")

    @property
    def shape(self) -> tuple[int, int]:
        """One distance."""
        return 1, len(self.radii)

    def bins(self, users: Users) -> Integers:
        """Place the distance."""
        with np.errstate(over="ignore", invalid="ignore"):  # who overflows is private
            away = distances(means_of(users, len(self.centre)) - self.centre)[:, None]
        at = np.minimum(np.searchsorted(self.radii, away), len(self.radii) - 1)
        return np.where(np.isnan(away), -1, at).astype(np.int64)


def distances(away: Floats) -> Floats:
    """Return l2 norms of rows of any finite size: (n,); NaN of NaN."""
    away = np.abs(away)
    largest = np.maximum(away.max(axis=1, initial=0.0), 1e-300)
    return np.asarray(largest * np.sqrt(np.square(away / largest[:, None]).sum(axis=1)))
