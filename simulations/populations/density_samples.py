"""Real samples on [0, 1] from a smooth periodic density that all users share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.base.errors import nearest
from server.densities.series import TrigonometricDensity
from simulations.config.reading import Finite, Natural, Whole
from simulations.populations.base import Loaded, PopulationSpec
from simulations.populations.synthetic import Sizes, draw_sizes, sampled_users

BUMPS: Mapping[str, tuple[tuple[float, float, int], ...]] = MappingProxyType(
    {
        "one-bump": ((1.0, 0.4, 2),),
        "two-bumps": ((0.6, 0.3, 5), (0.4, 0.7, 9)),
    }
)
"""Named densities: (share, centre, power) of each bump, see :func:`bump`."""
CELLS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class DensitySamples(PopulationSpec):
    """Independent samples of one density f(x) = sum_j theta_j phi_j(x) on [0, 1].

    Samples are drawn by the inverse distribution function, which is interpolated between 2^16 + 1
    exact values: each of as many cells has its exact mass, spread evenly.

    Parameters
    ----------
    n_users : int
    samples_per_user : int or [lo, hi]
        A pair gives ragged users: the number of samples is log-uniform on lo, ..., hi.
    density : str or list of float
        "uniform", "one-bump", "two-bumps", or theta_2, theta_3, ... (theta_1 is 1), where
        phi_2k = sqrt(2) cos(2 pi k x) and phi_{2k+1} = sqrt(2) sin(2 pi k x).
    seed : int, default 0
    """

    kind: ClassVar[str] = "density"

    n_users: Whole
    samples_per_user: Sizes
    density: str | tuple[Finite, ...] = "two-bumps"
    seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.density, str):
            if self.density != "uniform" and self.density not in BUMPS:
                hint = nearest(self.density, ["uniform", *BUMPS])
                raise ValueError(f"no density {self.density!r}{hint}")
            return
        least = self.exact.on_grid(CELLS).min()
        if least < -1e-9:  # a zero of the density may come out as -1e-16
            raise ValueError(f"the density must not be negative, its least value is {least:g}")

    @cached_property
    def exact(self) -> TrigonometricDensity:
        """The density itself."""
        if not isinstance(self.density, str):
            return TrigonometricDensity(np.array([1.0, *self.density]))
        parts = [share * bump(c, power) for share, c, power in BUMPS.get(self.density, ())]
        theta = np.zeros(max([1, *map(len, parts)]))
        for part in parts:
            theta[: len(part)] += part
        theta[0] = 1.0
        return TrigonometricDensity(theta)

    def load(self) -> Loaded:
        """Generate the users."""
        rng = np.random.default_rng(self.seed)
        sizes = draw_sizes(rng, self.n_users, self.samples_per_user)
        edges = np.arange(CELLS + 1) / CELLS
        # rounding may let it fall by 1e-17 where the density is zero
        below = np.maximum.accumulate(_antiderivative(self.exact.coefficients, edges))
        values = np.interp(rng.random(int(sizes.sum())), below, edges)
        name = self.density if isinstance(self.density, str) else "trigonometric"
        users, told = sampled_users(sizes, values[:, None])
        return Loaded(users, f"samples of a {name} density: {told}", value_range=(0.0, 1.0))


def bump(centre: float, power: int) -> Floats:
    """Return theta_1, ... of the density proportional to cos(pi (x - centre))^(2 power).

    1 + 2 sum_k C(2m, m - k) / C(2m, m) cos(2 pi k (x - centre)), k = 1, ..., m = power.

    >>> bump(0.0, 1).round(4)
    array([1.    , 0.7071, 0.    ])
    """
    from scipy.special import gammaln

    k = np.arange(power + 1)
    ratio = np.exp(2 * gammaln(power + 1) - gammaln(power - k + 1) - gammaln(power + k + 1))
    theta = np.ones(2 * power + 1)
    theta[1::2] = math.sqrt(2) * ratio[1:] * np.cos(2 * np.pi * k[1:] * centre)
    theta[2::2] = math.sqrt(2) * ratio[1:] * np.sin(2 * np.pi * k[1:] * centre)
    return theta


def _antiderivative(theta: Floats, x: Floats) -> Floats:
    """Integrate the series from 0 to each x."""
    out = theta[0] * x
    for j in range(2, len(theta) + 1):
        w = 2 * np.pi * (j // 2)
        part = (1 - np.cos(w * x)) / w if j % 2 else np.sin(w * x) / w
        out = out + math.sqrt(2) * theta[j - 1] * part
    return np.asarray(out)
