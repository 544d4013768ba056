"""What users are asked for a distribution: counts, counts beyond thresholds, own or framed shares.

All are linear: users' answers add up to integers, and secure aggregation could compute the sums.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Lemma 1, Algorithms 2 to 5, Appendix E.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.bounding.contribution import clip_rows, domain_lookup
from clients.bounding.sampling import MOST_TOKENS, cut_rows, cut_words, in_domain
from clients.records.ragged_rows import check_distinct, only_rows, row_sums
from clients.records.whitened import (
    FRAME_STEPS,
    Frame,
    Rows,
    row_norms,
    scaled_rows,
)
from fedhist.base.arrays import Array, Bounds, Floats, offsets
from fedhist.base.checks import check_integer, check_scale, check_within
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Adjacency, Trust, sqrt_up
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys, check_domain
from fedhist.users.shards import BLOCK, Items
from fedhist.users.streams import Streams

MOST_EXCEEDANCES = 1 << 26
"""Most counts in a summary, symbols times thresholds: 512 MB."""

SHARE_STEPS = 1 << 24
"""Steps that a user's shares add up to: what rounding down takes is below 2^-24 a symbol."""

MOST_FRAMED = 1 << 14
"""Most symbols of framed shares: a client sends a number for each of them."""


# -- counts ----------------------------------------------------------------------------------------


class ItemRows(Query):
    """What both queries send: entries of distinct symbols and numbers, that add up to ``most``.

    ``entry`` and ``total`` name the numbers in a report and in a summary, ``least`` is the smallest
    in a report.
    """

    trust: ClassVar[Trust] = Trust.CENTRAL
    at_once = BLOCK
    entry: ClassVar[str]
    total: ClassVar[str]
    least: ClassVar[int]
    domain: Keys

    @property
    @abstractmethod
    def most(self) -> int:
        """Largest sum of a user's numbers."""

    def fold(self, report: Report) -> Summary:
        total = np.zeros(len(self.domain), dtype=np.int64)
        np.add.at(total, report.ragged["item"], report.ragged[self.entry].astype(np.int64))
        return Summary(report.n_users, {self.total: total})

    def check(self, report: Report) -> None:
        only_rows(report, "item", self.entry)
        check_distinct(report, report.ragged["item"], len(self.domain))
        numbers = report.ragged[self.entry]
        Bounds((None,), "iu", self.least, self.most).check(self.entry, numbers)
        size = row_sums(report, numbers)
        if (size > self.most).any():
            raise WireError(f"a row adds up to {int(size.max())}, more than {self.most}")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        return {self.total: Bounds((len(self.domain),), "i", 0, n_users * self.most)}

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        total = summary.sums[self.total].sum(dtype=object)  # no overflow
        if total > summary.n_users * self.most:
            rows = f"{summary.n_users} users of {self.most}"
            raise WireError(f"{self.total!r} adds up to {total}, more than {rows}")


@register_query
@dataclass(frozen=True)
class ItemCounts(ItemRows):
    """Each user answers its counts, cut to m items, as (item, count) entries: with m = 1 one item.

    One with more draws m of them, uniformly without replacement.

    Privacy
    -------
    A row N has N_i >= 0 and ||N||_1 <= m. Replacing a user moves the sum by N - N'. Its l1 norm is
    at most ||N||_1 + ||N'||_1 <= 2 m, and its squared l2 norm at most ||N||_2^2 + ||N'||_2^2 <=
    2 m^2, because N . N' >= 0. Both are attained by m of one symbol against m of another. With
    k = 1, both are m.
    """

    wire_name: ClassVar[str] = "item-counts"
    entry, total, least = "count", "counts", 1

    domain: Keys
    m: int
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_domain(self.domain)
        check_integer("m", self.m, MOST_TOKENS)

    @property
    def most(self) -> int:
        return self.m

    def integer_sensitivity(self, norm: int, adjacency: Adjacency) -> float:
        """Return 2 m or sqrt(2) m, or m for a single symbol, under replacement."""
        if adjacency is not Adjacency.REPLACE_USER:
            return super().integer_sensitivity(norm, adjacency)
        rows = min(len(self.domain), 2)
        return float(rows * self.m) if norm == 1 else sqrt_up(rows * self.m**2)

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the cut counts; randomness is used by users with more than m items only."""
        indptr, item, count = cut_rows(users.counts, self.domain, self.m, cut_words(rng))
        return Report(users.ids, ragged={"item": item, "count": count}, indptr=indptr)


# -- counts beyond thresholds ----------------------------------------------------------------------


@register_query
@dataclass(frozen=True)
class ExceedanceCounts(Query):
    """Each user names the cell of its count, between public thresholds, for every symbol.

    A one-hot vector per symbol over the cells (T_0, T_1], ..., (T_last, m] of the increasing
    ``thresholds``, in [0, m - 1]. The first cell, [0, T_0], is left out: it follows from the number
    of users; ``(0,)`` asks for presence alone. A user with more than m in-domain items draws m of
    them, uniformly without replacement. Where rows are ``complete`` one with fewer sends the
    all-zero row [1, Appendix E], and the number of those with m is asked for as well, which sums of
    zero indicators need.

    Privacy
    -------
    Replacing a user moves the number of users above any threshold by at most 1, and only for the
    symbols that one of the two records holds: min(k, 2 m), and min(k, m) where a user is added or
    removed (:meth:`touched`). The vector of cells changes by at most 1 in at most 2 min(k, m)
    places: l2 sensitivity sqrt(2 min(k, m)). All-zero rows touch no symbol, so the same holds for
    complete rows.

    Corrected against the paper, which lets min(k, m) symbols change; and which, for complete rows,
    adds up ZERO indicators 1[N_i = 0]: a user who drops below m takes away a one from every symbol
    that it does not have, so that up to k - 1 change.
    """

    wire_name: ClassVar[str] = "threshold-counts"
    trust: ClassVar[Trust] = Trust.CENTRAL
    at_once = BLOCK

    domain: Keys
    m: int
    thresholds: tuple[int, ...]
    complete: bool = False
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_domain(self.domain)
        check_integer("m", self.m, MOST_TOKENS)
        t = self.thresholds
        if not t or t[0] < 0 or t[-1] >= self.m or any(a >= b for a, b in pairwise(t)):
            raise ValueError(
                f"thresholds must increase within [0, {self.m - 1}], got {t[:5]} to {t[-1:]}"
            )
        if len(self.domain) * len(t) > MOST_EXCEEDANCES:
            raise ValueError(
                f"{len(self.domain)} symbols at {len(t)} thresholds are too many: at most 2^26"
            )

    def touched(self, adjacency: Adjacency) -> int:
        """Most symbols of which one user changes the numbers above thresholds."""
        rows = 2 if adjacency is Adjacency.REPLACE_USER else 1
        return min(len(self.domain), rows * self.m)

    def integer_sensitivity(self, norm: int, adjacency: Adjacency) -> float:
        """Return that of one threshold, of which a user's symbols have one number each."""
        if len(self.thresholds) > 1 or self.complete or adjacency is not Adjacency.REPLACE_USER:
            return super().integer_sensitivity(norm, adjacency)
        touched = self.touched(adjacency)
        return float(touched) if norm == 1 else sqrt_up(touched)

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the cells; randomness is used by users with more than m items only."""
        items, arrays = self._records(users)
        indptr, item, count = cut_rows(items, self.domain, self.m, cut_words(rng))
        cell = np.searchsorted(np.array(self.thresholds), count.astype(np.int64))
        sent = cell > 0
        where = item[sent].astype(np.int64) * len(self.thresholds) + cell[sent] - 1
        return Report(users.ids, arrays, {"cell": where.astype(np.uint32)}, offsets(sent)[indptr])

    def _records(self, users: Users) -> tuple[Items, dict[str, Array]]:
        """Empty the records of users with fewer than m items, where rows are complete."""
        if not self.complete:
            return users.counts, {}
        v = in_domain(users.counts, self.domain)
        user = np.repeat(np.arange(len(users)), np.diff(v.indptr))
        size = np.zeros(len(users), dtype=np.int64)
        np.add.at(size, user, np.minimum(v.count, self.m).astype(np.int64))  # cannot overflow
        kept = size >= self.m
        stay = kept[user]
        indptr = offsets(np.diff(v.indptr) * kept)
        items = Items(self.domain, indptr, v.item[stay], v.count[stay])
        return items, {"kept": kept.astype(np.uint8)}

    # -- server half

    def fold(self, report: Report) -> Summary:
        n = len(self.domain) * len(self.thresholds)
        total = np.bincount(report.ragged["cell"].astype(np.int64), minlength=n).astype(np.int64)
        numbers = {name: a.sum(keepdims=True, dtype=np.int64) for name, a in report.arrays.items()}
        cells = total.reshape(len(self.domain), len(self.thresholds))
        return Summary(report.n_users, {"users": cells} | numbers)

    def above(self, summary: Summary) -> NDArray[np.int64]:
        """Count the users with more than t of each symbol: (k, |T|), a copy. NOT PRIVATE."""
        cells = summary.sums["users"]
        return np.array(np.cumsum(cells[:, ::-1], axis=1)[:, ::-1], dtype=np.int64)

    def below(self, summary: Summary) -> NDArray[np.int64]:
        """Count the users with at most t of each symbol, C(t): (k, |T|). NOT PRIVATE."""
        return np.asarray(summary.n_users - self.above(summary))

    def check(self, report: Report) -> None:
        indptr = only_rows(report, "cell", arrays=("kept",) if self.complete else ())
        k, width, cell = len(self.domain), len(self.thresholds), report.ragged["cell"]
        Bounds((None,), "u", 0, k * width - 1).check("cell", cell)
        symbol, place = np.divmod(cell, np.uint32(width))
        check_distinct(report, symbol, k)
        least = np.array(self.thresholds, dtype=np.int64) + 1
        low = row_sums(report, least[place])
        if (low > self.m).any():
            raise WireError(f"a row needs {int(low.max())} items, more than m = {self.m}")
        if self.complete:
            kept, entries = report.arrays["kept"], np.diff(indptr)
            Bounds((report.n_users,), "u", 0, 1).check("kept", kept)
            if (entries[kept == 0] > 0).any():
                raise WireError("a user who is not kept sends items")
            most = row_sums(report, np.append(least[1:] - 1, self.m)[place])
            most += (k - entries) * self.thresholds[0]  # symbols held too rarely to be sent
            if (most[kept == 1] < self.m).any():
                raise WireError(f"a row of a user who is kept holds fewer than m = {self.m} items")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        out = {"users": Bounds((len(self.domain), len(self.thresholds)), "i", 0, n_users)}
        return out | ({"kept": Bounds((1,), "i", 0, n_users)} if self.complete else {})

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        cells = summary.sums["users"]
        n = int(summary.sums["kept"][0]) if self.complete else summary.n_users
        most = int(cells.sum(axis=1).max())
        if most > n:
            raise WireError(f"{most} users hold one symbol, more than {n}")
        need = float(cells.sum(axis=0) @ (np.array(self.thresholds, dtype=np.float64) + 1))
        if need > n * self.m * (1 + 1e-9):
            raise WireError(f"the cells need {need:.15g} items, more than {n} users of {self.m}")


# -- own shares ------------------------------------------------------------------------------------


@register_query
@dataclass(frozen=True)
class OwnShares(ItemRows):
    """Each user sends its counts over its own number of items, N / m_u, rounded down to steps.

    Items outside the domain are dropped before m_u is counted.

    Privacy
    -------
    Whatever its record, a user's row is non-negative and adds up to at most 2^24 steps, in
    integers; that of a user without items is zero. So the l1 norm of the sum's change is at most
    2^24 if a user is added, removed or emptied. Two rows x and y differ by ||x - y||_1 <= ||x||_1 +
    ||y||_1 <= 2^25 under replacement, which users of one symbol each attain; with a single symbol
    by 2^24.
    """

    wire_name: ClassVar[str] = "own-shares"
    entry, total, least = "steps", "steps", 0
    most = SHARE_STEPS

    domain: Keys
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_domain(self.domain)

    def l1_sensitivity(self, adjacency: Adjacency) -> int:
        """Of the sum, in steps."""
        two = adjacency is Adjacency.REPLACE_USER and len(self.domain) > 1
        return (2 if two else 1) * SHARE_STEPS

    def answer(self, users: Users, rng: Streams) -> Report:
        lookup = domain_lookup(self.domain, users.counts.vocabulary)
        indptr, item, value = clip_rows(users.counts, lookup, 1.0, 1, 1 / SHARE_STEPS)
        return Report(users.ids, {}, {"item": item, "steps": value}, indptr)


# -- framed shares ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class FramedShares(Query):
    """What both queries ask about: (shares - centre) / spread of a user's cut record.

    A user with more than m in-domain items draws m of them, uniformly without replacement. Shares
    are counts over m, or over the user's ``own`` number of items after the cut. Centre and spread
    are from released numbers.
    """

    trust: ClassVar[Trust] = Trust.CENTRAL
    domain: Keys
    m: int
    own: bool
    centre: Floats
    spread: Floats

    def __post_init__(self) -> None:
        check_domain(self.domain)
        check_integer("m", self.m, MOST_TOKENS)
        if len(self.domain) > MOST_FRAMED:
            raise ValueError(f"{len(self.domain)} symbols are too many: at most {MOST_FRAMED}")
        for name in ("centre", "spread"):
            keep_vector(self, name, len(self.domain))
        if (np.abs(self.centre) > 1).any():
            raise ValueError(f"centre must lie in [-1, 1], got {np.abs(self.centre).max()}")
        if not (self.spread.min() >= 2.0**-40 and self.spread.max() <= 1):
            raise ValueError(f"spread must lie in [2^-40, 1], got {self.spread.min()}")

    @property
    def frame(self) -> Frame:
        """What the kernels read."""
        return self.centre, self.spread, 0 if self.own else self.m

    def rows(self, users: Users, rng: Streams) -> Rows:
        """Cut each user to m in-domain items."""
        return cut_rows(users.counts, self.domain, self.m, cut_words(rng))


def keep_vector(query: object, name: str, size: int) -> None:
    """Keep a read-only copy of a public vector; ValueError unless it is finite and of a size."""
    a: Array = getattr(query, name)
    if a.dtype != np.float64 or a.shape != (size,) or not np.isfinite(a).all():
        raise ValueError(f"{name} must be ({size},) finite float64, got {a.dtype} {a.shape}")
    a = a.copy()
    a.setflags(write=False)
    object.__setattr__(query, name, a)


@register_query
@dataclass(frozen=True, eq=False)
class CentredNorms(FramedShares):
    """Each user says between which public radii the norm of its framed shares lies.

    Cell j holds the norms above radius j - 1, up to radius j; cell K those above all ``radii``. A
    user without items has the norm 0.

    Privacy
    -------
    A user is in one cell. Replacing, adding or removing one moves each number of users above a
    radius by at most 1.
    """

    wire_name: ClassVar[str] = "centred-norms"

    radii: Floats
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_within("the number of radii", len(self.radii), 1, 1 << 10)
        keep_vector(self, "radii", len(self.radii))
        if not (self.radii[0] > 0 and (np.diff(self.radii) > 0).all()):
            raise ValueError(f"radii must be positive and increase, got {self.radii[:5]}")

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the cell; randomness is used by users with more than m items only."""
        norm = row_norms(self.rows(users, rng), self.frame)
        return Report(users.ids, {"cell": np.searchsorted(self.radii, norm).astype(np.int32)})

    def fold(self, report: Report) -> Summary:
        cells = np.bincount(report.arrays["cell"], minlength=len(self.radii) + 1)
        return Summary(report.n_users, {"users": cells.astype(np.int64)})

    def above(self, summary: Summary) -> Array:
        """Count the users beyond each radius: (K,) int64, a copy. NOT PRIVATE."""
        cells = summary.sums["users"]
        return np.array(np.cumsum(cells[::-1])[::-1][1:], dtype=np.int64)

    def check(self, report: Report) -> None:
        cell = only_array(report, "cell")
        Bounds((report.n_users,), "i", 0, len(self.radii)).check("cell", cell)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        return {"users": Bounds((len(self.radii) + 1,), "i", 0, n_users)}

    def check_summary(self, summary: Summary) -> None:
        super().check_summary(summary)
        total = int(summary.sums["users"].sum())
        if total != summary.n_users:
            raise WireError(f"the cells hold {total} users, not {summary.n_users}")


@register_query
@dataclass(frozen=True, eq=False)
class CentredCounts(FramedShares):
    """Each user sends its framed shares, scaled into a ball, in integer steps.

    Rows beyond ``radius`` are scaled down to it. A step is radius / 2^20.

    Privacy
    -------
    Whatever its record, a user's row has l2 norm <= 2^20 in steps: it is scaled to a little less
    than the radius and cut towards zero, in integers, whose sums are exact. An empty user has the
    zero row. So the sum moves by at most 2^20 if a user is added, removed or emptied, and by twice
    that if it is replaced.
    """

    wire_name: ClassVar[str] = "centred-counts"

    radius: float
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_scale("radius", self.radius)

    @property
    def unit(self) -> float:
        """Value of a step, in spreads."""
        return self.radius / FRAME_STEPS

    def l2_sensitivity(self) -> float:
        """Largest move of the sum under replacement, in steps: two rows."""
        return float(2 * FRAME_STEPS)

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the row; randomness is used by users with more than m items only."""
        rows = scaled_rows(self.rows(users, rng), self.frame, self.radius)
        return Report(users.ids, {"row": rows})

    def fold(self, report: Report) -> Summary:
        return Summary(report.n_users, {"steps": report.arrays["row"].sum(axis=0, dtype=np.int64)})

    def check(self, report: Report) -> None:
        row = only_array(report, "row")
        Bounds((report.n_users, len(self.domain)), "i", -FRAME_STEPS, FRAME_STEPS).check("row", row)
        square = (row.astype(np.int64) ** 2).sum(axis=1)
        if len(square) and square.max() > FRAME_STEPS * FRAME_STEPS:
            raise WireError(f"a row has the norm {float(square.max()) ** 0.5:.15g}, over 2^20")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        most = n_users * FRAME_STEPS
        return {"steps": Bounds((len(self.domain),), "i", -most, most)}
