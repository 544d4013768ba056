"""Reference choices of a clipping threshold, computed from the private data: NOT PRIVATE.

Each rule minimises (a bound on) the expected l1 error of a clipped histogram with noise in
proportion to the threshold C, computed WITH the private data. They say how good a threshold could
have been; a private run may not use them.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Lemma 4.2 and Theorem 4.3.
"""

from __future__ import annotations

import math

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.privacy.noise_law import NoiseLaw, expected_l1, noise_per_sensitivity
from fedhist.protocols.shared.clipped_totals import clipped_curve, totals, user_norms
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard


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


def best_clip(
    users: Shard, domain: Keys, norm: int, unit: NoiseLaw, nonneg: bool, per_octave: int = 8
) -> tuple[float, float]:
    """Search the threshold with the least expected l1 error, and that error. NOT PRIVATE.

    On a log grid from the largest norm down to 1/16; 0 is tried as well. ``unit`` is the noise at
    C = 1, its scale in proportion to C.
    """
    norms = (user_norms(block, domain)[norm - 1] for block in users.blocks())
    largest = max((float(size.max(initial=0.0)) for size in norms), default=0.0)
    truth = totals(users, domain)
    best = 0.0, float(truth.sum())
    if largest == 0.0:
        return best
    octaves = math.log2(largest) + 4
    clips = largest * 2.0 ** (np.arange(math.ceil(octaves * per_octave) + 1) / per_octave - octaves)
    clips[-1] = largest
    for clip, kept in zip(clips, clipped_curve(users, domain, clips, norm), strict=True):
        law = NoiseLaw(unit.kind, unit.scale * clip, unit.step)
        bias = np.maximum(truth - kept, 0.0)
        error = expected_l1(law, bias, kept if nonneg else None)
        if error < best[1]:
            best = float(clip), error
    return best


def reference_clip(
    rule: str,
    users: Shard,
    domain: Keys,
    budget: tuple[float, float],
    multipliers: tuple[float, float],
    *,
    discrete: bool,
    nonneg: bool,
) -> tuple[float, str]:
    """Compute the threshold of "c-star" or "best", and say so in words. NOT PRIVATE.

    ``budget`` is (epsilon, delta) of the release, ``multipliers`` its sensitivities per unit of C.
    """
    (epsilon, delta), (k1, k2) = budget, multipliers
    unit = noise_per_sensitivity(epsilon, delta, discrete).scale * (k2 if delta else k1)
    law = NoiseLaw("gaussian" if delta else "laplace", unit)
    if rule == "best":
        clip, _ = best_clip(users, domain, 2 if delta else 1, law, nonneg)
        how = "the least expected l1 error on a log grid"
    elif rule == "c-star":
        l1, l2 = user_norms(users, domain)
        d, mass = len(domain), len(domain) * law.mean_absolute
        clip = c_star_gaussian(l1, l2, mass) if delta else c_star_laplace(l1, d, epsilon, k1)
        how = "the C* rule (Liu et al. 2023, Section 4.1)"
    else:
        raise ValueError(f'clip must be a number, "c-star" or "best", got {rule!r}')
    return clip, f"clip = {clip:.6g} was computed from the private data by {how}"
