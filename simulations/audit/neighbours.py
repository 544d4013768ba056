"""Neighbouring populations: families of populations in which one user's record is changed.

The records of that user are the extremes of :mod:`simulations.audit.inputs`: emptied, made huge,
all on one new item that nobody else holds, on every item at once. The other users are those of the
protocol's example, or nobody with a record, or two camps of equal users: what one user can tip
depends on the others. All of it only directs the search; a bound is certified whatever was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from fedhist.keys import Keys
from fedhist.privacy import Adjacency
from fedhist.protocol import Protocol
from fedhist.query import Query
from fedhist.users import Users, join
from simulations.audit.finding import Settings
from simulations.audit.inputs import ItemSpace, Record, Space, space_of


@dataclass(frozen=True)
class Population:
    """A population, and what is special about it in words."""

    users: Users
    words: str


@dataclass(frozen=True)
class Family:
    """Populations that share all users but one.

    Attributes
    ----------
    members : tuple of Population
    adjacent : (k, k) bool
        Which of them are neighbours as the protocol declares.
    """

    members: tuple[Population, ...]
    adjacent: NDArray[np.bool_]


def families(
    protocol: Protocol, users: Users, queries: Sequence[Query], settings: Settings
) -> Iterator[Family]:
    """Make families of neighbouring populations, after a population of examples.

    A protocol may name the pair it is weakest on: a class method ``neighbours`` that returns two
    populations is used in place of everything else.

    Parameters
    ----------
    protocol : Protocol
    users : Users
        At least one.
    queries : sequence of Query
        Of a run on them: their domains hold items that nobody may have.
    settings : Settings
        Its ``records``, if given, are those of the changed user.

    Raises
    ------
    ValueError
        If the protocol names two populations that are no neighbours.
    """
    adjacency = protocol.guarantee.adjacency
    named = getattr(protocol, "neighbours", None)
    if named is not None and not settings.records:
        first, second = named()
        if not are_neighbours(first, second, adjacency):
            raise ValueError(
                f"{protocol.name} names two populations that are no neighbours: "
                f"{adjacency.in_words}"
            )
        pair = (
            Population(first, "the first population that the protocol names"),
            Population(second, "the second population that the protocol names"),
        )
        yield Family(pair, ~np.eye(2, dtype=bool))
        return
    users, space = _space(users, queries, single=adjacency is Adjacency.REPLACE_ITEM)
    records = _records(space, adjacency, settings)
    own = int(users.ids[0])
    for others, words in _others(users.take(np.arange(1, len(users)))):
        members = [
            Population(_with(others, space, record, own), f"{words}; user {own}: {said}")
            for record, said in records
        ]
        yield Family(tuple(members), _adjacent(len(members), adjacency, bool(settings.records)))


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
        return [(r, space.words(r)) for r in given]
    found = space.extremes(np.random.default_rng(settings.seed))
    if isinstance(space, ItemSpace):
        nothing: Record = {}
        if adjacency is Adjacency.REPLACE_ITEM:
            found = [r for r in found if sum(r.values()) == 1]
    else:
        nothing = np.zeros((0, space.user(found[0], 0).reals.values.shape[1]))
    first: list[tuple[Record | None, str]] = []
    if adjacency is Adjacency.ZERO_OUT_USER:
        found = [nothing, *(r for r in found if len(r))]
    elif adjacency is Adjacency.ADD_REMOVE_USER:
        first = [(None, "is not there")]
    return first + [(r, space.words(r)) for r in found]


def _adjacent(k: int, adjacency: Adjacency, given: bool) -> NDArray[np.bool_]:
    """Say who is next to whom; the first member has no record, or not the user, where it counts."""
    apart = ~np.eye(k, dtype=bool)
    if given or adjacency in (Adjacency.REPLACE_USER, Adjacency.REPLACE_ITEM):
        return apart
    first = np.arange(k) == 0
    return np.asarray(apart & (first[:, None] | first))


def _others(others: Users) -> Iterator[tuple[Users, str]]:
    """Make what the other users may hold."""
    yield others, "the example population"
    if not len(others):
        return
    none = np.zeros(len(others) + 1, dtype=np.int64)
    if others.items is None:
        empty = Users.from_samples(others.ids, none, others.reals.values[:0])
    else:
        empty = Users.from_counts(others.ids, [], [], [], others.vocabulary)
    yield empty, "the other users without any record"
    sizes = others.n_items()
    camps = np.array([int(np.argmax(sizes)), int(np.argmin(sizes))])
    if camps[0] == camps[1]:
        camps[1] = len(others) - 1
    equal = others.take(camps[np.arange(len(others)) % 2])
    yield (
        Users(others.ids, items=equal.items, samples=equal.samples),
        "the other users in two camps, alike in each",
    )


def _with(others: Users, space: Space, record: Record | None, own: int) -> Users:
    return others if record is None else join([others, space.user(record, own)])


def _by_id(users: Users) -> dict[int, tuple[tuple[object, int], ...]]:
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
