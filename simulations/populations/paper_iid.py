"""The i.i.d. synthetic population of Table 1 in [1]_.

References
----------
.. [1] Liu, Suresh, Zhu, Kairouz & Gruteser, "Algorithms for bounding contribution for histogram
   estimation under user-level privacy", ICML 2023, section 7.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from simulations.config.reading import Natural, Positive, Whole
from simulations.populations.base import Loaded, PopulationSpec
from simulations.populations.synthetic import categorical_users


@dataclass(frozen=True, kw_only=True)
class PaperIid(PopulationSpec):
    """Each user draws Poi(mean_items) samples from p, where p_j is proportional to 1/(j + 50).

    As printed; nothing is left open here. The noise in the paper's Table 1 is not that of the
    printed epsilon = 1 at n = 500,000 but of epsilon = 1 at n = 50,000, or of epsilon = 0.1. The
    spread of its numbers speaks for 50,000 users; this is inferred from the table, not stated.

    Parameters
    ----------
    n_users : int, default 500_000
    d : int, default 50
        The paper has 50, 100 and 200. Unknown to its protocols, so ``Loaded.domain`` is None.
    mean_items : float, default 100.0
    seed : int, default 0
    """

    kind: ClassVar[str] = "paper-iid"
    n_users: Whole = 500_000
    d: Whole = 50
    mean_items: Positive = 100.0
    seed: Natural = 0

    def load(self) -> Loaded:
        """Generate the users."""
        rng = np.random.default_rng(self.seed)
        sizes = rng.poisson(self.mean_items, self.n_users)
        users = categorical_users(rng, sizes, item_weights(self.d))
        title = f"i.i.d. synthetic: {self.n_users:,} users, {self.d:,} items"
        return Loaded(users, title)


def item_weights(d: int) -> NDArray[np.float64]:
    """Return the paper's p over [d], not normalised: 1 / (j + 50) for j = 1, ..., d."""
    return 1.0 / np.arange(51, d + 51, dtype=np.float64)
