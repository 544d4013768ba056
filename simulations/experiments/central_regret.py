"""The map of central protocols: its cells, and populations that know their own truth. NOT PRIVATE.

Losses are measured against the truth of the SAME users: the average of their own distributions or
means, their totals, the ranks of their samples.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.privacy.guarantee import Adjacency
from fedhist.users.batch import Users
from fedhist.users.keys import Keys
from simulations.experiments.base import Request, Result
from simulations.experiments.local_populations import fresh_ids, fresh_key, users_of
from simulations.experiments.regret import measure_area
from simulations.experiments.regret_axes import Axis, lattice, pairs_of_axes
from simulations.experiments.regret_cells import Area, Cell
from simulations.experiments.settings import positives, whole, wholes
from simulations.populations.differing import MeansDiffer, own_means
from simulations.populations.synthetic import item_users, log_uniform, numbered_items
from simulations.populations.zipf import zipf_choice

USERS = ("alike", "differ", "two-clusters", "outliers", "tied", "tails")
"""How users are. "tied": those with many samples have another taste. "tails": Pareto sizes; for
means, heavy tails of the users' own. The others have equal sizes where these are public."""
MOST_EVENTS = 4_000_000
"""Cells with more samples in all are left out."""
FEW = 2_000
"""Users of ``few-users-mean`` at most: "blocks" looks at all of them in each of 100,000 rounds, and
errs several times as much as noise on their mean."""
BOX, SCALE = 32.0, 3.0
"""Means: public range [-32, 32] of samples with the standard deviation 3."""
CONCENTRATION = 20.0
"""Users who differ have the distribution Dirichlet(20 p)."""
SIZES: Mapping[str, Sequence[int]] = MappingProxyType(
    {
        "distribution": (5, 50, 1000),
        "ragged-distribution": (5, 50, 1000),
        "histogram": (2, 50, 5000),
        "single-count": (1,),
        "unbounded-histogram": (300, 5000),
        "mean": (1,),
        "mean-l2": (8, 64),
        "few-users-mean": (16, 64),
        "quantiles": (1, 3, 9, 31),
    }
)
"""Symbols, items, coordinates or levels, by target."""
REPLACE, ZERO_OUT, ADD_REMOVE = (
    a.value for a in (Adjacency.REPLACE_USER, Adjacency.ZERO_OUT_USER, Adjacency.ADD_REMOVE_USER)
)
HIDDEN: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "distribution": (REPLACE,),
        "ragged-distribution": (REPLACE,),
        "few-users-mean": (REPLACE,),
        "single-count": (ZERO_OUT, REPLACE),
        "mean": (REPLACE, ZERO_OUT),
        "mean-l2": (REPLACE, ZERO_OUT),
    }
)
"""Adjacencies that a target's protocols have; all three where nothing is said."""
VECTORS = frozenset({"mean", "mean-l2", "few-users-mean"})
RAGGED = frozenset({"ragged-distribution", "histogram", "single-count", "unbounded-histogram"})
"""Targets whose users may have different sizes."""
APPROXIMATE = frozenset({"mean-l2", "few-users-mean", "unbounded-histogram"})
"""Targets whose protocols need delta > 0."""
BINS = 256


@dataclass(frozen=True)
class CentralCell(Cell):
    """One square of the map.

    Attributes
    ----------
    target : str
        A key of :data:`SIZES`.
    n, m : int
        Users, and samples of each: the median of a Pareto law where sizes differ.
    epsilon, delta : float
    users : str
        One of :data:`USERS`.
    size : int
    adjacency : str
    """

    target: str
    n: int
    m: int
    epsilon: float
    delta: float
    users: str
    size: int
    adjacency: str

    def __str__(self) -> str:
        size = f" size={self.size}" if len(SIZES[self.target]) > 1 else ""
        return (
            f"n={self.n} m={self.m}{size} eps={self.epsilon:g} delta={self.delta:g} {self.users} "
            f"{self.adjacency}"
        )

    @property
    def public(self) -> Mapping[str, Any]:
        """What a protocol may know, by the names of protocols' fields."""
        J = self.size
        return {
            **{"epsilon": self.epsilon, "delta": self.delta, "adjacency": self.adjacency},
            **{"n_users": self.n, "samples_per_user": self.m, "dimension": self.size},
            **{"low": -BOX, "high": BOX, "box": BOX, "sample_radius": SCALE * math.sqrt(self.size)},
            **{"levels": tuple((np.arange(J) + 1.0) / (J + 1)), "n_bins": BINS},
            "domain": numbered_items(self.size),
        }

    @property
    def not_meant(self) -> Sequence[str]:
        """Sizes that differ are not public; one mean has a range, a vector a bound on its norm.

        Where users are added and removed, histograms keep their number private.
        """
        if self.target in RAGGED:
            private = ("n_users",) if self.adjacency == ADD_REMOVE else ()
            return ("samples_per_user", *private)
        return {
            "mean": ("box",),
            "mean-l2": ("low", "high"),
            "few-users-mean": ("low", "high"),
        }.get(self.target, ())

    @property
    def keys(self) -> Keys | None:
        """All items, whether or not anybody holds them."""
        return numbered_items(self.size) if self.target == "unbounded-histogram" else None

    @property
    def facts(self) -> Mapping[str, str | float]:
        """Its place on every axis."""
        return {
            **{"n": self.n, "m": self.m, "epsilon": self.epsilon, "delta": self.delta},
            **{"users": self.users, "size": self.size, "adjacency": self.adjacency},
        }

    def draw(self, rng: np.random.Generator) -> tuple[Users, Floats]:
        """Draw users, and compute their own truth."""
        if self.target in VECTORS:
            return _vectors(self, rng)
        return (_ranks if self.target == "quantiles" else _items)(self, rng)

    def loss(self, value: Floats, truth: Floats) -> float:
        """Squared l2; l1 for distributions; l1 over the total for counts; largest rank error."""
        if self.target in VECTORS:
            return float(np.square(value - truth).sum())
        if self.target == "quantiles":
            return _rank_error(value, truth, self.public["levels"])
        return float(np.abs(value - truth).sum() / truth.sum())

    def trivial(self, truth: Floats) -> float:
        """Return the loss of the middle, of no counts, of the uniform law of shares or samples."""
        if self.target == "quantiles":
            levels = np.array(self.public["levels"])
            return self.loss(-BOX + 2 * BOX * levels, truth)
        shares = "distribution" in self.target
        return self.loss(np.full(self.size, 1 / self.size if shares else 0.0), truth)

    def sizes(self, rng: np.random.Generator) -> Integers:
        """Draw the users' numbers of samples: (n,)."""
        if self.target not in RAGGED:
            return np.full(self.n, self.m, dtype=np.int64)
        if self.users in ("tied", "tails"):
            return pareto_sizes(rng, self.n, self.m)
        if self.target == "ragged-distribution":
            return log_uniform(rng.random(self.n), (max(1, self.m // 4), 4 * self.m))
        return np.maximum(rng.poisson(self.m, self.n), 0).astype(np.int64)


def pareto_sizes(rng: np.random.Generator, n: int, median: int) -> Integers:
    """Draw sizes of a Pareto(1.2) law with this median, at least 1 and at most 200 medians: (n,).

    >>> x = pareto_sizes(np.random.default_rng(0), 4001, 100)
    >>> bool(90 < np.median(x) < 110), int(x.max())
    (True, 20000)
    """
    x = median * (2 * (1 - rng.random(n))) ** (-1 / 1.2)
    return np.clip(np.floor(x + rng.random(n)), 1, 200 * median).astype(np.int64)


def _items(cell: CentralCell, rng: np.random.Generator) -> tuple[Users, Floats]:
    """Draw Zipf(1) items; a distribution's truth is the average of own shares, else the totals."""
    sizes, k = cell.sizes(rng), cell.size
    turned, concentration = None, 0.0
    if cell.users == "differ":
        concentration = CONCENTRATION
        if cell.target in ("histogram", "single-count", "unbounded-histogram"):
            sizes = rng.poisson(rng.gamma(0.5, 2.0 * cell.m, cell.n)).astype(np.int64)
    else:
        turned = _turned(cell, sizes, rng)
        if cell.users == "outliers" and cell.target in ("histogram", "single-count"):
            sizes = np.where(rng.random(cell.n) < 0.05, 50 * sizes, sizes)
    ids, keys, choice = (
        fresh_ids(cell.n, rng),
        (fresh_key(rng), fresh_key(rng)),
        zipf_choice(k, 1.0),
    )
    users = item_users(ids, keys, 0, sizes, choice, concentration=concentration, turned=turned)
    item, count = users.counts.item, users.counts.count.astype(np.float64)
    if "distribution" not in cell.target:
        return users, np.asarray(np.bincount(item, count, k))
    some = sizes > 0
    share = count / np.repeat(np.maximum(sizes, 1), users.n_items())
    return users, np.bincount(item, share, k) / max(int(some.sum()), 1)


def _turned(cell: CentralCell, sizes: Integers, rng: np.random.Generator) -> Any:
    """Say which users draw from the mirror image: half, 5 %, or those with more than the median."""
    if cell.users == "tied":
        return sizes > np.median(sizes)
    share = {"two-clusters": 0.5, "outliers": 0.05}.get(cell.users, 0.0)
    return rng.random(cell.n) < share if share else None


def _own_means(cell: CentralCell, d: int, rng: np.random.Generator) -> Floats:
    """Draw the means of the users' laws: (n, d). Tails are Student's, of 2.5 degrees."""
    kind: MeansDiffer = "alike"
    if cell.users in ("differ", "tails"):
        kind = "normal"
    elif cell.users in ("two-clusters", "outliers"):
        kind = "two-clusters" if cell.users == "two-clusters" else "outliers"
    spread = 0.0 if kind == "alike" else SCALE / 2
    centre = 5.0 * np.cos(1.0 + np.arange(d)) / math.sqrt(d)
    own = own_means(kind, centre, spread, -BOX, BOX, fresh_key(rng), 0, cell.n)
    if cell.users == "tails":
        own = np.clip(centre + SCALE / 4 * rng.standard_t(2.5, own.shape), -BOX, BOX)
    return own


def _vectors(cell: CentralCell, rng: np.random.Generator) -> tuple[Users, Floats]:
    """Draw users' own means of m normal samples, one row each; sizes do not differ."""
    own = _own_means(cell, cell.size, rng)
    x = own + rng.normal(0.0, SCALE / math.sqrt(cell.m), own.shape)
    norm = np.linalg.norm(x, axis=1, keepdims=True)
    x = x * np.minimum(1.0, BOX / np.maximum(norm, 1e-300))
    return users_of(x, rng), x.mean(axis=0)


def _ranks(cell: CentralCell, rng: np.random.Generator) -> tuple[Users, Floats]:
    """Draw m normal samples of each user; the truth is the sorted samples and their ranks."""
    own = _own_means(cell, 1, rng)
    x = np.clip(own + rng.normal(0.0, SCALE, (cell.n, cell.m)), -BOX, BOX)
    users = Users.from_samples(
        fresh_ids(cell.n, rng), np.arange(cell.n + 1) * cell.m, x.reshape(-1, 1)
    )
    ordered = np.sort(x, axis=None)
    return users, np.stack([ordered, (np.arange(x.size) + 1.0) / x.size])


def _rank_error(value: Floats, truth: Floats, levels: Sequence[float]) -> float:
    """Return the largest distance of a level from the ranks that its value holds."""
    x, upto = truth
    cdf = np.append(0.0, upto)
    first, last = (cdf[np.searchsorted(x, value, side)] for side in ("left", "right"))
    q = np.array(levels)
    return float(np.maximum(np.maximum(first - q, q - last), 0.0).max())


def cells_of(target: str, request: Request) -> list[CentralCell]:
    """List the cells of a target: all that are small enough, or a fraction of them."""
    most = FEW if target == "few-users-mean" else math.inf
    n, m = [x for x in wholes(request, "n") if x <= most], wholes(request, "m")
    epsilon, sizes = positives(request, "epsilon"), SIZES[target]
    least = 1e-300 if target in APPROXIMATE else 0.0
    delta = [x for x in map(float, request.settings["delta"]) if x >= least]
    asked = [Adjacency(a).value for a in request.settings["adjacency"]]
    adjacency = [a for a in HIDDEN.get(target, asked) if a in asked]
    axes: tuple[Sequence[Any], ...] = (n, m, epsilon, delta, USERS, sizes, adjacency)
    found = []
    for at in lattice([len(a) for a in axes], whole(request, "cells")):
        cell = CentralCell(target, *(a[i] for a, i in zip(axes, at, strict=True)))
        if cell.n * cell.m * (5 if cell.target in RAGGED else 1) <= MOST_EVENTS:
            found.append(cell)
    return found


def axes_of(target: str) -> tuple[tuple[Axis, Axis], ...]:
    """Draw kinds of users against m, and sizes against epsilon."""
    samples: Axis = ("m", lambda c: (c.m, str(c.m)))
    return pairs_of_axes(samples, USERS, sized=len(SIZES[target]) > 1)


AREA = Area(
    name="central-regret",
    title="Regret of central protocols' defaults",
    paper="the project's own map of its central protocols",
    population="users alike, differing, in clusters, with outliers, sizes and taste tied, tails",
    targets=tuple(SIZES),
    cells=cells_of,
    axes=axes_of,
    notes=(
        "truth: of the same users; distributions and means average the users' own, histograms "
        "count everything",
        "loss: l1 for distributions, l1 over the total for histograms, squared l2 for means, the "
        "largest rank error for quantiles",
        f"cells of more than {MOST_EVENTS:,} samples, and of few-users-mean those of more than "
        f"{FEW:,} users, are left out",
    ),
    options={"clients": "aggregate"},
)


def run(request: Request) -> Result:
    """Measure the cells of every target."""
    return measure_area(AREA, request)
