"""Who follows which table [[adversary]], and the records that poisoning leaves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Words
from fedhist.users.batch import Users
from simulations.adversaries.corrupted_records import default_target, poisoned
from simulations.adversaries.table import Adversary, assign


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
