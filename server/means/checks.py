"""Do the users' means agree? The check of a vote, and the width that fits where they do not."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from fedhist.base.arrays import Floats, Integers
from server.distributions.simplex import project_simplex
from server.means.localize import Plan

MOST_ERROR = 0.12
"""A check with a larger standard error is not worth its users."""
MOST_EXPECTED, MOST_CERTAIN = 0.95, 0.995
MOST_OUTSIDE = 0.15
"""Share of the users whose means may lie outside the interval that is refined after an alarm."""
SHELL_SHARE = 0.15
"""Of the users not asked yet, who say after an alarm how far they are from the vote's centre."""
CLIPPED = 2 / 3
"""How far, in half widths, a mean outside is thought to lie from the interval's end."""

SURE, SEEN = 2.0, 1.0
"""Standard errors by which users far away must be seen, to count; the second is of those whom the
check has seen beyond its wider interval."""
_MOST_SHARE, _USERS = 0.2, 70.0
_LEAST_SHARES = 0.08, 0.15
"""Of those who have not voted: at small and large budgets; see :func:`least_share`."""
_WIDE = 2.5
"""Scales and half a bin: beyond lie hardly any means of users who agree."""
_FAR = 2.0
"""Standard errors below what is certain, from which on users are seen to lie far away."""


@dataclass(frozen=True)
class Check:
    """A round that asks some users whether their mean lies near the vote's centre.

    Half of them, where they are enough, are asked about a wider interval: a few users far away are
    not to be told from the tails of those who agree in the one that is refined.

    Attributes
    ----------
    share : float
        Of the users not asked yet, who are asked.
    half_widths : tuple of float
        Of the interval that is refined, and of the wider one if somebody is asked about it.
    expected : float
        Least share of users in the first where their means agree, with room for other laws than
        normal.
    certain : tuple of float
        The same of each interval for normal means, the vote's centre half a bin off.
    n_users : float
        Planned, who are asked about each interval.
    gain : float
        tanh(epsilon / 2) of the randomised response.
    """

    share: float
    half_widths: tuple[float, ...]
    expected: float
    certain: tuple[float, ...]
    n_users: float
    gain: float

    @property
    def error(self) -> float:
        """Planned standard error of the share in the first interval."""
        return share_error(self.n_users, self.gain)

    @property
    def unnoticed(self) -> float:
        """Share of the users who may lie far away and are noticed in one run of two only."""
        least = self.thresholds(np.full(len(self.certain), self.n_users))
        agree = self.certain[-1] if len(self.certain) > 1 else max(self.expected, self.certain[0])
        return 1 - float(least[-1]) / agree

    def thresholds(self, n_users: Floats) -> Floats:
        """Return the shares, of so many who answered, below which the users' means differ: (g,).

        One standard error below what is expected; or, where many answer, three below what is
        certain. Of the wider interval two: a false alarm costs the users of one more round.
        """
        errors = [
            share_error(n, self.gain, sure) for n, sure in zip(n_users, self.certain, strict=True)
        ]
        plain = self.expected - share_error(n_users[0], self.gain)
        near = max(plain, self.certain[0] - 3 * errors[0])
        return np.array([near, *(self.certain[1] - _FAR * e for e in errors[1:])])


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
        It asks 70 / gain^2 users, but between 8 (see :func:`least_share`) and 20 percent of those
        who have not voted; about two intervals if there are twice as many.
    """
    rest, enough = n_users * (1 - vote.vote_share), _USERS / (gain * gain)
    asked = min(_MOST_SHARE * rest, max(least_share(gain) * rest, enough))
    half_bin, H = half_range / vote.n_bins, vote.half_width

    def inside(off: float) -> float:
        return 2 * float(ndtr((H - off * half_bin) / mean_scale)) - 1

    expected, certain = min(MOST_EXPECTED, inside(0.5)), min(MOST_CERTAIN, inside(1.0))
    wide = half_bin + _WIDE * mean_scale
    if asked < 2 * enough or not H < wide < half_range:
        return Check(asked / rest, (H,), expected, (certain,), asked, gain)
    tails = ndtr(np.array([-_WIDE, -_WIDE - 2 * half_bin / mean_scale]))
    sure = certain, min(MOST_CERTAIN, 1 - float(tails.sum()))
    return Check(asked / rest, (H, wide), expected, sure, asked / 2, gain)


def least_share(gain: float) -> float:
    """Return the least share of users who check: more where one report over the range is precise.

    There a few users far away, unnoticed, would cost more than all the noise.
    """
    return _LEAST_SHARES[int(gain * gain > 0.8)]


def share_error(n_users: float, gain: float, share: float = 0.5) -> float:
    """Return the standard error of a share that so many randomised bits tell; 1/2 is the worst.

    >>> share_error(100, 1.0), share_error(0, 1.0)
    (0.05, inf)
    """
    if n_users <= 0:
        return math.inf
    return math.sqrt((1 / (4 * gain * gain) - (share - 0.5) ** 2) / n_users)


def shell_edges(half_width: float, reach: float) -> Floats:
    """Return the outer edges of shells around a centre: H, 2 H, 4 H, ... to ``reach`` or more.

    >>> shell_edges(0.25, 1.0).tolist()
    [0.25, 0.5, 1.0]
    """
    k = max(0, math.ceil(math.log2(reach / half_width) - 1e-12))
    return np.asarray(half_width * 2.0 ** np.arange(k + 1))


def shell_noise(variance: float, n_users: float) -> float:
    """Return the variance of a shell's share: of its reports, and of who happens to be asked.

    Parameters
    ----------
    variance : float
        Of a debiased share of MOST_OUTSIDE, given the users, times their number.
    n_users : float
    """
    return (variance + MOST_OUTSIDE * (1 - MOST_OUTSIDE)) / n_users


@dataclass(frozen=True)
class Fit:
    """The interval that fits users who differ.

    Attributes
    ----------
    half_width : float
    outside : float
        Share of the users beyond it.
    bias : float
        Bound on what clipping to it costs, as a standard error.
    unseen : float
        How far users beyond it, two standard errors more than were seen, may move the mean.
    """

    half_width: float
    outside: float
    bias: float
    unseen: float = 0.0


@dataclass(frozen=True)
class Shells:
    """What an interval is chosen by: how much it costs to leave out what lies in a shell.

    Attributes
    ----------
    edges : (k,) float64
        Outer edges of the shells; the last shell holds the range.
    noise : float
        Variance of one shell's share, from :func:`shell_noise`.
    half_range : float
    offset : float
        Distance of the centre from the middle of the range. An interval that would leave the range
        is shifted into it, and so reaches farther to the other side.
    unit_variance : float
        Variance of the average of the reports that follow, over an interval of half width 1.
    sure : float
        Standard errors by which what lies beyond must be seen.

    Examples
    --------
    >>> three, edges = np.array([0.5, 0.4, 0.1]), np.array([0.25, 0.5, 1.0])
    >>> fit = Shells(edges, 0.0, 1.0, 0.0, 0.01).fit(three)
    >>> fit.half_width, fit.outside, round(fit.bias, 4)
    (0.5, 0.1, 0.0333)
    >>> Shells(edges, 0.0, 1.0, 0.0, 1e-6).half_widths(three)
    array(1.)
    """

    edges: Floats
    noise: float
    half_range: float
    offset: float
    unit_variance: float
    sure: float = SURE

    @property
    def widths(self) -> Floats:
        """Half widths that an interval may have: (k,)."""
        return np.minimum(self.edges, self.half_range)

    @property
    def reach(self) -> Floats:
        """Distances from the centre up to which they reach: (k,)."""
        return self.widths + np.maximum(0.0, self.offset + self.widths - self.half_range)

    def half_widths(self, shares: Floats) -> Floats:
        """Choose for each row of shares, see :meth:`fit`: (...) for (..., k) shares."""
        within, beyond = np.cumsum(project_simplex(shares), axis=-1), self.beyond(shares)
        return np.asarray(self.widths[self.choice(within, beyond)])

    def fit(self, shares: Floats) -> Fit:
        """Choose the interval from the users' distances to its centre.

        The least edge with at most MOST_OUTSIDE of the users beyond; or a larger one, if what lies
        beyond the first is surely worth the noise.

        Parameters
        ----------
        shares : (k,) float64
            Unbiased, of the users in each shell.
        """
        within, beyond = np.cumsum(project_simplex(shares)), self.beyond(shares)
        j = int(self.choice(within, beyond))
        width, reach = float(self.widths[j]), self.reach[j]
        if reach >= self.half_range + self.offset:
            return Fit(width, 0.0, 0.0)
        inside = np.interp(reach, np.append(0.0, self.edges), np.append(0, within))
        outside = max(0.0, 1 - float(inside))
        seen = CLIPPED * width * math.hypot(outside, math.sqrt(self.noise))
        missed = SURE * math.sqrt((len(self.edges) - 1 - j) * self.noise)
        unseen = missed * (self.half_range + self.offset - float(reach))
        return Fit(width, round(outside, 12), max(seen, float(beyond[j])), unseen)

    def beyond(self, shares: Floats) -> Floats:
        """How far users lie beyond each interval, on average, surely: (..., k).

        Users are taken for uniform in their shell.
        """
        ends, reach = np.minimum(self.edges, self.half_range + self.offset), self.reach[:, None]
        starts = np.append(0.0, ends[:-1])
        first = np.maximum(starts, reach)
        part = np.maximum(ends - first, 0.0) / np.maximum(ends - starts, 1e-300)
        excess = part * ((first + ends) / 2 - reach)
        sure = self.sure * math.sqrt(self.noise) * np.sqrt((excess**2).sum(axis=1))
        return np.asarray((excess @ shares[..., None])[..., 0] - sure)

    def choice(self, within: Floats, beyond: Floats) -> Integers:
        """Return the number of the interval, from shares up to each edge and what lies beyond."""
        risk = self.unit_variance * self.widths**2 + np.maximum(beyond, 0.0) ** 2
        risk[within < 1 - MOST_OUTSIDE - 1e-12] = math.inf
        return np.asarray(np.argmin(risk, axis=-1))
