"""The large-n branch: a private median of every coordinate, then a clipped mean around them [1]_.

References
----------
.. [1] Levy, Sun, Amin, Kale, Kulesza, Mohri & Suresh, "Learning with user-level privacy",
   NeurIPS 2021, Algorithms 1 and 2, Corollary 1; Narayanan, Mirrokni & Esfandiari, ICML 2022,
   Corollary 8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from fedhist.base.arrays import Floats
from fedhist.privacy.guarantee import Release, zcdp_rho
from fedhist.privacy.noise_source import Sampler
from server.few_users.interpolation import Released, Rotation
from server.few_users.plan import CLIP_RADII, MEDIAN_SHARE, FewUsersPlan, n_bins

if TYPE_CHECKING:
    from fedhist.session.curator import Curator


GRID_BITS = 20
"""A clipped row is sent as whole multiples of about its radius / sqrt(D) times 2^-20."""


@dataclass(frozen=True)
class MedianBins(Sampler):
    """The bin of the median of every coordinate, by the exponential mechanism.

    Parameters
    ----------
    bins : (D, n) int32
        Every user's bin in each coordinate, in [0, n_bins). NOT PRIVATE.
    n_bins : int
    epsilon : float
        Budget of one coordinate.

    Privacy
    -------
    The score of a bin is minus the larger of the numbers of users below it and above it. Replacing
    one user moves either number by at most 1, and so their maximum: sensitivity 1, bin drawn with
    probability ~ exp(epsilon score / 2), epsilon-bounded-range, epsilon^2/8-zCDP. A user is in
    every coordinate: D of them compose.
    """

    bins: NDArray[np.int32]
    n_bins: int
    epsilon: float

    def __post_init__(self) -> None:
        if self.bins.size and not 0 <= self.bins.min() <= self.bins.max() < self.n_bins:
            raise ValueError(f"bins must lie in [0, {self.n_bins}), got {self.bins.max()}")

    @property
    def release(self) -> Release:
        """D mechanisms of bounded range."""
        d = len(self.bins)
        return Release(d * self.epsilon, 0.0, d * self.epsilon**2 / 8)

    @property
    def scores(self) -> Floats:
        """Score of every bin: (D, n_bins), whole numbers in [-n, 0]. NOT PRIVATE."""
        n = self.bins.shape[1]
        places = self.bins + self.n_bins * np.arange(len(self.bins))[:, None]
        inside = np.bincount(places.reshape(-1), minlength=len(self.bins) * self.n_bins)
        reached = np.cumsum(inside.reshape(len(self.bins), self.n_bins), axis=1)
        below = reached - inside.reshape(reached.shape)
        return np.asarray(-np.maximum(below, n - reached), dtype=np.float64)

    def draw(self, rng: np.random.Generator) -> NDArray[np.int64]:
        """Draw one bin per coordinate, (D,) int64, by inverting the distribution function."""
        out = np.empty(len(self.bins), dtype=np.int64)
        median_bins(self.bins, self.n_bins, self.epsilon / 2, rng.random(len(out)), out)
        return out


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def median_bins(bins: Any, n_bins: Any, slope: Any, uniform: Any, out: Any) -> None:
    """Draw a bin per row with probability ~ exp(-slope max(#below, #above)).

    Parameters
    ----------
    bins : (D, n) int32
    n_bins : int
    slope : float
    uniform : (D,) float64
        In [0, 1).
    out : (D,) int64
        The result.
    """
    n = bins.shape[1]
    weight = np.empty(n_bins)
    for j in range(len(bins)):
        weight[:] = 0.0
        for u in range(n):
            weight[bins[j, u]] += 1.0
        below, best = 0.0, float(n)
        for b in range(n_bins):  # the counts become max(#below, #above)
            inside = weight[b]
            weight[b] = max(below, n - below - inside)
            below += inside
            best = min(best, weight[b])
        total = 0.0
        for b in range(n_bins):
            weight[b] = np.exp(-slope * (weight[b] - best))
            total += weight[b]
        target, chosen = uniform[j] * total, n_bins - 1
        reached = 0.0
        for b in range(n_bins):
            reached += weight[b]
            if reached > target and chosen == n_bins - 1:
                chosen = b
        out[j] = chosen


def _draw_medians(server: Curator, bins: MedianBins) -> NDArray[np.int64]:
    """Draw the medians: in doubles, or with secure noise one exact exponential mechanism each."""
    if server.grade != "secure":
        return server.sample(bins, label="large-n: medians")
    return server.exponential_rows(
        bins.scores,
        sensitivity=1.0,
        epsilon_each=bins.epsilon,
        changed=len(bins.bins),
        label="large-n: medians",
    )


def clip_to_grid(rows: Floats, radius: float) -> tuple[NDArray[np.int64], float]:
    """Scale rows into the l2 ball and round them towards zero to whole steps.

    Returns
    -------
    rows : (n, D) int64
        In steps; every norm times the step is at most ``radius``, up to a relative 1e-9.
    step : float
    """
    step = 2.0 ** (math.floor(math.log2(radius / math.sqrt(rows.shape[1]))) - GRID_BITS)
    inside = rows / radius  # squares of what matters cannot vanish
    scale = 1 / np.maximum(np.sqrt(np.einsum("ij,ij->i", inside, inside)), 1.0)
    return np.trunc(rows * scale[:, None] / step).astype(np.int64), step


def release_large_n(
    server: Curator, rows: Floats, plan: FewUsersPlan, *, salt: int = 1
) -> Released:
    """Release the mean of (n, d) rows of norm at most ``plan.box`` by medians and a clipped mean.

    Privacy
    -------
    rho-zCDP with the rho of (epsilon, delta), under replacement: .3 rho for the medians and .7 rho
    for the mean. Rows are clipped to 1.6 r around the released centre, so that the sum moves by at
    most 3.2 r in l2; on a grid with discrete Gaussian noise.

    Error
    -----
    r sqrt(1/n + 3.2^2 d / (1.4 rho n^2)) around the common mean, and in few dimensions what the
    clip takes away (:func:`server.few_users.plan.clip_bias`); an l2 clip, where the paper
    winsorizes every coordinate and loses sqrt(log dn).
    """
    rotation = Rotation(plan.dimension, salt)
    turned = rotation.turn(rows)
    count, width = n_bins(plan.radius, plan.box, plan.padded), plan.part_radius
    # the bins are centred; rounding and norms beyond the box end in the outermost ones
    low = -count * width / 2
    places = np.clip(np.floor((turned.T - low) / width), 0, count - 1).astype(np.int32, order="C")
    medians = _draw_medians(server, MedianBins(places, count, plan.part_epsilon))
    centre = low + (medians + 0.5) * width
    clip = CLIP_RADII * plan.radius
    whole, step = clip_to_grid(turned - centre, clip)
    total = server.gaussian_zcdp(
        whole.sum(axis=0),
        l2_sensitivity=2 * clip / step * (1 + 1e-9),
        rho=(1 - MEDIAN_SHARE) * zcdp_rho(plan.epsilon, plan.delta),
        discrete=True,
        label="large-n: mean",
    )
    value = rotation.back((centre + total * (step / len(rows)))[None])[0]
    return Released(value, "", {"bins": float(count)})
