"""The channel of Duchi, Jordan & Wainwright for a vector in an l2 ball: a point of a sphere.

References
----------
.. [1] Duchi, Jordan & Wainwright, "Minimax optimal procedures for locally private estimation",
   JASA 2018, Section 4.2.3.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import beta

from fedhist.base.arrays import Floats
from fedhist.base.checks import check_scale, check_within
from fedhist.channels.bits import RandomizedResponse
from fedhist.model.finite import FiniteChannel
from fedhist.privacy.guarantee import check_budget

MAX_DIMENSION = 1 << 20


@dataclass(frozen=True)
class SphereChannel(RandomizedResponse):
    """A vector of norm at most ``radius`` in, a point z of a larger sphere out; E z = x.

    x is rounded to one of the two ends of its diameter, without bias; the end's side of the sphere
    is kept with probability e^epsilon / (1 + e^epsilon), and z is uniform on that half. Without
    noise (epsilon = inf) x itself is sent.

    Privacy
    -------
    See :func:`clients.randomizers.sphere.duchi_l2`: one bit by randomized response, epsilon-LDP as
    drawn. The zero vector, which stands for a record that cannot be used, gives the uniform law.

    >>> one = SphereChannel(1, 1.0, 1.0)
    >>> round(one.length, 6) == round(1 / math.tanh(0.5), 6)
    True
    """

    dimension: int
    radius: float
    epsilon: float

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_scale("radius", self.radius)
        check_within("dimension", self.dimension, 1, MAX_DIMENSION)
        if self.length > 2.0**480:  # its square and sums over all users are doubles
            raise ValueError(
                f"reports would be {self.length:g} long: epsilon is too small, got {self.epsilon}"
            )

    @cached_property
    def mean_height(self) -> float:
        """c_d = E|U_1| = Gamma(d/2) / (sqrt(pi) Gamma((d+1)/2)), U uniform on the unit sphere."""
        return float(beta(self.dimension / 2, 0.5)) / math.pi

    @cached_property
    def length(self) -> float:
        """B = radius coth(epsilon / 2) / c_d: the norm of a report; at most radius without noise.

        About radius coth(epsilon / 2) sqrt(pi d / 2).
        """
        if math.isinf(self.epsilon):
            return self.radius
        return self.radius / self.tau / self.mean_height

    def variance(self, norm: ArrayLike) -> Floats:
        """Total variance B^2 - |x|^2 of a report, all coordinates added, at norm |x|."""
        if math.isinf(self.epsilon):
            return np.zeros(np.shape(norm))
        return np.asarray(self.length**2 - np.square(norm))


def sphere_law(channel: SphereChannel) -> FiniteChannel | None:
    """Give the law of the side of the sphere, this end or the other; the rest knows no data."""
    t = channel.flip_threshold
    if t == 0:
        return None
    keep = (1 << 64) - t
    labels = ["this end of the diameter", "the other end"]
    rows = np.array([[keep, t], [t, keep]], dtype=object)
    return FiniteChannel.of(rows, labels, "the one bit that depends on data: point or opposite")
