"""What users are asked about a density on [0, 1]: the bin of one sample, or means of waves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.frequency_oracles.oracle_votes import OracleVotes
from clients.records.draws import one_value
from clients.records.functionals import samples_of
from clients.records.user_rows import wave_means
from fedhist.base.arrays import Bounds, Floats, Integers, Words
from fedhist.base.checks import check_integer
from fedhist.base.errors import WireError
from fedhist.channels.oracles import OracleChannel, oracle_channel
from fedhist.model.query import CHUNK, Query, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.streams import Streams

MEAN_STEPS = 1 << 24
"""Grid steps per unit in which means are sent: integers, whose sums are exact in any order."""

MOST_FREQUENCIES = 1 << 12
"""A batch of rows then stays below 2^27 bytes."""


@register_query
@dataclass(frozen=True)
class BinReports(OracleVotes):
    """Each user says in which of B equal bins of [0, 1] one of its samples lies.

    Privacy
    -------
    epsilon-LDP for a user's whole record: the report is one symbol's through the frequency oracle
    of least variance, exact as drawn. A user without samples, or with a NaN among them, has a
    symbol of its own.
    """

    wire_name: ClassVar[str] = "bin-reports"
    sent: ClassVar[str] = "bin"
    n_bins: int  # B
    epsilon: float
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        _ = self.channel

    @property
    def channel(self) -> OracleChannel:
        """What happens to a bin."""
        return oracle_channel("auto", float(self.epsilon), self.n_bins)

    # -- client half

    def symbols(self, users: Users, rng: Streams) -> Integers:
        return self._bins(users, rng.substream("sample").words(1)[:, 0])

    def true_symbols(self, users: Users, rng: np.random.Generator) -> Integers:
        bins = [
            self._bins(chunk, rng.integers(1 << 64, size=len(chunk), dtype=np.uint64))
            for chunk in users.blocks(CHUNK)
        ]
        return np.concatenate([np.zeros(0, np.int64), *bins])

    def _bins(self, users: Users, words: Words) -> Integers:
        """Bin of one sample of each user, (n,) int64; -1 for an unusable record."""
        samples_of(users, 1)  # of one dimension
        x = one_value(users, words)
        bins = np.clip(np.where(np.isnan(x), 0.0, x), 0.0, 1.0) * self.n_bins
        held = np.minimum(bins.astype(np.int64), self.n_bins - 1)
        return np.where(np.isnan(x), -1, held)

    # -- server half

    def masses(self, summary: Summary) -> Floats:
        """Return unbiased shares of the users in the bins: (B,) float64."""
        return self.channel.debias(summary.sums["bin"], summary.n_users)[:-1]


# -- a trusted server ----------------------------------------------------------------------------


@register_query
@dataclass(frozen=True)
class FourierMeans(Query):
    """Each user sends the means of the cosines and sines of its samples, in whole steps.

    Privacy
    -------
    None by itself: the server must be trusted with the rows. A user without samples, or with a NaN
    among them, sends zeros.
    """

    wire_name: ClassVar[str] = "fourier-means"
    trust: ClassVar[Trust] = Trust.CENTRAL
    n_frequencies: int  # K: cos(2 pi k x) and sin(2 pi k x) for k = 1, ..., K
    cohort: Cohort | None = None
    counted: bool = False  # whether a row ends with 1 for a user who has samples

    def __post_init__(self) -> None:
        check_integer("n_frequencies", self.n_frequencies, MOST_FREQUENCIES)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return 2 * self.n_frequencies + self.counted

    def integer_sensitivity(self, norm: int, adjacency: Adjacency) -> float:
        """Bound the sum's change with one user, in steps, whatever the rounding.

        Every number is within a step of what is to be rounded: half a step, and as much again for
        sums in doubles, which covers records of up to 2^27 samples. So two rows are at most 2
        steps a number further apart than the points. The 1 of users who are counted is free under
        replacement: two of them have the same, one and none are at most sqrt(K + 1) apart in l2
        and sqrt(2) K + 1 in l1, less than two points.
        """
        exact = row_sensitivity(self.n_frequencies, norm, adjacency)
        if self.counted and adjacency is not Adjacency.REPLACE_USER:
            exact = exact + 1 if norm == 1 else math.hypot(exact, 1)
        return MEAN_STEPS * exact + 2 * (self.width if norm == 1 else math.sqrt(self.width))

    def answer(self, users: Users, rng: Streams) -> Report:
        means = wave_means(samples_of(users, 1), 2 * self.n_frequencies, half_turns=False)
        rows = np.rint(np.nan_to_num(means) * MEAN_STEPS).astype(np.int32)
        if self.counted:
            usable = ~np.isnan(means[:, :1])
            rows = np.hstack((rows, MEAN_STEPS * usable.astype(np.int32)))
        return Report(users.ids, {"means": rows})

    def fold(self, report: Report) -> Summary:
        return Summary(
            report.n_users, {"means": report.arrays["means"].sum(axis=0, dtype=np.int64)}
        )

    def check(self, report: Report) -> None:
        rows = only_array(report, "means")
        Bounds((report.n_users, self.width), "i", -MEAN_STEPS - 1, MEAN_STEPS + 1).check(
            "means", rows
        )
        _check_circles(rows[:, : 2 * self.n_frequencies], 1)
        if self.counted and not np.isin(rows[:, -1], (0, MEAN_STEPS)).all():
            raise WireError(f"a user counts as 0 or {MEAN_STEPS}, got {rows[:, -1].max()}")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        most = n_users * (MEAN_STEPS + 1)
        return {"means": Bounds((self.width,), "i", -most, most)}

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        _check_circles(summary.sums["means"][: 2 * self.n_frequencies], summary.n_users)


def _check_circles(rows: NDArray[np.integer[Any]], n_users: int) -> None:
    """Raise WireError if a cosine and its sine are further out than n_users circles."""
    pairs = rows.reshape(-1, 2).astype(np.float64)
    far = math.sqrt(np.square(pairs).sum(axis=1).max(initial=0.0))
    if far > n_users * (MEAN_STEPS + 1.5):
        raise WireError(
            f"a frequency lies {far / MEAN_STEPS:g} from zero, {n_users} users' at most"
        )


@lru_cache(maxsize=4096)
def curve_diameter(n_frequencies: int) -> float:
    """Bound the l2 distance of two points of the hull, from above, within a relative 1e-6.

    The largest distance in a convex hull is that of two points of the curve. With t the difference
    of their parameters, its square is sum_k |e^(2 pi i k t) - 1|^2 = N - D(t), N = 2 K + 1 and D
    Dirichlet's kernel sin(N pi t) / sin(pi t). D is positive up to t = 1 / N, and from 3 / (2 N)
    on it is at least -1 / sin(pi t) >= D(3 / (2 N)): its least value lies between these two, where
    a grid finds it up to max |D''| h^2 / 8, |D''| <= 2 sum_k (2 pi k)^2. About 2.434 K, where the
    triangle inequality gives 4 K.

    >>> round(curve_diameter(1), 5), round(curve_diameter(24) / math.sqrt(24), 3)
    (2.0, 1.577)
    """
    k = n_frequencies
    n, cells = 2 * k + 1, 512
    t = np.linspace(1 / n, 1.5 / n, cells + 1)
    least = float((np.sin(n * np.pi * t) / np.sin(np.pi * t)).min())
    bend = 8 * math.pi**2 * k * (k + 1) * n / 6
    return math.sqrt(n - least + bend * (0.5 / n / cells) ** 2 / 8)


def row_sensitivity(n_frequencies: int, norm: int, adjacency: Adjacency) -> float:
    """Bound by how much the sum of the users' points changes with one user.

    In l2 under REPLACE_USER the diameter; zero is no further than that from the curve. Under
    ZERO_OUT_USER or ADD_REMOVE_USER the largest norm of a point, sqrt(K). In l1 sqrt(2 K) times as
    much, by Cauchy and Schwarz. ValueError for an adjacency of single items.
    """
    if adjacency is Adjacency.REPLACE_ITEM:
        raise ValueError(f"a sensitivity to one user is bounded here, got {adjacency.value}")
    replaced = adjacency is Adjacency.REPLACE_USER
    far = curve_diameter(n_frequencies) if replaced else math.sqrt(n_frequencies)
    return far * math.sqrt(2 * n_frequencies) if norm == 1 else far
