"""What users send for a central mean: a clipped vector, or the bin that something of it lies in.

Everything is integers: sums are exact in any order, as secure noise needs them.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.records.functionals import samples_of
from clients.records.user_rows import norms, shorten, user_points
from fedhist.base.arrays import ROUNDING, Array, Bounds, Floats
from fedhist.base.checks import check_integer, check_scale
from fedhist.base.errors import WireError
from fedhist.model.query import CHUNK, MOST_KNOWN, Query, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.shards import Shard
from fedhist.users.streams import Streams

MOST_DIMENSIONS = 1 << 20
STEPS = 1 << 24
"""Whole steps per clipping radius in which users send: integers, whose sums are exact."""

COUNTED_STEPS = STEPS // 5
"""What a user's weight is worth beside its vector, where the sum of weights is private too: .2 in
whole steps. A sum of weights is worth as much rounded down, and a user moves that by no more."""


def check_centre(centre: Floats) -> None:
    """Raise ValueError unless it is a finite vector."""
    if centre.dtype != np.float64 or centre.ndim != 1 or not 1 <= len(centre) <= MOST_DIMENSIONS:
        raise ValueError(f"centre must be (d,) float64, got {centre.dtype} {centre.shape}")
    if not np.isfinite(centre).all():
        raise ValueError(f"centre must be finite, got {centre[~np.isfinite(centre)][0]}")


def means_of(users: Users, d: int) -> Floats:
    """Average each user's samples: (n, d); a row of NaN where there is nothing usable."""
    return user_points(samples_of(users, d))


class OfMeans(Query):
    """A query about users' means: predictions average samples once for all centres."""

    centre: Floats

    @property
    def d(self) -> int:
        """Dimension of the samples."""
        return len(self.centre)

    def summary_law(
        self, users: Shard, cache: dict[str, Any]
    ) -> Callable[[np.random.Generator], Summary] | None:
        """Prepare the summary, up to rounding; None where means are too many to be kept."""
        if len(users) * self.d > MOST_KNOWN:
            return None
        key = f"means of {self.cohort}"
        if key not in cache:
            chunks = (chunk for block in users.blocks() for chunk in block.blocks(CHUNK))
            cache[key] = [means_of(chunk, self.d) for chunk in chunks]
        parts = cache[key] or [means_of(users.none, self.d)]
        return lambda rng: Summary.merge(map(self.summary_of, parts))

    @abstractmethod
    def summary_of(self, means: Floats) -> Summary:
        """Fold what users of these means answer: (n, d)."""

    def lengths(self, away: Floats) -> Floats:
        """Return l2 norms of what fits in a cache: (n,); without care for the largest numbers."""
        with np.errstate(over="ignore"):
            return np.asarray(np.sqrt(np.einsum("ij,ij->i", away, away)))


@register_query
@dataclass(frozen=True)
class ClippedMeans(OfMeans):
    """Each user sends its own mean less a centre, clipped to a radius, in whole steps of it.

    Privacy
    -------
    None by itself: the server must be trusted with the sums. A step is 2^-24 of the radius and a
    number is rounded towards zero, so that no vector is longer than the radius. A user without
    samples, or with a NaN or an infinity among them, sends zeros and has weight 0.
    """

    wire_name: ClassVar[str] = "clipped-means"
    trust: ClassVar[Trust] = Trust.CENTRAL
    centre: Floats  # (d,): public, or from releases before
    radius: float  # a longer vector is shortened to it
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_centre(self.centre)
        check_scale("radius", self.radius)

    def answer(self, users: Users, rng: Streams) -> Report:
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

    def summary_of(self, means: Floats) -> Summary:
        away = means - self.centre
        size = self.lengths(away)
        usable = np.isfinite(size)
        away[~usable] = 0.0
        away *= (STEPS / np.where(usable, np.maximum(size, self.radius), 1.0))[:, None]
        points = np.trunc(away, out=away).sum(axis=0).astype(np.int64)
        sums = {"points": points, "weight": np.array([STEPS * np.count_nonzero(usable)])}
        return Summary(len(means), {name: sums[name] for name in self.bounds(0)})

    def fold(self, report: Report) -> Summary:
        sums = {k: v.sum(axis=0, dtype=np.int64) for k, v in report.arrays.items()}
        return Summary(report.n_users, {k: np.atleast_1d(v) for k, v in sums.items()})

    def check(self, report: Report) -> None:
        if report.arrays.keys() != {"points", "weight"} or report.ragged:
            names = [*report.arrays, *report.ragged]
            raise WireError(f"'points' and 'weight' are expected, got {names}")
        points, weight = report.arrays["points"], report.arrays["weight"]
        Bounds((report.n_users, self.d), "i", -STEPS, STEPS).check("points", points)
        Bounds((report.n_users,), "i", 0, STEPS).check("weight", weight)
        if not np.isin(weight, (0, STEPS)).all():
            raise WireError(f"a weight is 0 or {STEPS}, got {weight.max()}")
        size = norms(points.astype(np.float64))
        if (size > weight * ROUNDING).any():
            raise WireError(f"a vector has norm {size.max():g}, more than its weight")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        most = n_users * STEPS
        return {
            "points": Bounds((self.d,), "i", -most, most),
            "weight": Bounds((1,), "i", 0, most),
        }

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        most = summary.n_users * STEPS
        if "weight" in summary.sums:
            most = int(summary.sums["weight"][0])
        norm = float(norms(summary.sums["points"].astype(np.float64)[None])[0])
        if norm > most * ROUNDING:
            raise WireError(f"the sum has norm {norm:g}, more than weights of {most} in all")


@register_query
@dataclass(frozen=True)
class SummedMeans(ClippedMeans):
    """The same without the weights: one sum, which nodes can add noise to.

    For where the number of users is public and all weigh the same.

    Privacy
    -------
    None by itself. A vector has l2 norm 2^24 at most and l1 norm sqrt(d) times that, up to a
    relative 1e-9; numbers are rounded towards zero. A user's vector may become any other: twice as
    much under replacement.
    """

    wire_name: ClassVar[str] = "summed-means"

    def integer_sensitivity(self, norm: int, adjacency: Adjacency) -> float:
        """Return that of vectors in a ball, in steps."""
        return STEPS * ball_sensitivities(self.d, adjacency)[norm - 1]

    def answer(self, users: Users, rng: Streams) -> Report:
        return Report(users.ids, {"points": super().answer(users, rng).arrays["points"]})

    def check(self, report: Report) -> None:
        points = only_array(report, "points")
        weight = np.full(report.n_users, STEPS, dtype=np.int32)
        super().check(Report(report.ids, {"points": points, "weight": weight}))

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        return {"points": super().bounds(n_users)["points"]}


# -- bins


@register_query
@dataclass(frozen=True)
class MeanBins(OfMeans):
    """Each user says in which bin its own mean lies, or its distance from a centre; users count.

    Bin j of K holds what is within the radius widest 2^(-(K - 1 - j) / 2) and not within a smaller
    one; the last one also what is beyond all. In one dimension bins may be ``signed``: K equal ones
    of [centre - widest, centre + widest]; what lies outside counts in the bin at that end.

    Privacy
    -------
    None by itself. A user without a usable mean is in no bin.
    """

    wire_name: ClassVar[str] = "mean-bins"
    trust: ClassVar[Trust] = Trust.CENTRAL
    centre: Floats
    widest: float
    n_bins: int  # K
    signed: bool = False
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_centre(self.centre)
        check_scale("widest", self.widest, 2.0**360)
        check_integer("n_bins", self.n_bins, 1 << 12)
        if self.signed and len(self.centre) > 1:
            raise ValueError(f"means have no sign in {len(self.centre)} dimensions")

    @property
    def ends(self) -> Floats:
        """Upper ends of the bins: (K,) float64."""
        j = np.arange(1, self.n_bins + 1)
        if self.signed:
            return np.asarray(self.centre + self.widest * (2 * j / self.n_bins - 1))
        return np.asarray(self.widest * 2.0 ** ((j - self.n_bins) / 2))

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the bin, -1 of a record that cannot be used; uses no randomness."""
        means = means_of(users, self.d)
        if self.signed:
            size = means[:, 0]
        else:
            with np.errstate(over="ignore", invalid="ignore"):  # who overflows is private
                size = norms(means - self.centre)
        return Report(users.ids, {"bins": self._bins(size)})

    def _bins(self, size: Floats) -> NDArray[np.int32]:
        at = np.minimum(np.searchsorted(self.ends, size), self.n_bins - 1)
        return np.where(np.isnan(size), -1, at).astype(np.int32)

    def summary_of(self, means: Floats) -> Summary:
        size = means[:, 0] if self.signed else self.lengths(means - self.centre)
        return self._count(self._bins(size))

    def fold(self, report: Report) -> Summary:
        return self._count(report.arrays["bins"])

    def _count(self, bins: Array) -> Summary:
        counts = np.bincount(bins[bins >= 0], minlength=self.n_bins).astype(np.int64)
        return Summary(len(bins), {"counts": counts})

    def check(self, report: Report) -> None:
        bins = only_array(report, "bins")
        Bounds((report.n_users,), "i", -1, self.n_bins - 1).check("bins", bins)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        return {"counts": Bounds((self.n_bins,), "i", 0, n_users)}

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        counted = int(summary.sums["counts"].sum())
        if counted > summary.n_users:
            raise WireError(f"{counted} users are in bins, of {summary.n_users}")


def ball_sensitivities(
    dimension: int, adjacency: Adjacency, *, counted: bool = False
) -> tuple[float, float]:
    """How far one user moves a sum of vectors of the unit ball: in l1, and in l2.

    A vector has l2 norm 1 and l1 norm sqrt(d) at most. An emptied, added or removed user changes
    the sum by one, a replaced one by two. ``counted``: with .2 times the number of vectors beside
    it, under add-remove.
    """
    l1, l2 = math.sqrt(dimension), 1.0
    if counted:
        worth = COUNTED_STEPS / STEPS
        l1, l2 = l1 + worth, math.hypot(l2, worth)
    times = 2.0 if adjacency is Adjacency.REPLACE_USER else 1.0
    return times * l1 * ROUNDING, times * l2 * ROUNDING
