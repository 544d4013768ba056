"""Who follows which table [[adversary]], and the records that poisoning leaves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Words
from fedhist.base.errors import PopulationError, nearest
from fedhist.users.batch import Users
from fedhist.users.shards import Items, Samples
from simulations.adversaries.table import Adversary, assign

PROMOTION = 1 << 31
"""Count of the promoted item in a made-up record: more than any clip lets through."""


class Assigned:
    """Who follows which table, and the records that poisoning leaves.

    ``nodes``: with the attackers' records in place of the poisoned users' own; ``node_table``:
    (n_nodes,) int64, number of the table that a node follows as a whole; -1 for none.
    """

    def __init__(self, adversaries: Sequence[Adversary], nodes: Sequence[Users]) -> None:
        self.adversaries = tuple(adversaries)
        numbers = np.arange(len(nodes), dtype=np.uint64)
        of_node = assign(self.adversaries, "node", numbers, np.ones(len(nodes)))
        ids = np.concatenate([u.ids for u in nodes])
        sizes = np.concatenate([u.n_items() for u in nodes])
        of_user = assign(self.adversaries, "user", ids, sizes)
        whole = np.repeat(of_node, [len(u) for u in nodes])
        poisons = np.array([a.poisons for a in self.adversaries] + [False])
        of_user = np.where((of_user < 0) & poisons[whole], whole, of_user)
        self.node_table = np.where(poisons[of_node], -1, of_node)
        order = np.argsort(ids)
        self._ids, self._table = ids[order], of_user[order]
        self.nodes = list(nodes)
        for number, adversary in enumerate(self.adversaries):
            if adversary.poisons and (of_user == number).any():
                target = adversary.target
                target = default_target(nodes) if target is None else target
                self.nodes = [poisoned(u, self.table(u.ids) == number, target) for u in self.nodes]

    def table(self, ids: Words) -> NDArray[np.int64]:
        """Return the number of the table that each user follows; -1 for the honest."""
        return np.asarray(self._table[np.searchsorted(self._ids, ids)])

    def of_kind(self, table: NDArray[np.int64], *kinds: str) -> NDArray[np.bool_]:
        """Say which users follow a table of one of these kinds."""
        known = np.array([a.kind in kinds for a in self.adversaries] + [False])
        return np.asarray(known[table])


def default_target(nodes: Sequence[Users]) -> float | str:
    """Return the largest sample, or the rarest item (the first in byte order among equals)."""
    if nodes[0].samples is not None:
        largest = [u.reals.values[np.isfinite(u.reals.values)].max(initial=-np.inf) for u in nodes]
        most = float(max(largest))
        return most if np.isfinite(most) else 1.0
    vocabulary = nodes[0].vocabulary
    if not len(vocabulary):
        raise PopulationError("nobody holds an item: there is none to promote")
    totals = np.zeros(len(vocabulary))
    for users in nodes:
        items = users.counts
        totals += np.bincount(items.item, weights=items.count, minlength=len(vocabulary))
    ranked = vocabulary.byte_order
    return str(vocabulary[int(ranked[np.argmin(totals[ranked])])])


def poisoned(users: Users, chosen: NDArray[np.bool_], target: float | str) -> Users:
    """Replace the records of the chosen users by the attacker's.

    ``chosen``: (n,) bool; ``target``: samples: each of a user's samples (at least one) has this
    value in every coordinate. Items: this item, 2^31 times, and nothing else. Raises ValueError if
    the target is not of the users' kind, or nobody in the population knows the item.
    """
    if not chosen.any():
        return users
    sizes = users.n_items()
    if users.samples is not None:
        if isinstance(target, str):
            raise ValueError(f"adversary.target must be a number for samples, got {target!r}")
        new = np.where(chosen, np.maximum(sizes, 1), sizes)
        indptr = _starts(new)
        values = np.full((int(indptr[-1]), users.reals.values.shape[1]), float(target))
        values[np.repeat(~chosen, new)] = users.reals.values[np.repeat(~chosen, sizes)]
        return Users(users.ids, samples=Samples(indptr, values))
    items = users.counts
    position = items.vocabulary.position(target) if isinstance(target, str) else -1
    if position < 0:
        raise ValueError(
            f"adversary.target must be an item, got {target!r}"
            f"{nearest(str(target), items.vocabulary)}"
        )
    new = np.where(chosen, 1, sizes)
    indptr = _starts(new)
    item = np.full(int(indptr[-1]), position, dtype=items.item.dtype)
    count = np.full(int(indptr[-1]), PROMOTION, dtype=items.count.dtype)
    old, untouched = np.repeat(~chosen, sizes), np.repeat(~chosen, new)
    item[untouched], count[untouched] = items.item[old], items.count[old]
    return Users(users.ids, items=Items(items.vocabulary, indptr, item, count))


def _starts(sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)))
