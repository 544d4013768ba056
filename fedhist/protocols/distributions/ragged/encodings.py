"""Linear messages of users with different numbers of samples [1, Appendix E].

Two round trips: how many users have how many samples, by powers of two; and, of the users with at
least m-hat samples, how many have more than t of each symbol among m-hat samples of theirs. A user
with fewer than m-hat samples sends the all-zero row in the second.

Corrected against the paper, which adds up the ZERO indicators 1[N_i = 0] of the users with at
least m-hat samples: a user who drops below m-hat takes away a one from every symbol that it does
not have, so that up to k - 1 coordinates change (k - m-hat where its m-hat samples all differ), not
min(k, m-hat). With indicators of presence, N_i > t, a row touches at most m-hat symbols and the
all-zero row none.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Appendix E.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.bounding.item_encodings import in_domain
from clients.bounding.sampling import MOST_CLIP, random_clip
from fedhist.base.arrays import Bounds
from fedhist.base.errors import WireError
from fedhist.model.query import Query, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Adjacency, Trust
from fedhist.protocols.shared.contributions import NormHistogram
from fedhist.protocols.shared.domains import check_domain
from fedhist.protocols.shared.ragged_rows import check_distinct, only_rows, row_sums
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.columns import Items
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams


def size_classes(m_max: int) -> int:
    """Count the dyadic classes of sizes: {0}, [1, 2), [2, 4), ..., [2^J, inf) with 2^J <= m_max.

    >>> size_classes(1), size_classes(7), size_classes(8)
    (2, 4, 5)
    """
    return m_max.bit_length() + 1


def size_query(domain: Keys, m_max: int) -> NormHistogram:
    """Ask every user for the dyadic class of its number of in-domain samples.

    Class j >= 1 holds the sizes from 2^(j - 1) up to 2^j; the last one all larger sizes as well, so
    that nobody can go beyond ``m_max``. A user without samples adds nothing.

    Examples
    --------
    >>> size_query(Keys.of(["tea"]), 9).edges
    (0.0, 1.0, 3.0, 7.0)
    """
    return NormHistogram(domain, tuple(2.0**j - 1 for j in range(size_classes(m_max) - 1)), 1)


def class_counts(summary: Summary) -> NDArray[np.int64]:
    """Count the users in every class, (v,), the empty users first. NOT PRIVATE.

    Privacy
    -------
    One replaced user moves from one class to another: l1 sensitivity 2; one who is added or removed
    changes one class by 1. The number of users in all classes from j on changes by at most 1.
    """
    filled = summary.sums["weight"]
    return np.concatenate([[summary.n_users - filled.sum()], filled]).astype(np.int64)


@register_query
@dataclass(frozen=True)
class RaggedCounts(Query):
    """Each user with at least ``size`` samples draws that many and counts them by symbol.

    Parameters
    ----------
    domain : Keys
        Public symbols; others are dropped before anything is counted or drawn.
    size : int
        m-hat: samples drawn without replacement by every user who has as many.
    thresholds : tuple of int
        Increasing, in [0, size). A count N falls into cell c if thresholds[c] < N <= thresholds[c +
        1], the last one being open above; up to thresholds[0] it falls into none and is not sent.
        ``(0,)`` asks for presence alone.
    count_kept : bool
        Also count the users with at least ``size`` samples. Only as the paper has it: the server
        needs it for sums of zero indicators, and for nothing else.
    cohort : Cohort, optional

    Privacy
    -------
    A row has at most min(k, size) entries, whatever its coins; a user below ``size`` has none. So
    one replaced user changes min(k, 2 size) symbols at most, one who is added or removed min(k,
    size), and of each symbol the number of users above any threshold by at most 1.

    Examples
    --------
    >>> query = RaggedCounts(Keys.range(50), 5, (0,))
    >>> query.touched(Adjacency.REPLACE_USER), query.touched(Adjacency.ADD_REMOVE_USER)
    (10, 5)
    """

    wire_name: ClassVar[str] = "ragged-counts"
    trust: ClassVar[Trust] = Trust.CENTRAL

    domain: Keys
    size: int
    thresholds: tuple[int, ...]
    count_kept: bool = False
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_domain(self.domain)
        if isinstance(self.size, bool) or not 1 <= self.size <= MOST_CLIP:
            raise ValueError(f"size must lie in [1, 2^31], got {self.size}")
        t = np.asarray(self.thresholds, dtype=np.int64)
        if not t.size or t[0] < 0 or (np.diff(t) <= 0).any() or t[-1] >= self.size:
            raise ValueError(
                f"thresholds must increase within [0, size = {self.size}), got {self.thresholds}"
            )

    def touched(self, adjacency: Adjacency) -> int:
        """Most symbols whose column of cells one user changes."""
        rows = 2 if adjacency is Adjacency.REPLACE_USER else 1
        return min(len(self.domain), rows * self.size)

    def above(self, summary: Summary) -> NDArray[np.int64]:
        """#{u : N_i(u) > t} for every symbol and threshold, (k, T), non-increasing. NOT PRIVATE."""
        cells = summary.sums["cells"]
        return np.asarray(np.cumsum(cells[:, ::-1], axis=1)[:, ::-1], dtype=np.int64)

    # -- client half -----------------------------------------------------------------------------

    def answer(self, users: Users, rng: Streams) -> Report:
        """Draw the samples, and send (symbol, cell) of what is among them."""
        items, kept = _large_records(users, self.domain, self.size)
        words = rng.substream("ragged").words(1)[:, 0]
        indptr, item, count = random_clip(items, self.size, words)
        cell = np.searchsorted(np.asarray(self.thresholds), count.astype(np.int64)) - 1
        sent = cell >= 0
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(sent)))
        entries = {"item": item[sent].astype(np.uint32), "cell": cell[sent].astype(np.uint32)}
        arrays = {"kept": kept.astype(np.uint8)} if self.count_kept else {}
        return Report(users.ids, arrays, entries, np.asarray(before[indptr], dtype=np.int64))

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        """Count the entries by symbol and cell: (k, T) int64."""
        k, t = len(self.domain), len(self.thresholds)
        flat = report.ragged["item"].astype(np.int64) * t + report.ragged["cell"].astype(np.int64)
        sums = {"cells": np.bincount(flat, minlength=k * t).reshape(k, t).astype(np.int64)}
        if self.count_kept:
            sums["kept"] = report.arrays["kept"].sum(keepdims=True, dtype=np.int64)
        return Summary(report.n_users, sums)

    def check(self, report: Report) -> None:
        """Raise WireError unless every row is empty or can be of ``size`` samples."""
        kept_too = ("kept",) if self.count_kept else ()
        indptr = only_rows(report, "item", "cell", arrays=kept_too)
        item, cell = report.ragged["item"], report.ragged["cell"]
        k, t, n = len(self.domain), len(self.thresholds), report.n_users
        check_distinct(report, item, k, "an item")
        Bounds((None,), "u", 0, t - 1).check("cell", cell)
        least = np.asarray(self.thresholds, dtype=np.int64) + 1
        most = np.append(least[1:] - 1, self.size)
        low, high = row_sums(report, least[cell]), row_sums(report, most[cell])
        entries = np.diff(indptr)
        filled = entries > 0
        high += (k - entries) * self.thresholds[0]  # symbols that are held too rarely to be sent
        wrong_size = filled & ((low > self.size) | (high < self.size))
        if wrong_size.any():
            bad = int(np.argmax(wrong_size))
            raise WireError(
                f"a row counts {low[bad]} to {high[bad]} samples, expected {self.size} or none"
            )
        if self.count_kept:
            kept = report.arrays["kept"]
            Bounds((n,), "u", 0, 1).check("kept", kept)
            if (filled & (kept == 0)).any():
                raise WireError("a user who is not kept sends samples")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Each user once per symbol at most."""
        shape = (len(self.domain), len(self.thresholds))
        out = {"cells": Bounds(shape, "i", 0, n_users)}
        return out | ({"kept": Bounds((1,), "i", 0, n_users)} if self.count_kept else {})

    def check_summary(self, summary: Summary) -> None:
        """Bound a symbol's cells together, and the samples behind all of them."""
        super().check_summary(summary)
        cells = summary.sums["cells"]
        n = int(summary.sums["kept"][0]) if self.count_kept else summary.n_users
        each = int(cells.sum(axis=1).max())
        if each > n:
            raise WireError(f"a symbol is held by {each} users, more than {n}")
        least = np.asarray(self.thresholds, dtype=np.float64) + 1
        samples = float((cells.sum(axis=0) * least).sum())
        if samples > float(n) * self.size * (1 + 1e-9):
            raise WireError(f"{samples:g} samples of {n} users, more than {self.size} each")


def _large_records(users: Users, domain: Keys, size: int) -> tuple[Items, NDArray[np.bool_]]:
    """Empty the records of fewer than ``size`` in-domain samples; say who has as many."""
    v = in_domain(users.counts, domain)
    user = np.repeat(np.arange(len(users)), np.diff(v.indptr))
    total = np.zeros(len(users), dtype=np.int64)
    np.add.at(total, user, np.minimum(v.count, size).astype(np.int64))  # cannot overflow
    kept = total >= size
    stay = kept[user]
    indptr = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.diff(v.indptr) * kept)))
    return Items(domain, indptr, v.item[stay], v.count[stay]), kept
