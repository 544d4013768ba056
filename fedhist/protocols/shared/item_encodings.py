"""The linear encodings of a user's m items: counts, one item, presence [1]_.

Each is sent as at most min(k, m) entries per user and added up to k integers, so that secure
aggregation could compute the sum. A user with more than m in-domain items draws m of them,
uniformly without replacement; one with fewer sends what it has.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Lemma 1 and Algorithm 4.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.bounding.item_encodings import add_cut, add_presence, cut_rows
from clients.bounding.sampling import MOST_CLIP
from fedhist.base.arrays import Bounds, Integers, Words
from fedhist.base.checks import check_integer
from fedhist.base.errors import WireError
from fedhist.model.query import CHUNK, Query, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.privacy.sensitivity import sqrt_up
from fedhist.protocols.shared.domains import check_domain
from fedhist.protocols.shared.ragged_rows import check_distinct, only_rows, row_sums
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.columns import Items
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams


class ItemEncoding(Query):
    """A query whose summary is one total for every symbol of a domain.

    Class attributes
    ----------------
    part : str
        Name of the totals.
    """

    trust: ClassVar[Trust] = Trust.CENTRAL
    part: ClassVar[str]
    domain: Keys
    m: int

    def __post_init__(self) -> None:
        check_domain(self.domain)
        check_integer("m", self.m, MOST_CLIP)

    @property
    @abstractmethod
    def l1_sensitivity(self) -> int:
        """Of the totals, under replacement."""

    @property
    def l2_sensitivity(self) -> float:
        """Of the totals, under replacement; rounded up."""
        return sqrt_up(self.l1_sensitivity * self.most)

    @property
    def most(self) -> int:
        """Most that a user adds to one symbol."""
        return 1

    @property
    def most_in_all(self) -> int:
        """Most that a user adds to all symbols together."""
        return self.m

    def integer_sensitivity(self, norm: int, adjacency: Adjacency) -> float:
        """Return the sensitivity under replacement, the one that subclasses derive."""
        if adjacency is not Adjacency.REPLACE_USER:
            return super().integer_sensitivity(norm, adjacency)
        return float(self.l1_sensitivity) if norm == 1 else self.l2_sensitivity

    @abstractmethod
    def add(self, items: Items, words: Words, total: Integers) -> None:
        """Add users' rows to the totals."""

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Cut and add up; integers, so bit-identical to folding the answers."""
        total = np.zeros(len(self.domain), dtype=np.int64)
        for chunk in users.blocks(CHUNK):
            self.add(chunk.counts, cut_words(rng(chunk)), total)
        return Summary(len(users), {self.part: total})

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Bound each total by what everybody may add to it."""
        return {self.part: Bounds((len(self.domain),), "i", 0, n_users * self.most)}

    def check_summary(self, summary: Summary) -> None:
        """Bound the sum over all symbols as well."""
        super().check_summary(summary)
        check_total(summary, self.part, self.most_in_all)


@register_query
@dataclass(frozen=True)
class ItemCounts(ItemEncoding):
    """Each user answers its counts, cut to m items, as (item, count) entries.

    Parameters
    ----------
    domain : Keys
        The k public symbols; other items are dropped.
    m : int
        Most items of a user.
    cohort : Cohort, optional

    Privacy
    -------
    A row N has N_i >= 0 and ||N||_1 <= m. Replacing a user moves the sum by N - N'. Its l1 norm is
    at most ||N||_1 + ||N'||_1 <= 2 m, and its squared l2 norm at most ||N||_2^2 + ||N'||_2^2 <=
    2 m^2, because N . N' >= 0. Both are attained by m of one symbol against m of another. With
    k = 1, both are m.
    """

    wire_name: ClassVar[str] = "item-counts"
    part: ClassVar[str] = "counts"

    domain: Keys
    m: int
    cohort: Cohort | None = None

    @property
    def l1_sensitivity(self) -> int:
        """Return 2 m, or m for a single symbol, under replacement."""
        return 2 * self.m if len(self.domain) > 1 else self.m

    @property
    def most(self) -> int:
        """M."""
        return self.m

    # -- client half -----------------------------------------------------------------------------

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the cut counts; randomness is used by users with more than m items only."""
        indptr, item, count = cut_rows(users.counts, self.domain, self.m, cut_words(rng))
        return Report(users.ids, ragged={"item": item, "count": count}, indptr=indptr)

    def add(self, items: Items, words: Words, total: Integers) -> None:
        """Cut, and add up."""
        add_cut(items, self.domain, self.m, words, total)

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        """Add up by symbol: (k,) int64."""
        total = np.zeros(len(self.domain), dtype=np.int64)
        np.add.at(total, report.ragged["item"], report.ragged["count"].astype(np.int64))
        return Summary(report.n_users, {"counts": total})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row holds distinct symbols that add up to at most m."""
        only_rows(report, "count", "item")
        check_distinct(report, report.ragged["item"], len(self.domain))
        count = report.ragged["count"]
        Bounds((None,), "u", 1, self.m).check("count", count)
        size = row_sums(report, count)
        if (size > self.m).any():
            raise WireError(f"a row adds up to {int(size.max())}, more than m = {self.m}")


@register_query
@dataclass(frozen=True)
class OneItem(ItemEncoding):
    """Each user answers one of its items, drawn uniformly from its own record.

    Parameters
    ----------
    domain : Keys
    cohort : Cohort, optional

    Privacy
    -------
    A row is one symbol, or none. Replacing a user moves the sum by at most 1 in each of two
    symbols: l1 = 2, l2 = sqrt 2; both 1 for a single symbol.
    """

    wire_name: ClassVar[str] = "one-item"
    part: ClassVar[str] = "counts"
    m: ClassVar[int] = 1  # type: ignore[misc]

    domain: Keys
    cohort: Cohort | None = None

    @property
    def l1_sensitivity(self) -> int:
        """Return 2, or 1 for a single symbol, under replacement."""
        return 2 if len(self.domain) > 1 else 1

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the symbol's number; -1 from a user without one."""
        indptr, item, _ = cut_rows(users.counts, self.domain, 1, cut_words(rng))
        out = np.full(len(users), -1, dtype=np.int32)
        out[np.diff(indptr) > 0] = item
        return Report(users.ids, {"item": out})

    def add(self, items: Items, words: Words, total: Integers) -> None:
        """Cut, and add up."""
        add_cut(items, self.domain, self.m, words, total)

    def fold(self, report: Report) -> Summary:
        """Add up by symbol: (k,) int64."""
        item = report.arrays["item"]
        total = np.bincount(item[item >= 0], minlength=len(self.domain))
        return Summary(report.n_users, {"counts": total.astype(np.int64)})

    def check(self, report: Report) -> None:
        """Raise WireError unless every user names one symbol, or none (-1)."""
        item = only_array(report, "item")
        Bounds((report.n_users,), "i", -1, len(self.domain) - 1).check("item", item)


@register_query
@dataclass(frozen=True)
class Presence(ItemEncoding):
    """Each user names the symbols among its m items, without their counts.

    Parameters
    ----------
    domain : Keys
    m : int
        Most items of a user, hence at most min(k, m) symbols.
    cohort : Cohort, optional

    Privacy
    -------
    A row is a set S of at most min(k, m) of k symbols. Replacing a user changes each symbol's sum
    by at most 1, and only those in exactly one of S and S'. These are at most min(k, 2 m), which
    disjoint sets attain. So the l1 sensitivity is min(k, 2 m), and the l2 sensitivity its root.
    Corrected against the paper, which has min(k, m) (Theorem 8).
    """

    wire_name: ClassVar[str] = "presence"
    part: ClassVar[str] = "presence"

    domain: Keys
    m: int
    cohort: Cohort | None = None

    @property
    def l1_sensitivity(self) -> int:
        """Return min(k, 2 m), under replacement."""
        return min(len(self.domain), 2 * self.m)

    @property
    def most_in_all(self) -> int:
        """min(k, m)."""
        return min(len(self.domain), self.m)

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the symbols of the cut record."""
        indptr, item, _ = cut_rows(users.counts, self.domain, self.m, cut_words(rng))
        return Report(users.ids, ragged={"item": item}, indptr=indptr)

    def add(self, items: Items, words: Words, total: Integers) -> None:
        """Cut, and add up."""
        add_presence(items, self.domain, self.m, words, total)

    def fold(self, report: Report) -> Summary:
        """Count the users that have a symbol: (k,) int64."""
        total = np.bincount(report.ragged["item"], minlength=len(self.domain))
        return Summary(report.n_users, {"presence": total.astype(np.int64)})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row names at most m distinct symbols."""
        size = np.diff(only_rows(report, "item"))
        check_distinct(report, report.ragged["item"], len(self.domain))
        if (size > self.m).any():
            raise WireError(f"a row names {int(size.max())} symbols, more than m = {self.m}")


def cut_words(rng: Streams) -> Words:
    """One private word per user for the cut to m items, whatever its record."""
    return rng.substream("random-clip").words(1)[:, 0]


def check_total(summary: Summary, name: str, most: int) -> None:
    """Raise WireError if a sum over all symbols exceeds what the users can have sent."""
    total = float(summary.sums[name].sum(dtype=np.float64))
    if total > summary.n_users * most * (1 + 1e-9):
        raise WireError(
            f"{name!r} adds up to {total:.15g}, more than {summary.n_users} users of {most} each"
        )
