"""The query of Algorithm 3: each user sends a random sample of its tokens, item by item [1]_.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Section 5 (rand-clip).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.bounding.sampling import MOST_CLIP, add_random_clip, random_clip
from fedhist.base.arrays import Bounds, Words
from fedhist.base.checks import check_integer
from fedhist.base.errors import WireError
from fedhist.model.query import CHUNK, Keyed, Query, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Trust
from fedhist.protocols.shared.item_rows import intern_records, pack_records, parse_records
from fedhist.protocols.shared.ragged_rows import only_rows
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams


@register_query
@dataclass(frozen=True)
class RandomClip(Query):
    """Each user answers with min(m, clip) of its m tokens, a uniform sample without replacement.

    Parameters
    ----------
    clip : int
        C, in tokens; in [1, 2^31].
    raw_support : bool
        Also name the items of which the sample holds none, with count 0: the whole support then
        leaves the user, as the printed algorithm needs it.
    cohort : Cohort, optional
        Only these users answer.

    Privacy
    -------
    A row is a histogram of l1 norm at most C, whatever the coins. It is exact: the server is
    trusted with it, strings included.
    """

    wire_name: ClassVar[str] = "random-clip"
    trust: ClassVar[Trust] = Trust.CENTRAL

    clip: int
    raw_support: bool = False
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_integer("clip", self.clip, MOST_CLIP)

    # -- client half -----------------------------------------------------------------------------

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the sample as records of bytes: item and count."""
        items = users.counts
        rows = random_clip(items, self.clip, _words(rng), keep_zeros=self.raw_support)
        data, indptr = pack_records(items.vocabulary, *rows)
        return Report(users.ids, ragged={"records": data}, indptr=indptr)

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Sample and add up by vocabulary position; strings only for the items that occur."""
        vocabulary = users.vocabulary
        total = np.zeros(len(vocabulary), dtype=np.int64)
        held = np.zeros(len(vocabulary), dtype=np.bool_) if self.raw_support else None
        for chunk in users.blocks(CHUNK):
            add_random_clip(chunk.counts, self.clip, _words(rng(chunk)), total, held)
        order = vocabulary.byte_order
        found = order[(total if held is None else held)[order] > 0]
        keys = Keys.of([vocabulary[int(j)] for j in found])
        return Summary(len(users), keyed={"counts": Keyed(keys, total[found])})

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        """Add up by item."""
        data = report.ragged["records"]
        if report.indptr is None:
            raise WireError("rows of records are expected, got none")
        _, starts, lengths, sent = parse_records(data, report.indptr, int(not self.raw_support))
        keys, item = intern_records(data, starts, lengths)
        counts = np.zeros(len(keys), dtype=np.int64)
        np.add.at(counts, item, sent.astype(np.int64))
        return Summary(report.n_users, keyed={"counts": Keyed(keys, counts)})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row is a histogram of at most ``clip`` tokens."""
        indptr, data = only_rows(report, "records"), report.ragged["records"]
        rows, starts, lengths, sent = parse_records(data, indptr, int(not self.raw_support))
        Bounds((None,), "u", 0, self.clip).check("records", sent)
        intern_records(data, starts, lengths)
        before = np.concatenate(([0], np.cumsum(sent.astype(np.int64))))
        size = before[rows[1:]] - before[rows[:-1]]
        if (size > self.clip).any():
            raise WireError(f"a row adds up to {int(size.max())}, more than clip = {self.clip}")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Each item at least once (or never, with the raw support), at most clip per user."""
        least = 0 if self.raw_support else 1
        return {"counts": Bounds((None,), "i", least, n_users * self.clip, part="keyed")}

    def check_summary(self, summary: Summary) -> None:
        """Bound the sum over all items as well."""
        super().check_summary(summary)
        size = float(summary.keyed["counts"].values.sum(dtype=np.float64))
        if size > summary.n_users * self.clip * (1 + 1e-9):
            most = f"{summary.n_users} users of {self.clip} each"
            raise WireError(f"'counts' adds up to {size:.15g}, more than {most}")


def _words(rng: Streams) -> Words:
    """One private word per user, whatever its record."""
    return rng.substream("random-clip").words(1)[:, 0]
