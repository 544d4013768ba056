"""The Poisson counts of one item in Figure 4 of [1]_.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, appendix C.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from fedhist.base.errors import PopulationError
from fedhist.users.batch import Users
from simulations.config.reading import Must, Natural, Positive, Whole
from simulations.populations.base import Loaded, PopulationSpec
from simulations.populations.synthetic import numbered_items, synthetic_ids


@dataclass(frozen=True, kw_only=True)
class PaperPoisson(PopulationSpec):
    """User i has Poi(lambda_i) of one item, lambda = mean_items n Dir(alpha, ..., alpha).

    The larger alpha, the more alike the users: a rate has standard deviation mean_items /
    sqrt(alpha). The paper gives no scale to the Dirichlet distribution, whose entries add up to 1;
    read here with mean ``mean_items`` per user.

    Parameters
    ----------
    n_users : int, default 1_000_000
    alpha : float, default 1.0
        Concentration; infinity gives all users the same rate.
    mean_items : float, default 1.0
        Mean of the rates, exact in every population. The paper's analysis supposes at most 1.
    seed : int, default 0
    """

    kind: ClassVar[str] = "paper-poisson"
    n_users: Whole = 1_000_000
    alpha: Annotated[float, Must("a positive number", lambda a: a > 0)] = 1.0
    mean_items: Positive = 1.0
    seed: Natural = 0

    def load(self) -> Loaded:
        """Generate the users.

        Raises
        ------
        PopulationError
            If alpha is so small that all rates vanish in double precision.
        """
        rng = np.random.default_rng(self.seed)
        n = self.n_users
        weight = np.ones(n) if np.isinf(self.alpha) else rng.gamma(self.alpha, size=n)
        total = weight.sum()
        if not total > 0:
            raise PopulationError(
                f"alpha = {self.alpha} is too small for {n} users: no rate is left"
            )
        counts = rng.poisson(self.mean_items * (n / total) * weight)
        item = numbered_items(1)
        users = Users.from_counts(synthetic_ids(n), np.arange(n), np.zeros(n, int), counts, item)
        title = (
            f"Poisson counts of one item: {n:,} users, mean {self.mean_items:g}, "
            f"alpha = {self.alpha:g}"
        )
        return Loaded(users, title, domain=item)
