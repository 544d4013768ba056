"""Columns of one table: the same users' items, numbers and groups, each as users of its own.

Whoever stands in the table is a user of every column, with an empty record where a column holds
nothing: a record that is replaced then changes no column's number of users.

Means and quantiles by group: the protocol runs once for each public group, over all users, of whom
those who are not in the group have an empty record there. A user is in one group at most. A group's
size is not public, so each run is stated under add-remove-user, where an empty record changes the
law of nothing. The runs draw independent noise. Emptying a user's record, or adding a user, changes
one group's run, by as much: the runs together cost what one of them does. Another record in the
same group is a replacement in one run. A user who moves from one group to another is taken out of
one run and put into another: two runs change, each by one step, and their costs add up. A vector of
all groups' sums moves by twice the l1 norm of one record then, and by sqrt(2) times its l2 norm.
The cost under replacement is the larger one of the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedhist.base.arrays import Floats, Integers, Words, offsets
from fedhist.base.errors import PopulationError
from fedhist.model.protocol import Estimate, Protocol
from fedhist.privacy.guarantee import Adjacency, Release, Trust
from fedhist.privacy.ledger import Entry, Ledger, whole
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Items, Samples
from fedhist.users.tables import read_user_ids
from simulations.populations import Loaded, population
from simulations.populations.files import Events, SampleFile
from simulations.runs.run import planned_cost

KIND = "table"
BETWEEN = " / "
"""Stands between a group and an item in the name of a pair; no group's name holds it."""


@dataclass(frozen=True)
class Groups:
    """Which of the public groups each user is in.

    ``column``: for errors and tables; ``names``: of the groups; ``of``: (n,) int64, the user's
    group by its place among the names, -1 for none of them.
    """

    column: str
    names: tuple[str, ...]
    of: Integers

    def only(self, users: Users, group: int) -> Users:
        """Return all users, whose records are empty unless they are in a group."""
        return aligned(users.take(np.flatnonzero(self.of == group)), users.ids)

    def pairs(self, users: Users) -> Users:
        """Return the users with pairs of their group and an item in the place of items."""
        items = users.counts
        owner = np.repeat(np.arange(len(users)), users.n_items())
        inside = self.of[owner] >= 0
        size = len(items.vocabulary)
        pair = self.of[owner][inside] * size + items.item[inside]
        used, place = np.unique(pair, return_inverse=True)
        names = Keys.of(
            self.names[g] + BETWEEN + items.vocabulary[j]
            for g, j in zip(*(x.tolist() for x in np.divmod(used, max(size, 1))), strict=True)
        )
        return Users.from_counts(users.ids, owner[inside], place, items.count[inside], names)

    def domain(self, items: Keys) -> Keys:
        """Return all pairs of a group and an item of a public domain."""
        return Keys.of(group + BETWEEN + item for group in self.names for item in items)


class Columns:
    """The columns of a table [population] of the kind "table", each read once.

    Its keys are those of events and samples, but for their columns, which releases name.
    """

    def __init__(self, table: Mapping[str, Any]) -> None:
        self._table = {k: v for k, v in table.items() if k not in ("kind", "max_users")}
        self._most = table.get("max_users")
        self._read: dict[str, Loaded] = {}
        if not {"path", "user"} <= self._table.keys():
            raise ValueError("population needs path and user: a file, and its column of users")
        named = self._spec({"item": self._table["user"], "max_users": self._most})
        ids = read_user_ids(Path(named.path), named.user, named)
        self.ids = ids[: self._most] if self._most else ids

    def plan(self, columns: Mapping[str, Any]) -> Loaded:
        """Read a column of items or of numbers, of all users of the table.

        ``columns``: the keys of events or of samples that name it. PopulationError and ValueError
        with the offending key, column or row.
        """
        key = repr(sorted(columns.items()))
        if key not in self._read:
            loaded = self._spec(columns).load()
            users = aligned(loaded.users, self.ids)
            named = ", ".join(map(str, columns.values()))
            title = f"{named} of {Path(self._table['path']).name}: {len(users):,} users"
            self._read[key] = replace(loaded, users=users, title=title)
        return self._read[key]

    def groups(self, column: str | int, names: Sequence[str]) -> Groups:
        """Read in which group each user is.

        Raises PopulationError if a user is in two; ValueError for names that are no groups.
        """
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice or not names:
            what = f"{twice[0]!r} stands twice, groups overlap" if twice else "none is named"
            raise ValueError(f"groups must name the public groups of {column!r}: {what}")
        if bad := [name for name in names if BETWEEN in name]:
            raise ValueError(f"groups must not hold {BETWEEN!r}, got {bad[0]!r}")
        users = self.plan({"item": column}).users
        sizes = users.n_items()
        if (sizes > 1).any():
            u = users.slice(first := int(np.argmax(sizes > 1)), first + 1)
            two = [u.vocabulary[j] for j in u.counts.item[:2].tolist()]
            raise PopulationError(
                f"column {column!r}: {np.count_nonzero(sizes > 1):,} users are in two groups, one "
                f"of them in {two[0]!r} and {two[1]!r}: a user must be in one group"
            )
        of = np.full(len(users), -1)
        of[sizes == 1] = Keys.of(names).positions(users.vocabulary)[users.counts.item]
        return Groups(str(column), tuple(names), of)

    def _spec(self, columns: Mapping[str, Any]) -> Any:
        kind = Events.kind if "item" in columns else SampleFile.kind
        try:
            return population(kind, **self._table, **columns)
        except TypeError as e:
            raise ValueError(str(e).replace(f"population {kind!r}", "population 'table'")) from None


def aligned(users: Users, ids: Words) -> Users:
    """Return the users with these ids, increasing; those whom ``users`` lacks have no record."""
    if not (users.ids[1:] > users.ids[:-1]).all():
        users = users.take(np.argsort(users.ids))
    inside = np.isin(users.ids, ids, assume_unique=True)
    users = users if inside.all() else users.take(np.flatnonzero(inside))
    sizes = np.zeros(len(ids), dtype=np.int64)
    sizes[np.searchsorted(ids, users.ids)] = users.n_items()
    if users.items is not None:
        items = users.items
        return Users(ids, items=Items(items.vocabulary, offsets(sizes), items.item, items.count))
    return Users(ids, samples=Samples(offsets(sizes), users.reals.values))


TARGETS = ("mean", "quantiles")


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
        ranged = getattr(given, "low", None) is not None and hasattr(given, "adjacency")
        if given.guarantee.trust is not Trust.CENTRAL or not ranged:
            raise ValueError(
                f"by needs a public range low to high, central trust and an adjacency that hides a "
                f"group's size, which {given.name} has not as it is set: a histogram needs none"
            )

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
