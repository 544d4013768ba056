"""What a noisy vector is taken for: shrunk by what its noise adds to its length [1]_, [2]_.

References
----------
.. [1] James & Stein, "Estimation with quadratic loss", Berkeley Symposium 1961.
.. [2] Efron & Morris, "Stein's estimation rule and its competitors: an empirical Bayes approach",
   JASA 1973: the positive part.
"""

from __future__ import annotations

import math

import numpy as np

from fedhist.base.arrays import Floats


def settled(away: Floats, std: float, radius: float) -> Floats:
    """Shrink noisy vectors towards the origin, and into the ball that holds all means.

    With x a vector in d >= 3 dimensions and Gaussian noise of ``std`` in each coordinate,
    (1 - (d - 2) std^2 / |x|^2)_+ x has a smaller expected squared l2 error than x, whatever it is
    an unbiased estimate of [1, 2]: about that of the origin where noise is all there is, and that
    of x where there is next to none. What lies in a ball is no farther from the nearest point of
    the ball than from x. Laplace noise is shrunk likewise.

    Parameters
    ----------
    away : (..., d) float64
        Released vectors, from the middle of the public range.
    std : float
    radius : float
        No user's vector is longer, nor is their mean.

    Privacy
    -------
    Reads released and public numbers only.

    Examples
    --------
    >>> settled(np.array([3.0, 4.0, 0.0]), 1.0, 2.4).round(2), settled(np.array([3.0]), 9.0, 2.0)
    (array([1.44, 1.92, 0.  ]), array([2.]))
    """
    size = np.linalg.norm(away, axis=-1, keepdims=True)
    noise = math.sqrt(max(away.shape[-1] - 2, 0)) * std
    kept = 1 - np.square(np.minimum(noise / np.maximum(size, 1e-300), 1.0))
    return np.asarray(away * np.minimum(kept, radius / np.maximum(size, 1e-300)))
