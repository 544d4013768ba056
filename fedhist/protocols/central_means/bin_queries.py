"""In which bin something of a user's mean lies: its coordinates, its distance, its size."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from clients.records.functionals import samples_of
from fedhist.base.arrays import Bounds, Floats, Integers
from fedhist.base.checks import check_integer, check_range
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Trust
from fedhist.protocols.central_means.queries import MOST_DIMENSIONS, check_centre, means_of
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import Streams
from server.central_means.radius import RadiusChoice

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

MOST_BINS, MOST_COUNTS = 1 << 12, 1 << 24


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
    def middles(self) -> Floats:
        """What each bin stands for: (K,) float64."""
        return self.low + (self.high - self.low) * (np.arange(self.n_bins) + 0.5) / self.n_bins

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


def ask_radius(
    server: Curator, centre: Floats, choice: RadiusChoice
) -> Generator[Query, Summary, float]:
    """Ask how far users are from a centre, and release a radius."""
    summary = yield AwayBins(centre, choice.radii)
    return float(choice.radii[choice.draw(server, summary.sums["counts"][0])])


def distances(away: Floats) -> Floats:
    """Return l2 norms of rows of any finite size: (n,); NaN of NaN."""
    away = np.abs(away)
    largest = np.maximum(away.max(axis=1, initial=0.0), 1e-300)
    return np.asarray(largest * np.sqrt(np.square(away / largest[:, None]).sum(axis=1)))


@register_query
@dataclass(frozen=True)
class SizeBins(_Bins):
    """Each user says how many samples it has, in powers of two.

    Parameters
    ----------
    n_bins : int
        K: bin j holds 2^j to 2^(j + 1) - 1 samples, the last one also more.
    d : int
        Dimension of the samples.
    cohort : Cohort, optional

    Privacy
    -------
    None by itself. A user without a usable mean is in no bin.
    """

    wire_name: ClassVar[str] = "size-bins"
    n_bins: int
    d: int = 1
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_integer("n_bins", self.n_bins, 64, least=2)
        check_integer("d", self.d, MOST_DIMENSIONS)

    @property
    def shape(self) -> tuple[int, int]:
        """One number."""
        return 1, self.n_bins

    @property
    def sizes(self) -> Floats:
        """What each bin stands for: (K,) float64."""
        return np.asarray(np.sqrt(2.0) * 2.0 ** np.arange(self.n_bins)) - 0.4

    def bins(self, users: Users) -> Integers:
        """Place the numbers of samples."""
        samples = samples_of(users, self.d)
        size = np.maximum(np.diff(samples.indptr), 1)
        at = np.minimum(np.frexp(size.astype(np.float64))[1] - 1, self.n_bins - 1)
        usable = np.isfinite(means_of(users, self.d)).all(axis=1)
        return np.where(usable, at, -1).astype(np.int64)[:, None]
