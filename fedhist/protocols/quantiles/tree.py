"""The whole cumulative curve with noise, and its quantiles by inversion.

References
----------
.. [1] Fichtenberger, Henzinger & Upadhyay, "Constant matters: fine-grained error bound on
   differentially private continual observation", ICML 2023: the square root of prefix sums.
.. [2] Hay, Rastogi, Miklau & Suciu, "Boosting the accuracy of differentially private histograms
   through consistency", VLDB 2010: counts on the levels of a tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from fedhist.base.arrays import Floats, Integers
from fedhist.privacy.adjacency import Moves
from fedhist.privacy.guarantee import Adjacency, gaussian_multiplier
from fedhist.privacy.sensitivity import sqrt_up
from fedhist.protocols.quantiles.bin_shares import STEPS
from fedhist.protocols.quantiles.theory import Ranks, largest_of_curves
from server.quantiles.inversion import quantile_bins
from server.quantiles.running_noise import (
    ROOT_BITS,
    decoded,
    encoded,
    noise_profile,
    squared_change,
)
from server.quantiles.tree_fit import best_widths, fitted_bins, node_sums

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

DEVIATIONS = 12
"""Fewest users that are asked, in standard deviations of the largest noise on the curve."""
DRAWS = 300
"""Of the curve's law, for a prediction."""
MOST_SUMMED = 1 << (62 - ROOT_BITS)
"""Steps of all users together that 64-bit integers can encode."""


@dataclass(frozen=True)
class NoisyCurve:
    """The curve with Gaussian noise on a square root of its running sums, or Laplace on a tree.

    Parameters
    ----------
    epsilon, delta : float
    levels : (J,) float64
    n_bins : int
    adjacency : Adjacency
    noise : {"gaussian", "laplace"}
        Gaussian needs delta > 0.

    Privacy
    -------
    (epsilon, delta)-DP for a user's whole record: one release of integers, a linear function of
    the sum of the users' rows, each of non-negative steps that add up to one record, or to none.
    Gaussian: E x, E near 2^12 B, B B the prefix sums [1]; l2 sensitivity
    :func:`~server.quantiles.running_noise.squared_change`, in records. Laplace: the sums of the
    nodes of h levels of a tree over the bins [2]; a row adds one record to each level, so that the
    l1 sensitivity is h for add-remove-user and zero-out-user, and 2 h for replace-user; the tree
    follows from K. All after the release is post-processing: the number of records is read off the
    curve's own end.
    """

    epsilon: float
    delta: float
    levels: Floats
    n_bins: int
    adjacency: Adjacency
    noise: Literal["gaussian", "laplace"]

    # -- the plan, from public numbers

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Bins of a node on each level of the tree, for Laplace noise."""
        return best_widths(self.n_bins, lambda h, b: h**3 * (b - 1))

    @cached_property
    def node_scale(self) -> float:
        """Scale of the Laplace noise on a node, in users."""
        replaced = self.adjacency is Adjacency.REPLACE_USER
        return (1 + replaced) * len(self.widths) / self.epsilon

    @cached_property
    def root_std(self) -> float:
        """Standard deviation of the Gaussian noise on an entry of B x, in users."""
        size = math.sqrt(squared_change(self.n_bins, self.adjacency)) / (1 << ROOT_BITS)
        return size * gaussian_multiplier(self.epsilon, self.delta)

    @cached_property
    def end_std(self) -> float:
        """Standard deviation of the noise on the curve's end, in users; of Laplace about."""
        if self.noise == "gaussian":
            return self.root_std * (1 << ROOT_BITS) * float(noise_profile(self.n_bins)[-1])
        h = len(self.widths)
        b = max(2, round(self.n_bins ** (1 / h)))
        return math.sqrt((b - 1) * (h if h > 1 else 2)) * self.node_scale

    @property
    def least_users(self) -> int:
        """Fewest users that are asked: 12 standard deviations of the noise."""
        return math.ceil(min(DEVIATIONS * self.end_std, 1e300))

    # -- the release

    def draw(self, shares: Integers, server: Curator) -> Integers:
        """Release the curve; return the bin of each level: (J,) int64."""
        release = self._gaussian if self.noise == "gaussian" else self._laplace
        return quantile_bins(release(shares, server), self.levels)

    def _gaussian(self, shares: Integers, server: Curator) -> Floats:
        sensitivity = STEPS * sqrt_up(squared_change(self.n_bins, self.adjacency))
        secure = server.grade == "secure"
        release = server.discrete_gaussian if secure else server.gaussian
        noisy = release(
            encoded(shares),
            l2_sensitivity=sensitivity,
            epsilon=self.epsilon,
            delta=self.delta,
            label="cumulative curve",
            moves=Moves.of(lambda a: math.sqrt(squared_change(self.n_bins, a))),
        )
        return decoded(noisy.astype(np.float64))

    def _laplace(self, shares: Integers, server: Curator) -> Floats:
        nodes = [node_sums(shares, width) for width in self.widths]
        replaced = self.adjacency is Adjacency.REPLACE_USER
        noisy = server.discrete_laplace(
            np.concatenate(nodes),
            l1_sensitivity=float((1 + replaced) * len(nodes) * STEPS),
            epsilon=self.epsilon,
            label="cumulative curve",
            moves=Moves.of(lambda a: 1.0 + (a is Adjacency.REPLACE_USER)),
        )
        return self._fit(noisy.astype(np.float64))

    def _fit(self, noisy: Floats) -> Floats:
        ends = np.cumsum([-(-self.n_bins // width) for width in self.widths])
        levels = np.split(noisy, ends[:-1])
        return np.cumsum(fitted_bins(levels, [1.0] * len(levels), self.widths, self.n_bins))

    # -- its prediction

    def expected(self, given: Ranks, draws: int = DRAWS) -> float:
        """Predict the largest rank error, by draws of the noise from its law."""
        exact = given.n * given.ends
        if math.isinf(self.epsilon):
            return largest_of_curves([exact], given)
        return largest_of_curves((exact + z for z in self._noises(draws)), given)

    def _noises(self, draws: int) -> Iterator[Floats]:
        """Draw the noise on the curve, in users."""
        rng, K = np.random.default_rng(1), self.n_bins
        if self.noise == "gaussian":
            j = np.arange(1, K)
            column = np.concatenate(([1.0], np.cumprod((2 * j - 1) / (2 * j))))
            size = 2 * K  # of a transform without wrapping around
            for start in range(0, draws, 50):
                z = rng.normal(0.0, self.root_std, (min(50, draws - start), K))
                both = np.fft.rfft(z, size) * np.fft.rfft(column, size)
                yield from np.fft.irfft(both, size)[:, :K]
            return
        total = sum(-(-K // width) for width in self.widths)
        for _ in range(draws):
            yield self._fit(rng.laplace(0.0, self.node_scale, total))
