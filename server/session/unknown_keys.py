r"""Releasing keys that nobody listed beforehand: thresholds, and one array for the journal.

Noise goes on the keys that some user sends, and a key appears if its noisy count reaches a
threshold t: the keys that one user alone holds must stay hidden but for probability delta, in
total. A user adds C over its keys. The sum over them of the chance to pass is convex in each count,
so its worst cases are one key of C and C keys of 1.

That is enough under every adjacency. Let two populations differ in one user, who alone holds the
keys A in the first and B in the second, which appear with probabilities delta_A and delta_B. On the
shared keys the laws p and q satisfy p <= e^epsilon q. An outcome with a key of A has probability
delta_A in all; the others have none of B in the first population, so that for any set of outcomes

    P - e^epsilon Q <= delta_A + (1 - delta_A) p - e^epsilon (1 - delta_B) q
                    <= delta_A + (delta_B - delta_A) p <= max(delta_A, delta_B) <= delta.

So replacing a user, which may add new keys on both sides, needs more noise but no half of delta.

Which keys several users have, by Gaussian noise on their weights and a threshold
---------------------------------------------------------------------------------
A user spreads an l2 norm of 1 over at most D of its keys, 1 / sqrt(t) on each of t. Noise goes on
the keys that somebody sends, and a key appears if its noisy weight passes

    max over t <= D of  1 / sqrt(t) + sigma Phi^{-1}((1 - delta')^{1 / t}),

so that of t keys that one user alone has (some of which may be shared: then fewer are its own) one
appears with probability at most delta' [2]_. On shared keys the Gaussian mechanism has its l2
sensitivity: 1, or sqrt(2) if a user is replaced, because weights are not negative.

Half of delta pays for the noise, and half for new keys; where a user is replaced, both populations
may have keys of their own, and each gets a quarter. Weights are sent as whole steps of 2^-20,
rounded down, so that discrete noise fits; its tail lies below a Gaussian's one step closer [3]_.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Algorithm 3 and Theorem 5.1.
.. [2] Gopi, Gulhane, Kulkarni, Shen, Shokouhi & Yekhanin, "Differentially private set union", ICML
   2020, Section 4.
.. [3] Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020,
   Proposition 25.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clients.histograms.key_queries import MOST_KEYS, WEIGHT, weight_of
from fedhist.base.arrays import Array
from fedhist.base.checks import check_integer
from fedhist.model.query import Keyed
from fedhist.privacy.guarantee import Release, approximate, check_budget, sqrt_up
from fedhist.privacy.noise_law import NoiseSource, noise_per_sensitivity
from fedhist.users.keys import Keys


def key_threshold(contribution: int, l1_sensitivity: int, epsilon: float, delta: float) -> int:
    """Smallest integer threshold for discrete Laplace noise; 1 where there is no noise.

    t = ceil(b [max(C / b, ln C + 1 / b) - ln delta - ln(1 + e^(-1/b))]) with b the noise scale,
    from P(Z >= k) = e^(-k/b) / (1 + e^(-1/b)) for k >= 0, which bounds it for k < 0.

    Parameters
    ----------
    contribution : int
        Most that one user adds over all keys (C).
    l1_sensitivity : int
        C under add-remove and zero-out, 2 C under replacement.
    epsilon, delta : float

    Examples
    --------
    >>> key_threshold(10, 10, 1.0, 1e-6), key_threshold(10, 20, 1.0, 1e-6)
    (156, 310)
    """
    if _without_noise(epsilon, delta):
        return 1
    b = l1_sensitivity / epsilon
    worst = _worst_record(contribution, b) - math.log1p(math.exp(-1 / b))
    return math.ceil(b * (worst - math.log(delta)))


def laplace_key_threshold(
    contribution: int, l1_sensitivity: int, epsilon: float, delta: float
) -> float:
    """Smallest threshold for (continuous) Laplace noise; 1 where there is no noise.

    t = b [max(C / b, ln C + 1 / b) - ln(2 delta)], from P(Z >= x) = e^(-x/b) / 2 for x >= 0,
    which bounds it for x < 0. Corrected against the paper: its C + b ln(C / 2 delta) is valid
    under zeroing out, but adds up two worst cases that no record meets at once.

    >>> round(laplace_key_threshold(10, 10, 1.0, 1e-6), 2)
    155.25
    """
    if _without_noise(epsilon, delta):
        return 1.0
    b = l1_sensitivity / epsilon
    return b * (_worst_record(contribution, b) - math.log(2 * delta))


def printed_key_threshold(contribution: int, epsilon: float, delta: float) -> float:
    """Threshold as the paper prints it, C + (C / epsilon) ln(C / 2 delta) [1, Algorithm 3].

    >>> round(printed_key_threshold(10, 1.0, 1e-6), 2)
    164.25
    """
    if _without_noise(epsilon, delta):
        return 1.0
    return contribution * (1 + math.log(contribution / (2 * delta)) / epsilon)


def _without_noise(epsilon: float, delta: float) -> bool:
    check_budget(epsilon, delta)
    if delta == 0:
        raise ValueError("releasing unknown keys needs delta > 0, got 0")
    return math.isinf(epsilon)


def _worst_record(contribution: int, b: float) -> float:
    """Log of the largest sum over a record's keys of e^(count / b)."""
    return max(contribution / b, math.log(contribution) + 1 / b)


def pack_keyed(keys: Keys, values: NDArray[np.generic], keep: NDArray[np.bool_]) -> Array:
    """Pack the kept part of a sparse release into one byte array that the journal can hold."""
    released = Keys.of([keys[int(i)] for i in np.flatnonzero(keep)])
    real = values.dtype.kind == "f"
    head = np.array([len(released), real], dtype="<i8")
    parts = [head, released.offsets.astype("<i8"), values[keep].astype("<f8" if real else "<i8")]
    return np.concatenate([*(p.view(np.uint8) for p in parts), released.data])


def unpack_keyed(packed: Array) -> Keyed:
    """Read what :func:`pack_keyed` wrote."""
    k, real = (int(x) for x in packed[:16].view("<i8"))
    ends = 16 + 8 * (k + 1), 16 + 8 * (2 * k + 1)
    offsets = packed[16 : ends[0]].copy().view("<i8").astype(np.int64)
    raw = packed[ends[0] : ends[1]].copy()
    values = raw.view("<f8").astype(np.float64) if real else raw.view("<i8").astype(np.int64)
    return Keyed(Keys(offsets, packed[ends[1] :]), values)


# -- by weights ------------------------------------------------------------------------------------


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
