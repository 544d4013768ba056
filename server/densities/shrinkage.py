"""Shrinkage of a series by how its coefficients fall, which the estimate itself says.

References
----------
.. [1] Efron & Morris, "Stein's estimation rule and its competitors: an empirical Bayes approach",
   JASA 1973. Own idea: a power law of the index as the prior.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from fedhist.base.arrays import Floats

POWERS = (0.5, 1.0, 1.5, 2.0, 3.0)
SIZES = np.geomspace(0.02, 3.0, 10)


def shrink_by_decay(theta: ArrayLike, stderr: ArrayLike) -> Floats:
    """Return the posterior mean of coefficients under a prior of power laws [1].

    theta_j ~ N(0, s^2 j^(-2 a)), j = 1, 2, ..., with five powers a, .5 to 3, and ten sizes s, .02
    to 3 (no coefficient of a density exceeds sqrt(2)), each as likely as the other before; the
    estimates, normal around theta_j, say which are likely after. So small coefficients give way to
    noise together and large ones stay.

    Parameters
    ----------
    theta, stderr : (J,) float64
        Infinite standard errors give 0, those of 0 the coefficient itself.

    Examples
    --------
    >>> shrink_by_decay([0.8, 0.2, 0.02, -0.1], [0.1] * 4).round(2)
    array([ 0.78,  0.14,  0.01, -0.02])
    """
    t, se = np.asarray(theta, dtype=np.float64), np.asarray(stderr, dtype=np.float64)
    known = np.isfinite(se)
    if not known.any() or not se[known].any():
        return np.where(known, t, 0.0)
    j = np.arange(1.0, len(t) + 1)[known]
    prior = np.concatenate([np.outer(SIZES**2, j ** (-2 * a)) for a in POWERS])
    spread = prior + np.square(se[known])
    log = -0.5 * (np.square(t[known]) / spread + np.log(spread)).sum(axis=1)
    weight = np.exp(log - log.max())
    kept = (weight / weight.sum()) @ (prior / spread)
    out = np.zeros(len(t))
    out[known] = kept * t[known]
    return out
