"""Predicted error of localize-then-refine, computed apart from the estimator and its planner.

The users' means are taken as Gaussian around the common mean, and the vote's frequencies as
Gaussian with their exact covariance. The frequencies of the bins near the mean are integrated by
quasi-Monte Carlo, the largest pair of the bins far from it by its distribution, and the clipped
reports in closed form. Nothing here is drawn at random and nothing calls the estimator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from fedhist.base.arrays import Floats
from fedhist.channels.bits import UnaryChannel
from fedhist.channels.scalar import ScalarChannel

_REACH = 5.5
"""Bins within so many mean scales of the mean are near it."""


@dataclass(frozen=True)
class TwoStageError:
    """What theory predicts for two rounds.

    Attributes
    ----------
    mse : float
        Mean squared error around the common mean.
    localized_mse : float
        Its value given that the winning window lies near the mean.
    failure : float
        Probability that the winning window lies far from it.
    """

    mse: float
    localized_mse: float
    failure: float


def exact_two_stage_mse(
    *,
    theta: float,
    mean_scale: float,
    low: float,
    high: float,
    n_bins: int,
    n_vote: float,
    n_report: float,
    half_width: float,
    vote: UnaryChannel,
    report: ScalarChannel,
    log2_points: int = 16,
) -> TwoStageError:
    """Predict the mean squared error of the two rounds with one-hot votes.

    Parameters
    ----------
    theta : float
        The common mean.
    mean_scale : float
        True standard deviation of a user's mean.
    low, high : float
    n_bins : int
        At least 2.
    n_vote, n_report : float
        Users who answer the two rounds.
    half_width : float
        Half width of the refined interval.
    vote, report : UnaryChannel, ScalarChannel
    log2_points : int
        Points of the quasi-Monte Carlo integral, as a power of two.

    Returns
    -------
    TwoStageError

    Error
    -----
    The normal approximation of the vote is worst for the smallest failure probabilities, at few
    voters; against simulation the mse agrees within 2 percent from 350 voters on.
    """
    if n_bins < 2:
        raise ValueError(f"n_bins must be at least 2, got {n_bins}")
    width = (high - low) / n_bins
    first = max(0, math.floor((theta - _REACH * mean_scale - low) / width) - 2)
    last = min(n_bins - 1, math.floor((theta + _REACH * mean_scale - low) / width) + 2)
    h = _near_frequencies(
        _bin_masses(theta, mean_scale, low, width, n_bins)[first : last + 1],
        n_vote,
        vote,
        log2_points,
    )
    pairs = h[:, :-1] + h[:, 1:]
    lead = pairs.argmax(axis=1)
    noise = math.sqrt(vote.flip * (1 - vote.flip) / n_vote) / vote.tau
    chains = [k for k in (first, n_bins - 1 - last) if k > 0]
    near_wins = _far_cdf(pairs.max(axis=1) / noise, chains)

    def error_at(centre: Floats) -> Floats:
        slack = max(0.0, (high - low) / 2 - half_width)
        c = np.clip(centre, (low + high) / 2 - slack, (low + high) / 2 + slack)
        return _refined_mse(c, half_width, theta, mean_scale, n_report, report)

    near = error_at(low + (first + 1 + lead + _shift(h, lead)) * width)
    edges = np.concatenate((np.arange(1.0, first + 1), np.arange(last + 1.0, n_bins)))
    far = float(error_at(np.asarray(low + edges * width)).mean()) if len(edges) else 0.0
    failure = float(1.0 - near_wins.mean())
    localized = float((near * near_wins).mean() / near_wins.mean())
    return TwoStageError((1 - failure) * localized + failure * far, localized, failure)


def one_stage_mse(
    *,
    theta: float,
    mean_scale: float,
    low: float,
    high: float,
    n_report: float,
    report: ScalarChannel,
) -> float:
    """Predict the mean squared error of one round over the whole range."""
    middle, half = np.array([(low + high) / 2]), (high - low) / 2
    return float(_refined_mse(middle, half, theta, mean_scale, n_report, report)[0])


def _bin_masses(theta: float, scale: float, low: float, width: float, n_bins: int) -> Floats:
    """Share of Gaussian user means in each bin; what lies outside counts for the end bins."""
    cdf = ndtr((low + np.arange(n_bins + 1) * width - theta) / scale)
    cdf[0], cdf[-1] = 0.0, 1.0
    return np.asarray(np.diff(cdf))


def _near_frequencies(q: Floats, n: float, vote: UnaryChannel, log2_points: int) -> Floats:
    """Quasi-random debiased frequencies of the near bins: (2^log2_points, bins).

    A reported bit has mean (1 - tau) / 2 + tau b; over users b is one-hot with masses q, so that
    n Cov = bit_variance / tau^2 I + diag(q) - q q'.
    """
    from scipy.stats import qmc

    covariance = (
        np.eye(len(q)) * vote.flip * (1 - vote.flip) / vote.tau**2 + np.diag(q) - np.outer(q, q)
    )
    # the second block of the sequence: the first one holds the corner, which is not typical
    sequence = qmc.Sobol(len(q), scramble=False)
    n_points = 1 << log2_points
    points = sequence.fast_forward(n_points).random(n_points)
    z = ndtri(points + 0.25 / n_points)
    return np.asarray(q + z @ np.linalg.cholesky(covariance / n).T)


def _far_cdf(t: Floats, chains: list[int]) -> Floats:
    """P(every far pair sum <= t), in units of one bin's noise.

    The pair sums of independent bins form a chain that depends on its last member only, to the
    first order: P(S1 <= t) P(S2 <= t | S1 <= t)^(k - 1).
    """
    if not chains:
        return np.ones_like(t)
    grid = np.linspace(min(-1.0, float(t.min())), float(t.max()), 2048)
    y, weight = np.polynomial.hermite_e.hermegauss(64)
    weight = weight / weight.sum()
    below = ndtr(grid[:, None] - y)  # the other bin of a pair, given the shared one
    one = ndtr(grid / math.sqrt(2))
    again = np.maximum(one - (below * ndtr(y - grid[:, None])) @ weight, 1e-300) / one
    log = len(chains) * np.log(one) + (sum(chains) - len(chains)) * np.log(again)
    return np.asarray(np.exp(np.interp(t, grid, log)))


def _shift(h: Floats, lead: NDArray[np.int64]) -> Floats:
    """Centroid of four bins around the leading pair's middle edge, in bins."""
    padded = np.pad(h, ((0, 0), (1, 1)))
    rows = np.arange(len(h))
    a, b, c, d = (padded[rows, lead + k] for k in range(4))
    return np.clip((1.5 * (d - a) + 0.5 * (c - b)) / np.maximum(0.5, b + c), -0.75, 0.75)


def _refined_mse(
    c: Floats, H: float, theta: float, scale: float, n: float, report: ScalarChannel
) -> Floats:
    """Mean squared error of the second round for each centre c."""
    first, second = _clipped_moments(np.full_like(c, theta), np.full_like(c, scale), c - H, c + H)
    mean, variance = theta + first, np.maximum(second - first**2, 0.0)
    u2 = (variance + (mean - c) ** 2) / H**2
    # every channel's variance is affine in u^2, but for its rounding to a lattice (negligible)
    total = (H**2 * report.variance(np.sqrt(np.minimum(u2, 1.0))) + variance) / n
    first, second = _clipped_moments(mean, np.sqrt(total), c - H, c + H)
    return np.asarray((mean - theta) ** 2 + 2 * (mean - theta) * first + second)


def _clipped_moments(m: Floats, s: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """First two moments around m of a Gaussian (m, s) clipped to [low, high]."""
    a, b = (low - m) / s, (high - m) / s
    pa, pb = np.exp(-(a**2) / 2), np.exp(-(b**2) / 2)
    pa, pb = pa / math.sqrt(2 * math.pi), pb / math.sqrt(2 * math.pi)
    left, right = ndtr(a), ndtr(-b)
    first = s * (a * left + pa - pb + b * right)
    second = s**2 * (a**2 * left + (ndtr(b) - left) + a * pa - b * pb + b**2 * right)
    return np.asarray(first), np.asarray(second)
