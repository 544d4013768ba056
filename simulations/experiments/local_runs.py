"""Repeated runs of a local protocol on populations drawn anew. NOT PRIVATE."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedhist.base.arrays import Floats
from fedhist.base.hashing import digest64
from fedhist.channels.scalar import scalar_channel
from fedhist.channels.sphere import SphereChannel
from fedhist.model.protocol import Protocol
from fedhist.users.batch import Users
from simulations.experiments.experiment import Findings
from simulations.runs.options import Options
from simulations.runs.run import execute

Population = Callable[[np.random.Generator], tuple[Users, Floats]]
"""Draws users, and the parameter that the error is measured from: (d,)."""


class Grid:
    """A grid of sizes at one budget and one spread of means, each point measured once."""

    def __init__(self, findings: Findings) -> None:
        self.findings, self.settings = findings, findings.settings
        if self.settings.spread > 1:  # of the largest coordinate possible
            raise ValueError(f"spread must be at most 1, got {self.settings.spread}")
        self._known: dict[tuple[object, ...], Errors] = {}

    def once(
        self,
        protocol: Protocol,
        population: Population,
        repeats: int,
        *key: object,
        reach: float = math.inf,
    ) -> Errors:
        """Measure a point unless it is known; ``key`` sets it apart where the protocol does not."""
        point = protocol, *key
        if point not in self._known:
            self._known[point] = measure(
                protocol, population, repeats, self.findings.seed, *key, reach=reach
            )
        return self._known[point]

    def draw_errors(
        self, panel: str, label: str, x: ArrayLike, errors: Sequence[Errors], marker: str = ""
    ) -> None:
        """Draw mean squared errors with their standard errors."""
        means = [(e.mean, e.stderr) for e in errors]
        self.findings.draw_means(panel, label, x, means, marker)


def naive_mse(
    epsilon: float,
    n_reports: float,
    d: int = 1,
    *,
    geometry: str = "linf",
    kind: str = "onebit",
    item_variance: float = 0.0,
) -> float:
    """Predict the error of averaging reports of 0: one coordinate each, or a point of a sphere.

    What is reported may vary around 0, which a bit and a point of the sphere do not show.
    """
    if geometry == "l2":
        return SphereChannel(d, 1.0, epsilon).length ** 2 / n_reports
    one = float(scalar_channel(kind, epsilon).variance(0.0))
    return d * d * (one + (item_variance if kind != "onebit" else 0.0)) / n_reports


@dataclass(frozen=True)
class Errors:
    """Errors of independent runs: other users and other coins in each.

    ``each``: (R, d) float64, estimate minus truth; ``reach``: a coordinate that is farther off was
    looked for in the wrong interval.
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
    protocol: Protocol, population: Population, repeats: int, *key: object, reach: float = math.inf
) -> Errors:
    """Run a protocol ``repeats`` times, each on users drawn anew.

    *key: what the draws depend on: the request's seed, and what sets this point apart. Raises
    ValueError if a run has no value: says why.
    """
    each = []
    for r in range(repeats):
        tag = digest64("local-runs", "aggregate", str(protocol), *map(str, key), r)
        users, truth = population(np.random.default_rng(tag))
        # the coins: another seed than that of the users
        options = Options(seed=digest64("coins", tag) >> 1, clients="aggregate")
        each.append(execute(protocol, users, options).estimate.needed(protocol) - truth)
    return Errors(np.array(each), reach)


def largest_ratio(findings: Sequence[tuple[float, float | None]], theory: ArrayLike) -> float:
    """Return the largest measured / predicted, each less two of its standard errors.

    The largest of many noisy ratios is above 1 even where no expectation is.

    >>> largest_ratio([(1.0, 0.1), (3.0, 1.0)], [1.0, 2.0])
    0.8
    """
    low = np.array([mean - 2 * (stderr or 0.0) for mean, stderr in findings])
    return float((low / np.asarray(theory)).max())


def log_slope(x: ArrayLike, y: ArrayLike, relative: ArrayLike | None = None) -> tuple[float, float]:
    """Fit ln y against x by least squares: the slope and its error, by y's relative errors.

    >>> log_slope([0, 1, 2], np.exp([1, 3, 5]), [1, 1, 1])[0]
    2.0
    """
    u, v = np.asarray(x, dtype=np.float64), np.log(y)
    w = 1 / np.square(np.ones_like(v) if relative is None else np.asarray(relative))
    middle = float((w * u).sum() / w.sum())
    spread = float((w * np.square(u - middle)).sum())
    return float((w * (u - middle) * v).sum()) / spread, 1 / math.sqrt(spread)


# -- their populations: each user holds one sample, the mean of T, exact in law -------------------

# A protocol of means reads a user's record only through its mean, so that one sample with the law
# of the mean of T i.i.d. samples stands for all of them; T is then as large as one likes. (A
# procedure that counts the first T* samples of a user is given means of T* samples.) Ids are drawn
# anew each time, so that the sizes of cohorts and folds vary as they would.


def coin_means(n: int, T: int, theta: float, rng: np.random.Generator) -> Users:
    """Make users whose T samples are +-1 with the mean theta.

    >>> users = coin_means(3, 10**9, 0.25, np.random.default_rng(0))
    >>> np.round(users.reals.values[:, 0], 3).tolist()
    [0.25, 0.25, 0.25]
    """
    return box_means(n, T, np.array([theta]), rng)


def box_means(n: int, T: int, theta: ArrayLike, rng: np.random.Generator) -> Users:
    """Make users whose T samples are independent +-1 in every coordinate, with the mean theta.

    ``theta``: (d,) float, in [-1, 1].

    Returns
    -------
    Users
        With (n, d) samples, 2 Bin(T, (1 + theta_j) / 2) / T - 1.
    """
    return users_of(_means(n, T, np.asarray(theta, dtype=np.float64), rng), rng)


def ball_means(n: int, T: int, theta: ArrayLike, rng: np.random.Generator) -> Users:
    """Make users whose T samples lie on the unit sphere: +-d^-1/2 in every coordinate.

    ``theta``: (d,) float, the mean; in [-d^-1/2, d^-1/2].

    Returns
    -------
    Users
        With (n, d) samples.
    """
    root = np.sqrt(np.size(theta))
    return users_of(_means(n, T, root * np.asarray(theta, dtype=np.float64), rng) / root, rng)


def _means(n: int, T: int, theta: Floats, rng: np.random.Generator) -> Floats:
    """Draw means of T samples +-1: (n, d). NumPy sets a binomial up once per call and parameter."""
    out = np.empty((n, len(theta)))
    for mean in np.unique(theta):
        columns = np.flatnonzero(theta == mean)
        out[:, columns] = rng.binomial(T, (1 + mean) / 2, (n, len(columns))) * (2 / T) - 1
    return out


def users_of(means: Floats, rng: np.random.Generator) -> Users:
    """Make users with one sample each, (n, d), under fresh ids."""
    return Users.from_samples(fresh_ids(len(means), rng), np.arange(len(means) + 1), means)


def fresh_ids(n: int, rng: np.random.Generator) -> NDArray[np.uint64]:
    """Draw n consecutive ids from a random start: what is split by them is a salted hash."""
    return np.arange(n, dtype=np.uint64) + np.uint64(rng.integers(0, 1 << 62))
