"""The two queries of localize-then-refine: votes for bins, and reports of a clipped mean.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 3.1, eq. (26), (27), (30), Lemma 16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.randomizers import bin_indices, neighbours, randomize, unary_votes, user_means
from fedhist.bits import count_bits, n_words, tail_is_clear
from fedhist.channels import CHANNELS, ScalarChannel, UnaryChannel, scalar_channel
from fedhist.cohort import Cohort
from fedhist.errors import PopulationError, WireError
from fedhist.privacy import Release, Trust, check_budget, pure
from fedhist.query import Array, Bounds, Query, Report, Summary
from fedhist.registry import register_query
from fedhist.streams import Streams
from fedhist.users import Samples, Users
from server.localize import MAX_BINS


@register_query
@dataclass(frozen=True)
class BinVotes(Query):
    """Each user votes for the bin of its sample mean, by unary randomized response.

    Parameters
    ----------
    low, high : float
        Range of the samples; each is clipped to it before averaging.
    n_bins : int
        Bins of equal width on [low, high]; one bit each.
    epsilon : float
    cohort : Cohort, optional
    neighbours : bool
        Vote for the bin and the bins beside it, as the paper does [1, eq. (26)].
    max_items : int
        Use only a user's first so many samples; 0 for all.

    Privacy
    -------
    epsilon-LDP for a user's whole record: at most one bit is set, or three with neighbours, and
    no bit for a user without usable samples [1, Lemma 16].
    """

    wire_name: ClassVar[str] = "bin-votes"
    trust: ClassVar[Trust] = Trust.LOCAL
    low: float
    high: float
    n_bins: int
    epsilon: float
    cohort: Cohort | None = None
    neighbours: bool = False
    max_items: int = 0

    def __post_init__(self) -> None:
        check_range(self.low, self.high)
        _check_items(self.max_items)
        check_budget(self.epsilon)
        if not 1 <= self.n_bins <= MAX_BINS:
            raise ValueError(f"n_bins must lie in [1, {MAX_BINS}], got {self.n_bins}")

    @property
    def channel(self) -> UnaryChannel:
        """What happens to a vote."""
        return UnaryChannel(self.epsilon, ones=3 if self.neighbours else 1)

    @property
    def release(self) -> Release:
        """What a vote costs its user."""
        return pure(self.epsilon)

    @property
    def exact(self) -> bool:
        """Votes are bits, flipped against an integer threshold."""
        return True

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        """Vote."""
        means = user_means(one_dimension(users), self.low, self.high, self.max_items)
        bins = bin_indices(means, self.low, self.high, self.n_bins)
        wanted = neighbours(bins, self.n_bins) if self.neighbours else bins
        return Report(users.ids, {"votes": unary_votes(wanted, self.n_bins, self.channel, rng)})

    # -- server half

    def fold(self, report: Report) -> Summary:
        """Count the votes of each bin."""
        return Summary(report.n_users, {"votes": count_bits(report.arrays["votes"], self.n_bins)})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row is a packed vector of n_bins bits."""
        votes = _only_array(report, "votes")
        Bounds((report.n_users, n_words(self.n_bins)), "u").check("votes", votes)
        if votes.dtype != np.uint64:
            raise WireError(f"'votes' has dtype {votes.dtype}, expected uint64")
        if not tail_is_clear(votes, self.n_bins):
            raise WireError(f"'votes' has bits set from {self.n_bins} on")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Between no vote and everybody's for each bin."""
        return {"votes": Bounds((self.n_bins,), "i", 0, n_users)}

    def frequencies(self, summary: Summary) -> NDArray[np.float64]:
        """Return the unbiased share of the voters in each bin, (n_bins,)."""
        return self.channel.debias(summary.sums["votes"], summary.n_users)


@register_query
@dataclass(frozen=True)
class ClippedMean(Query):
    """Each user reports its sample mean, clipped to a short interval, through a scalar channel.

    Parameters
    ----------
    centre, half_width : float
        The interval.
    low, high : float
        Range of the samples; each is clipped to it before averaging.
    epsilon : float
    kind : {"laplace", "onebit", "piecewise"}
    cohort : Cohort, optional
    max_items : int
        Use only a user's first so many samples; 0 for all.

    Privacy
    -------
    epsilon-LDP for a user's whole record: the clipped mean lies in an interval of width exactly
    2 half_width, whatever the record; the midpoint stands for a record without usable samples.
    """

    wire_name: ClassVar[str] = "clipped-mean"
    trust: ClassVar[Trust] = Trust.LOCAL
    centre: float
    half_width: float
    low: float
    high: float
    epsilon: float
    kind: str
    cohort: Cohort | None = None
    max_items: int = 0

    def __post_init__(self) -> None:
        check_range(self.low, self.high)
        _check_items(self.max_items)
        check_budget(self.epsilon)
        if self.kind not in CHANNELS:
            raise ValueError(f"kind must be one of {', '.join(CHANNELS)}, got {self.kind!r}")
        if not math.isfinite(self.centre):
            raise ValueError(f"centre must be finite, got {self.centre}")
        if not 0 < self.half_width < math.inf:
            raise ValueError(f"half_width must be positive and finite, got {self.half_width}")

    @property
    def channel(self) -> ScalarChannel:
        """What happens to a clipped mean."""
        return scalar_channel(self.kind, self.epsilon)

    @property
    def release(self) -> Release:
        """What a report costs its user."""
        return pure(self.epsilon)

    @property
    def exact(self) -> bool:
        """Only one-bit reports are free of floating-point noise."""
        return self.kind == "onebit"

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        """Report the position of the sample mean in the interval, in [-1, 1] before noise."""
        means = user_means(one_dimension(users), self.low, self.high, self.max_items)
        u = (means - self.centre) / self.half_width
        return Report(users.ids, {"reports": randomize(u, self.channel, rng)})

    # -- server half

    def fold(self, report: Report) -> Summary:
        """Add up the reports: integers for one-bit reports."""
        reports = report.arrays["reports"]
        dtype = np.int64 if self.kind == "onebit" else np.float64
        return Summary(report.n_users, {"reports": reports.sum(axis=0, keepdims=True, dtype=dtype)})

    def check(self, report: Report) -> None:
        """Raise WireError unless every report is one that the channel can produce."""
        reports = _only_array(report, "reports")
        bound = self.channel.bound
        if self.kind == "onebit":
            Bounds((report.n_users,), "i", -1, 1).check("reports", reports)
            if reports.dtype != np.int8 or not reports.all():
                raise WireError("'reports' must be -1 or 1, of dtype int8")
        else:
            Bounds((report.n_users,), "f", -bound, bound).check("reports", reports)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """As far from zero as n_users reports can be."""
        one_bit = self.kind == "onebit"
        most = n_users if one_bit else n_users * self.channel.bound * (1 + 1e-9) if n_users else 0.0
        return {"reports": Bounds((1,), "i" if one_bit else "f", -most, most)}

    def estimate(self, summary: Summary, clip: bool = True) -> float:
        """Average the debiased reports, in the units of the samples.

        Parameters
        ----------
        summary : Summary
        clip : bool
            Whether to clip the average to the interval, where the clipped means lie.
        """
        u = float(summary.sums["reports"][0]) / summary.n_users / self.channel.gain
        return self.centre + self.half_width * (min(1.0, max(-1.0, u)) if clip else u)


def one_dimension(users: Users) -> Samples:
    """Return the users' samples; PopulationError unless they have one coordinate."""
    samples = users.reals
    if samples.values.shape[1] != 1:
        raise PopulationError(f"this needs samples of one dimension, got {samples.values.shape[1]}")
    return samples


def _only_array(report: Report, name: str) -> Array:
    if report.arrays.keys() != {name} or report.ragged:
        raise WireError(f"a report of {name!r} is expected, got {sorted(report.arrays)}")
    return report.arrays[name]


def check_range(low: float, high: float) -> None:
    """Raise ValueError unless [low, high] is a finite interval."""
    if not (low < high and math.isfinite(low) and math.isfinite(high - low)):
        raise ValueError(f"need finite low < high, got [{low}, {high}]")


def _check_items(max_items: int) -> None:
    if max_items < 0:
        raise ValueError(f"max_items must not be negative, got {max_items}")
