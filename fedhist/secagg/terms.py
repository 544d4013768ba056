"""Terms: what both sides of an attempt know beforehand; the thresholds and the graph it fixes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from fedhist.base.arrays import Integers
from fedhist.base.checks import check_integer
from fedhist.secagg.errors import Refused
from fedhist.secagg.keys import context, session_id

MOST_DEGREE = 1000
"""Neighbours among whom a secret is shared in seconds."""


@dataclass(frozen=True)
class Plan:
    """Who masks with how many, and how many shares restore a secret.

    A node has k = ``degree`` neighbours, parties - 1 in the complete graph. t = ``threshold`` is
    floor((P + c) / 2) + 1 for the P = degree + 1 holders of a node's shares and the c most that
    collude among them. P - c honest holders give either share and c give both, so a server that
    shows nodes different sets gets P + c < 2 t shares: one secret only. c' = ``window`` bounds the
    colluders among degree / 2 consecutive places: more than these must be present in each, so that
    those honest among the present are connected. -1 in the complete graph, where they always are.
    """

    degree: int
    threshold: int
    colluders: int
    window: int


@dataclass(frozen=True)
class Terms:
    """What is summed, among whom, and what is tolerated.

    ``digest``, 1 to 64 bytes, is that of the query with all its parameters, so both sides agree on
    what is summed. Of ``parties`` nodes, numbered from 0, ``drop`` may fail to answer and
    ``collude`` tell the server all they know: floor(tau_d N) and floor(tau_c N), together at most N
    / 2. Vectors of ``length`` entries are added modulo 2^bits.
    """

    digest: bytes
    parties: int
    drop: int
    collude: int
    bits: int
    length: int

    def __post_init__(self) -> None:
        if not isinstance(self.digest, bytes) or not 1 <= len(self.digest) <= 64:
            raise ValueError(f"digest must be 1 to 64 bytes, got {self.digest!r}")
        check_integer("parties", self.parties, 1 << 16, least=2)
        check_integer("drop", self.drop, self.parties, least=0)
        check_integer("collude", self.collude, self.parties, least=0)
        if 2 * (self.drop + self.collude) > self.parties:
            raise ValueError(
                f"drop + collude must be at most half of {self.parties} parties, "
                f"got {self.drop} + {self.collude}"
            )
        if self.bits not in (32, 64):
            raise ValueError(f"bits must be 32 or 64, got {self.bits!r}")
        check_integer("length", self.length)

    @property
    def plan(self) -> Plan:
        """Degree and thresholds; ValueError if a node would need too many neighbours."""
        return plan(self.parties, self.drop, self.collude)

    @property
    def fingerprint(self) -> bytes:
        """Hash of all fields, (16,) bytes: kept states are resumed under the same terms only."""
        return hashlib.sha256(repr(self).encode()).digest()[:16]

    @property
    def least(self) -> int:
        """Nodes that every round needs: the quorum, and a threshold of shares."""
        return max(self.parties - self.drop, self.plan.threshold)


@lru_cache(maxsize=64)
def plan(parties: int, drop: int, collude: int) -> Plan:
    """Return the complete graph up to 100 parties; beyond, the least even degree that will do.

    If none up to 1000 will, the complete graph of at most 1001 parties; ValueError for more.

    A node's k neighbours are a uniform subset (the order of places is random), so colluders and
    dropouts among them are hypergeometric. Required, with tau = (drop + collude) / parties:

    * parties Pr[more than c of k collude] <= 2^-40 (c is the least such number),
    * parties Pr[fewer than t of k survive] <= 2^-20,
    * parties Pr[c' or fewer of k/2 consecutive places survive] <= 2^-20, c' the most of them that
      collude: else honest nodes would refuse to unmask. The specification lacks this condition;
      150 nodes, a tenth dropped and a tenth colluding, may lose one sum in 240 without it,
    * parties tau^(k/2) <= 2^-40: no k/2 consecutive places without an honest survivor.

    All in exact integers: two programs never disagree about a threshold. Source: spec, B3; Bell et
    al. 2020, Secure Single-Server Aggregation with (Poly)Logarithmic Overhead.

    A degree that lacks m is followed by the m-th after it at the soonest: one neighbour more adds
    one to those who survive at most, and takes nothing off the thresholds.

    >>> [plan(n, n // 10, n // 20) for n in (300, 1000)]  # doctest: +NORMALIZE_WHITESPACE
    [Plan(degree=56, threshold=37, colluders=15, window=13),
     Plan(degree=78, threshold=52, colluders=24, window=18)]
    """
    if parties > 100:
        degree = 2
        while degree <= min(parties - 2, MOST_DEGREE):
            half = degree // 2
            if parties * (drop + collude) ** half << 40 > parties**half:
                degree += 2
                continue
            colluders = _most(parties - 1, collude, degree, parties << 40)
            threshold = (degree + 1 + colluders) // 2 + 1
            dropped = _most(parties - 1, drop, degree, parties << 20)
            window = _most(parties, collude, half, parties << 40)
            absent = _most(parties, drop, half, parties << 20)
            missing = max(threshold + dropped - degree, 2 * (window + 1 + absent - half))
            if missing <= 0:
                return Plan(degree, threshold, colluders, window)
            degree += missing + missing % 2
        if parties > MOST_DEGREE + 1:
            raise ValueError(
                f"of {parties} parties {drop} may drop out and {collude} collude: each would need "
                f"more than {MOST_DEGREE} neighbours; tolerate fewer, or ask fewer"
            )
    return Plan(parties - 1, (parties + collude) // 2 + 1, collude, -1)


def _most(population: int, marked: int, drawn: int, odds: int) -> int:
    """Return the least c with odds * Pr[more than c of those drawn are marked] <= 1."""
    most, rest = min(drawn, marked), population - marked
    allowed, above = math.comb(population, drawn) // odds, 0
    ways = math.comb(marked, most) * math.comb(rest, drawn - most)
    for c in range(most, -1, -1):
        above += ways
        if above > allowed:
            return c
        ways = ways * (c * (rest - drawn + c)) // ((marked - c + 1) * (drawn - c + 1))
    return 0


class Graph:
    """A Harary graph on a public random order, or the complete one.

    Nodes stand on a circle in the order of a hash of the query's digest and the node; a node's
    neighbours are the degree / 2 before it and behind it.

    The circle is the query's and not the attempt's: then the holders of a node's secrets are the
    same in every attempt, and since each of them unmasks once, of two attempts one can be unmasked
    at most (2 t > P + c, see :class:`Plan`). On another circle a server could
    ask half of the nodes in one attempt and half in another, for two sums that differ by a node.
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

        Enough: quorum and threshold. Connected, in a sparse graph: no degree / 2 consecutive places
        hold c' of them or fewer.
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
