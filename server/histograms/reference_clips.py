"""The clipping threshold C*, computed from the private data: NOT PRIVATE.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Lemma 4.2 and Theorem 4.3.
"""

from __future__ import annotations

import math

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.privacy.noise_law import NoiseLaw, noise_per_sensitivity
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard
from server.targets.domains import user_norms


def c_star_laplace(l1_norms: Floats, d: int, epsilon: float, k1: float = 1.0) -> float:
    """Minimise sum_i (m_i - C)^+ + k1 d C / epsilon over C >= 0. NOT PRIVATE.

    The k-th largest m_i with k = ceil(k1 d / epsilon); 0 where there are fewer users. The expected
    error is within a factor 2 of the best threshold's [1, Lemma 4.2].

    >>> c_star_laplace(np.array([9.0, 1.0, 5.0, 3.0]), d=2, epsilon=1.0)
    5.0
    """
    rank = max(1, math.ceil(k1 * d / epsilon))  # without noise the largest is best
    if rank > len(l1_norms):
        return 0.0
    return float(np.partition(l1_norms, len(l1_norms) - rank)[len(l1_norms) - rank])


def c_star_gaussian(l1_norms: Floats, l2_norms: Floats, noise_mass: float) -> float:
    """Minimise sum_i (1 - C / v_i)^+ m_i + C M over C >= 0. NOT PRIVATE.

    The smallest C with sum over v_i > C of m_i / v_i <= M. (The paper's formula is a minimum over
    C, where it prints an arg min of the sum.)

    >>> c_star_gaussian(np.array([4.0, 2.0, 1.0]), np.array([4.0, 2.0, 1.0]), noise_mass=1.5)
    2.0
    """
    order = np.argsort(-l2_norms, kind="stable")
    v, m = l2_norms[order], l1_norms[order]
    slope = np.cumsum(np.divide(m, v, out=np.zeros_like(m), where=v > 0))
    at = int(np.searchsorted(slope, noise_mass, side="right"))  # first index with slope > M
    return float(v[at]) if at < len(v) else 0.0


def c_star(
    users: Shard,
    domain: Keys,
    budget: tuple[float, float],
    multipliers: tuple[float, float],
    *,
    discrete: bool,
) -> float:
    """Compute C* for a release. NOT PRIVATE."""
    (epsilon, delta), (k1, k2) = budget, multipliers
    l1, l2 = user_norms(users, domain)
    if not delta:
        return c_star_laplace(l1, len(domain), epsilon, k1)
    std = noise_per_sensitivity(epsilon, delta, discrete).scale * k2
    return c_star_gaussian(l1, l2, len(domain) * NoiseLaw("gaussian", std).mean_absolute)
