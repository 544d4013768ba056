"""Predictions of central means: the steps' own laws, followed with the users' means. NOT PRIVATE.

Apart from the estimators: nothing here is asked, rounded or released.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedhist.base.arrays import Floats
from server.central_means.noise import COUNTED


@dataclass(frozen=True)
class Rows:
    """The users' own means, as predictions need them.

    Attributes
    ----------
    means : (n, d) float64
        Those that can be used.
    n_users : int
        The others included, who count as the centre unless ``hidden``.
    hidden : bool
        Whether sums are divided by a noisy number of users.
    times : float
        How many users one of the means stands for.
    """

    means: Floats
    n_users: int
    hidden: bool = False
    times: float = 1.0

    @property
    def truth(self) -> Floats:
        """The average: (d,)."""
        return np.asarray(self.means.mean(axis=0))

    @property
    def divisor(self) -> float:
        """By how many users sums are divided."""
        return max(1, len(self.means) * self.times if self.hidden else self.n_users)

    def clipped(self, centre: Floats, radius: float) -> Floats:
        """Clip to radii around a centre and average, without noise: (d,)."""
        away = shortened(self.means - centre, radius)
        return np.asarray(centre + away.sum(axis=0) * self.times / self.divisor)

    def risk(self, centre: Floats, radius: float, std: float) -> float:
        """Predict the mean squared l2 error of one release with noise of ``std`` radii."""
        if not len(self.means):
            return 0.0
        away = self.clipped(centre, radius) - centre
        return release_risk(
            away, self.truth - centre, radius, std / self.divisor, hidden=self.hidden
        )


def shortened(away: Floats, radius: float) -> Floats:
    """Scale rows down to a radius: (n, d)."""
    size = np.linalg.norm(away, axis=1, keepdims=True)
    return np.asarray(away * (radius / np.maximum(size, radius)))


def release_risk(away: Floats, truth: Floats, radius: float, each: float, *, hidden: bool) -> float:
    """Predict the mean squared l2 error of a release: both means are measured from its centre.

    ``each`` is the noise in radii, over the number of users that sums are divided by.
    """
    noise = len(truth) * (radius * each) ** 2
    if hidden:  # the noise on the number of users moves the mean along its own length
        noise += float(np.square(away).sum()) * (each / COUNTED) ** 2
    return float(np.square(away - truth).sum()) + noise
