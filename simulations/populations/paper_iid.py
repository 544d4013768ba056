"""The i.i.d. synthetic population of Table 1 in [1]_.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, section 7.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from fedhist.users.batch import Users
from simulations.config.reading import Natural, Positive, Whole
from simulations.populations.base import Plan
from simulations.populations.draws import Choice, each, poisson_of, words
from simulations.populations.synthetic import Domain, Synthetic, item_users


@dataclass(frozen=True, kw_only=True)
class PaperIid(Synthetic):
    """Each user draws Poi(mean_items) samples from p, where p_j is proportional to 1/(j + 50).

    As printed, with p rounded to multiples of 2^-32; nothing is left open here. The noise in the
    paper's Table 1 is not that of the printed epsilon = 1 at n = 500,000 but of epsilon = 1 at
    n = 50,000, or of epsilon = 0.1. The spread of its numbers speaks for 50,000 users; this is
    inferred from the table, not stated.

    Parameters
    ----------
    n_users : int, default 500_000
    d : int, default 50
        The paper has 50, 100 and 200. Unknown to its protocols, so ``Plan.domain`` is None.
    mean_items : float, default 100.0
    seed : int, default 0
    """

    kind: ClassVar[str] = "paper-iid"
    n_users: Whole = 500_000
    d: Domain = 50
    mean_items: Positive = 100.0
    seed: Natural = 0

    def plan(self) -> Plan:
        title = f"i.i.d. synthetic: {self.n_users:,} users, {self.d:,} items"
        return Plan(self.made, title)

    def make(self, first: int, n: int) -> Users:
        sizes = poisson_of(words(self.key("sizes"), first, each(n))[:, 0], self.mean_items)
        keys = self.key("items"), self.key("urn")
        return item_users(self.ids(first, n), keys, first, sizes, paper_choice(self.d))


@lru_cache(maxsize=4)
def paper_choice(d: int) -> Choice:
    """Return the tables of the paper's p over [d]: 1 / (j + 50) for j = 1, ..., d."""
    return Choice(1.0 / np.arange(51, d + 51, dtype=np.float64))
