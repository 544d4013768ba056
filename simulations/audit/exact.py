"""The exact check: a finite channel is enumerated, in integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext

import numpy as np

from fedhist.base.arrays import Floats
from fedhist.model.finite import FiniteChannel
from fedhist.model.query import Query
from simulations.audit.finding import Case, Finding, Witness

CURVE_POINTS = 21
MOVED, ROUNDED = 2.0**-60, 2.0**-53
"""Below what an excess is rounding: of all probability, and of the likelihood ratio."""
_DIGITS = 80
_MOST = 512.0


def curve_grid(epsilon: float) -> list[float]:
    """Choose the points at which a delta curve is shown: from 0 to a quarter above the claim."""
    return [1.25 * epsilon * i / (CURVE_POINTS - 1) for i in range(CURVE_POINTS)]


def excess(more: int, less: int, epsilon: float) -> float:
    """Return by how much of itself e^epsilon is exceeded by more / less, from 80 digits; else 0.

    Examples
    --------
    >>> excess(3, 1, 1.0986122886681096) > 0, excess(3, 1, 1.0986122886681100)
    (True, 0.0)
    >>> excess(1, 0, 1.0)
    inf
    """
    if less == 0:
        return math.inf if more > 0 else 0.0
    with localcontext() as context:
        context.prec = _DIGITS
        return max(float(Decimal(more) / Decimal(less) / Decimal(epsilon).exp() - 1), 0.0)


def is_rounding(beyond: float, less: int, total: int) -> bool:
    """Say whether a ratio's excess is one that whoever rounds thresholds to nearest would have.

    That is: what the rarer output lacks is less than 2^-60 of all probability, and the excess is no
    more than a double's own rounding. An infinite ratio is never rounding.
    """
    return beyond < ROUNDED and beyond * (less / total) < MOVED


def delta_curve(channel: FiniteChannel, epsilon: Sequence[float]) -> tuple[Floats, bool]:
    """Return the largest delta at each epsilon over pairs of inputs, and whether all were taken.

    Where there are too many pairs, those of the first, the middle and the last input and of the
    inputs of the largest ratio are taken: a lower bound.
    """
    k = len(channel.labels)
    every = k * k * channel.weights(np.array([0])).shape[1] <= 1 << 22
    chosen = range(k) if every else sorted({0, k // 2, k - 1, *channel.worst().inputs})
    curves = [channel.delta(i, j, epsilon) for i in chosen for j in chosen if i != j]
    return np.max(curves, axis=0) if curves else np.zeros(len(epsilon)), every


def epsilon_at(channel: FiniteChannel, delta: float) -> float:
    """Return the smallest epsilon at which the channel's delta curve is at most delta > 0.

    By bisection, to 1e-9 below; a lower bound where the curve is one.
    """
    low, high = 0.0, 1.0
    while delta_curve(channel, [high])[0][0] > delta:
        low, high = high, 2 * high
        if high > _MOST:
            return math.inf
    while high - low > 1e-9:
        middle = (low + high) / 2
        above = delta_curve(channel, [middle])[0][0] > delta
        low, high = (middle, high) if above else (low, middle)
    return low


def audit_exact(query: Query, subject: str) -> Finding | None:
    """Enumerate a query's channel and compare it with what an answer is said to cost.

    Returns
    -------
    Finding or None
        None for a query without a finite channel, or without noise.
    """
    channel = query.finite_channel()
    claim = query.release
    if channel is None or math.isinf(claim.epsilon):
        return None
    return judge_channel(channel, (claim.epsilon, claim.delta), subject)


def judge_channel(channel: FiniteChannel, claim: tuple[float, float], subject: str) -> Finding:
    """Compare a finite channel with a claim.

    The largest ratio and its comparison with e^epsilon are exact at delta = 0; elsewhere, and on
    the curve, probabilities are added up in doubles. A law whose ratio exceeds e^epsilon
    by rounding alone (:func:`is_rounding`) is consistent, and the excess is kept to be shown.
    """
    epsilon, delta = claim
    case = Case(subject, claim, kind="exact")
    worst = channel.worst()
    grid = curve_grid(epsilon)
    curve, every = delta_curve(channel, grid)
    note = channel.scope if every else f"{channel.scope}; the curve of some pairs"
    certified = worst.log_ratio if delta == 0 else epsilon_at(channel, delta)
    beyond = excess(worst.more, worst.less, epsilon) if delta == 0 else 0.0
    rounding = is_rounding(beyond, worst.less, channel.total)
    broken = beyond > 0 and not rounding if delta == 0 else certified > epsilon
    first, second = (channel.labels[i] for i in worst.inputs)
    event = f"output {worst.output}: probabilities {worst.more} and {worst.less} of {channel.total}"
    return case.found(
        certified,
        1.0,
        Witness((first, second), event),
        verdict="violation" if broken else "consistent",
        curve=tuple(zip(grid, np.asarray(curve).tolist(), strict=True)),
        note=note,
        excess=beyond,
    )
