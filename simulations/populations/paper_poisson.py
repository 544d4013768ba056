"""The Poisson counts of one item in Figure 4 of [1]_.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, appendix C.4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedhist.base.arrays import offsets
from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from fedhist.users.columns import Items
from simulations.config.reading import Must, Natural, Positive, Whole
from simulations.populations.base import Plan
from simulations.populations.draws import each, gamma_of, poisson_of, words
from simulations.populations.synthetic import Synthetic, check_sizes, numbered_items

LEAST_ALPHA = 1e-9
"""Below, rates that matter would need more than the 52 bits of a uniform."""


@dataclass(frozen=True, kw_only=True)
class PaperPoisson(Synthetic):
    """User i has Poi(lambda_i) of one item, lambda = mean_items n Dir(alpha, ..., alpha).

    Drawn as independent Gamma(alpha) variables with mean ``mean_items``: a Dirichlet vector divides
    them by their average over the users, which is 1 to within 1 / sqrt(alpha n) and would make
    every user depend on all others. The counts are negative binomial. The larger alpha, the more
    alike the users: a rate has standard deviation mean_items / sqrt(alpha). The paper gives no
    scale to the Dirichlet distribution, whose entries add up to 1; read here with mean
    ``mean_items`` per user.

    Parameters
    ----------
    n_users : int, default 1_000_000
    alpha : float, default 1.0
        Concentration; infinity gives all users the same rate.
    mean_items : float, default 1.0
        Mean of the law of the rates. The paper's analysis supposes at most 1.
    seed : int, default 0
    """

    kind: ClassVar[str] = "paper-poisson"
    n_users: Whole = 1_000_000
    alpha: Annotated[float, Must("a positive number", lambda a: a > 0)] = 1.0
    mean_items: Positive = 1.0
    seed: Natural = 0

    def plan(self) -> Plan:
        """Describe the users.

        Raises PopulationError if alpha is so small that all rates vanish in double precision.
        """
        if self.alpha < LEAST_ALPHA:
            raise PopulationError(
                f"alpha = {self.alpha} is too small for {self.n_users} users: no rate is left"
            )
        title = (
            f"Poisson counts of one item: {self.n_users:,} users, mean {self.mean_items:g}, "
            f"alpha = {self.alpha:g}"
        )
        return Plan(self.made, title, domain=numbered_items(1))

    def make(self, first: int, n: int) -> Users:
        drawn = words(self.key("counts"), first, each(n), 2)
        rate = 1.0 if math.isinf(self.alpha) else gamma_of(drawn[:, 0], self.alpha) / self.alpha
        counts = poisson_of(drawn[:, 1], self.mean_items * rate)
        check_sizes(counts)
        some = counts > 0
        count = counts[some].astype(np.uint32)
        items = Items(numbered_items(1), offsets(some), np.zeros_like(count), count)
        return Users(self.ids(first, n), items=items)
