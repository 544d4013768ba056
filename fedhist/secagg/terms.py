"""Terms: what both sides of an attempt know beforehand, and the thresholds that follow from it."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import lru_cache

from fedhist.base.checks import check_integer

COMPLETE_TO = 100
"""Most nodes among which everybody masks with everybody."""
MOST_PARTIES, MOST_DEGREE = 1 << 16, 1000
"""Both sides plan for so many nodes, and share a secret among so many neighbours, in seconds."""
PRIVACY_BITS, LIVENESS_BITS = 40, 20
"""A random graph fails the one with probability at most 2^-40, the other at most 2^-20."""


@dataclass(frozen=True)
class Plan:
    """Who masks with how many, and how many shares restore a secret.

    Parameters
    ----------
    degree : int
        k, neighbours of a node; parties - 1 in the complete graph.
    threshold : int
        t = floor((P + c) / 2) + 1 for the P = degree + 1 holders of a node's shares and the c
        most that collude among them. P - c honest holders give either share and c give both, so
        a server that shows nodes different sets gets P + c < 2 t shares: one secret only.
    colluders : int
        c.
    window : int
        c', colluders among degree / 2 consecutive places at most: more than these must be present
        in each, so that those honest among the present are connected. -1 in the complete graph,
        where they always are.
    """

    degree: int
    threshold: int
    colluders: int
    window: int


@dataclass(frozen=True)
class Terms:
    """What is summed, among whom, and what is tolerated.

    Parameters
    ----------
    digest : bytes
        Of the query with all its parameters, so both sides agree on what is summed; 1 to 64.
    parties : int
        N, nodes that are asked, with indices 0 to N - 1.
    drop, collude : int
        Nodes that may fail to answer, and that may tell the server all they know: floor(tau_d N)
        and floor(tau_c N), together at most N / 2.
    bits : {32, 64}
        Sums are modulo 2^bits.
    length : int
        Entries of a vector.

    Raises
    ------
    ValueError
        If a number is out of its range.
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
        check_integer("parties", self.parties, MOST_PARTIES, least=2)
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

    If none up to 1000 will, the complete graph of at most 1001 parties.

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

    Raises
    ------
    ValueError
        For more parties than can be planned for.

    >>> [plan(n, n // 10, n // 20) for n in (300, 1000)]  # doctest: +NORMALIZE_WHITESPACE
    [Plan(degree=56, threshold=37, colluders=15, window=13),
     Plan(degree=78, threshold=52, colluders=24, window=18)]
    """
    if parties > COMPLETE_TO:
        degree = 2
        while degree <= min(parties - 2, MOST_DEGREE):
            half = degree // 2
            if parties * (drop + collude) ** half << PRIVACY_BITS > parties**half:
                degree += 2
                continue
            colluders = _most(parties - 1, collude, degree, parties << PRIVACY_BITS)
            threshold = (degree + 1 + colluders) // 2 + 1
            dropped = _most(parties - 1, drop, degree, parties << LIVENESS_BITS)
            window = _most(parties, collude, half, parties << PRIVACY_BITS)
            absent = _most(parties, drop, half, parties << LIVENESS_BITS)
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


__all__ = ["Plan", "Terms", "plan"]
