"""Releasing keys that nobody listed beforehand: thresholds, and one array for the journal.

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

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Algorithm 3 and Theorem 5.1.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedhist.base.arrays import Array
from fedhist.model.query import Keyed
from fedhist.privacy.guarantee import check_budget
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
