"""Means and quantiles of each public group, of users who are in one group at most.

Central: the protocol runs once for each group, over all users; those who are not in the group have
an empty record there. A group's size is not public, so each run is stated under add-remove-user,
where an empty record changes the law of nothing. Local: a user reports a pair of its group and a
cell of its number, through one frequency oracle; all is read off the shares of the pairs.

Privacy of the central runs, which draw independent noise. Emptying a user's record, or adding a
user, changes one group's run, by as much: the runs together cost what one of them does. Another
record in the same group is a replacement in one run. A user who moves from one group to another is
taken out of one run and put into another: two runs change, each by one step, and their costs add
up. A vector of all groups' sums moves by twice the l1 norm of one record then, and by sqrt(2) times
its l2 norm. The cost under replacement is the larger one of the two.

Privacy of the local report: epsilon-LDP for group and number together, as the oracle is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from clients.randomizers.scalars import bin_indices
from clients.records.user_rows import coordinate_points
from fedhist.base.arrays import Floats
from fedhist.base.errors import PopulationError
from fedhist.model.protocol import Estimate, Protocol
from fedhist.privacy.guarantee import Adjacency, Release, Trust
from fedhist.privacy.ledger import Entry, Ledger, whole
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from server.targets.domains import project_simplex
from simulations.runs.columns import Groups
from simulations.runs.run import planned_cost

TARGETS = ("mean", "quantiles")
ENDS, GROUP_STEPS = 2, 1 << 20
"""Cells of a number whose mean is asked for: the ends of its range, between which it is rounded."""


@dataclass(frozen=True)
class ByGroup:
    """A release by group: who is in which, and the protocol that was asked for."""

    groups: Groups
    asked: Protocol
    users: Users

    def __post_init__(self) -> None:
        given: Any = self.asked
        if given.target not in TARGETS or getattr(given, "dimension", 1) != 1:
            raise ValueError(
                "by is for histograms, for means of one coordinate, and for quantiles; "
                f"{given.name} estimates another {given.target}"
            )
        if getattr(given, "low", None) is None or getattr(given, "trust", None) is not None:
            raise ValueError(
                f"by needs a protocol with a public range low to high, under central or local "
                f"trust; {given.name} is not one as it is set"
            )
        if given.guarantee.trust is Trust.CENTRAL and not hasattr(given, "adjacency"):
            raise ValueError(
                f"by needs a protocol that can hide a group's size; {given.name} cannot"
            )

    # -- local: pairs of a group and a cell

    @property
    def n_cells(self) -> int:
        """Cells of a number."""
        return ENDS if self.asked.target == "mean" else int(vars(self.asked)["n_bins"])

    @property
    def domain(self) -> Keys:
        """All pairs, group by group."""
        return self.groups.domain(Keys.range(self.n_cells))

    @property
    def cells(self) -> Users:
        """The users with the cells of their numbers as items; a mean lies at both ends, in parts.

        A frequency oracle draws one of a user's items by its count, which rounds the mean.
        """
        p: Any = self.asked
        if p.target == "mean":
            own = coordinate_points(self.users.reals, p.low, p.high)[:, 0]
            owner = np.flatnonzero(~np.isnan(own))
            share = (np.clip(own[owner], p.low, p.high) - p.low) / (p.high - p.low)
            top = np.rint(share * GROUP_STEPS).astype(np.int64)
            cell, count = np.repeat([0, 1], len(owner)), np.concatenate((GROUP_STEPS - top, top))
            owner = np.tile(owner, 2)
        else:
            owner, x = p.grid.points(self.users)
            cell, count = bin_indices(x, p.low, p.high, p.n_bins), np.ones(len(x), dtype=np.int64)
        names = Keys.range(self.n_cells)
        return self.groups.pairs(Users.from_counts(self.users.ids, owner, cell, count, names))

    def read_cells(self, estimate: Estimate) -> list[Estimate]:
        """Read each group's statistic off the shares of its cells."""
        shape, p = (len(self.groups.names), self.n_cells), vars(self.asked)
        shares = estimate.needed(self.asked.name).reshape(shape)
        errors = np.asarray(estimate.stderr).reshape(shape)
        read = self._mean if self.asked.target == "mean" else self._quantiles
        out = []
        for own, stderr in zip(shares, errors, strict=True):
            if not own.sum() > 2 * math.sqrt(np.square(stderr).sum()):
                out.append(Estimate.failed("too few users to tell from noise"))
                continue
            out.append(read(own, stderr, estimate.public["n_report"], p["low"], p["high"]))
        return out

    def _mean(self, own: Floats, error: Floats, n: float, low: float, high: float) -> Estimate:
        size, top = own.sum(), own[1] / own.sum()
        # of a ratio; one user is in one cell, so that the two shares are drawn apart
        variance = (1 - top) ** 2 * error[1] ** 2 + top**2 * error[0] ** 2
        variance += 2 * top * (1 - top) * max(own[0] * own[1], 0.0) / n
        stderr = (high - low) * math.sqrt(variance) / size
        return Estimate.ok(
            [low + (high - low) * min(max(top, 0.0), 1.0)], stderr=np.array([stderr])
        )

    def _quantiles(self, own: Floats, error: Floats, n: float, low: float, high: float) -> Estimate:
        curve = np.cumsum(project_simplex(own / own.sum()))
        p: Any = self.asked
        at = np.minimum(np.searchsorted(curve, p.levels), p.n_bins - 1)
        return Estimate.ok(p.grid.midpoints[at])

    # -- what is shown

    def truths(self, estimates: Sequence[Estimate]) -> list[tuple[Floats | None, float]]:
        """Return each group's truth, None without usable users, and the loss. NOT PRIVATE."""
        out: list[tuple[Floats | None, float]] = []
        for g, estimate in enumerate(estimates):
            members = self.users.take(np.flatnonzero(self.groups.of == g))
            try:
                truth = np.atleast_1d(self.asked.truth(members)) if len(members) else None
            except PopulationError:
                truth = None
            usable = truth is not None and estimate.value is not None
            out.append((truth, self.asked.loss_of(estimate, members) if usable else math.nan))
        return out


def planned_by_group(protocol: Protocol, adjacency: Adjacency) -> Release:
    """State what the runs of a protocol, one for each group, may cost together."""
    costs = {a: planned_cost(protocol, a) for a in {adjacency, Adjacency.ZERO_OUT_USER}}
    return _together(costs, adjacency)


def charged_by_group(label: str, ledgers: Sequence[Ledger], adjacency: Adjacency) -> Entry:
    """State what the runs, one for each group, have cost together: the worst groups count."""
    asked = {adjacency, Adjacency.ZERO_OUT_USER}
    costs = {a: _worst([whole(ledger.under(a)) for ledger in ledgers]) for a in asked}
    return Entry(label, _together(costs, adjacency), adjacency=adjacency)


def _together(costs: dict[Adjacency, Release], adjacency: Adjacency) -> Release:
    one, emptied = costs[adjacency], costs[Adjacency.ZERO_OUT_USER]
    if adjacency is not Adjacency.REPLACE_USER:
        return one
    moved = Release(**{c: 2 * x for c, x in vars(emptied).items()})
    return _worst([one, moved])


def _worst(costs: Sequence[Release]) -> Release:
    return Release(**{c: max(vars(r)[c] for r in costs) for c in vars(costs[0])})
