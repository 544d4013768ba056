"""The query behind a release of keys: each user names some of its distinct items at random."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clients.bounding.sampling import random_clip
from fedhist.base.arrays import Bounds
from fedhist.base.checks import check_integer
from fedhist.base.errors import WireError
from fedhist.model.query import CHUNK, Keyed, Query, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Trust
from fedhist.protocols.shared.item_rows import intern_records, pack_records, parse_records
from fedhist.protocols.shared.ragged_rows import only_rows
from fedhist.session.weighted_keys import MOST_KEYS, WEIGHT, weight_of
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.columns import Items
from fedhist.users.keys import Keys
from fedhist.users.streams import Streams


@register_query
@dataclass(frozen=True)
class DistinctKeys(Query):
    """Each user names at most ``limit`` of its distinct items, a uniform sample.

    Parameters
    ----------
    limit : int
        D, at least 1.
    cohort : Cohort, optional

    Privacy
    -------
    The server gives each of t items of a user the weight floor(2^20 / sqrt(t)): a row has l2 norm
    at most 2^20 whatever the coins. It is exact: the server is trusted with it, strings included.
    """

    wire_name: ClassVar[str] = "distinct-keys"
    trust: ClassVar[Trust] = Trust.CENTRAL

    limit: int
    cohort: Cohort | None = None

    def __post_init__(self) -> None:
        check_integer("limit", self.limit, MOST_KEYS)

    # -- client half -----------------------------------------------------------------------------

    def answer(self, users: Users, rng: Streams) -> Report:
        """Send the sample as records of bytes, each item with count 1."""
        items = users.counts
        data, indptr = pack_records(items.vocabulary, *self._sample(items, rng))
        return Report(users.ids, ragged={"records": data}, indptr=indptr)

    def answer_folded(self, users: Users, rng: Callable[[Users], Streams]) -> Summary:
        """Sample and add up by vocabulary position; strings only for the items that are sent."""
        vocabulary = users.vocabulary
        total = np.zeros(len(vocabulary), dtype=np.int64)
        for chunk in users.blocks(CHUNK):
            indptr, item, _ = self._sample(chunk.counts, rng(chunk))
            np.add.at(total, item, self._weights(indptr))
        order = vocabulary.byte_order
        found = order[total[order] > 0]
        keys = Keys.of([vocabulary[int(j)] for j in found])
        return Summary(len(users), keyed={"weights": Keyed(keys, total[found])})

    def _sample(
        self, items: Items, rng: Streams
    ) -> tuple[NDArray[np.int64], NDArray[np.unsignedinteger], NDArray[np.uint64]]:
        once = replace(items, count=np.ones_like(items.count))
        return random_clip(once, self.limit, rng.substream("distinct-keys").words(1)[:, 0])

    def _weights(self, indptr: NDArray[np.int64]) -> NDArray[np.int64]:
        """Weight of every entry of rows: (nnz,)."""
        sizes = np.diff(indptr)
        table = [0, *(weight_of(t) for t in range(1, int(sizes.max(initial=0)) + 1))]
        return np.repeat(np.array(table, dtype=np.int64)[sizes], sizes)

    # -- server half -----------------------------------------------------------------------------

    def fold(self, report: Report) -> Summary:
        """Add up the weights by item."""
        data = report.ragged["records"]
        if report.indptr is None:
            raise WireError("rows of records are expected, got none")
        indptr, starts, lengths, _ = parse_records(data, report.indptr)
        keys, item = intern_records(data, starts, lengths)
        total = np.zeros(len(keys), dtype=np.int64)
        np.add.at(total, item, self._weights(indptr))
        return Summary(report.n_users, keyed={"weights": Keyed(keys, total)})

    def check(self, report: Report) -> None:
        """Raise WireError unless every row names at most ``limit`` items, once each."""
        indptr, data = only_rows(report, "records"), report.ragged["records"]
        rows, starts, lengths, counts = parse_records(data, indptr)
        Bounds((None,), "u", 1, 1).check("records", counts)
        intern_records(data, starts, lengths)
        most = int(np.diff(rows).max(initial=0))
        if most > self.limit:
            raise WireError(f"a row names {most} items, more than limit = {self.limit}")

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        """Each item has one user's least weight at least, and everybody's whole at most."""
        least = weight_of(self.limit)
        return {"weights": Bounds((None,), "i", least, n_users * WEIGHT, part="keyed")}

    def check_summary(self, summary: Summary) -> None:
        """Bound the norms over all items as well: n in l2, n sqrt(D) in l1."""
        super().check_summary(summary)
        weights = summary.keyed["weights"].values.astype(np.float64) / WEIGHT
        n, room = summary.n_users, 1 + 1e-9
        if float(np.linalg.norm(weights)) > n * room or weights.sum() > n * self.limit**0.5 * room:
            raise WireError(
                f"'weights' has l2 norm {np.linalg.norm(weights):g} and l1 norm {weights.sum():g}, "
                f"more than {n} users of {self.limit} items each can have"
            )
