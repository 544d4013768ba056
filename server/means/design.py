"""Which rounds find a mean: from public numbers only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from fedhist.channels.catalogue import scalar_channel
from server.means.checks import MOST_ERROR, Check, plan_check, share_error
from server.means.localize import Plan, plan_one_round, plan_univariate
from server.means.signs import sign_variance, sign_worth
from server.means.stages import StagePlan, plan_stages

_CHECKED = 0.2
WORTH = 1.5
"""By this factor a vote must lower the risk, where the users' means may differ.

A few users far away, too few for the check to see, cost more than one report over the range does;
so much is not risked for a small gain.
"""
RISKED = 3.5
"""Most by which such users may make a vote worse, over what it gains where users agree."""
_CLOSE = 1.5


@dataclass(frozen=True)
class Design:
    """The rounds of one mean.

    Attributes
    ----------
    vote : Plan
        Of the vote and the clipped reports, or of one round.
    risk : float
        Predicted mean squared error where all users share one mean.
    stages : StagePlan or None
        Takes the place of the vote where there are too few users for one.
    check : Check or None
        Whether the users' means agree, asked after the vote.
    signs : bool
        Whether signs refine the estimate, unless the vote or the check speaks against it.
    unchecked : bool
        Whether the users' means may differ and there are too few users to ask them.
    close : str
        What the users would have to be like for other rounds to be far better; empty if none are.
    """

    vote: Plan
    risk: float
    stages: StagePlan | None = None
    check: Check | None = None
    signs: bool = False
    unchecked: bool = False
    close: str = ""

    @property
    def plain(self) -> bool:
        """Whether there is nothing but a vote and clipped reports, or one round of reports."""
        return self.stages is None and self.check is None and not (self.signs or self.unchecked)

    @property
    def max_rounds(self) -> int:
        """Most round trips."""
        if self.stages is not None:
            return len(self.stages.stages)
        if self.vote.n_bins == 1:
            return 1
        return 2 + (self.check is not None) + (self.check is not None or self.signs)

    @property
    def feasible(self) -> bool:
        """Whether the estimate is expected to beat the midpoint of the range."""
        return self.vote.feasible or self.stages is not None


@lru_cache(maxsize=4096)
def plan_mean(
    n_users: float,
    mean_scale: float,
    half_range: float,
    epsilon: float,
    samples: float,
    kind: str,
    differ: bool,
    refine: bool,
) -> Design:
    """Choose the rounds.

    Parameters
    ----------
    n_users : float
    mean_scale : float
        Standard deviation of a user's mean around the common mean.
    half_range : float
    epsilon : float
    samples : float
        Of a user.
    kind : str
        Scalar channel; not "auto".
    differ : bool
        Whether the users' means may differ: a vote is then checked, and not taken for a small gain.
    refine : bool
        Whether stages and signs may be used.

    Returns
    -------
    Design

    Examples
    --------
    >>> plan_mean(5000, 200**-0.5, 1.0, 1.0, 200, "piecewise", True, True).max_rounds
    4
    """
    vote = plan_univariate(n_users, mean_scale, half_range, epsilon, kind)
    gain = math.tanh(epsilon / 2)
    if gain >= 1:  # noise is off
        return Design(vote, vote.risk)
    rest = n_users * (1 - vote.vote_share)
    if refine and share_error(_CHECKED * rest, gain) > MOST_ERROR:
        v = scalar_channel(kind, epsilon).v
        stages = plan_stages(float(n_users), mean_scale, half_range, v)
        if len(stages.stages) > 1 and stages.risk < vote.risk:
            return Design(vote, stages.risk, stages=stages, unchecked=differ)
    if vote.n_bins == 1:
        return Design(vote, vote.risk)
    check = plan_check(vote, n_users, mean_scale, half_range, gain) if differ else None
    if check is not None and check.error > MOST_ERROR:
        check = None
    unchecked = differ and check is None
    left = rest * (1 - check.share) if check is not None else rest
    if refine and sign_worth(left, samples, epsilon):
        signs, variance = True, sign_variance(left, mean_scale, gain)
        risk = vote.failure * half_range**2 + variance
    else:
        signs, risk = False, vote.risk + vote.variance * (rest / left - 1)
    alone = plan_one_round(n_users, mean_scale, half_range, epsilon, kind)
    if not differ or not alone.feasible:
        return Design(vote, min(risk, half_range**2), None, check, signs, unchecked)
    gains, share = alone.risk / risk, 0.5 if check is None else min(0.5, check.unnoticed)
    # noticed in one run of two, and half the range away
    loses = (share * half_range) ** 2 / 2 / alone.risk
    if gains < WORTH or (check is not None and loses > RISKED * gains):
        words = f'close: for users who share a mean users = "same" errs {gains:.2g} times less'
        return Design(alone, alone.risk, close=words if gains > _CLOSE else "")
    words = (
        f"close: {100 * share:.2g} percent of the users half the range away from the others may "
        f"pass unnoticed, and cost {loses:.2g} times the error of one report over the range"
    )
    risk = min(risk, half_range**2)
    return Design(vote, risk, None, check, signs, unchecked, words if loses > _CLOSE else "")
