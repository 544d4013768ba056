"""Predicted error of a mean on users whose own means are known. NOT PRIVATE.

Follows the rounds with the users' empirical distribution in place of messages: the vote's
frequencies are integrated by quasi-Monte Carlo over their exact covariance, and for every centre
that comes out the check's alarm, the interval after it, the signs and the clipped reports follow in
closed form. Nothing is drawn at random and nothing calls the estimator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr, ndtri

from fedhist.base.arrays import Floats
from fedhist.channels.catalogue import UnaryChannel, scalar_channel
from fedhist.channels.oracles import oracle_channel
from server.means.checks import (
    MOST_OUTSIDE,
    SEEN,
    SHELL_SHARE,
    SURE,
    Check,
    Shells,
    share_error,
    shell_edges,
    shell_noise,
)
from server.means.design import Design
from server.means.localize import best_window, centroid, keep_inside
from server.means.signs import (
    CLIP_SCALE,
    FIRST_STEP,
    FIRST_WEIGHT,
    SECOND_STEP,
    Signs,
    read_signs,
    sign_variance,
)
from server.means.stages import stage_risks

_CENTRES, _CHOICES = 64, 32
_MOST_CELLS = 1 << 22


@dataclass(frozen=True)
class Prediction:
    """The mean squared error of one design on users with these means.

    Parameters
    ----------
    design : Design
    means : (n,) float64
        The users' own means, NaN left out, in increasing order.
    low, high : float
    epsilon : float
    kind : str
        Scalar channel.
    samples, scale : float
        Planned samples of a user, and standard deviation of its mean.
    n : float
        Users, of whom the means may be a sample.
    population : float, optional
        Users whose average is sought, where those who are asked are some of them.
    usable : float
        Share of the n users who have a mean; the others vote for no bin and report the centre.
    """

    design: Design
    means: Floats
    low: float
    high: float
    epsilon: float
    kind: str
    samples: float
    scale: float
    n: float
    population: float | None = None
    usable: float = 1.0

    @property
    def half_range(self) -> float:
        """Of the range."""
        return (self.high - self.low) / 2

    @property
    def gain(self) -> float:
        """Of a randomised bit."""
        return math.tanh(self.epsilon / 2)

    @cached_property
    def truth(self) -> float:
        """Their average."""
        return float(self.means.mean())

    @cached_property
    def sums(self) -> tuple[Floats, Floats]:
        """Sums of the means and of their squares, from the least on: (n + 1,) each."""
        x = self.means - self.truth
        return np.append(0.0, np.cumsum(x)), np.append(0.0, np.cumsum(x * x))

    def below(self, at: Floats) -> Floats:
        """Share of the users whose mean is below a point."""
        return np.asarray(np.searchsorted(self.means, at) / len(self.means))

    # -- the parts

    def risk(self) -> float:
        """Predict the mean squared error around the average of the users' means."""
        design, sampling = self.design, float(self.means.var())
        if design.stages is not None:
            middle = (self.low + self.high) / 2
            spread = max(math.sqrt(sampling), 1e-9 * self.half_range)
            stages = design.stages.stages
            return stage_risks(stages, self.n, spread, self.half_range, self.truth - middle)[-1]
        centres, half_width, n_users = self.reported
        if design.vote.n_bins == 1:
            return float(self.clipped(centres, half_width, n_users)[0])
        return float(np.mean([self.after(c) for c in centres.tolist()]))

    def centres(self) -> Floats:
        """Centres that the vote finds: (64,)."""
        plan, vote = self.design.vote, UnaryChannel(self.epsilon)
        edges = np.linspace(self.low, self.high, plan.n_bins + 1)[1:-1]
        shares = self.usable * np.diff(np.concatenate(([0.0], self.below(edges), [1.0])))
        noise = vote.bit_variance / vote.tau**2 + shares * (1 - shares)
        h = shares + self.normals(plan.n_bins) * np.sqrt(noise / (self.n * plan.vote_share))
        return centroid(h, best_window(h), self.low, self.high)

    @property
    def reported(self) -> tuple[Floats, float, float]:
        """Centres of the reports, their half width, and how many users report."""
        vote = self.design.vote
        if vote.n_bins == 1:
            return np.array([(self.low + self.high) / 2]), self.half_range, self.n
        return self.centres(), vote.half_width, self.n * (1 - vote.vote_share)

    def normals(self, n_bins: int) -> Floats:
        """Quasi-random normals, a row for each centre."""
        return _normals(min(_CENTRES, max(4, _MOST_CELLS // n_bins)), n_bins)

    def after(self, centre: float) -> float:
        """Mean squared error after a vote for this centre."""
        design, plan = self.design, self.design.vote
        H, rest, alarm = plan.half_width, self.n * (1 - plan.vote_share), 0.0
        found = 0.0
        if design.check is not None:
            near, far = self.alarms(centre, design.check, rest)
            rest *= 1 - design.check.share
            alarm = near + far
            for chance, sure in ((near, SURE), (far, SEEN)):
                if chance > 1e-6:
                    found += chance * self.widened(centre, rest, sure)
        signs = abs(centre - (self.low + self.high) / 2) + 2 * self.scale < self.half_range
        told = self.signs(centre, rest) if design.signs and signs else None
        if told is None:
            told = float(self.clipped(np.array([centre]), H, rest)[0])
        return found + (1 - alarm) * told

    def alarms(self, centre: float, check: Check, rest: float) -> tuple[float, float]:
        """Probability that the check misses users near only, and that it does so farther out."""
        H = np.array(check.half_widths)
        asked = np.full(len(H), check.share * rest / len(H))
        ends = self.below(np.stack((centre - H, np.nextafter(centre + H, math.inf))))
        inside = ends[1] - ends[0]
        spread = [max(share_error(asked[0], self.gain, x), 1e-9) for x in inside.tolist()]
        calm = ndtr((inside - check.thresholds(asked)) / spread)
        quiet = float(calm[1:].prod())
        return float(1 - calm[0]) * quiet, 1 - quiet

    def widened(self, centre: float, rest: float, sure: float) -> float:
        """Mean squared error after an alarm: over the edges that the shells may choose."""
        R, H = self.half_range, self.design.vote.half_width
        offset = abs(centre - (self.low + self.high) / 2)
        edges = shell_edges(H, R + offset)
        if len(edges) == 1:
            return float(self.clipped(np.array([centre]), R, rest)[0])
        around = np.stack((centre - edges, np.nextafter(centre + edges, math.inf)))
        shares = np.diff(np.diff(self.below(around), axis=0)[0], prepend=0.0)
        oracle, k = oracle_channel("auto", self.epsilon, len(edges)), len(edges)
        variance = shell_noise(float(oracle.variance(MOST_OUTSIDE)), SHELL_SHARE * rest)
        # the noise of k + 1 shares, which adds up to 0
        z = _normals(_CHOICES, k) * math.sqrt(variance)
        z -= z.sum(axis=1, keepdims=True) / (k + 1) * (1 + 1 / math.sqrt(k + 1))
        left = rest * (1 - SHELL_SHARE)
        unit = (4 * scalar_channel(self.kind, self.epsilon).v + 0.25) / left
        found = Shells(edges, variance, R, offset, unit, sure).half_widths(shares + z)
        widths, runs = np.unique(found, return_counts=True)
        risks = [float(self.clipped(np.array([centre]), w, left)[0]) for w in widths.tolist()]
        return float(runs @ risks) / len(found)

    def clipped(self, centre: Floats, half_width: float, n_users: float) -> Floats:
        """Mean squared error of the average of reports clipped to centre +- half_width."""
        variance, bias = self.moments(centre, half_width, n_users)
        return np.asarray(variance + bias**2)

    def kept(self, centre: Floats, half_width: float) -> Floats:
        """Shift intervals into the range."""
        return keep_inside(centre, half_width, self.low, self.high)

    def moments(self, centre: Floats, half_width: float, n_users: float) -> tuple[Floats, Floats]:
        """Variance and bias of the average of reports clipped to centre +- half_width."""
        c = self.kept(centre, half_width)
        low, high = c - half_width, c + half_width
        a, b = np.searchsorted(self.means, low), np.searchsorted(self.means, high)
        (first, second), m = self.sums, len(self.means)
        left, right = a / m, 1 - b / m
        x, y = low - self.truth, high - self.truth
        mean = (first[b] - first[a]) / m + left * x + right * y
        square = (second[b] - second[a]) / m + left * x * x + right * y * y
        pull = c - self.truth
        mean = self.usable * mean + (1 - self.usable) * pull
        square = self.usable * square + (1 - self.usable) * pull**2
        variance = np.maximum(square - mean**2, 0.0)
        channel = scalar_channel(self.kind, self.epsilon)
        u2 = (variance + (mean + self.truth - c) ** 2) / half_width**2
        noise = half_width**2 * channel.variance(np.sqrt(np.minimum(u2, 1.0)))
        # the users who report are drawn from those whose average is sought
        drawn = variance * max(0.0, 1 - n_users / (self.population or self.n))
        return np.asarray((noise + drawn) / n_users), np.asarray(mean)

    def signs(self, centre: float, rest: float) -> float | None:
        """Mean squared error of two rounds of signs; None where they end in clipped reports."""
        first = self.told(centre, FIRST_STEP * self.scale)
        if first.scale < CLIP_SCALE * self.scale:
            return None
        second = self.told(first.mean, SECOND_STEP * first.scale)
        value = FIRST_WEIGHT * first.mean + (1 - FIRST_WEIGHT) * second.mean
        # the average that is sought moves with the users who are asked
        shared = float(self.means.var()) / self.n
        noise = sign_variance(rest, second.scale, self.gain)
        return (value - self.truth) ** 2 + max(noise - shared, noise / 2)

    def told(self, middle: float, step: float) -> Signs:
        """Read the signs of everybody, without noise."""
        dither = self.half_range / self.samples
        moves = dither * np.linspace(-0.96875, 0.96875, 32)
        points = np.array([[middle - step], [middle + step]]) + moves
        above = 1 - self.below(points).mean(axis=1)
        everybody = np.full(2, math.inf)
        return read_signs(above, everybody, middle, step, self.scale, self.gain)


def _normals(n_points: int, dimension: int) -> Floats:
    """Quasi-random normals: (n_points, dimension)."""
    from scipy.stats import qmc

    if dimension > 64:  # a sequence of low dimension, turned over for the bins beyond
        dimension, wide = 64, dimension
        base = _normals(n_points, 64)
        return np.stack([np.roll(base[:, j % 64], 7 * (j // 64)) for j in range(wide)], axis=1)
    sequence = qmc.Sobol(dimension, scramble=False)
    points = sequence.fast_forward(n_points).random(n_points)
    return np.asarray(ndtri(points + 0.25 / n_points))
