"""Populations in which one user's record is changed, to whatever is extreme in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

import fedhist as fh
from fedhist.users.batch import join
from simulations.audit.inputs import ItemSpace, Record, SampleSpace, Space
from simulations.audit.neighbours import Population, are_neighbours, shared_space


@dataclass(frozen=True)
class Changes:
    """What one user may hold, and which two records make two populations neighbours.

    ``users``: the example population; ``records``: with their words; None is a user who is not
    there; ``adjacent``: (k, k) bool.
    """

    users: fh.Users
    space: Space
    records: tuple[tuple[Record | None, str], ...]
    adjacent: NDArray[np.bool_]

    @classmethod
    def of(cls, protocol: fh.Protocol, queries: Sequence[fh.Query]) -> Changes:
        adjacency = protocol.guarantee.adjacency
        users, space = shared_space(protocol.example_users(), queries)
        if adjacency is fh.Adjacency.REPLACE_ITEM and isinstance(space, SampleSpace):
            space = replace(space, single=True)
        records = _records(space, adjacency)
        alone = [users.slice(0, 0) if r is None else space.user(r, 0) for r in records]
        words = ["is not there" if r is None else space.words(r) for r in records]
        adjacent = neighbour_table(alone, adjacency)
        return cls(users, space, tuple(zip(records, words, strict=True)), adjacent)

    def populations(self) -> list[Population]:
        others, own = self.users.take(np.arange(1, len(self.users))), int(self.users.ids[0])
        return [
            Population(
                others if record is None else join([others, self.space.user(record, own)]),
                f"the example population; user {own}: {words}",
            )
            for record, words in self.records
        ]


def neighbour_table(populations: Sequence[fh.Users], adjacency: fh.Adjacency) -> NDArray[np.bool_]:
    k = len(populations)
    out = np.zeros((k, k), dtype=bool)
    for i, j in combinations(range(k), 2):
        out[i, j] = out[j, i] = are_neighbours(populations[i], populations[j], adjacency)
    return out


def _records(space: Space, adjacency: fh.Adjacency) -> list[Record | None]:
    extremes = space.extremes(np.random.default_rng(0))
    if adjacency is fh.Adjacency.REPLACE_ITEM:
        return [*_singles(extremes, space), *_one_of_many(extremes, space)]
    if adjacency is fh.Adjacency.ZERO_OUT_USER:
        return [space.nothing, *(r for r in extremes if len(r))]
    return [None, *extremes] if adjacency is fh.Adjacency.ADD_REMOVE_USER else extremes


def _singles(records: Sequence[Record], space: Space) -> list[Record]:
    return [
        r for r in records if (sum(r.values()) if isinstance(space, ItemSpace) else len(r)) == 1
    ]


def _one_of_many(records: Sequence[Record], space: Space) -> list[Record]:
    """Put every item of a record of one beside the same others: those of an example user."""
    singles = _singles(records, space)
    if isinstance(space, ItemSpace):
        most = max(space.real, key=lambda r: sum(r.values()), default={})
        rest = Counter(most) - Counter(list(most)[:1])
        return [dict(rest + Counter(r)) for r in singles] if rest else []
    recorded = space.real if isinstance(space, SampleSpace) else ()
    rows = max(recorded, key=len)[1:] if recorded else space.nothing
    return [np.concatenate((r, rows)) for r in singles] if len(rows) else []
