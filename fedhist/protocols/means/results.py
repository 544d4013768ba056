"""Results rows of means by folds: a quadrature apart from the estimator and its planner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from scipy.linalg import hadamard

from clients.records.functionals import Rotated
from fedhist.base.arrays import Floats
from fedhist.channels.catalogue import UnaryChannel, scalar_channel
from fedhist.model.protocol import Protocol
from fedhist.model.results import ResultsRow, within
from fedhist.protocols.localize.protocol import FoldProtocol
from fedhist.protocols.means.theory import exact_two_stage_mse, one_stage_mse


def quadrature(protocol: Protocol, population: Mapping[str, Any]) -> float:
    """Predict the squared l2 error around the mean of a Gaussian population, fold by fold."""
    folded = cast(FoldProtocol, protocol)
    theta = np.atleast_1d(np.asarray(population["mean"], dtype=np.float64))
    scale, d = float(population["spread"]), len(theta)
    folds, high, points = theta, 1.0, 16 if d == 1 else 13
    functional = getattr(protocol, "functional", None)
    if isinstance(functional, Rotated):
        k = functional.n_folds
        folds = hadamard(k) @ (functional.signs * _padded(theta, k)) / math.sqrt(k)
        # all of the spread where there is no padding; on average over the rows elsewhere
        scale, high = scale * math.sqrt(d / k), functional.high
    plan, n = folded.plan, folded.n_users / len(folds)
    report = scalar_channel(folded.channel_kind, folded.epsilon)
    shape: dict[str, Any] = {"mean_scale": scale, "low": -high, "high": high, "report": report}
    if plan.n_bins == 1:
        return one_stage_mse(theta=float(theta[0]), n_report=n, **shape)
    mse = [
        exact_two_stage_mse(
            theta=float(t),
            n_bins=plan.n_bins,
            n_vote=n * plan.vote_share,
            n_report=n * (1 - plan.vote_share),
            half_width=plan.half_width,
            vote=UnaryChannel(folded.epsilon),
            log2_points=points,
            **shape,
        ).mse
        for t in folds
    ]
    return d * float(np.mean(mse))  # a ball's estimate has d of its k coordinates


def fold_row(
    label: str,
    size: tuple[int, int, int],
    channel: tuple[float, str],
    repeats: int,
    width: float,
    *,
    ball: bool = False,
) -> ResultsRow:
    """Declare a row of a mean of vectors: size is (n, d, T), channel (epsilon, kind)."""
    (n, d, T), (epsilon, kind) = size, channel
    mean = np.linspace(-0.7, 0.8, d) / (2 * math.sqrt(d) if ball else 1.0)
    spread = 1 / math.sqrt(T * (d if ball else 1.0))
    people = {"kind": "gaussian", "n_users": n, "samples_per_user": 1, "dimension": d}
    people |= {"mean": mean.tolist(), "spread": spread, "low": -3.0, "high": 3.0}
    given = {"epsilon": epsilon, "dimension": d, "samples_per_user": T, "kind": kind}
    given |= {"method": "folds"} if ball else {}
    return ResultsRow(label, given, people, repeats, within(width), anew=True, expected=quadrature)


def _padded(theta: Floats, k: int) -> Floats:
    return np.concatenate((theta, np.zeros(k - len(theta))))
