"""The two queries of centred reports: how far a vector is from a centre, and what is left of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from clients.frequency_oracles.oracle_votes import OracleVotes, count_symbols
from clients.randomizers.sphere import rank_symbols
from clients.records.draws import sparse_shares
from clients.records.functionals import CentredShares, from_sum_zero, to_sum_zero
from clients.records.user_rows import norms
from fedhist.base.arrays import ROUNDING, Array, Bounds, Floats, Integers
from fedhist.base.checks import check_scale, check_within
from fedhist.base.errors import WireError
from fedhist.channels.oracles import OracleChannel, oracle_channel
from fedhist.channels.rank_unit import UNIT, RankUnit, sum_points
from fedhist.model.codec import query_digest
from fedhist.model.finite import FiniteChannel
from fedhist.model.part import VectorPart
from fedhist.model.query import CHUNK, MOST_KNOWN, LocalQuery, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.shards import BLOCK, Shard
from fedhist.users.streams import SeededStreams, Streams

MOST_ENTRIES = 1 << 18
"""Coordinates of users' vectors that a client holds at a time."""
MOST_POINTS = 1 << 17
"""Coordinates of all users up to which a prediction draws their points."""


@register_query
@dataclass(frozen=True)
class RadiusVotes(OracleVotes):
    """Each user says in which bin the distance of its vector from a centre lies.

    Privacy
    -------
    epsilon-LDP for a user's whole record: the report is one symbol's through the frequency oracle
    of least variance, exact as drawn; a record without a usable vector has a symbol of its own.
    """

    wire_name: ClassVar[str] = "radius-votes"
    sent: ClassVar[str] = "bin"
    part: VectorPart
    centre: Floats  # from other users' reports
    edges: Floats  # falling: bin 0 is beyond all of them, bin m - 1 inside all
    epsilon: float
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_centre(self.centre, self.part)
        e = self.edges
        if e.dtype != np.float64 or e.ndim != 1 or not 1 <= len(e) <= 1 << 12:
            raise ValueError(f"edges must be (m - 1,) float64, 1 to 4096, got {e.shape}")
        if not (np.isfinite(e).all() and e[-1] > 0 and (np.diff(e) < 0).all()):
            raise ValueError(f"edges must be positive and falling, got {e}")
        _ = self.channel

    @property
    def n_bins(self) -> int:
        """The edges and one: m."""
        return len(self.edges) + 1

    @property
    def channel(self) -> OracleChannel:
        """What happens to a bin."""
        return oracle_channel("auto", self.epsilon, self.n_bins)

    # -- client half

    def symbols(self, users: Users, rng: Streams) -> Integers:
        return self._bins(users)

    def true_symbols(self, users: Users, rng: np.random.Generator) -> Integers:
        return self._bins(users)

    def _bins(self, users: Users) -> Integers:
        """Bin of every user, (n,) int64; -1 for one without a usable vector."""
        distances = [
            norms(self.part.vectors(some) - self.centre)
            for some in users.blocks(at_once(self.part))
        ]
        return self._bin(np.concatenate([np.zeros(0), *distances]))

    def _bin(self, distance: Floats) -> Integers:
        bins = len(self.edges) - np.searchsorted(self.edges[::-1], distance)
        return np.where(np.isnan(distance), -1, bins).astype(np.int64)

    def summary_law(
        self, users: Shard, cache: dict[str, Any]
    ) -> Callable[[np.random.Generator], Summary]:
        known = KnownVectors.of(replace(self, centre=np.zeros_like(self.centre)), users, cache)
        distance = np.concatenate([np.zeros(0), *(far for _, far in known.around(self.centre))])
        counts = count_symbols(self._bin(distance), self.n_bins)
        return lambda rng: self._drawn(counts, rng)

    # -- server half

    def shares(self, summary: Summary) -> tuple[Floats, Floats]:
        """Return unbiased shares of the bins, and last of users without a vector: (m + 1,) each."""
        channel, n = self.channel, summary.n_users
        shares = channel.debias(summary.sums["bin"], n)
        likely = np.clip(shares, 0.0, 1.0)
        variance = channel.variance(likely) + likely * (1 - likely)
        return shares, np.sqrt(variance / n)


@register_query
@dataclass(frozen=True)
class RankReports(LocalQuery):
    """Each user reports its vector less a centre, scaled back into a ball, by ranks.

    Privacy
    -------
    epsilon-LDP for a user's whole record, exact as drawn, see
    :class:`~fedhist.channels.rank_unit.RankUnit`; the zero vector, which is the centre, stands for
    a record without a usable one.
    """

    wire_name: ClassVar[str] = "rank-reports"
    exact = True
    part: VectorPart
    centre: Floats  # from other users' reports
    radius: float  # a longer vector is shortened to it
    epsilon: float
    cohort: Cohort | None = None
    salt: int = 0  # public salt of the points

    def __post_init__(self) -> None:
        check_centre(self.centre, self.part)
        check_scale("radius", self.radius)
        check_within("salt", self.salt, 0, 1 << 63, "[)")
        _ = self.channel

    @property
    def channel(self) -> RankUnit:
        """What happens to a vector, in units of the radius."""
        return RankUnit(float(self.epsilon), self.part.n_coordinates)

    def finite_channel(self) -> FiniteChannel | None:
        return self.channel.law()

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        return self._answer(users, rng, every=True)

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        """Add up reports from fresh streams: a sum of such points has no shorter exact law.

        The points of those whose symbol does not depend on them are left out, which is most of
        the work at a small epsilon.
        """
        key = int(rng.integers(1 << 62))

        def folded(chunk: Users) -> Summary:
            streams = SeededStreams(chunk.ids, key, "aggregate")
            return self.fold(self._answer(chunk, streams, every=False))

        parts = [folded(chunk) for chunk in users.blocks(CHUNK)]
        return Summary.merge(parts or [folded(users)])

    def _answer(self, users: Users, rng: Streams, every: bool) -> Report:
        rows = at_once(self.part)
        if len(users) <= rows:
            return self._answer_some(users, rng, every)
        parts, stop = [], 0
        for some in users.blocks(rows):
            start, stop = stop, stop + len(some)
            own = self._answer_some(some, rng.rows(start, stop), every)
            parts.append(own.arrays["points"])
        return Report(users.ids, {"points": np.concatenate(parts)})

    def _answer_some(self, users: Users, rng: Streams, every: bool) -> Report:
        with np.errstate(over="ignore"):  # who overflows in a strange ball is private
            left = (self.part.vectors(users) - self.centre) / self.radius
        left[~np.isfinite(left).all(axis=1)] = 0.0
        if math.isinf(self.epsilon):
            left /= np.maximum(norms(left), 1.0)[:, None]
            return Report(users.ids, {"points": left})
        symbols = rank_symbols(left, users.ids, self.salt, self.channel, rng, every=every)
        return Report(users.ids, {"points": symbols})

    def summary_law(
        self, users: Shard, cache: dict[str, Any]
    ) -> Callable[[np.random.Generator], Summary] | None:
        """Prepare draws from the normal law of the mean and total variance of the sum of points."""
        channel, d = self.channel, self.part.n_coordinates
        if math.isinf(self.epsilon) or len(users) * d < MOST_POINTS:
            return None
        origin = np.zeros_like(self.centre)
        known = KnownVectors.of(replace(self, centre=origin, radius=1.0), users, cache)
        total, square, n = np.zeros(len(known.embedded(origin))), 0.0, 0
        middle = known.embedded(self.centre)
        for x, distance in known.around(self.centre):
            usable = ~np.isnan(distance)
            weight = usable / np.maximum(np.where(usable, distance, 0.0), self.radius)
            total += x.T @ weight.astype(np.float32) - weight.sum() * middle
            square += float(np.square(weight * np.where(usable, distance, 0.0)).sum())
            n += len(distance)
        mean = channel.gain * known.coordinates(total)
        spread = n * (1 - channel.law_of_symbols.erased) - channel.gain**2 * square
        std = math.sqrt(max(spread, 0.0) / d)

        def law(rng: np.random.Generator) -> Summary:
            points = np.rint(rng.normal(mean, std) * UNIT).astype(np.int64)
            return Summary(n, {"points": points})

        return law

    # -- server half

    def fold(self, report: Report) -> Summary:
        points = report.arrays["points"]
        if math.isinf(self.epsilon):
            return Summary(report.n_users, {"points": points.sum(axis=0)})
        total = sum_points(report.ids, self.salt, points, self.channel)
        return Summary(report.n_users, {"points": total})

    def check(self, report: Report) -> None:
        points = only_array(report, "points")
        if math.isinf(self.epsilon):
            Bounds((report.n_users, self.channel.dimension), "f").check("points", points)
            if (norms(points) > ROUNDING).any():
                raise WireError(f"'points' holds a vector of norm {norms(points).max()}")
            return
        Bounds((report.n_users,), "u", 0, self.channel.size).check("points", points)
        if points.dtype != np.uint16:
            raise WireError(f"'points' has dtype {points.dtype}, expected uint16")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        free = math.isinf(self.epsilon)
        most = n_users * ROUNDING if free else n_users * UNIT
        return {"points": Bounds((self.channel.dimension,), "f" if free else "i", -most, most)}

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        norm = float(np.linalg.norm(self._total(summary)))
        if norm > summary.n_users * (ROUNDING + math.sqrt(self.channel.dimension) / UNIT):
            raise WireError(f"'points' adds up to the norm {norm}, more than its users can report")

    def estimate(self, summary: Summary) -> Floats:
        """Return the centre and the average of what is left: (d,) float64."""
        step = self.radius / self.channel.gain / max(summary.n_users, 1)
        return np.asarray(self.centre + step * self._total(summary))

    def _total(self, summary: Summary) -> Floats:
        """Sum of the unit vectors."""
        unit = 1 if math.isinf(self.epsilon) else UNIT
        return np.asarray(summary.sums["points"] / unit)


class KnownVectors:
    """Vectors of users who are asked again and again, in 4 bytes a coordinate. NOT PRIVATE."""

    def __init__(self, part: VectorPart, users: Shard) -> None:
        self.part, self.users = part, users
        few = len(users) * part.n_coordinates <= 2 * MOST_KNOWN or isinstance(part, CentredShares)
        self._kept = list(self._made()) if few else None

    @classmethod
    def of(cls, query: RadiusVotes | RankReports, users: Shard, cache: dict[str, Any]) -> Self:
        """Take them from what is kept, by what the query says but for its centre; or make them."""
        key = query_digest(query, 0)
        if key not in cache:
            cache[key] = cls(query.part, users)
        rows: Self = cache[key]
        return rows

    def _made(self) -> Iterator[tuple[Any, Floats]]:
        """Make the rows of some users at a time, zero for unusable ones, and their squared norms.

        Shares are sparse, and are not written in their basis.
        """
        sparse = isinstance(self.part, CentredShares)
        for block in self.users.blocks():
            for some in block.blocks(BLOCK if sparse else at_once(self.part)):
                if isinstance(self.part, CentredShares):
                    x: Any = sparse_shares(some.counts, self.part.domain)
                    square = np.asarray(x.multiply(x).sum(axis=1)).ravel()
                    usable = square > 0
                else:
                    x = self.part.vectors(some).astype(np.float32)
                    usable = np.isfinite(x).all(axis=1)
                    x[~usable] = 0.0
                    square = np.einsum("ij,ij->i", x, x)
                yield x, np.where(usable, square, np.nan)

    def around(self, centre: Floats) -> Iterator[tuple[Any, Floats]]:
        """Yield rows, and their distances from a centre, NaN for unusable ones."""
        middle = self.embedded(centre)
        for x, square in self._made() if self._kept is None else self._kept:
            product = np.asarray(x @ middle.astype(np.float32), dtype=np.float64)
            yield x, np.sqrt(np.maximum(square - 2 * product + middle @ middle, 0.0))

    def embedded(self, centre: Floats) -> Floats:
        """Write a centre as rows are: shares less nothing."""
        if not isinstance(self.part, CentredShares):
            return centre
        return from_sum_zero(centre) + 1 / len(self.part.domain)

    def coordinates(self, total: Floats) -> Floats:
        """Write a sum of rows in coordinates."""
        return to_sum_zero(total) if isinstance(self.part, CentredShares) else total


def at_once(part: VectorPart) -> int:
    """Users whose vectors are held at a time: a query may name a long domain."""
    return max(1, MOST_ENTRIES // part.n_coordinates)


def check_centre(centre: Array, part: VectorPart) -> None:
    """Raise ValueError unless the centre is a finite vector of the part's dimension."""
    d = part.n_coordinates
    if centre.dtype != np.float64 or centre.shape != (d,):
        raise ValueError(f"centre must be ({d},) float64, got {centre.dtype}{centre.shape}")
    if not np.isfinite(centre).all():
        raise ValueError(f"centre must be finite, got {centre[~np.isfinite(centre)][0]}")
