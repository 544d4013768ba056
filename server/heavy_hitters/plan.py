"""The plan of a search for popular items, from public numbers, and what its counts say.

A report is in the set of its own symbol with probability p, and in that of another one with
probability q.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy.special import bdtrc, ndtr, ndtri

from fedhist.base.arrays import Floats, Integers
from fedhist.base.search import first_true
from fedhist.channels.oracles import oracle_channel

COUNTED = 1 / 3
"""Share of the users who count. A fifth finds 30.0, a third 27.8, a half 25.1 of Zipf(1.1) items (n
= 10^6, epsilon 4), with 2.24, 1.73, 1.41 times the noise of all users."""

MOST_PREFIXES = 1 << 12
"""Prefixes of a level that the next one goes on with: a query carries 16 KB of them at 32 bits."""


@dataclass(frozen=True)
class Stage:
    """Reports of a cohort in the set of one item: how many there are, and how many are enough.

    ``enough`` of ``n`` reports let an item pass; one is in the set with probability q + f (p - q)
    for an item that a share f of the users names. Laplace noise of a ``scale`` may be added.
    """

    n: int
    p: float
    q: float
    enough: float
    scale: float = 0.0

    def std(self, pi: Any) -> Any:
        """Return the standard deviation of how many are in the set, each with probability pi."""
        return np.sqrt(self.n * np.clip(pi * (1 - pi), 0, None) + 2 * self.scale**2)

    def passes(self, share: float, tail: float) -> bool:
        """Whether an item passes but with this probability, by the normal approximation."""
        pi = self.q + share * (self.p - self.q)
        return bool(self.n * pi + ndtri(tail) * self.std(pi) >= self.enough)

    def stderr(self, pi: Any) -> Any:
        """Return the standard error of a share of which pi reports in one are in the set."""
        return self.std(pi) / max(self.n, 1) / (self.p - self.q)

    @property
    def least(self) -> float:
        """The smallest estimate of a share that passes."""
        return (self.enough / max(self.n, 1) - self.q) / (self.p - self.q)

    def chance(self, shares: Floats) -> Floats:
        """How likely items are to pass: exact, or with noise by the normal law."""
        pi = self.q + np.clip(shares, 0, 1) * (self.p - self.q)
        if self.scale:
            return np.asarray(ndtr((self.n * pi - self.enough) / self.std(pi)))
        return reached(self.enough, self.n, pi)


@dataclass(frozen=True)
class SearchPlan:
    """How a search goes, and what it finds.

    g ``levels`` ask for the ``first`` bits and for b = ``step`` more of codes with one of the
    C = ``width`` best prefixes; no level has more than 2^first symbols. ``search`` is a level, and
    ``count`` the count.
    """

    levels: int
    step: int
    width: int
    first: int
    search: Stage
    count: Stage

    @cached_property
    def reliable(self) -> float:
        """f*: an item that a larger share names is found with probability 95%."""
        tail = 0.05 / (self.levels + 1)
        return max(least_share([self.search, self.count], lambda _: tail), 1 / self.width)

    def chance(self, shares: Floats, lengths: Integers) -> Floats:
        """How likely items are to be found that a share names, by the length of their codes."""
        levels = 1 + -(-np.maximum(lengths - self.first, 0) // max(self.step, 1))
        levels = np.minimum(levels, self.levels)
        return np.asarray(self.search.chance(shares) ** levels * self.count.chance(shares))


@lru_cache(maxsize=4096)
def search_plan(
    n_users: int,
    epsilon: float,
    n_bits: int,
    level_bits: int,
    alpha: float,
    halved: bool,
    scale: float,
) -> SearchPlan:
    """Choose the number of levels for which f* is least, from public numbers only.

    ``halved``: half of the users who count tell who holds an item. ``scale``: of noise on counts.
    """
    first = min(n_bits, level_bits)
    channel = oracle_channel("auto", epsilon, 1 << first, max_bits=64)

    def stage(share: float, chance: float) -> Stage:
        n = max(int(n_users * share), 1)
        enough = least_count(n, channel.q, chance, scale)
        return Stage(n, channel.p, channel.q, enough, scale)

    def plan(g: int) -> SearchPlan:
        step = -(-(n_bits - first) // (g - 1)) if g > 1 else 0
        width = min(1 << (first - step), MOST_PREFIXES)
        search = stage((1 - COUNTED) / g, width / 2.0**first)
        count = stage(COUNTED / (1 + halved), alpha / width)
        return SearchPlan(g, step, width, first, search, count)

    if n_bits <= level_bits:
        return plan(1)
    least = 1 + -(-(n_bits - first) // (first - 3))  # of 8 prefixes at least
    return min(map(plan, range(least, max(least, 30) + 1)), key=lambda p: p.reliable)


def reached(t: float, n_users: int, q: Floats | float) -> Floats:
    """P(Bin(n, q) >= t), t at least 1: :mod:`scipy.stats` takes half a second to import."""
    return np.asarray(bdtrc(t - 1, n_users, q))


def least_count(n_users: int, q: float, chance: float, scale: float = 0.0) -> int:
    """Return the least t, 1 at least, that Bin(n, q) reaches with at most this probability.

    q is 0 where there is Laplace noise of a scale, which reaches t with exp(-t / scale) at most.
    """
    if scale:
        return 1 + math.ceil(scale * math.log(1 / min(chance, 1.0)))
    t = first_true(lambda t: bool(reached(t, n_users, q) <= chance), n_users)
    return n_users + 1 if t is None else t


def least_share(stages: list[Stage], tail: Callable[[float], float]) -> float:
    """Return the least share of which an item passes all stages, at each but with probability tail.

    For what was missed, tail is .05 f / (g + 1): at most 1 / f items are named by a share f, and
    each may fail at g + 1 stages.
    """
    low, high = 0.0, 1.0
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        passes = all(stage.passes(middle, tail(middle)) for stage in stages)
        low, high = (low, middle) if passes else (middle, high)
    return high
