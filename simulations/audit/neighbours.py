"""Neighbouring populations: a population in which one user's record is changed.

The records of that user are the extremes of :mod:`simulations.audit.inputs`: emptied, made huge,
all on one new item that nobody else holds, on every item at once. The other users are those of the
protocol's example. All of it only directs the search; a bound is certified whatever was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import numpy as np
from numpy.typing import NDArray

from fedhist.model.protocol import Protocol
from fedhist.model.query import Query
from fedhist.privacy.guarantee import Adjacency
from fedhist.users.batch import Users, join
from fedhist.users.keys import Keys
from simulations.audit.finding import Settings
from simulations.audit.inputs import ItemSpace, Record, SampleSpace, Space, space_of


@dataclass(frozen=True)
class Population:
    """A population, and what is special about it in words."""

    users: Users
    words: str


@dataclass(frozen=True)
class Changes:
    """What one user may hold, and which two records make two populations neighbours.

    ``users``: the example population; ``records``: with their words; None is a user who is not
    there; ``adjacent``: (k, k) bool.
    """

    users: Users
    space: Space
    records: tuple[tuple[Record | None, str], ...]
    adjacent: NDArray[np.bool_]

    @classmethod
    def of(
        cls, protocol: Protocol, users: Users, queries: Sequence[Query], settings: Settings
    ) -> Changes:
        """List the records.

        Raises ValueError if ``settings.records`` are given, and are no neighbours as the protocol
        declares.
        """
        adjacency = protocol.guarantee.adjacency
        users, space = _space(users, queries, single=adjacency is Adjacency.REPLACE_ITEM)
        distinct: dict[tuple[object, ...], tuple[Users, Record | None, str]] = {}
        for record, words in _records(space, adjacency, settings):
            alone = users.slice(0, 0) if record is None else space.user(record, 0)
            distinct.setdefault(tuple(_by_id(alone).items()), (alone, record, words))
        adjacent = neighbour_table([b for b, _, _ in distinct.values()], adjacency)
        if not adjacent.any():
            raise ValueError(f"no two of the records make neighbours: {adjacency.in_words}")
        return cls(users, space, tuple((r, w) for _, r, w in distinct.values()), adjacent)

    def populations(self) -> list[Population]:
        """Give the first user each of the records, and all others what they hold."""
        others, own = self.users.take(np.arange(1, len(self.users))), int(self.users.ids[0])
        return [
            Population(
                others if record is None else join([others, self.space.user(record, own)]),
                f"the example population; user {own}: {words}",
            )
            for record, words in self.records
        ]


def named(protocol: Protocol) -> tuple[Population, Population] | None:
    """Return the pair that a protocol is weakest on: its class method ``neighbours`` names it.

    Raises ValueError if the two populations are no neighbours.
    """
    pair = getattr(protocol, "neighbours", None)
    if pair is None:
        return None
    first, second = pair()
    adjacency = protocol.guarantee.adjacency
    if not are_neighbours(first, second, adjacency):
        raise ValueError(
            f"{protocol.name} names two populations that are no neighbours: {adjacency.in_words}"
        )
    words = "the {} population that the protocol names"
    return Population(first, words.format("first")), Population(second, words.format("second"))


def are_neighbours(first: Users, second: Users, adjacency: Adjacency) -> bool:
    """Say whether two populations differ in one user at most, as an adjacency allows it."""
    return _differ_in_one(_by_id(first), _by_id(second), adjacency)


def neighbour_table(populations: Sequence[Users], adjacency: Adjacency) -> NDArray[np.bool_]:
    """Compare populations pair by pair, none with itself: (k, k)."""
    records = [_by_id(users) for users in populations]
    out = np.zeros((len(records), len(records)), dtype=bool)
    for i, j in combinations(range(len(records)), 2):
        out[i, j] = out[j, i] = _differ_in_one(records[i], records[j], adjacency)
    return out


def _differ_in_one(a: _ById, b: _ById, adjacency: Adjacency) -> bool:
    if adjacency is Adjacency.ADD_REMOVE_USER:
        shared = a.keys() & b.keys()
        return len(a.keys() ^ b.keys()) <= 1 and all(a[i] == b[i] for i in shared)
    changed = [i for i in a.keys() & b.keys() if a[i] != b[i]]
    if a.keys() != b.keys() or len(changed) > 1:
        return False
    x, y = (a[changed[0]], b[changed[0]]) if changed else ((), ())
    if adjacency is Adjacency.ZERO_OUT_USER:
        return not (x and y)
    if adjacency is Adjacency.REPLACE_ITEM:
        one, other = Counter[object](), Counter[object]()
        for record, counted in ((x, one), (y, other)):
            for name, count in record:
                counted[name] += count
        return one.total() == other.total() and (one - other).total() <= 1
    return True


def _space(users: Users, queries: Sequence[Query], *, single: bool) -> tuple[Users, Space]:
    """Describe records of one user; items get one vocabulary for all the populations."""
    if users.items is None:
        return users, space_of(queries, users, single=single)
    names = dict.fromkeys(users.vocabulary)
    for query in queries:
        domain = getattr(query, "domain", None)
        names |= dict.fromkeys(domain if isinstance(domain, Keys) else ())
    # the users' items keep their numbers
    space = space_of((), _renumbered(users, Keys.of(names)))
    if not isinstance(space, ItemSpace):
        raise TypeError(f"records of items are expected, got {type(space).__name__}")
    return _renumbered(users, space.vocabulary), space


def _renumbered(users: Users, longer: Keys) -> Users:
    return Users(users.ids, items=replace(users.counts, vocabulary=longer))


def _records(
    space: Space, adjacency: Adjacency, settings: Settings
) -> list[tuple[Record | None, str]]:
    """List the changed user's records; None, the first, is a user who is not there."""
    if settings.records:
        given = [space.parse(r) for r in settings.records]
        if adjacency is Adjacency.ZERO_OUT_USER and all(len(r) for r in given):
            raise ValueError(f"one of the two records has to be empty: {adjacency.in_words}")
        return [*_absent(adjacency), *((r, space.words(r)) for r in given)]
    found = space.extremes(np.random.default_rng(settings.seed))
    if adjacency is Adjacency.REPLACE_ITEM:
        found = [*_singles(found, space), *_one_of_many(found, space)]
    elif adjacency is Adjacency.ZERO_OUT_USER:
        found = [_nothing(space), *(r for r in found if len(r))]
    return [*_absent(adjacency), *((r, space.words(r)) for r in found)]


def _absent(adjacency: Adjacency) -> list[tuple[Record | None, str]]:
    return [(None, "is not there")] if adjacency is Adjacency.ADD_REMOVE_USER else []


def _nothing(space: Space) -> Record:
    return {} if isinstance(space, ItemSpace) else space.parse([])


def _singles(found: Sequence[Record], space: Space) -> list[Record]:
    """Keep the records of one item."""
    return [r for r in found if (sum(r.values()) if isinstance(space, ItemSpace) else len(r)) == 1]


def _one_of_many(found: Sequence[Record], space: Space) -> list[Record]:
    """Put every item of a record of one beside the same others: those of an example user."""
    singles = _singles(found, space)
    if isinstance(space, ItemSpace):
        most = max(space.seen, key=lambda r: sum(r.values()), default={})
        rest = Counter(most) - Counter(list(most)[:1])
        return [dict(rest + Counter(r)) for r in singles] if rest else []
    seen = space.seen if isinstance(space, SampleSpace) else ()
    rows = max(seen, key=len)[1:] if seen else _nothing(space)
    return [np.concatenate((r, rows)) for r in singles] if len(rows) else []


_ById = dict[int, tuple[tuple[object, int], ...]]


def _by_id(users: Users) -> _ById:
    """Return each user's record in a form that can be compared: items, or samples, and counts."""
    records: list[tuple[tuple[object, int], ...]]
    if users.items is None:
        p, rows = users.reals.indptr, users.reals.values
        records = [tuple((r.tobytes(), 1) for r in rows[a:b]) for a, b in pairwise(p.tolist())]
    else:
        table = users.counts
        pairs = zip(table.item.tolist(), table.count.tolist(), strict=True)
        named = [(table.vocabulary[j], c) for j, c in pairs]
        records = [tuple(sorted(named[a:b])) for a, b in pairwise(table.indptr.tolist())]
    return dict(zip(users.ids.tolist(), records, strict=True))
