r"""Which keys several users have, by Gaussian noise on their weights and a threshold.

A user spreads an l2 norm of 1 over at most D of its keys, 1 / sqrt(t) on each of t. Noise goes on
the keys that somebody sends, and a key appears if its noisy weight passes

    max over t <= D of  1 / sqrt(t) + sigma Phi^{-1}((1 - delta')^{1 / t}),

so that of t keys that one user alone has (some of which may be shared: then fewer are its own) one
appears with probability at most delta' [1]_. On shared keys the Gaussian mechanism has its l2
sensitivity: 1, or sqrt(2) if a user is replaced, because weights are not negative.

Half of delta pays for the noise, and half for new keys; where a user is replaced, both populations
may have keys of their own, and each gets a quarter. Weights are sent as whole steps of 2^-20,
rounded down, so that discrete noise fits; its tail lies below a Gaussian's one step closer [2]_.

References
----------
.. [1] Gopi, Gulhane, Kulkarni, Shen, Shokouhi & Yekhanin, "Differentially private set union", ICML
   2020, Section 4.
.. [2] Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020,
   Proposition 25.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from clients.histograms.key_queries import MOST_KEYS, WEIGHT, weight_of
from fedhist.base.arrays import Array
from fedhist.base.checks import check_integer
from fedhist.model.query import Keyed
from fedhist.privacy.guarantee import Release, approximate, check_budget, sqrt_up
from fedhist.privacy.noise_law import NoiseSource, noise_per_sensitivity
from fedhist.users.keys import Keys
from server.session.unknown_keys import pack_keyed


@dataclass(frozen=True)
class WeightedKeys:
    """Public numbers of a release of keys, of which a user sends ``limit`` at most.

    ``epsilon = inf``: no noise, and every key that is sent appears. ``replaced``: neighbours differ
    in a user's record, and not in whether there is one. ``discrete``: integer noise.
    """

    limit: int
    epsilon: float
    delta: float
    replaced: bool = False
    discrete: bool = True

    def __post_init__(self) -> None:
        check_integer("limit", self.limit, MOST_KEYS)
        check_budget(self.epsilon, self.delta)
        if not self.delta:
            raise ValueError("releasing unknown keys needs delta > 0, got 0")

    @property
    def release(self) -> Release:
        """What it costs."""
        return approximate(self.epsilon, self.delta)

    @property
    def new_delta(self) -> float:
        """Most probability of a key that one user alone has."""
        return self.delta / (4 if self.replaced else 2)

    @property
    def std(self) -> float:
        """Of the noise, in steps; 0 for none."""
        if math.isinf(self.epsilon):
            return 0.0
        size = sqrt_up(2 * WEIGHT**2) if self.replaced else float(WEIGHT)
        unit = noise_per_sensitivity(self.epsilon, self.delta / 2, self.discrete, size)
        return unit.scale * size

    @property
    def threshold(self) -> float:
        """Noisy weight from which on a key appears, in steps."""
        if not self.std:
            return 1.0
        from scipy.special import ndtri  # where keys are unknown only

        t = np.arange(1, self.limit + 1)
        own = np.array([weight_of(int(k)) for k in t])
        rare = -np.expm1(np.log1p(-self.new_delta) / t)  # 1 - (1 - delta')^(1 / t)
        return float((own - self.std * ndtri(rare)).max()) + (1.0 if self.discrete else 0.0)

    def draw(self, part: Keyed, noise: NoiseSource) -> Array:
        """Add noise to whole weights and pack the keys that pass."""
        keep = np.flatnonzero(part.values > 0)
        keys, weights = Keys.of([part.keys[int(i)] for i in keep]), part.values[keep]
        noisy: Array = weights.astype(np.int64 if self.discrete else np.float64)
        if self.std:
            add = noise.discrete_gaussian if self.discrete else noise.gaussian
            noisy = noisy + add(weights.shape, self.std)
        return pack_keyed(keys, noisy, noisy >= self.threshold)
