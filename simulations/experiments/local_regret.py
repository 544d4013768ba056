"""Cells of the map of local protocols: public settings, and populations exact in law. NOT PRIVATE.

Means and vectors: a user holds one sample with the law of the mean of its T. Items and samples of
densities are held whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.users.batch import Users
from simulations.experiments.base import Request, Result
from simulations.experiments.local_populations import fresh_ids, fresh_key, users_of
from simulations.experiments.regret import measure_area
from simulations.experiments.regret_axes import Axis, lattice, pairs_of_axes
from simulations.experiments.regret_cells import Area, Cell
from simulations.experiments.settings import positives, whole, wholes
from simulations.populations.density_samples import DensitySamples
from simulations.populations.differing import MeansDiffer, SharesDiffer, own_means
from simulations.populations.synthetic import log_uniform, numbered_items
from simulations.populations.zipf import Zipf

USERS = ("alike", "differ", "two-clusters", "outliers", "edge")
"""How users are: "differ" is normal for means, Dirichlet for distributions; "edge" is a skewed law
near the edge of what is possible."""
SIZES: Mapping[str, Sequence[int]] = MappingProxyType(
    {
        "mean": (1,),
        "mean-l2": (8, 64),
        "sparse-mean": (40, 300),
        "distribution": (20, 100),
        "density": (1,),
        "oracle": (20, 1000, 30_000),
    }
)
"""Dimensions, or symbols, by target."""
SPARSITY = 4
MEANS: Mapping[str, MeansDiffer] = MappingProxyType(
    {
        "alike": "alike",
        "differ": "normal",
        "two-clusters": "two-clusters",
        "outliers": "outliers",
        "edge": "alike",
    }
)
SHARES: Mapping[str, SharesDiffer] = MappingProxyType(
    {
        "alike": "alike",
        "differ": "dirichlet",
        "two-clusters": "two-clusters",
        "outliers": "outliers",
        "edge": "alike",
    }
)


@dataclass(frozen=True)
class LocalCell(Cell):
    """One square of the map.

    Attributes
    ----------
    target : str
        A key of :data:`SIZES`.
    n : int
    T : int
        Samples of each user; 0 stands for ragged users, log-uniform on 1, ..., ``ragged``.
    epsilon : float
    users : str
        One of :data:`USERS`.
    size : int
        Dimension d, or symbols k.
    ragged : int
    """

    target: str
    n: int
    T: int
    epsilon: float
    users: str
    size: int
    ragged: int = 100

    def __str__(self) -> str:
        size = f" size={self.size}" if len(SIZES[self.target]) > 1 else ""
        T = self.T or f"1..{self.ragged}"
        return f"n={self.n} T={T} eps={self.epsilon:g} {self.users}{size}"

    @property
    def planned_samples(self) -> float:
        """The public planning value: T, or the harmonic mean of ragged sizes.

        >>> LocalCell("mean", 10, 30, 1.0, "alike", 1).planned_samples
        30.0
        """
        if self.T:
            return float(self.T)
        k = np.arange(1, self.ragged + 1)
        share = np.log((k + 1) / k) / math.log(self.ragged + 1)
        return 1 / float((share / k).sum())

    def sizes(self, rng: np.random.Generator) -> Integers:
        """Draw the users' numbers of samples: (n,)."""
        return log_uniform(rng.random(self.n), self.T or (1, self.ragged))

    def draw(self, rng: np.random.Generator) -> tuple[Users, Floats]:
        """Draw users, and return the parameter of the law that they come from."""
        return POPULATIONS[self.target](self, rng)

    @property
    def public(self) -> Mapping[str, Any]:
        """What a protocol may know, by the names of protocols' fields."""
        return {
            "epsilon": self.epsilon,
            "n_users": self.n,
            "samples_per_user": self.planned_samples,
            "dimension": self.size,
            "low": -1.0,
            "high": 1.0,
            "radius": 1.0,
            "sparsity": SPARSITY,
            "domain": numbered_items(self.size),
        }

    @property
    def not_meant(self) -> tuple[str, ...]:
        """Fields of that name mean something else here: a Sobolev radius is not the ball's."""
        return ("radius",) if self.target == "density" else ()

    @cached_property
    def direction(self) -> Floats:
        """A fixed unit vector with no equal coordinates: (d,)."""
        v = np.cos(1.0 + np.arange(self.size))
        return np.asarray(v / np.linalg.norm(v))

    @property
    def facts(self) -> Mapping[str, str | float]:
        """Its place on every axis."""
        return {
            **{"n": self.n, "T": self.T, "epsilon": self.epsilon},
            **{"users": self.users, "size": self.size},
        }

    def loss(self, value: Floats, truth: Floats) -> float:
        """Measure an estimate: squared l2; l1 for distributions; integrated for densities."""
        if self.target == "distribution":
            return float(np.abs(value - truth).sum())
        return self.squared(value - truth)

    def squared(self, off: Floats) -> float:
        """Return the squared l2 norm; that of a density is an average over its grid."""
        return super().squared(off) / (GRID if self.target == "density" else 1)

    def trivial(self, truth: Floats) -> float:
        """Return the loss of what needs no users: the middle, zero, the uniform distribution."""
        uniform = {"distribution": 1 / self.size, "density": 1.0, "oracle": 1 / self.size}
        return self.loss(np.full_like(truth, uniform.get(self.target, 0.0)), truth)


def _coins(own: Floats, sizes: Integers, rng: np.random.Generator) -> Floats:
    """Means of so many samples +-1 around each user's own: (n, d)."""
    T = np.broadcast_to(sizes[:, None], own.shape)
    return np.asarray(rng.binomial(T, np.clip((1 + own) / 2, 0, 1)) * (2 / T) - 1)


def _scalars(cell: LocalCell, rng: np.random.Generator) -> tuple[Users, Floats]:
    """Draw samples +-1. At the edge: Beta(.6, 5.4) over the range, with a mean of a tenth of it."""
    at, spread = {
        "alike": (0.2, 0.0),
        "differ": (0.2, 0.15),
        "two-clusters": (0.1, 0.4),
        "outliers": (0.1, 0.15),
        "edge": (-0.8, 2 * math.sqrt(0.09 / 7)),
    }[cell.users]
    kind: MeansDiffer = "beta" if cell.users == "edge" else MEANS[cell.users]
    mean = np.array([at])
    own = own_means(kind, mean, spread, -1.0, 1.0, fresh_key(rng), 0, cell.n)
    return users_of(_coins(own, cell.sizes(rng), rng), rng), mean


def _vectors(cell: LocalCell, rng: np.random.Generator) -> tuple[Users, Floats]:
    """Draw samples +-v along the user's own mean, P(+) = .75. At the edge: nearly all of one sign.

    v has length 1.
    """
    spread = 0.1 if cell.users == "outliers" else 0.3
    mean = (0.97 if cell.users == "edge" else 0.5) * cell.direction
    spread /= math.sqrt(cell.size)
    own = own_means(MEANS[cell.users], mean, spread, -2.0, 2.0, fresh_key(rng), 0, cell.n)
    norm = np.linalg.norm(own, axis=1, keepdims=True)
    sides = _coins(np.minimum(norm, 1.0), cell.sizes(rng), rng)
    truth = mean if (norm <= 1).all() else (own * np.minimum(1, 1 / norm)).mean(axis=0)
    return users_of(sides * own / norm, rng), truth


def _sparse(cell: LocalCell, rng: np.random.Generator) -> tuple[Users, Floats]:
    """Draw samples +-1; four means, the last among them, are +-.3; at the edge +-.08."""
    strong = 0.08 if cell.users == "edge" else 0.3
    mean = np.zeros(cell.size)
    mean[[1, cell.size // 3, cell.size // 2, cell.size - 1]] = strong * np.array([1, -1, 1, -1])
    own = np.zeros((cell.n, cell.size))
    some = np.flatnonzero(mean)  # users differ where there is a signal
    spread = 0.1 if cell.users == "outliers" else 0.2
    kind = MEANS[cell.users]
    own[:, some] = own_means(kind, mean[some], spread, -1.0, 1.0, fresh_key(rng), 0, cell.n)
    return users_of(_coins(own, cell.sizes(rng), rng), rng), mean


def _items(cell: LocalCell, rng: np.random.Generator) -> tuple[Users, Floats]:
    """Draw Zipf(1) items, Dirichlet(5 p) where users differ; Zipf(2) at the edge."""
    kind = SHARES[cell.users]
    exponent = 2.0 if cell.users == "edge" else 1.0
    law = Zipf(n_users=cell.n, d=cell.size, exponent=exponent, users=kind, seed=int(fresh_key(rng)))
    users = law.hold(0, cell.sizes(rng))
    return Users(fresh_ids(cell.n, rng), items=users.counts), law.p


GRID = 1024


def _densities(cell: LocalCell, rng: np.random.Generator) -> tuple[Users, Floats]:
    """Draw from Beta(2, 5), of users who differ Dirichlet processes around it; edge: Beta(1, 3)."""
    kind = SHARES[cell.users]
    shape = (1.0, 3.0) if cell.users == "edge" else (2.0, 5.0)
    law = DensitySamples(
        n_users=cell.n, samples_per_user=1, density="beta", beta=shape, users=kind,
        seed=int(fresh_key(rng)),
    )  # fmt: skip
    sizes = cell.sizes(rng)
    indptr = np.concatenate(([0], np.cumsum(sizes)))
    users = Users.from_samples(fresh_ids(cell.n, rng), indptr, law.hold(0, indptr))
    return users, law.on_grid(GRID)


POPULATIONS: Mapping[str, Callable[[LocalCell, np.random.Generator], tuple[Users, Floats]]]
POPULATIONS = MappingProxyType(
    {
        "mean": _scalars,
        "mean-l2": _vectors,
        "sparse-mean": _sparse,
        "distribution": _items,
        "density": _densities,
        "oracle": _items,
    }
)


def cells_of(
    target: str, n: Sequence[int], T: Sequence[int], epsilon: Sequence[float], most: int
) -> list[LocalCell]:
    """List the cells of a target: all of them, or a fraction with every value equally often.

    With an oracle T does not matter: a user is asked about one item.

    >>> some = cells_of("mean", [100, 1000], [1, 30], [1.0], 10)
    >>> len(some), len({c.users for c in some})
    (10, 5)
    """
    if target == "oracle":
        T = (1,)
    shape = len(n), len(T), len(epsilon), len(USERS), len(SIZES[target])

    def cell(at: Sequence[int]) -> LocalCell:
        i, j, k, u, d = at
        return LocalCell(target, n[i], T[j], epsilon[k], USERS[u], SIZES[target][d])

    return [cell(at) for at in lattice(shape, most)]


def axes_of(target: str) -> tuple[tuple[Axis, Axis], ...]:
    """Draw kinds of users against T, and sizes against epsilon."""
    samples: Axis = ("T", lambda c: (c.T or math.inf, str(c.T or "ragged")))
    return pairs_of_axes(samples, USERS, sized=len(SIZES[target]) > 1)


def _asked(target: str, request: Request) -> list[LocalCell]:
    axes = wholes(request, "n"), [int(T) for T in request.settings["T"]]
    return cells_of(target, *axes, positives(request, "epsilon"), whole(request, "cells"))


AREA = Area(
    name="local-regret",
    title="Regret of local protocols' defaults",
    paper="the project's own map of its local protocols",
    population="users alike, differing, in clusters, with outliers, near an edge",
    targets=tuple(SIZES),
    cells=_asked,
    axes=axes_of,
    notes=(
        "truth: the parameter of the law that users come from",
        "sums of reports are drawn from their exact joint law (clients = aggregate); for means "
        "a user holds one sample with the law of the mean of its T",
        "loss: squared l2, for distributions l1, for densities the integrated squared error; "
        "T = 0: ragged users, planned with the harmonic mean of their sizes",
    ),
    options={"clients": "aggregate"},
)


def run(request: Request) -> Result:
    """Measure the cells of every target."""
    return measure_area(AREA, request)
