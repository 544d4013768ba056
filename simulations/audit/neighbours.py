"""The two neighbouring populations on which whole runs are compared.

Any pair is valid: a bound is certified whatever it is. A pair on which the protocol is not weakest
only certifies less.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from fedhist.model.protocol import Protocol
from fedhist.model.query import Query
from fedhist.privacy.guarantee import Adjacency
from fedhist.users.batch import Users, join
from simulations.audit.finding import Settings
from simulations.audit.inputs import ItemSpace, Record, Space, space_of


@dataclass(frozen=True)
class Population:
    """A population, and what is special about it in words."""

    users: Users
    words: str


def pair_of(
    protocol: Protocol, queries: Sequence[Query], settings: Settings
) -> tuple[Population, Population]:
    """Return the pair of populations that is compared.

    With ``settings.records`` the example population, one user of which holds the one or the other
    (None: is not there); else the pair that the protocol is weakest on, if its class method
    ``neighbours`` names one; else the example with two records that lie far apart.

    Raises ValueError if the two are no neighbours as the protocol declares.
    """
    adjacency, named = protocol.guarantee.adjacency, getattr(protocol, "neighbours", None)
    if named is not None and not settings.records:
        words = ("the first population that the protocol names", "the second one")
        first, second = (Population(u, w) for u, w in zip(named(), words, strict=True))
    else:
        first, second = _changed(protocol, queries, settings)
    if not are_neighbours(first.users, second.users, adjacency):
        raise ValueError(
            f"{protocol.name}: {first.words} and {second.words} are no neighbours: "
            f"{adjacency.in_words}"
        )
    return first, second


def _changed(
    protocol: Protocol, queries: Sequence[Query], settings: Settings
) -> tuple[Population, Population]:
    """Give one user of the example population the one and the other of two records."""
    adjacency = protocol.guarantee.adjacency
    users, space = shared_space(protocol.example_users(), queries)
    others, own = users.take(np.arange(1, len(users))), int(users.ids[0])

    def population(record: Record | None) -> Population:
        words = "is not there" if record is None else space.words(record)
        held = [] if record is None else [space.user(record, own)]
        return Population(join([others, *held]), f"the example population; user {own}: {words}")

    if settings.records:
        first, second = (None if r is None else space.parse(r) for r in settings.records)
        return population(first), population(second)
    low, high = space.far_apart(single=adjacency is Adjacency.REPLACE_ITEM)
    if adjacency is Adjacency.ADD_REMOVE_USER:
        low = None
    elif adjacency is Adjacency.ZERO_OUT_USER:
        low = space.nothing
    return population(low), population(high)


def are_neighbours(first: Users, second: Users, adjacency: Adjacency) -> bool:
    """Say whether two populations differ in one user at most, as an adjacency allows it."""
    a, b = _by_id(first), _by_id(second)
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


def shared_space(users: Users, queries: Sequence[Query]) -> tuple[Users, Space]:
    """Describe records of one user, and give items one vocabulary for all the populations."""
    space = space_of(queries, users)
    if isinstance(space, ItemSpace):
        users = Users(users.ids, items=replace(users.counts, vocabulary=space.vocabulary))
    return users, space


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
