"""Repeated runs of a local protocol on populations drawn anew. NOT PRIVATE."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.model.protocol import Protocol
from fedhist.users.batch import Users
from simulations.experiments.base import Request
from simulations.experiments.settings import positive
from simulations.runs.run import Options, execute

Population = Callable[[np.random.Generator], tuple[Users, Floats]]
"""Draws users, and the parameter that the error is measured from: (d,)."""
Clients = Literal["per-user", "aggregate"]
PATHS: tuple[Clients, Clients] = ("aggregate", "per-user")

EXACT = (
    "NOT PRIVATE: errors are measured from the true mean",
    "sums of reports are drawn from their exact joint law (clients = aggregate), but where users "
    "answer one by one is said; each user holds one sample with the law of the mean of its T",
)
"""Notes that hold of all these experiments."""


@dataclass(frozen=True)
class OneSetting:
    """One budget, one spread of the common means, and every point that was measured.

    Attributes
    ----------
    request : Request
    """

    request: Request

    def __post_init__(self) -> None:
        for name in ("epsilon", "spread"):
            positive(self.request, name)
        if self.spread > 1:
            raise ValueError(f"spread must be at most 1, got {self.spread}")

    @property
    def epsilon(self) -> float:
        """The budget of a user."""
        return float(self.request.settings["epsilon"])

    @property
    def spread(self) -> float:
        """Largest coordinate of a common mean, over the largest possible."""
        return float(self.request.settings["spread"])

    @cached_property
    def _known(self) -> dict[tuple[object, ...], Errors]:
        return {}


@dataclass(frozen=True)
class Errors:
    """Errors of independent runs: other users and other coins in each.

    Attributes
    ----------
    each : (R, d) float64
        Estimate minus truth.
    reach : float
        A coordinate that is farther off was looked for in the wrong interval.
    """

    each: Floats
    reach: float = math.inf

    @property
    def squared(self) -> Floats:
        """Squared l2 errors: (R,)."""
        return np.asarray(np.square(self.each).sum(axis=1))

    @property
    def mean(self) -> float:
        """Mean squared l2 error."""
        return float(self.squared.mean())

    @property
    def stderr(self) -> float:
        """Standard error of :attr:`mean`; NaN of a single run."""
        r = len(self.each)
        return float(self.squared.std(ddof=1)) / math.sqrt(r) if r > 1 else math.nan

    @property
    def missed(self) -> float:
        """Share of the coordinates, over all runs, that are beyond reach."""
        return float((np.abs(self.each) > self.reach).mean())

    @property
    def localized(self) -> float:
        """Mean squared l2 error of the coordinates within reach, scaled to all d."""
        inside = np.abs(self.each) <= self.reach
        return float(np.square(self.each[inside]).mean()) * float(self.each.shape[1])


def measure(
    protocol: Protocol,
    population: Population,
    repeats: int,
    *key: object,
    clients: Clients = "aggregate",
    reach: float = math.inf,
) -> Errors:
    """Run a protocol ``repeats`` times, each on users drawn anew.

    Parameters
    ----------
    protocol : Protocol
    population : callable
    repeats : int
    *key
        What the draws depend on: the request's seed, and what sets this point apart.
    clients : {"aggregate", "per-user"}
    reach : float

    Raises
    ------
    ValueError
        If a run has no value: says why.
    """
    each = []
    for r in range(repeats):
        tag = digest64("local-runs", clients, str(protocol), *map(str, key), r)
        users, truth = population(np.random.default_rng(tag))
        # the coins: another seed than that of the users
        options = Options(seed=digest64("coins", tag) >> 1, clients=clients)
        estimate = execute(protocol, users, options).estimate
        if estimate.value is None:
            raise ValueError(f"{protocol}: {estimate.status}: {estimate.reason}")
        each.append(estimate.value - truth)
    return Errors(np.array(each), reach)


def distance_in_errors(a: Errors, b: Errors) -> float:
    """Return |z|: the difference of two mean squared errors in its standard errors."""
    return abs(a.mean - b.mean) / math.hypot(a.stderr, b.stderr)


def largest_ratio(found: Sequence[tuple[float, float | None]], theory: ArrayLike) -> float:
    """Return the largest measured / predicted, each less two of its standard errors.

    The largest of many noisy ratios is above 1 even where no expectation is.

    >>> largest_ratio([(1.0, 0.1), (3.0, 1.0)], [1.0, 2.0])
    0.8
    """
    low = np.array([mean - 2 * (stderr or 0.0) for mean, stderr in found])
    return float((low / np.asarray(theory)).max())


def line_through(x: ArrayLike, y: ArrayLike, stderr: ArrayLike) -> tuple[float, float, float]:
    """Fit y = a + b x by least squares with weights 1 / stderr^2: a, b and the error of b.

    >>> line_through([0, 1, 2], [1, 3, 5], [1, 1, 1])[:2]
    (1.0, 2.0)
    """
    u, v, w = (np.asarray(t, dtype=np.float64) for t in (x, y, stderr))
    w = 1 / np.square(w)
    middle = float((w * u).sum() / w.sum())
    spread = float((w * np.square(u - middle)).sum())
    slope = float((w * (u - middle) * v).sum()) / spread
    return float((w * v).sum() / w.sum()) - slope * middle, slope, 1 / math.sqrt(spread)
