"""Centred counts: a distribution from offsets of the users' shares, in three linear rounds.

1. Noisy shares give a centre p0, and the spread w_i that sampling gives each symbol around it.
2. From how far users are from the centre, in spreads, a radius is selected that few exceed; and a
   noisy number of users who are far beyond it says whether clipping would hide somebody.
3. Offsets clipped to the radius are added up with Gaussian noise for that radius, not for all of
   the simplex; the mean offset corrects the centre. Where that noise would be larger, or users are
   far beyond the radius, the shares are asked for once more instead.

What is estimated is the average of the users' shares, whatever distributions they have: users who
differ have a larger radius, and hence more noise. The idea and the constants are this project's
own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np
from scipy.special import chdtrc, chdtri

from clients.distributions.queries import (
    MOST_FRAMED,
    CentredCounts,
    CentredNorms,
)
from fedhist.base.arrays import Floats, Integers
from fedhist.base.errors import warned
from fedhist.model.query import Query, Summary
from fedhist.privacy.noise_law import noise_per_sensitivity
from fedhist.users.keys import Keys
from server.distributions.mechanisms import (
    LAPLACE,
    MEAN_ABSOLUTE,
    DistributionTask,
    Learned,
    Mechanism,
    Search,
)
from server.session.curator import Curator
from server.targets.domains import project_simplex

AskShares = Callable[[float, str], Generator[Query, Summary, Learned]]
"""Asks for the users' average shares and releases them, epsilon-DP, under a label of the ledger:
with Laplace noise of scale ``2 / (n_users epsilon)`` on each."""

SPENT = 1 - 1e-9
"""Part of rho that is spent; what is left covers the rounding of conversions."""

MOST_CLIPPED = 0.3
"""Largest part of the users beyond the radius; if the selection needs more, there is none."""

FAR_STEPS = 3
"""Steps of the candidates, a fourth root of 2 each, beyond which users are far; and above what
alike users have, from which a radius says that users differ."""

FALSE_ALARM = 0.005
"""How often alike users are taken for such with a cluster: that has up to five times the error, so
that it adds 2 % to the mean."""


@dataclass(frozen=True)
class CentredTask:
    """The public or released numbers that centred counts work with."""

    domain: Keys
    m: int  # items of a typical user: what the smallest radius follows from
    cut: int  # most items of a user; one with more draws so many
    own: bool  # whether a user's shares are over its own number of items, or over ``cut``
    n_users: float
    epsilon: float
    delta: float
    rho: float = 0.0  # zCDP to spend, where all of the run is accounted for in it; 0: basic only
    discrete: bool = True

    @property
    def k(self) -> int:
        """Number of symbols."""
        return len(self.domain)

    # -- budgets and what follows from them

    @cached_property
    def first(self) -> float:
        """Epsilon of the centre: 8 to 13 %."""
        need = 5.66 * math.sqrt(self.k * self.m) / (self.n_users * self.epsilon)
        return self.epsilon * min(max(need, 0.08), 0.13)

    @cached_property
    def second(self) -> float:
        """Epsilon of the radius: 3 to 5 %, up to 10 % where few users are too many clipped else."""
        s, K = self.n_users, len(self.radii)
        need = 2 * math.log(K / 0.05) / (0.03 * s * self.epsilon)
        least = 2 * math.log(K / 0.001) / (math.floor(MOST_CLIPPED * s) or 1)
        usual = self.epsilon * min(max(need, 0.03), 0.05)
        return max(usual, least) if least <= 0.1 * self.epsilon else usual

    @cached_property
    def far(self) -> float:
        """Epsilon of the number of users far beyond the radius, 1 to 15 %; 0: noise would hide it.

        A cluster of 5 % of the users is seen but for one run in 50: clipping it would cost up to
        1.2 times as much in l1, many times the error of shares.
        """
        noise = math.log(0.5 / FALSE_ALARM) + math.log(0.5 / 0.02)
        room = 0.05 * self.n_users - self._far_alike
        need = noise / room / self.epsilon if room > 0 else math.inf
        return self.epsilon * max(need, 0.01) if need <= 0.15 else 0.0

    @property
    def third(self) -> float:
        """Epsilon of the offsets: the rest."""
        return self.epsilon - self.first - self.second - self.far

    @cached_property
    def floor(self) -> float:
        """Least squared spread: twice the scale of the noise on the centre."""
        return min(4 / (self.n_users * self.first), 1.0)

    @cached_property
    def radii(self) -> Floats:
        """Candidates, a fourth root of 2 apart, up to where nobody is: (K,)."""
        least, most = math.sqrt(self.k / self.m), 1.7 / math.sqrt(self.floor)
        steps = max(math.ceil(4 * math.log2(most / least)), -2)
        return np.asarray(least * 2.0 ** (np.arange(-2, steps + 1) / 4))

    @property
    def clipped(self) -> int:
        """Users that the selected radius shall leave outside."""
        noise = 2 * math.log(len(self.radii) / 0.001) / self.second
        return math.ceil(max(noise, 0.02 * self.n_users))

    @property
    def most_far(self) -> float:
        """Noisy number of users far beyond the radius that alike users would hardly reach."""
        return self._far_alike + math.log(0.5 / FALSE_ALARM) / self.far

    @property
    def _far_alike(self) -> float:
        freedom = max(self.k - 1, 1)  # the radius may be a step smaller than is meant
        at = chdtri(freedom, min(self.clipped / self.n_users, 1.0))
        return self.n_users * float(chdtrc(freedom, at * 2 ** ((FAR_STEPS - 1) / 2)))

    @property
    def runs(self) -> bool:
        """Whether the numbers allow it at all."""
        return self.k <= MOST_FRAMED and self.delta > 0 and self.n_users >= 1

    @cached_property
    def selects(self) -> bool:
        """Whether there are users enough to select a radius, and to see those far beyond it."""
        return self.clipped <= MOST_CLIPPED * self.n_users and self.far > 0

    @property
    def lost(self) -> float:
        """Part of a mean offset that clipping is expected to take: the estimate makes up for it.

        Of Gaussian rows in K = k - 1 dimensions about 1.15 a / K where a part a lies outside.
        """
        return min(0.7 * self.clipped / self.n_users / max(self.k - 1, 1), 0.5)

    @cached_property
    def multiplier(self) -> float:
        """Std of the noise on offsets per unit of l2 sensitivity: the smaller of two."""
        return math.sqrt(0.5 / self.left) if self.left else self._basic

    @cached_property
    def left(self) -> float:
        """What the first two rounds leave of rho; 0 where basic composition gives less noise."""
        left = self.rho - (self.first**2 + self.far**2) / 2 - self.second**2 / 8
        return left if left > 0 and math.sqrt(0.5 / left) < self._basic else 0.0

    @cached_property
    def _basic(self) -> float:
        return noise_per_sensitivity(self.third, self.delta, self.discrete).scale

    @property
    def alike_radius(self) -> float:
        """Radius of users who draw from one distribution: sqrt(chi^2 / m) h."""
        s, k, m = self.n_users, self.k, self.m
        h = math.hypot(1.0, 2 * math.sqrt(2 * k * m) / (s * self.first))
        return math.sqrt(chdtri(max(k - 1, 1), min(self.clipped / s, 1.0)) / m) * h

    def error(self) -> float:
        """Predict the l1 error of offsets of alike users at p uniform."""
        s, k, radius = self.n_users, self.k, 2**0.125 * self.alike_radius
        noise = 2 * MEAN_ABSOLUTE * self.multiplier * radius / s * math.sqrt(k)
        return math.hypot(noise, self.lost * k / (s * self.first))

    def share_std(self, epsilon: float) -> float:
        """Std of the Laplace noise on a share that ``epsilon`` is spent on."""
        return 2 * math.sqrt(2) / (self.n_users * epsilon)

    def spread(self, centre: Floats) -> Floats:
        """Return the spread of each symbol: sqrt(p0), and no less than the floor."""
        return np.asarray(np.sqrt(np.clip(centre, self.floor, 1.0)))

    def offset_std(self, radius: float, spread: Floats) -> Floats:
        """Std of the noise on each symbol's offset."""
        size = 2 * radius * self.multiplier / self.n_users
        return size / (1 - self.lost) * spread

    def prefers_shares(self, std: Floats) -> bool:
        """Whether shares with the third budget, and the first's, are better than offsets.

        E|Z| is .8 std of Gaussian noise, .75 of two Laplace noises together.
        """
        together = self.share_std(math.hypot(self.first, self.third + self.far))
        return 0.8 * float(std.sum()) >= 0.75 * self.k * together


def centred(
    task: CentredTask, server: Curator, ask: AskShares
) -> Generator[Query, Summary, Learned]:
    """Run the rounds; at most three.

    Privacy
    -------
    (epsilon, delta)-DP by basic composition: the centre costs ``task.first``, pure; the radius
    ``task.second``, an exponential mechanism whose scores move by at most 1 with one user; the
    number of far users ``task.far``, Laplace noise on one count; and the offsets (``task.third``,
    delta), Gaussian noise for two rows in a ball, or shares again with ``task.third``,
    pure. Shares that a large radius alone decides for have ``task.far`` as well. What was released
    decides. Where zCDP composition is better, the
    offsets get what is left of ``task.rho`` instead; shares, all pure, need none of its delta.
    """
    start = yield from ask(task.first, "centre")
    if not task.selects:
        again = yield from ask(task.epsilon - task.first, "shares")
        return _both(start, task.first, again, task.epsilon - task.first)
    centre = project_simplex(start.p)
    spread = task.spread(centre)
    where = task.domain, task.cut, task.own, centre, spread
    asked = CentredNorms(*where, task.radii)
    summary = yield asked
    above = asked.above(summary)
    scores = radius_scores(above, summary.n_users, task.clipped)
    chosen = server.exponential(scores, sensitivity=1.0, epsilon=task.second, label="radius")
    radius = float(task.radii[chosen])
    std = task.offset_std(radius, spread)
    said: tuple[str, ...] = ()
    if not task.own and radius > task.alike_radius * 2 ** (FAR_STEPS / 4):
        said += (_differ(f"radius {radius:.3g}, alike users have {task.alike_radius:.3g}"),)
    shares, rest = task.prefers_shares(std), task.third + task.far
    if not shares:
        beyond = above[min(chosen + FAR_STEPS, len(above) - 1)]
        draw = server.discrete_laplace if task.discrete else server.laplace
        far = float(draw(beyond, l1_sensitivity=1, epsilon=task.far, label="far users"))
        shares, rest = far > task.most_far, task.third
        said += (_differ(f"some {far:.3g} of them are far from the others"),) * shares
    if shares:
        again = yield from ask(rest, "shares")
        return replace(_both(start, task.first, again, rest), warnings=again.warnings + said)
    query = CentredCounts(*where, radius)
    summary = yield query
    size = query.l2_sensitivity()
    steps, label = summary.sums["steps"], "offsets"
    if task.left:
        noisy = server.gaussian_zcdp(
            steps, l2_sensitivity=size, rho=task.left, discrete=task.discrete, label=label
        )
    else:
        gaussian = server.discrete_gaussian if task.discrete else server.gaussian
        noisy = gaussian(
            steps, l2_sensitivity=size, epsilon=task.third, delta=task.delta, label=label
        )
    offset = spread * (query.unit / task.n_users / (1 - task.lost)) * noisy
    p = combined(start.p, task.share_std(task.first), centre + offset, std)
    return Learned(p, start.warnings + said, {"radius": radius, "noise_std": float(std.mean())})


def _differ(words: str) -> str:
    return warned(
        f"the users' own distributions differ ({words})",
        "the estimate is the average of them, with a larger error than for users of one",
        'read it as that average, which mechanism = "laplace" has at one error for all users',
    )


def radius_scores(above: Integers, n_users: int, target: int) -> Floats:
    """Score each radius by how far the numbers of users around it are from a target: (K,).

    -max(0, c_j - t, t - c_{j-1}), c_{-1} all users: integers that move by at most 1 with one user.

    >>> radius_scores(np.array([9, 5, 2, 0]), 10, 3).tolist()
    [-6.0, -2.0, 0.0, -1.0]
    """
    before = np.concatenate(([n_users], above[:-1]))
    off = np.maximum(0, np.maximum(above - target, target - before))
    return np.asarray(0.0 - off)


def combined(a: Floats, a_std: float | Floats, b: Floats, b_std: float | Floats) -> Floats:
    """Average two noisy values of the same by the inverse of their variances."""
    weight = np.asarray(b_std) ** 2 / (np.asarray(a_std) ** 2 + np.asarray(b_std) ** 2)
    return np.asarray(weight * a + (1 - weight) * b)


def _both(a: Learned, a_epsilon: float, b: Learned, b_epsilon: float) -> Learned:
    """Average shares that were released twice."""
    return Learned(combined(a.p, b_epsilon, b.p, a_epsilon), b.warnings, dict(b.public))


# -- as a mechanism of ``distribution``: all users have m samples each -----------------------------


def centred_task(task: DistributionTask) -> CentredTask:
    """Say what centred counts of users with m samples each work with."""
    return CentredTask(
        task.domain,
        task.m,
        task.m,
        own=False,
        n_users=task.n_users,
        epsilon=task.epsilon,
        delta=task.delta,
        rho=SPENT * task.rho if task.delta else 0.0,
        discrete=task.discrete,
    )


@dataclass(frozen=True)
class Centred(Mechanism):
    """Average of the users' shares, whatever distributions they have."""

    rounds: ClassVar[int] = 3

    @property
    def pure(self) -> bool:
        return False

    def search(self, task: DistributionTask, server: Curator) -> Search:
        def ask(epsilon: float, label: str) -> Generator[Query, Summary, Learned]:
            return (yield from LAPLACE.search(replace(task, epsilon=epsilon), server, label))

        return (yield from centred(centred_task(task), server, ask))

    def error(self, task: DistributionTask) -> float:
        """Add the sampling of the users' items; inf where no radius can be selected."""
        at = centred_task(task)
        if not (at.runs and at.selects):
            return math.inf
        sampling = MEAN_ABSOLUTE * math.sqrt((at.k - 1) / (task.m * task.n_users))
        return math.hypot(at.error(), sampling)

    def floor(self, task: DistributionTask) -> float:
        """Users from which a radius can be selected; inf without delta or with too many symbols."""
        at = centred_task(task)
        return at.clipped / MOST_CLIPPED if at.runs else math.inf
