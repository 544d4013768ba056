"""What theory predicts for a clipped histogram with additive noise: exact expected l1 error.

Nothing here is shared with the estimator: clipped totals are computed by an obvious NumPy path of
their own, so that a prediction can contradict a measurement. All of it reads private data and is
for evaluation only.

References
----------
.. [1] Liu et al., "Algorithms for bounding contribution for histogram estimation under user-level
   privacy", ICML 2023, Sections 4 and A.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fedhist.privacy.guarantee import gaussian_multiplier, zcdp_rho
from fedhist.users.batch import Users
from fedhist.users.keys import Keys

Floats = NDArray[np.float64]
Kind = Literal["laplace", "gaussian", "discrete-laplace", "discrete-gaussian"]

BATCH = 1 << 15
WIDE_SCALE = 1e9
"""From this scale on a discrete Laplace is treated as a continuous one, likewise."""

WIDE_STD = 1e5
"""From this std on (in grid steps) a discrete Gaussian is treated as a continuous one: the
relative difference of the expected errors is below 1 / std^2."""


@dataclass(frozen=True)
class NoiseLaw:
    """Law of the noise on each entry of the released histogram.

    Parameters
    ----------
    kind : str
        "laplace", "gaussian", "discrete-laplace" or "discrete-gaussian".
    scale : float
        Laplace scale or Gaussian std, in steps; 0 for no noise.
    step : float
        Counts per step: 1 for real-valued noise, the grid for integers.
    """

    kind: Kind
    scale: float
    step: float = 1.0

    @property
    def std(self) -> float:
        """Standard deviation in counts (for the discrete Gaussian an upper bound, and tight)."""
        if self.scale == 0 or self.kind in ("gaussian", "discrete-gaussian"):
            return self.step * self.scale
        if self.kind == "laplace":
            return self.step * math.sqrt(2) * self.scale
        if self.scale < 1e-3:  # e^-1000: no draw differs from 0
            return 0.0
        return self.step / (math.sqrt(2) * math.sinh(0.5 / self.scale))

    @property
    def mean_absolute(self) -> float:
        """Expected absolute value in counts: the l1 error per entry where nothing is clipped."""
        return float(expected_l1(self, np.zeros(1)))


def noise_per_sensitivity(epsilon: float, delta: float, discrete: bool) -> NoiseLaw:
    """Law of the noise for sensitivity 1: Laplace where delta = 0, otherwise Gaussian.

    The Gaussian is the analytic one; on a grid its std comes from zCDP: 7 % larger at
    (1, 1e-6), more for a larger delta or a smaller epsilon.
    """
    if not delta:
        return NoiseLaw("discrete-laplace" if discrete else "laplace", 1 / epsilon)
    if discrete:
        return NoiseLaw("discrete-gaussian", math.sqrt(0.5 / zcdp_rho(epsilon, delta)))
    return NoiseLaw("gaussian", gaussian_multiplier(epsilon, delta))


def expected_l1(law: NoiseLaw, bias: Floats, kept: Floats | None = None) -> float:
    """Exact expected l1 error of totals released with noise, given what clipping took away.

    Parameters
    ----------
    law : NoiseLaw
    bias : (d,) float64
        True totals minus clipped totals, non-negative, in counts.
    kept : (d,) float64, optional
        Clipped totals in counts, when the release is raised to at least zero afterwards.

    Returns
    -------
    float

    Error
    -----
    E|Z - b| = b + 2 E(Z - b)^+ for symmetric Z, and raising to zero saves E(Z - y)^+ with y the
    clipped total. For Laplace noise of scale s, E(Z - b)^+ = (s / 2) e^{-b / s}; for a Gaussian of
    std s, s phi(b / s) - b Phi(-b / s); for the discrete laws the same sums over integers.
    """
    b = np.asarray(bias, dtype=np.float64) / law.step
    error = b + 2 * excess(law, b)
    if kept is not None:
        error = error - excess(law, np.asarray(kept, dtype=np.float64) / law.step)
    return float(law.step * error.sum())


def excess(law: NoiseLaw, level: Floats) -> Floats:
    """E(Z - level)^+ for each level >= 0, all in steps."""
    s = law.scale
    if s == 0:
        return np.zeros_like(level)
    if law.kind == "laplace" or (law.kind == "discrete-laplace" and s > WIDE_SCALE):
        return np.asarray(s / 2 * np.exp(-level / s))
    if law.kind == "gaussian" or (law.kind == "discrete-gaussian" and s > WIDE_STD):
        density = np.exp(-0.5 * (level / s) ** 2) / math.sqrt(2 * math.pi)
        return np.asarray(np.maximum(s * density - level * ndtr(-level / s), 0.0))
    first = np.floor(level) + 1  # smallest integer above the level
    if law.kind == "discrete-laplace":
        # sum over k >= f of (k - a) c p^k with p = e^{-1/s}, c = tanh(1 / 2s)
        stop = -math.expm1(-1 / s)
        tail = math.tanh(0.5 / s) * np.exp(-first / s)
        return np.asarray(tail * ((first - level) / stop + (1 - stop) / stop**2))
    k = np.arange(math.ceil(39 * s) + 2, dtype=np.float64)
    p = np.exp(-0.5 * (k / s) ** 2)
    p /= p[0] + 2 * p[1:].sum()
    mass, moment = (np.cumsum(q[::-1])[::-1] for q in (p, k * p))
    at = np.minimum(first, len(k) - 1).astype(np.int64)
    return np.asarray(np.maximum(moment[at] - level * mass[at], 0.0))


# -- what clipping does to a population ----------------------------------------------------------


def in_domain(users: Users, domain: Keys) -> Iterator[tuple[int, NDArray[np.int64], Floats]]:
    """Walk batches of users: (number of users, flat user * d + item, counts), domain only."""
    d = len(domain)
    position = domain.positions(users.vocabulary).astype(np.int64)
    for batch in users.chunks(BATCH):
        v = batch.counts
        user = np.repeat(np.arange(len(batch)), np.diff(v.indptr))
        item = position[v.item]
        inside = item >= 0
        yield len(batch), user[inside] * d + item[inside], v.count[inside].astype(np.float64)


def user_norms(users: Users, domain: Keys) -> tuple[Floats, Floats]:
    """Compute l1 and l2 norms of every user's in-domain counts: two (n,) arrays."""
    d = len(domain)
    l1, l2 = [np.zeros(0)], [np.zeros(0)]
    for n, flat, count in in_domain(users, domain):
        l1.append(np.asarray(np.bincount(flat // d, count, n), dtype=np.float64))
        l2.append(np.sqrt(np.bincount(flat // d, count**2, n)))
    return np.concatenate(l1), np.concatenate(l2)


def totals(users: Users, domain: Keys, most: float = math.inf) -> Floats:
    """Compute the true histogram over the domain, (d,), of counts cut at ``most`` an item."""
    d = len(domain)
    out = np.zeros(d)
    for _, flat, count in in_domain(users, domain):
        out += np.bincount(flat % d, np.minimum(count, most), d)
    return out


def clipped_totals(users: Users, domain: Keys, clip: float, norm: int, grid: float = 0.0) -> Floats:
    """Compute the totals after clipping each user to a norm (and rounding down to a grid), (d,)."""
    d = len(domain)
    out = np.zeros(d)
    for n, flat, count in in_domain(users, domain):
        user = flat // d
        size = np.bincount(user, count**norm, n) ** (1 / norm)
        kept = count * (clip / np.maximum(np.maximum(size, clip), 1e-300))[user]
        if grid:
            kept = grid * np.floor(kept / grid * (1 + 2e-15))
        out += np.bincount(flat % d, kept, d)
    return out


def clipped_curve(users: Users, domain: Keys, clips: Floats, norm: int) -> Floats:
    """Compute the clipped totals for many thresholds in one pass over the users.

    With v the users' norms, the total at C is the sum of N over v <= C plus C times the sum of
    N / v over v > C; both are cumulative over bins of v.

    Parameters
    ----------
    clips : (K,) float64
        Increasing.

    Returns
    -------
    (K, d) float64
    """
    d, bins = len(domain), len(clips) + 1
    whole, shares = np.zeros((bins, d)), np.zeros((bins, d))
    for n, flat, count in in_domain(users, domain):
        user = flat // d
        size = np.bincount(user, count**norm, n) ** (1 / norm)
        cell = np.searchsorted(clips, size)[user] * d + flat % d  # first threshold >= the norm
        whole += np.bincount(cell, count, bins * d).reshape(bins, d)
        shares += np.bincount(cell, count / size[user], bins * d).reshape(bins, d)
    below = np.cumsum(whole, axis=0)[:-1]
    above = np.cumsum(shares[::-1], axis=0)[::-1][1:]
    return np.asarray(below + clips[:, None] * above)
