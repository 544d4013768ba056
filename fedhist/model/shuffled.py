"""Shuffled: a local query whose reports reach the server through a shuffler.

The users' half is the query's own, and so is the promise to a user who trusts nobody. The server
gets what a shuffler passes on: the multiset of each batch's reports, of which our queries need sums
alone. Sums are functions of the multiset, so they promise what it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fedhist.base.arrays import Bounds
from fedhist.base.checks import check_integer
from fedhist.base.errors import BatchWithheld
from fedhist.model.finite import FiniteChannel
from fedhist.model.query import Around, LocalQuery, Query, Report, Summary
from fedhist.model.registry import register_query
from fedhist.privacy.guarantee import Release, Trust, approximate
from fedhist.users.batch import Users
from fedhist.users.shards import Shard


@register_query
@dataclass(frozen=True)
class Shuffled(Around):
    """Reports of a local query, shuffled by batch: one for each fold, or one of the whole cohort.

    The reports are read alike, whoever of a batch sends them
    (:attr:`~fedhist.model.query.LocalQuery.hiding`).

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record, replace, with the epsilon of ``least`` reports
    (:func:`~fedhist.privacy.shuffling.shuffled_epsilon`), if the shuffler is honest: a batch with
    fewer than least + colluders users is not passed on. Against the shuffler, and on the node, what
    the query itself costs.
    """

    wire_name: ClassVar[str] = "shuffled"
    trust: ClassVar[Trust] = Trust.SHUFFLE

    query: Query
    delta: float
    least: int  # honest users who report in each batch, never in all together
    colluders: int = 0  # other users whose reports the server may know

    def __post_init__(self) -> None:
        if not isinstance(self.query, LocalQuery):
            raise ValueError(f"a shuffler takes local reports; {self.query.label!r} has none")
        if self.query.hiding is None:
            raise ValueError(
                f"the reports of {self.query.label!r} are read with their users' ids, which a "
                "shuffler takes off"
            )
        unsummed = [name for name, x in self.query.bounds(1).items() if x.part != "sums"]
        if unsummed:
            raise ValueError(
                f"{self.query.label!r} keeps {unsummed[0]!r} user by user, not as a sum"
            )
        if not 0 < self.delta < 1:
            raise ValueError(f"shuffling needs a delta in (0, 1), got {self.delta}")
        check_integer("least", self.least)
        check_integer("colluders", self.colluders, least=0)
        object.__setattr__(self, "cohort", self.query.cohort)

    @property
    def local(self) -> LocalQuery:
        """The query, which is local."""
        if not isinstance(self.query, LocalQuery):  # as was checked
            raise TypeError(f"{self.query!r} is not local")
        return self.query

    @property
    def label(self) -> str:
        return f"{self.query.label}, shuffled"

    @property
    def release(self) -> Release:
        hiding = self.local.hiding
        if hiding is None:  # as was checked
            raise TypeError(f"{self.query!r} names its users")
        from fedhist.privacy.shuffling import shuffled_epsilon  # where somebody shuffles only

        epsilon = shuffled_epsilon(self.least, self.query.release.epsilon, self.delta, hiding)
        return approximate(epsilon, self.delta)

    @property
    def exact(self) -> bool:
        return self.query.exact

    def finite_channel(self) -> FiniteChannel | None:
        return self.query.finite_channel()

    # -- client half: the query's own

    def draw_summary(self, users: Users, rng: np.random.Generator) -> Summary:
        return self.query.draw_summary(users, rng)

    def draw_reports(self, users: Users, rng: np.random.Generator) -> Report | None:
        return self.query.draw_reports(users, rng)

    def summary_law(
        self, users: Shard, cache: dict[str, Any]
    ) -> Callable[[np.random.Generator], Summary] | None:
        return self.query.summary_law(users, cache)

    # -- the shuffler, and the server behind it

    def check(self, report: Report) -> None:
        self.query.check(report)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        return self.query.bounds(n_users)

    def check_summary(self, summary: Summary) -> None:
        self.query.check_summary(summary)

    def lift(self, total: Summary, nodes: int) -> Summary:
        """Pass the batches on: sums, which know neither users nor nodes nor an order.

        Raises BatchWithheld if one of them is too small; then nothing of the others is passed on,
        either.
        """
        self.check_sizes(total)
        return Summary(total.n_users, total.sums)

    def check_sizes(self, total: Summary) -> None:
        """Raise BatchWithheld unless every batch has the reports that hide each of them."""
        needed = self.least + self.colluders
        sizes = self.local.batch_sizes(total)
        few = int(np.count_nonzero(sizes < needed))
        if few:
            raise BatchWithheld(needed, few, len(sizes))
