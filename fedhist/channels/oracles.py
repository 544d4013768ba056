"""Frequency oracles by name, and the best one for a domain and a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache

from fedhist.base.checks import check_choice
from fedhist.channels.bit_oracles import SubsetOracle, UnaryOracle
from fedhist.channels.oracle_base import OracleChannel, summed_variance
from fedhist.channels.projective import MOST_CELLS, ProjectiveSpace
from fedhist.channels.symbol_oracles import (
    MAX_DECODED,
    HadamardOracle,
    KrrOracle,
    ProjectiveOracle,
)
from fedhist.channels.votes import MAX_BITS
from fedhist.privacy.guarantee import check_budget

__all__ = [
    "MAX_MESSAGE_BITS",
    "ORACLES",
    "OracleChannel",
    "best_projective",
    "oracle_channel",
    "spaces",
]

MAX_MESSAGE_BITS = 4096
NEAR = 1.03
"""Of kinds this near to the least variance, that with the shortest messages is taken."""


@lru_cache(maxsize=256)
def best_projective(epsilon: float, n_symbols: int) -> ProjectiveOracle:
    """Return the channel of least v over primes q, with the least t that has points enough.

    Raises
    ------
    ValueError
        If no space that can be decoded has a point for every symbol and for none.
    """

    def v(space: ProjectiveSpace) -> float:
        hits = space.hit(space.chosen, epsilon), space.hit(space.overlap, epsilon)
        return summed_variance(*hits, n_symbols)

    found = list(spaces(n_symbols + 1))
    if not found:
        raise ValueError(f"the symbols must be at most {MAX_DECODED}, got {n_symbols}")
    return ProjectiveOracle(epsilon, n_symbols, min(found, key=v))


def spaces(n_points: int) -> Iterator[ProjectiveSpace]:
    """List, for every prime q, the smallest space that has so many points and can be decoded."""
    for q in _primes(math.isqrt(MOST_CELLS)):
        t = 3
        while q ** (t - 1) <= MOST_CELLS and (q**t - 1) // (q - 1) < n_points:
            t += 1
        if q ** (t - 1) <= MOST_CELLS:
            yield _space(q, t)


@lru_cache(maxsize=8192)
def _space(q: int, t: int) -> ProjectiveSpace:
    """Make a space once: planners go through the same ones at every budget."""
    return ProjectiveSpace(q, t)


@lru_cache(maxsize=1)
def _primes(most: int) -> tuple[int, ...]:
    return tuple(q for q in range(2, most + 1) if all(q % d for d in range(2, math.isqrt(q) + 1)))


MAKERS: Mapping[str, Callable[[float, int], OracleChannel]] = {
    "krr": KrrOracle,
    "hadamard": HadamardOracle,
    "projective": best_projective,
    "subset": SubsetOracle,
    "unary": UnaryOracle,
}
ORACLES = ("auto", *MAKERS)


@lru_cache(maxsize=256)
def oracle_channel(
    kind: str, epsilon: float, n_symbols: int, *, max_bits: int = MAX_MESSAGE_BITS
) -> OracleChannel:
    """Return the channel of a kind.

    Parameters
    ----------
    kind : {"auto", "krr", "hadamard", "projective", "subset", "unary"}
        "auto" takes the least v among those whose messages and decoding are small enough; of those
        within 3 percent of it, the shortest messages.
    epsilon : float
        inf switches noise off: every kind but unary then sends the symbol itself.
    n_symbols : int
        k, without the null symbol: at most 2^22, 2^16 for subset and unary, 2^24 - 2 for
        hadamard, 2^30 - 1 for krr.
    max_bits : int
        Longest message that "auto" may choose; a kind that is named is taken as it is.

    Examples
    --------
    >>> [oracle_channel("auto", epsilon, 99).kind for epsilon in (1.0, 6.0)]
    ['projective', 'krr']
    """
    check_choice("kind", kind, ORACLES)
    check_budget(epsilon)
    if kind != "auto":
        free = math.isinf(epsilon) and kind != "unary"
        return KrrOracle(epsilon, n_symbols) if free else MAKERS[kind](epsilon, n_symbols)
    if math.isinf(epsilon) or n_symbols > MAX_DECODED:
        kinds = ["krr"]
    else:
        wide = ["subset", "unary"] if n_symbols < min(max_bits, MAX_BITS) else []
        kinds = ["krr", "hadamard", "projective", *wide]
    able = [c for c in (MAKERS[name](epsilon, n_symbols) for name in kinds) if c.bits <= max_bits]
    if not able:
        raise ValueError(f"{n_symbols} symbols do not fit into messages of {max_bits} bits")
    least = min(channel.v for channel in able)
    if math.isinf(least):
        raise ValueError(f"epsilon = {epsilon:g} is too small for a report of {n_symbols} symbols")
    return min((c for c in able if c.v <= NEAR * least), key=lambda c: (c.bits, c.v))
