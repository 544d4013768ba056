"""Do the users' means agree? The check of a vote, and the width that fits where they do not."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from fedhist.base.arrays import Floats
from server.means.localize import Plan

MOST_ERROR = 0.12
"""A check with a larger standard error is not worth its users."""
MOST_EXPECTED = 0.95
MOST_OUTSIDE = 0.15
"""Share of the users whose means may lie outside the interval that is refined after an alarm."""
SHELL_SHARE = 0.15
"""Of the users not asked yet, who say after an alarm how far they are from the vote's centre."""
CLIPPED = 2 / 3
"""How far, in half widths, a mean outside is thought to lie from the interval's end."""

_SHARE, _USERS = 0.2, 70.0


@dataclass(frozen=True)
class Check:
    """A round that asks some users whether their mean lies near the vote's centre.

    Attributes
    ----------
    share : float
        Of the users not asked yet, who are asked.
    expected : float
        Least share of users inside where their means agree.
    error : float
        Planned standard error of the share.
    """

    share: float
    expected: float
    error: float


def plan_check(
    vote: Plan, n_users: float, mean_scale: float, half_range: float, gain: float
) -> Check:
    """Plan the check of a vote; from public numbers only.

    Parameters
    ----------
    vote : Plan
        With a vote.
    n_users : float
    mean_scale : float
        Standard deviation of a user's mean where they agree.
    half_range : float
    gain : float
        tanh(epsilon / 2) of the randomised response.

    Returns
    -------
    Check
        At most a fifth of those who have not voted, and no more than 70 / gain^2. The centre of
        the vote may be half a bin off.
    """
    rest = n_users * (1 - vote.vote_share)
    asked = min(_SHARE * rest, _USERS / (gain * gain))
    slack = vote.half_width - half_range / vote.n_bins / 2
    expected = min(MOST_EXPECTED, 2 * float(ndtr(slack / mean_scale)) - 1)
    return Check(asked / rest, expected, share_error(asked, gain))


def share_error(n_users: float, gain: float) -> float:
    """Bound the standard error of a share that so many randomised bits tell."""
    return 1 / (2 * gain * math.sqrt(n_users)) if n_users > 0 else math.inf


def shell_edges(half_width: float, reach: float) -> Floats:
    """Return the outer edges of shells around a centre: H, 2 H, 4 H, ... to ``reach`` or more.

    >>> shell_edges(0.25, 1.0).tolist()
    [0.25, 0.5, 1.0]
    """
    k = max(0, math.ceil(math.log2(reach / half_width) - 1e-12))
    return np.asarray(half_width * 2.0 ** np.arange(k + 1))


def fitting_width(
    shares: Floats, edges: Floats, half_range: float, offset: float = 0.0
) -> tuple[float, float]:
    """Choose the interval's half width from the users' distances to its centre.

    Parameters
    ----------
    shares : (k,) float64
        Of the users in each shell: a point of the simplex.
    edges : (k,) float64
        Outer edges of the shells; the last shell holds the range.
    half_range : float
    offset : float
        Distance of the centre from the middle of the range. An interval that would leave the range
        is shifted into it, and so reaches farther to the other side.

    Returns
    -------
    half_width : float
        The least edge with at most MOST_OUTSIDE of the users beyond; at most ``half_range``.
    outside : float
        Share of the users beyond the interval as it is shifted.

    Examples
    --------
    >>> three = np.array([0.5, 0.4, 0.1]), np.array([0.25, 0.5, 1.0])
    >>> fitting_width(*three, 1.0), fitting_width(*three, 1.0, offset=0.75)
    ((0.5, 0.1), (0.5, 0.05))
    """
    within = np.cumsum(shares)
    half_width = float(edges[np.argmax(within >= 1 - MOST_OUTSIDE - 1e-12)])
    if half_width >= half_range:
        return float(half_range), 0.0
    reach = half_width + max(0.0, offset + half_width - half_range)
    inside = np.interp(reach, np.append(0.0, edges), np.append(0.0, within))
    return half_width, round(max(0.0, 1 - float(inside)), 12)
