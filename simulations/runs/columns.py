"""Columns of one table: the same users' items, numbers and groups, each as users of its own.

Whoever stands in the table is a user of every column, with an empty record where a column holds
nothing: a record that is replaced then changes no column's number of users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedhist.base.arrays import Integers, Words, offsets
from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from fedhist.users.shards import Items, Samples
from fedhist.users.tables import read_user_ids
from simulations.populations import Loaded, population
from simulations.populations.files import Events, SampleFile

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
