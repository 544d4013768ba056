"""Predicted error of a sparse mean on users whose own means are known. NOT PRIVATE.

Follows the rounds with the users' own means in place of messages: votes are Gaussian around what
users say on average, and every fold's estimate has the law of
:class:`~fedhist.protocols.means.mean_error.Prediction`. Who is among the s largest is counted over
draws that are the same in every call; the chance that a signal is lost follows exactly from each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import ndtr, ndtri

from fedhist.base.arrays import Array, Floats, Integers
from fedhist.protocols.means.mean_error import Prediction
from server.means.localize import Plan
from server.means.support import keep_largest

MOST_COLUMNS = 128
"""Columns that are followed one by one; the others together."""
_DRAWS, _CENTRES, _NODES, _NUMBERS = 512, 256, 64, 1 << 22
_RARE = 0.01
"""Numbers of selected columns that come up less often are taken for the nearest other one."""


@dataclass(frozen=True)
class Fold(Prediction):
    """One fold's vote and clipped reports.

    Where users differ many windows hold nearly as many votes as the best one: which of them wins
    takes normals that are spread in all bins, which a quasi-random sequence of few points is not.
    """

    def normals(self, n_bins: int) -> Floats:
        """Return normals, the same ones in every call."""
        n_points = min(_CENTRES, max(4, _NUMBERS // n_bins))
        return np.random.default_rng(3).normal(size=(n_points, n_bins))


@dataclass(frozen=True)
class FoldLaw:
    """Where the estimate of a fold lies: around one of several equally likely centres, Gaussian.

    Attributes
    ----------
    centre : (c,) float64
        Of the interval that the average is clipped to.
    half_width : float
    middle, deviation : (c,) float64
        Of the average.
    """

    centre: Floats
    half_width: float
    middle: Floats
    deviation: Floats

    @classmethod
    def of(cls, fold: Fold) -> FoldLaw:
        """Follow the vote and the clipped reports of a fold."""
        centres, half_width, reports = fold.reported
        variance, bias = fold.moments(centres, half_width, reports)
        centre = fold.kept(centres, half_width)
        return cls(centre, half_width, fold.truth + bias, np.sqrt(variance))

    def error(self, truth: float) -> float:
        """Mean squared error."""
        z = ndtri((np.arange(_NODES) + 0.5) / _NODES)
        values = self._values(np.arange(len(self.centre))[:, None], z / z.std())
        return float(np.square(values - truth).mean())

    def draws(self, shape: tuple[int, ...], rng: np.random.Generator) -> Floats:
        """Draw estimates."""
        return self._values(rng.integers(len(self.centre), size=shape), rng.normal(size=shape))

    def _values(self, which: Integers, z: Floats) -> Floats:
        c, H = self.centre[which], self.half_width
        return np.clip(self.middle[which] + self.deviation[which] * z, c - H, c + H)


@dataclass(frozen=True)
class Followed:
    """The columns that matter, and one of the others for each user.

    Attributes
    ----------
    truth : (d,) float64
    columns : (k,) int64
        Followed one by one.
    own : (k + 1, n) float64
        Users' own means in these columns, and in one of the others, in increasing order; NaN,
        for none, comes last.
    fold : callable of ((n,) float64, Plan, float)
        Makes a prediction for a fold of so many users with these means.
    """

    truth: Array
    columns: Integers
    own: Floats
    fold: Callable[[Floats, Plan, float], Fold]

    def law(self, i: int, plan: Plan, n_users: float) -> FoldLaw:
        """Follow a fold of so many users."""
        return FoldLaw.of(self.fold(self.own[i], plan, n_users))

    @property
    def others(self) -> int:
        """How many columns are followed together."""
        return len(self.truth) - len(self.columns)

    def estimated(self, plan: Plan, n_users: float) -> float:
        """Predict the squared error where all columns are estimated, each by so many users."""
        k, found = len(self.columns), self.truth[self.columns]
        first = sum(self.law(i, plan, n_users).error(x) for i, x in enumerate(found.tolist()))
        rest = self.others and self.others * self.law(k, plan, n_users).error(0.0)
        return float(first + rest)

    def selected(
        self,
        z: Floats,
        least: float,
        sparsity: int,
        plan_of: Callable[[int], Plan],
        n_users: float,
    ) -> float:
        """Predict the squared error of selection.

        Parameters
        ----------
        z : (d,) float64
            Mean scores, in standard deviations of the voters' average.
        least : float
            Below it no score selects.
        sparsity : int
        plan_of : callable of int
            Of a fold, where so many columns are selected.
        n_users : float
            In all folds.
        """
        rng, d, k, s = np.random.default_rng(7), len(z), len(self.columns), sparsity
        scores = np.abs(z + rng.normal(size=(_runs(d), d)))
        top = -np.partition(-scores, s, axis=1)[:, : s + 1]
        top.sort(axis=1)  # the (s + 1)-st largest first
        level = np.maximum(top[:, 1], least)[:, None]
        # to be among the s largest is to beat the s-th largest of the others
        first = scores[:, self.columns]
        beaten = np.where(first >= top[:, 1:2], top[:, :1], top[:, 1:2])
        rival, size = np.maximum(beaten, least), np.abs(z[self.columns])
        found = ndtr(size - rival) + ndtr(-size - rival)
        many = (scores >= level).sum(axis=1)
        strangers = many - (first >= level).sum(axis=1)

        @cache
        def risk(i: int, n_selected: int) -> float:
            truth = self.truth[self.columns[i]] if i < k else 0.0
            return self.law(i, plan_of(n_selected), n_users / n_selected).error(truth)

        counts = np.bincount(many, minlength=s + 1)
        counts[0] = 0
        usual = np.flatnonzero(counts >= _RARE * counts.sum()) if counts.any() else np.array([1])
        as_if = usual[np.argmin(np.abs(many[:, None] - usual), axis=1)]
        squares = np.square(self.truth)
        error = float(squares.sum())
        for m in np.unique(as_if).tolist():
            here = as_if == m
            share = here.mean()
            chance = found[here].mean(axis=0)
            for i in np.flatnonzero(chance * share > 1e-6).tolist():
                error += share * chance[i] * (risk(i, m) - squares[self.columns[i]])
            if strangers[here].any():
                error += share * float(strangers[here].mean()) * risk(k, m)
        return error

    def thresholded(self, plan: Plan, sparsity: int, n_users: float) -> float:
        """Predict the squared error of the s largest estimates that noise does not explain.

        Each is made by so many users.
        """
        rng, d, k = np.random.default_rng(7), len(self.truth), len(self.columns)
        runs = _runs(d)
        values, truth = np.empty((runs, d)), np.zeros(d)
        truth[:k] = self.truth[self.columns]
        for i in range(k):
            values[:, i] = self.law(i, plan, n_users).draws((runs,), rng)
        left = np.square(self.truth).sum() - np.square(truth).sum()  # of those that stay 0
        if d > k:
            values[:, k:] = self.law(k, plan, n_users).draws((runs, d - k), rng)
        stderr = np.full(d, math.sqrt(plan.variance))
        kept = np.array([keep_largest(x, stderr, sparsity) for x in values])
        return float(np.square(kept - truth).sum(axis=1).mean() + left)


def _runs(d: int) -> int:
    return int(np.clip(_NUMBERS // d, 16, _DRAWS))
