"""What theory predicts where users have different numbers of samples [1, Appendix E].

Of s users some s' have m-hat samples or more; m-hat samples of each are read, and the rest of all
samples is not. Errors are expected l1 distances from the average p of the users' own empirical
distributions. An estimate that is unbiased for i.i.d. samples has the variance V - c p (1 - p)
around it: V being its variance around the distribution that the samples were drawn from, and c what
both have in common (:meth:`SeenShares.shared_variance`).

Shares no code with the estimators.

References
----------
.. [1] Liu, Suresh, Yu, Kumar & Riley, "Learning discrete distributions: user vs item-level
   privacy", NeurIPS 2020, Appendix E.
"""

from __future__ import annotations

import math

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.privacy.noise_law import NoiseLaw
from fedhist.protocols.distributions.given_users import presence_l1
from fedhist.protocols.distributions.theory import MEAN_ABSOLUTE


def ragged_presence_error(
    p: Floats,
    size: int,
    kept: float,
    shared: float,
    users_std: float,
    law: NoiseLaw,
    cmax: float,
    *,
    projected: bool,
) -> float:
    """Predict the l1 error of 1 - clip(1 - (presence + Z) / s-hat, e^-cmax, 1)^(1 / m-hat).

    Parameters
    ----------
    p : (k,) float64
        Pooled empirical distribution.
    size : int
        m-hat.
    kept : float
        s', users with as many samples.
    shared : float
        c; 0 for the error against the distribution behind the samples.
    users_std : float
        Of s-hat around s'.
    law : NoiseLaw
        Of the noise Z on each number of users.
    cmax : float
    projected : bool
        Whether the estimate is projected to the simplex, which takes off what errors have in
        common.

    Returns
    -------
    float
        By quadrature over sampling and noise. The noise of s-hat scales all q alike, an error of
        (1 - p) (1 - q) / (m-hat q) per symbol and unit of relative error.
    """
    values = np.minimum(p, 1 - 1e-15)
    lacking = np.exp(size * np.log1p(-values))
    slope = size * np.maximum(lacking, math.exp(-cmax)) / (1 - values)  # of q, per unit of p
    spread = kept * lacking * (1 - lacking)
    spread = spread - values * (1 - values) * shared * (kept * slope) ** 2
    shift = (1 - lacking) / slope
    if projected:
        shift = shift - float(shift.mean())
    std = np.sqrt(np.maximum(spread, 0.0) + (slope * shift * users_std) ** 2)
    n_users = max(1, round(kept))
    mean = n_users * (1 - lacking)
    return presence_l1(values, mean, std, size, n_users, law, cmax, projected)


def ragged_selection_error(
    p: Floats,
    size: int,
    kept: float,
    shared: float,
    users_std: float,
    epsilon_each: float,
    eta: float,
    *,
    projected: bool,
) -> float:
    """Approximate the expected l1 error of selecting Bin(m-hat, p_i) by exponential mechanisms.

    Per symbol hypot(.8 sqrt(p (1 - p) / (m s')), (2 / (eps1 s')) max(1 / m, 2.5 sqrt(p (1 - p) /
    m))), the first term with what the truth shares taken off. An s-hat that is off by a part
    x moves every cumulative share by about x, hence p by x sqrt(2 pi p (1 - p) / m) / 2. Rounding
    to a grid of width ``eta`` in total variation moves p by up to 2 eta sqrt(p (1 - p) / m).
    """
    variance = p * (1 - p)
    unread = max(0.0, 1 / (kept * size) - shared)
    sampling = MEAN_ABSOLUTE * np.sqrt(variance * unread)
    privacy = 2 / (epsilon_each * kept) * np.maximum(1 / size, 2.5 * np.sqrt(variance / size))
    users = MEAN_ABSOLUTE * users_std / kept * np.sqrt(math.pi / 2 * variance / size)
    grid = MEAN_ABSOLUTE * 2 * eta * np.sqrt(variance / size / 3)
    total = float(np.sqrt(sampling**2 + privacy**2 + users**2 + grid**2).sum())
    return total * _centred(len(p), projected)


def zero_indicators_touched(k: int, size: int) -> int:
    """Most sums of zero indicators that one replaced user changes: max(k - 1, min(k, 2 m-hat)).

    A user with m-hat samples of one symbol adds a 1 to all others; replaced by one with fewer than
    m-hat samples, it takes k - 1 of them away. Two users with m-hat samples each differ in min(k,
    2 m-hat) at most. The paper has min(k, m-hat) (Theorem 15).

    >>> zero_indicators_touched(50, 5), zero_indicators_touched(50, 32)
    (49, 50)
    """
    return max(1, k - 1, min(k, 2 * size))


def printed_epsilon_each(k: int, size: int, epsilon: float, delta: float) -> float:
    """Epsilon per symbol of [1, proofs of Theorems 14 and 15].

    epsilon / (8 sqrt((k + 1) ln(2 / delta))) where k <= m-hat; otherwise half of epsilon over 8
    sqrt(min(k, m-hat) ln(2 / delta)).
    """
    log = math.log(2 / delta)
    if k <= size:
        return epsilon / (8 * math.sqrt((k + 1) * log))
    return epsilon / 2 / (8 * math.sqrt(size * log))


def _centred(k: int, projected: bool) -> float:
    """Take off what the projection onto sum 1 does to independent errors."""
    return math.sqrt(1 - 1 / k) if projected else 1.0
