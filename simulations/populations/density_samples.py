"""Real samples on [0, 1] from a density that users share, or differ around."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, partial
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

import numpy as np

from fedhist.base.arrays import Floats, Integers, Words
from fedhist.base.errors import nearest
from fedhist.users.batch import Users
from fedhist.users.shards import Samples
from simulations.config.reading import Finite, Must, Natural, Positive, Whole
from simulations.populations import Plan
from simulations.populations.draws import Choice, beta_of, urn_kernel, words
from simulations.populations.synthetic import (
    SharesDiffer,
    Sizes,
    Synthetic,
    samples_told,
)

BUMPS: Mapping[str, tuple[tuple[float, float, int], ...]] = MappingProxyType(
    {"one-bump": ((1.0, 0.4, 2),), "two-bumps": ((0.6, 0.3, 5), (0.4, 0.7, 9))}
)
"""Named densities: (share, centre, power) of each bump, see :func:`bump`."""
CELLS = 1 << 16


@dataclass(frozen=True, kw_only=True)
class DensitySamples(Synthetic):
    """Samples of a density f on [0, 1]: a periodic series sum_j theta_j phi_j, or Beta(a, b).

    Each of 2^16 equal cells has the mass of the series on it, rounded to a multiple of 2^-32 and
    spread evenly. Beta is exact: the share of one of two gamma variables.

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
    users : {"alike", "dirichlet"}, default "alike"
        Whose distribution a user's samples come from. "dirichlet": the user's own, a Dirichlet
        process around f (exactly: an urn).
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
        least = self.at_middles(CELLS).min()
        if least < -1e-9:  # a zero of the density may come out as -1e-16
            raise ValueError(f"the density must not be negative, its least value is {least:g}")

    @cached_property
    def coefficients(self) -> Floats:
        """theta_1, theta_2, ... of a density that is a series; ValueError for a Beta density."""
        if self.density == "beta":
            raise ValueError("a Beta density is no trigonometric series of finite length")
        if not isinstance(self.density, str):
            return np.array([1.0, *self.density])
        parts = [share * bump(c, power) for share, c, power in BUMPS.get(self.density, ())]
        theta = np.zeros(max([1, *map(len, parts)]))
        for part in parts:
            theta[: len(part)] += part
        theta[0] = 1.0
        return theta

    def at_middles(self, n_cells: int = 1024) -> Floats:
        """Return the series at the midpoints of equal cells: (n_cells,)."""
        from server.densities.series import series_at  # and SciPy: 0.2 s of CPU

        middle = (np.arange(n_cells) + 0.5) / n_cells
        return np.asarray(series_at("fourier", self.coefficients[1:], middle), dtype=np.float64)

    def plan(self) -> Plan:
        name = self.density if isinstance(self.density, str) else "trigonometric"
        if name == "beta":
            name = f"Beta({self.beta[0]:g}, {self.beta[1]:g})"
        told = samples_told(self.n_users, self.samples_per_user)
        told += "" if self.users == "alike" else f", users {self.users}"
        return Plan(self.made, f"samples of a {name} density: {told}", value_range=(0.0, 1.0))

    def make(self, first: int, n: int) -> Users:
        indptr = self.indptr(first, n, self.samples_per_user, 1)
        values = self.hold(first, indptr)
        return Users(self.ids(first, n), samples=Samples(indptr, values[:, None]))

    def hold(self, first: int, indptr: Integers) -> Floats:
        """Draw the samples of users first, ...: one user's after the other's, (indptr[-1],)."""
        values = self.drawn(words(self.key("samples"), first, indptr)[:, 0])
        if self.users == "dirichlet":
            key = self.key("urn")
            urn_kernel(key, np.uint64(first), indptr, float(self.concentration), values)
        return values

    def drawn(self, drawn: Words) -> Floats:
        """Turn each word into a sample of the common density: float64."""
        if self.density == "beta":
            return np.asarray(beta_of(drawn, *self.beta))
        within = (drawn & np.uint64(0xFFFFFFFF)).astype(np.float64) + 0.5
        return np.asarray((self._cells.of(drawn) + within * 2.0**-32) / CELLS)

    def on_grid(self, n_cells: int) -> Floats:
        """Average density of the users' samples on equal cells: exact masses over the width."""
        edges = np.arange(n_cells + 1) / n_cells
        if self.density == "beta":
            from scipy.special import betainc

            masses = np.diff(betainc(*self.beta, edges))
        else:
            masses = np.diff(_antiderivative(self.coefficients, edges))
        return np.asarray(n_cells * masses)

    @cached_property
    def _cells(self) -> Choice:
        """The law of the cell that a sample of the series lies in."""
        below = _antiderivative(self.coefficients, np.arange(CELLS + 1) / CELLS)
        # rounding may let it fall by 1e-17 where the density is zero
        return Choice(np.maximum(np.diff(below), 0.0))

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave out the tables, which are the same wherever they are made."""
        given = {f.name: getattr(self, f.name) for f in fields(self)}
        return partial(DensitySamples, **given), ()


def bump(centre: float, power: int) -> Floats:
    """Return theta_1, ... of the density proportional to cos(pi (x - centre))^(2 power).

    1 + 2 sum_k C(2m, m - k) / C(2m, m) cos(2 pi k (x - centre)), k = 1, ..., m = power.

    >>> bump(0.0, 1).round(4)
    array([1.    , 0.7071, 0.    ])
    """
    k: Floats = np.arange(1.0, power + 1.0)
    middle = math.comb(2 * power, power)
    ratio: Floats = np.array(
        [math.comb(2 * power, power - j) / middle for j in range(1, power + 1)]
    )
    theta: Floats = np.ones(2 * power + 1)
    theta[1::2] = math.sqrt(2) * ratio * np.cos(2 * np.pi * k * centre)
    theta[2::2] = math.sqrt(2) * ratio * np.sin(2 * np.pi * k * centre)
    return theta


def _antiderivative(theta: Floats, x: Floats) -> Floats:
    """Integrate the series from 0 to each x."""
    out = theta[0] * x
    for j in range(2, len(theta) + 1):
        k = j // 2
        part = (
            1 - np.cos(2 * np.pi * (k * x)) if j % 2 else np.cos(2 * np.pi * (k * x - 0.25))
        ) / (2 * np.pi * k)
        out = out + math.sqrt(2) * theta[j - 1] * part
    return np.asarray(out)
