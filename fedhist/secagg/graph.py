"""The graph of an attempt: who masks with whom, from public facts alone."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from functools import cached_property

import numpy as np

from fedhist.base.arrays import Integers
from fedhist.secagg.errors import Refused
from fedhist.secagg.keys import context
from fedhist.secagg.terms import Terms


class Graph:
    """A Harary graph on a public random order, or the complete one.

    Nodes stand on a circle in the order of SHA256(context(node) | "place"); a node's neighbours are
    the degree / 2 before it and behind it.

    Parameters
    ----------
    terms : Terms
    session : bytes
    """

    def __init__(self, terms: Terms, session: bytes) -> None:
        self._terms, self._session = terms, session
        self._complete = terms.plan.window < 0

    @cached_property
    def _order(self) -> Integers:
        nodes = range(self._terms.parties)
        places = [hashlib.sha256(context(self._session, i) + b"place").digest() for i in nodes]
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
