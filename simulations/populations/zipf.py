"""Zipf items with heavy-tailed user sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.users.batch import Users
from simulations.config.reading import Natural, NonNegative, Positive, Whole
from simulations.populations.base import Plan
from simulations.populations.draws import Choice, each, unit, words
from simulations.populations.synthetic import (
    MOST,
    Domain,
    SharesDiffer,
    Synthetic,
    in_words,
    item_users,
    made_words,
    numbered_items,
)


@dataclass(frozen=True, kw_only=True)
class Zipf(Synthetic):
    """Items of a Zipf distribution, which users share or differ around; sizes of a Pareto law.

    Parameters
    ----------
    n_users : int
    d : int
        Items "item-1" to "item-d" (padded); they are the public domain.
    exponent : float, default 1.0
        Item j has probability proportional to j^-exponent, rounded to a multiple of 2^-32; 0 is
        uniform.
    mean_items : float, default 100.0
        Expected items per user, repetitions counted.
    tail : float, default 2.0
        Shape a > 1 of the Pareto law of the user sizes: P(size > x) falls as x^-a, with the mean
        exact; infinity gives every user the mean. Sizes are rounded at random to a neighbouring
        integer, without bias. P(size > x) is exact to 2^-64.
    users : {"alike", "dirichlet"}, default "alike"
        Whose distribution a user's items come from. "alike": one p for all. "dirichlet": the
        user's own, Dirichlet(concentration p), exactly (an urn).
    concentration : float, default 5.0
        Of "dirichlet": the larger, the more alike.
    names : {"numbers", "words"}, default "numbers"
        What items are called; "words": made from syllables, for what reads the names.
    seed : int, default 0
    """

    kind: ClassVar[str] = "zipf"
    n_users: Whole
    d: Domain
    exponent: NonNegative = 1.0
    mean_items: Positive = 100.0
    tail: float = 2.0
    users: SharesDiffer = "alike"
    concentration: Positive = 5.0
    names: Literal["numbers", "words"] = "numbers"
    seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tail > 1:
            raise ValueError(f"tail must exceed 1, or the mean does not exist; got {self.tail!r}")

    def plan(self) -> Plan:
        law = "" if self.users == "alike" else f", users {self.users}"
        title = (
            f"Zipf({self.exponent:g}) items: {self.n_users:,} users, {self.d:,} items, "
            f"{self.mean_items:g} per user, tail {self.tail:g}{law}"
        )
        domain = numbered_items(self.d) if self.names == "numbers" else made_words(self.d)
        return Plan(self.made, title, domain=domain)

    @property
    def p(self) -> Floats:
        """Average distribution of the users' items: (d,) float64."""
        weights = np.arange(1, self.d + 1, dtype=np.float64) ** -self.exponent
        return np.asarray(weights / weights.sum())

    def make(self, first: int, n: int) -> Users:
        size: float | Floats = self.mean_items
        if not math.isinf(self.tail):
            # all 64 bits count: the smallest uniforms are the largest users
            level = (
                words(self.key("sizes"), first, each(n))[:, 0].astype(np.float64) + 0.5
            ) * 2.0**-64
            size = size * (1.0 - 1.0 / self.tail) * np.power(level, -1.0 / self.tail)
        up = unit(words(self.key("sizes"), first, each(n), after=1))[:, 0]
        users = self.hold(first, np.floor(np.minimum(size + up, MOST)).astype(int))
        return users if self.names == "numbers" else in_words(users)

    def hold(self, first: int, sizes: Integers) -> Users:
        """Make users first, first + 1, ... of these sizes, (n,)."""
        ids = self.ids(first, len(sizes))
        choice = zipf_choice(self.d, self.exponent)
        return item_users(
            ids,
            (self.key("items"), self.key("urn")),
            first,
            sizes,
            choice,
            concentration=self.concentration if self.users == "dirichlet" else 0.0,
        )


@lru_cache(maxsize=4)
def zipf_choice(d: int, exponent: float) -> Choice:
    """Return the tables of the law proportional to j^-exponent."""
    return Choice(np.power(np.arange(1, d + 1, dtype=np.float64), -exponent))
