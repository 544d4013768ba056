"""The server's half of private descent: where to clip, how far to step, where to stop.

Everything here is computed from public constants and released values, so it costs no privacy.

References
----------
.. [1] Narayanan, Mirrokni & Esfandiari, "Tight and robust private mean estimation with few
   users", ICML 2022, Appendix D, Proposition 28.
.. [2] Levy, Sun, Amin, Kale, Kulesza, Mohri & Suresh, "Learning with user-level privacy",
   NeurIPS 2021, Algorithm 4.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.checks import check_scale


def project(theta: Floats, radius: float) -> Floats:
    """Move a point to the nearest one of the ball of a radius around 0.

    >>> project(np.array([3.0, 4.0]), 1.0)
    array([0.6, 0.8])
    """
    size = float(np.linalg.norm(theta))
    return theta if size <= radius else theta * (radius / size)


def step_size(smoothness: float, strong_convexity: float) -> float:
    """Return 2 / (L + mu), or 1 / L where mu is 0.

    A step then shrinks the distance to the minimiser by (L - mu) / (L + mu) without noise.
    """
    return 2 / (smoothness + strong_convexity) if strong_convexity else 1 / smoothness


@dataclass(frozen=True)
class Tracking:
    """Where the users' gradients are expected next, and how far from there they may be.

    Between two steps the mean gradient moves by (integral of Hessian) (theta' - theta). With
    mu <= Hessian <= L and a public guess h of it, it lies within max(L - h, h - mu) |theta' -
    theta| of the tracked centre g + h (theta' - theta), the noise in g apart.

    Parameters
    ----------
    gradient_bound : float
        First clip, around 0, and the largest.
    spread : float
        Typical distance r of a user's gradient from the mean gradient.
    smoothness, strong_convexity : float
        L and mu of the empirical risk.
    curvature : float
        h. It must be public: the Hessian of the users' data would have to be released and paid
        for. 0 keeps the last gradient.
    """

    gradient_bound: float
    spread: float
    smoothness: float
    strong_convexity: float = 0.0
    curvature: float = 0.0

    def __post_init__(self) -> None:
        for name in ("gradient_bound", "spread", "smoothness"):
            check_scale(name, getattr(self, name))
        for name in ("strong_convexity", "curvature"):
            if not 0 <= getattr(self, name) <= self.smoothness:
                raise ValueError(
                    f"{name} must lie in [0, smoothness = {self.smoothness:g}], got "
                    f"{getattr(self, name)}"
                )

    @property
    def gap(self) -> float:
        """Largest operator norm of Hessian minus h I."""
        return max(self.smoothness - self.curvature, self.curvature - self.strong_convexity)

    def centre(self, gradient: Floats, moved: Floats) -> Floats:
        """Guess the mean gradient after a move, from the released one before it."""
        return gradient + self.curvature * moved

    def clip(self, moved: float) -> float:
        """Return 2 r_t = 2 r + gap |theta' - theta|, but never more than the first clip.

        One r is for the users, the other for the noise in the centre.
        """
        return min(self.gradient_bound, 2 * self.spread + self.gap * moved)


def gradient_std(clip: float, multiplier: float, steps: int, n_users: int) -> float:
    """Noise std of each entry of a mean gradient.

    Replacing a user moves the sum of n offsets from a ball of radius clip by 2 clip at most, and
    each of T Gaussians has sqrt(T) times the noise multiplier of all together.

    >>> gradient_std(0.5, 4.0, 25, 1000)
    0.02
    """
    return 2 * clip * multiplier * math.sqrt(steps) / n_users


def least_users(multiplier: float, steps: int, d: int) -> int:
    """Smallest n at which the first gradient's noise is shorter than the longest gradient.

    That is 2 multiplier sqrt(T d), the n >= sqrt(d T) / epsilon of [1, Theorem 29].

    >>> least_users(4.2247, 16, 25)
    169
    """
    return max(1, math.ceil(2 * multiplier * math.sqrt(steps * d)))
