"""What the naive local baselines share: one report over the whole range, in three methods."""

from __future__ import annotations

import math
from typing import Literal

from fedhist.base.checks import check_choice, check_integer
from fedhist.base.text import warned
from fedhist.channels.catalogue import KINDS, ScalarChannel, scalar_channel
from fedhist.model.query import Summary
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust, check_budget
from fedhist.protocols.baselines.scalar_reports import ItemScalars, SampledScalar
from fedhist.protocols.localize.queries import ClippedMean
from fedhist.protocols.shared.noninteractive import NonInteractive
from fedhist.protocols.shared.sample_sizes import PlannedSizes

Method = Literal["user-mean", "one-item", "item-level"]
"""A report about the mean of a user's samples, about one of them, or about each by itself."""

SCALAR_QUERIES = {
    "user-mean": ClippedMean,
    "one-item": SampledScalar,
    "item-level": ItemScalars,
}


class NaiveReport(NonInteractive, PlannedSizes):
    """A local protocol of one round without localization; subclasses have these fields."""

    n_users: int
    method: Method
    samples_per_user: float | None
    kind: str

    def check_report(self) -> None:
        """Raise ValueError for a field that is out of range."""
        check_budget(self.epsilon)
        check_integer("n_users", self.n_users, 1 << 32)
        check_choice("kind", self.kind, KINDS)
        size = self.samples_per_user
        if size is None and self.item_level:
            raise ValueError("item-level privacy needs samples_per_user, got None")
        if size is not None and not (isinstance(size, int | float) and 1 <= size < math.inf):
            raise ValueError(f"samples_per_user must be a number of at least 1, got {size!r}")

    @property
    def item_level(self) -> bool:
        """Whether single samples are protected, and not users."""
        return self.method == "item-level"

    @property
    def planned_reports(self) -> float:
        """Reports that the planned users send."""
        return self.n_users * ((self.samples_per_user or 1.0) if self.item_level else 1.0)

    @property
    def channel(self) -> ScalarChannel:
        """What happens to a scalar; without noise the channel that is then exact."""
        return scalar_channel(
            "laplace" if math.isinf(self.epsilon) else self.kind, float(self.epsilon)
        )

    @property
    def guarantee(self) -> Guarantee:
        """The budget, for a user or for a sample."""
        if self.item_level:
            return Guarantee(self.epsilon, 0.0, Trust.LOCAL, Adjacency.REPLACE_ITEM, unit="item")
        return super().guarantee

    def told(self, summary: Summary) -> tuple[dict[str, float], list[str]]:
        """Return the public numbers of a run, and the warning of what protects no user."""
        public = {"n_report": float(summary.n_users)}
        if not self.item_level:
            return public, []
        public["n_items"] = float(summary.sums["items"].sum())
        size = self.samples_per_user or 1.0
        public["user_level_epsilon"] = size * self.epsilon
        warning = warned(
            f"epsilon = {self.epsilon:g} holds for one item, NOT for a user",
            f"it is {size * self.epsilon:g} for a user of {size:g} items, whose history is not "
            "protected",
            "take another method for user-level privacy",
        )
        return public, [warning]
