"""Real samples on [0, 1] from a density that users share, or differ around."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, ClassVar

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.base.errors import nearest
from simulations.config.reading import Finite, Must, Natural, Positive, Whole
from simulations.populations.base import Loaded, PopulationSpec
from simulations.populations.differing import SharesDiffer, mirrored, mirrored_share, own_draws
from simulations.populations.synthetic import Sizes, draw_sizes, sampled_users

if TYPE_CHECKING:
    from server.densities.series import TrigonometricDensity

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
    """Samples of a density f on [0, 1]: a periodic series sum_j theta_j phi_j, or Beta(a, b).

    Samples of a series are drawn by the inverse distribution function, which is interpolated
    between 2^16 + 1 exact values: each of as many cells has its exact mass, spread evenly.

    Parameters
    ----------
    n_users : int
    samples_per_user : int or [lo, hi]
        A pair gives ragged users: the number of samples is log-uniform on lo, ..., hi.
    density : str or list of float
        "uniform", "one-bump", "two-bumps", or theta_2, theta_3, ... (theta_1 is 1), where
        phi_2k = sqrt(2) cos(2 pi k x) and phi_{2k+1} = sqrt(2) sin(2 pi k x). "beta": Beta(a, b),
        which differs at the two ends unless a = b.
    beta : [a, b], default [2, 5]
        Of density = "beta".
    users : {"alike", "dirichlet", "two-clusters", "outliers"}, default "alike"
        Whose distribution a user's samples come from. "dirichlet": the user's own, a Dirichlet
        process around f. "two-clusters" and "outliers": a half, or 5 %, of the users have 1 - x
        in place of x.
    concentration : float, default 5.0
        Of "dirichlet": two samples of one user agree with probability 1 / (1 + concentration).
    seed : int, default 0
    """

    kind: ClassVar[str] = "density"

    n_users: Whole
    samples_per_user: Sizes
    density: str | tuple[Finite, ...] = "two-bumps"
    beta: Annotated[tuple[Positive, Positive], Must("[a, b]", bool)] = (2.0, 5.0)
    users: SharesDiffer = "alike"
    concentration: Positive = 5.0
    seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.density, str):
            if self.density not in (known := ["uniform", "beta", *BUMPS]):
                hint = nearest(self.density, known)
                raise ValueError(f"no density {self.density!r}{hint}")
            return
        least = self.exact.on_grid(CELLS).min()
        if least < -1e-9:  # a zero of the density may come out as -1e-16
            raise ValueError(f"the density must not be negative, its least value is {least:g}")

    @cached_property
    def exact(self) -> TrigonometricDensity:
        """The density itself, where it is a series; ValueError for a Beta density."""
        from server.densities.series import TrigonometricDensity  # and SciPy: 0.2 s of CPU

        if self.density == "beta":
            raise ValueError("a Beta density is no trigonometric series of finite length")
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
        values = self.hold(rng, sizes)
        name = self.density if isinstance(self.density, str) else "trigonometric"
        if name == "beta":
            name = f"Beta({self.beta[0]:g}, {self.beta[1]:g})"
        users, told = sampled_users(sizes, values[:, None])
        told += "" if self.users == "alike" else f", users {self.users}"
        return Loaded(users, f"samples of a {name} density: {told}", value_range=(0.0, 1.0))

    def hold(self, rng: np.random.Generator, sizes: Integers) -> Floats:
        """Draw the samples of users of these sizes, (n,): one user's after the other's."""
        if self.users == "dirichlet":
            user, atom, count = own_draws(
                rng, sizes, self.concentration, lambda m: self.drawn(rng, m)
            )
            order = np.argsort(user, kind="stable")
            return np.asarray(np.repeat(atom[order], count[order]))
        turned = mirrored(self.users, len(sizes), rng)
        values = self.drawn(rng, int(sizes.sum()))
        return values if turned is None else np.where(np.repeat(turned, sizes), 1 - values, values)

    def drawn(self, rng: np.random.Generator, n_samples: int) -> Floats:
        """Draw samples of the common density: (n_samples,) float64."""
        if self.density == "beta":
            return rng.beta(*self.beta, size=n_samples)
        edges, below = self._distribution
        return np.interp(rng.random(n_samples), below, edges)

    def on_grid(self, n_cells: int) -> Floats:
        """Average density of the users' samples on equal cells: exact masses over the width."""
        edges = np.arange(n_cells + 1) / n_cells
        if self.density == "beta":
            from scipy.special import betainc

            masses = np.diff(betainc(*self.beta, edges))
        else:
            masses = np.diff(_antiderivative(self.exact.coefficients, edges))
        turned = mirrored_share(self.users)
        return np.asarray(n_cells * ((1 - turned) * masses + turned * masses[::-1]))

    @cached_property
    def _distribution(self) -> tuple[Floats, Floats]:
        """Points, and the mass below each."""
        edges = np.arange(CELLS + 1) / CELLS
        # rounding may let it fall by 1e-17 where the density is zero
        return edges, np.maximum.accumulate(_antiderivative(self.exact.coefficients, edges))


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
