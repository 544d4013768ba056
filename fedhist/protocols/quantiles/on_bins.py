"""Users' records on public bins: all samples alike, their mean, or one sample drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from clients.randomizers.scalars import bin_indices
from clients.records.draws import one_value
from clients.records.functionals import samples_of
from clients.records.user_rows import coordinate_points
from fedhist.base.arrays import Floats, Integers, Words
from fedhist.base.checks import check_choice, check_integer, check_range
from fedhist.model.query import Query
from fedhist.users.batch import Users

MOST_BINS = 1 << 11
Of = Literal["samples", "user-means"]
OF = get_args(Of)


@dataclass(frozen=True)
class OnBins(Query):
    """A query about where users' numbers lie among public bins.

    Parameters
    ----------
    low, high : float
        Public range; what lies outside counts in the bin at that end.
    n_bins : int
        K, of equal width.
    of : {"samples", "user-means"}
        A user's record: all its samples alike, or their mean alone.
    """

    low: float
    high: float
    n_bins: int
    of: str

    def __post_init__(self) -> None:
        check_range(self.low, self.high)
        check_integer("n_bins", self.n_bins, MOST_BINS, least=2)
        check_choice("of", self.of, OF)

    @property
    def midpoints(self) -> Floats:
        """What each bin stands for: (K,) float64."""
        at = (np.arange(self.n_bins) + 0.5) / self.n_bins
        return np.asarray(self.low * (1 - at) + self.high * at)

    def points(self, users: Users) -> tuple[Integers, Floats]:
        """List the numbers that count, and the row of the user who holds each."""
        samples, who = samples_of(users, 1), np.arange(len(users))
        x, owner = samples.values[:, 0], np.repeat(who, np.diff(samples.indptr))
        if self.of == "user-means":
            x, owner = coordinate_points(samples, self.low, self.high)[:, 0], who
        spoilt = np.bincount(owner[np.isnan(x)], minlength=len(users)) > 0
        usable = ~spoilt[owner]
        return owner[usable], x[usable]

    def one_bin(self, users: Users, words: Words) -> Integers:
        """Find the bin of one number of each user: (n,) int64, -1 for an unusable record.

        Its mean's, or that of one sample, drawn uniformly from its own by the words (n,) uint64.
        """
        samples = samples_of(users, 1)
        if self.of == "user-means":
            x = coordinate_points(samples, self.low, self.high)[:, 0]
        else:
            x = one_value(users, words)
        return bin_indices(x, self.low, self.high, self.n_bins)
