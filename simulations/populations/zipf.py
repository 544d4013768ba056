"""Zipf items with heavy-tailed user sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.users.batch import Users
from simulations.config.reading import Natural, NonNegative, Positive, Whole
from simulations.populations.base import Loaded, PopulationSpec
from simulations.populations.differing import SharesDiffer, mirrored, mirrored_share, own_draws
from simulations.populations.synthetic import (
    categorical,
    categorical_users,
    distinct_users,
    numbered_items,
    synthetic_ids,
)


@dataclass(frozen=True, kw_only=True)
class Zipf(PopulationSpec):
    """Items of a Zipf distribution, which users share or differ around; sizes of a Pareto law.

    Parameters
    ----------
    n_users : int
    d : int
        Items "item-1" to "item-d" (padded); they are the public domain.
    exponent : float, default 1.0
        Item j has probability proportional to j^-exponent; 0 is uniform.
    mean_items : float, default 100.0
        Expected items per user, repetitions counted.
    tail : float, default 2.0
        Shape a > 1 of the Pareto law of the user sizes: P(size > x) falls as x^-a, with the mean
        exact; infinity gives every user the mean. Sizes are rounded at random to a neighbouring
        integer, without bias.
    users : {"alike", "dirichlet", "two-clusters", "outliers"}, default "alike"
        Whose distribution a user's items come from. "alike": one p for all. "dirichlet": the
        user's own, Dirichlet(concentration p). "two-clusters" and "outliers": a half, or 5 %, of
        the users draw from p in reverse order (item 1 changes places with item d).
    concentration : float, default 5.0
        Of "dirichlet": the larger, the more alike.
    distinct : bool, default False
        Every user draws without replacement, so that it has each of its items once; at most d.
    seed : int, default 0
    """

    kind: ClassVar[str] = "zipf"
    n_users: Whole
    d: Whole
    exponent: NonNegative = 1.0
    mean_items: Positive = 100.0
    tail: float = 2.0
    users: SharesDiffer = "alike"
    concentration: Positive = 5.0
    distinct: bool = False
    seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tail > 1:
            raise ValueError(f"tail must exceed 1, or the mean does not exist; got {self.tail!r}")
        if self.distinct and self.users != "alike":
            raise ValueError(f'distinct items are for users = "alike", got {self.users!r}')

    def load(self) -> Loaded:
        """Generate the users."""
        rng = np.random.default_rng(self.seed)
        scale = self.mean_items * (1.0 if np.isinf(self.tail) else 1.0 - 1.0 / self.tail)
        size = scale * (1.0 - rng.random(self.n_users)) ** (-1.0 / self.tail)
        sizes = np.floor(size + rng.random(self.n_users)).astype(np.int64)
        users = self.hold(rng, sizes)
        each = f"{self.mean_items:g} {'distinct ' * self.distinct}per user"
        how = "" if self.users == "alike" else f", users {self.users}"
        title = (
            f"Zipf({self.exponent:g}) items: {self.n_users:,} users, {self.d:,} items, "
            f"{each}, tail {self.tail:g}{how}"
        )
        return Loaded(users, title, domain=users.vocabulary)

    @property
    def p(self) -> Floats:
        """Average distribution of the users' items: (d,) float64."""
        weights = np.arange(1, self.d + 1, dtype=np.float64) ** -self.exponent
        turned = mirrored_share(self.users)
        return np.asarray(((1 - turned) * weights + turned * weights[::-1]) / weights.sum())

    def hold(self, rng: np.random.Generator, sizes: Integers) -> Users:
        """Draw users of these sizes, (n,)."""
        weights = np.arange(1, self.d + 1, dtype=np.float64) ** -self.exponent
        if self.distinct:
            return distinct_users(rng, np.minimum(sizes, self.d), weights)
        if self.users == "dirichlet":
            user, item, count = own_draws(
                rng, sizes, self.concentration, lambda m: categorical(rng, weights, m)
            )
            ids = synthetic_ids(len(sizes))
            return Users.from_counts(ids, user, item, count, numbered_items(self.d))
        return categorical_users(rng, sizes, weights, mirrored(self.users, len(sizes), rng))
