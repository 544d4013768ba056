"""The graph of a query: who masks with whom, from public facts alone."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from functools import cached_property

import numpy as np

from fedhist.base.arrays import Integers
from fedhist.secagg.errors import Refused
from fedhist.secagg.keys import context, session_id
from fedhist.secagg.terms import Terms


class Graph:
    """A Harary graph on a public random order, or the complete one.

    Nodes stand on a circle in the order of a hash of the query's digest and the node; a node's
    neighbours are the degree / 2 before it and behind it.

    The circle is the query's and not the attempt's: then the holders of a node's secrets are the
    same in every attempt, and since each of them unmasks once, of two attempts one can be unmasked
    at most (2 t > P + c, see :class:`~fedhist.secagg.terms.Plan`). On another circle a server could
    ask half of the nodes in one attempt and half in another, for two sums that differ by a node.

    Parameters
    ----------
    terms : Terms
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._complete = terms.plan.window < 0

    @cached_property
    def _order(self) -> Integers:
        nodes, query = range(self._terms.parties), session_id(b"", self._terms.digest)
        places = [hashlib.sha256(context(query, i) + b"place").digest() for i in nodes]
        return np.array(sorted(nodes, key=places.__getitem__), np.int64)

    @cached_property
    def _place(self) -> Integers:
        return np.argsort(self._order)

    def neighbours(self, node: int) -> list[int]:
        """Return a node's neighbours, ascending."""
        if self._complete:
            return [i for i in range(self._terms.parties) if i != node]
        half = self._terms.plan.degree // 2
        steps = np.r_[-half:0, 1 : half + 1]
        return sorted(self._order[(self._place[node] + steps) % self._terms.parties].tolist())

    def holders(self, node: int) -> list[int]:
        """Return who holds shares of a node's secrets, ascending: its neighbours and itself."""
        return sorted([*self.neighbours(node), node])

    def check_present(self, present: Collection[int], what: str) -> None:
        """Raise Refused unless those honest among the present are enough, and connected.

        Raises
        ------
        Refused
            If they are fewer than quorum or threshold; in a sparse graph, if some degree / 2
            consecutive places hold c' of them or fewer.
        """
        least = self._terms.least
        if len(present) < least:
            raise Refused(f"{what}: {len(present)} nodes are fewer than {least}")
        if self._complete:
            return
        plan = self._terms.plan
        here = np.zeros(self._terms.parties, np.int64)
        here[self._place[np.fromiter(present, np.int64)]] = 1
        half = plan.degree // 2
        sums = np.concatenate(([0], np.cumsum(np.concatenate((here, here[: half - 1])))))
        fewest = int((sums[half:] - sums[:-half]).min())
        if fewest <= plan.window:
            raise Refused(
                f"{what}: {fewest} of {half} consecutive places are present, "
                f"where {plan.window} may collude"
            )


__all__ = ["Graph"]
