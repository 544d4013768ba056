"""Mean of users who hold different numbers of samples, by a threshold on them: DAME [1]_.

A rival of ``mean``, as its authors' abstract has it: what the abstract leaves open is ours and
said below.

References
----------
.. [1] Pla, Richard & Vono, "Distribution-aware mean estimation under user-level local differential
   privacy", arXiv 2410.09506.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from scipy.special import ndtr

from clients.records.functionals import Coordinates
from fedhist.base.arrays import Array, Floats, Integers
from fedhist.base.checks import check_integer, check_range
from fedhist.channels.catalogue import scalar_channel
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.losses import SQUARED_L2
from fedhist.model.protocol import Estimate, Script
from fedhist.model.registry import register_protocol
from fedhist.privacy.guarantee import Adjacency, Guarantee, Trust, check_budget
from fedhist.protocols.baselines.sized_votes import SizedVotes
from fedhist.protocols.localize.queries import ClippedMean
from fedhist.protocols.shared.lower_bounds import ParameterSet
from fedhist.protocols.shared.mean_target import InRange
from fedhist.protocols.shared.sample_sizes import PlannedSizes
from fedhist.protocols.shared.seen import Seen
from fedhist.users.batch import Users
from fedhist.users.cohort import Cohort
from fedhist.users.folds import salt_of_folds
from fedhist.users.keys import Keys, user_ids

if TYPE_CHECKING:
    from fedhist.session.curator import Curator

HALF = 0.5
NODES = 400


@register_protocol
@dataclass(frozen=True)
class Dame(InRange, PlannedSizes):
    """One mean from users with different numbers of samples, locally private (a rival).

    Half of the users vote for a bin of the range: those with at least ``least_samples`` samples
    for that of their own mean, the others at random, so that nobody is dropped. The others report
    their mean, clipped to the winning bin and one more to either side, with Laplace noise.

    From the abstract of [1] and what is remembered of its page are the threshold on the samples,
    random votes below it, bins of width of the order sqrt(log / least_samples), and the split in
    halves. Ours are the constants: bins of width h sqrt(log(n) / least_samples) for a range of
    half width h, k-ary randomized response for the votes, half a bin more than one to either side
    of the winner's middle, integer noise on a lattice in place of real-valued noise. Where fewer
    than four bins would fill the range nobody votes and all users report over the range.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    n_users : int
        Public planning value.
    samples_per_user : float
        Public planning value; ``"harmonic-mean"`` in a configuration.
    least_samples : int, optional
        Who has fewer votes at random. The authors choose it by the distribution of the sizes,
        which is public there; default: ``samples_per_user``, rounded down.
    low, high : float
        Range of a sample; what lies outside is clipped before averaging.
    salt : int
        Public salt of the split into halves.

    Privacy
    -------
    epsilon-LDP for a user's whole record, its size included, sequentially interactive: the halves
    are disjoint cohorts of one salt, and the interval depends on other users' votes only.

    Error
    -----
    About 2 (8 H^2 / epsilon^2 + spread) / n for H = 1.5 bins where the vote succeeds, so of order
    log(n) / (n epsilon^2 least_samples).

    Examples
    --------
    >>> rival = Dame(epsilon=1.0, n_users=5000, samples_per_user=400)
    >>> rival.n_bins, rival.max_rounds
    (13, 2)
    """

    name: ClassVar[str] = "dame"
    paper: ClassVar[str] = "Pla, Richard & Vono, arXiv 2410.09506 (from its abstract)"
    epsilon: float
    n_users: int
    samples_per_user: float
    least_samples: int | None = None
    low: float = -1.0
    high: float = 1.0
    salt: int = 1

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_integer("n_users", self.n_users, 1 << 32)
        check_range(self.low, self.high)
        size = self.samples_per_user
        if not (isinstance(size, int | float) and 1 <= size < math.inf):
            raise ValueError(f"samples_per_user must be a number of at least 1, got {size!r}")
        if self.least_samples is not None:
            check_integer("least_samples", self.least_samples, 1 << 40)
        Cohort(self.salt)
        if not math.isinf(self.epsilon):
            scalar_channel("laplace", self.epsilon)  # which smaller budgets do not have
        _ = self.vote

    @property
    def enough(self) -> int:
        """Samples from which on a user votes for its own bin."""
        return self.least_samples or int(self.samples_per_user)

    @property
    def n_bins(self) -> int:
        """Bins of the vote; 1 where nobody votes."""
        found = math.floor(2 / math.sqrt(math.log(max(self.n_users, 3)) / self.enough))
        return min(found, 1 << 16) if found >= 4 else 1

    @property
    def half_width(self) -> float:
        """Of the interval that means are clipped to: one bin and a half."""
        return self.half_range * (3 / self.n_bins if self.n_bins > 1 else 1.0)

    @property
    def max_rounds(self) -> int:
        """Two, or one without a vote."""
        return 2 if self.n_bins > 1 else 1

    @property
    def guarantee(self) -> Guarantee:
        """The same budget for both halves: each user answers once."""
        return Guarantee(self.epsilon, 0.0, Trust.LOCAL, Adjacency.REPLACE_USER)

    @property
    def vote(self) -> SizedVotes:
        """What the first half is asked."""
        low, high = float(self.low), float(self.high)
        cohort = Cohort(self.salt, 0.0, HALF)
        return SizedVotes(low, high, self.n_bins, self.enough, float(self.epsilon), cohort)

    def report(self, centre: float) -> ClippedMean:
        """Build what the others are asked."""
        return ClippedMean(
            functional=Coordinates(1, float(self.low), float(self.high)),
            centres=np.array([centre]),
            half_width=self.half_width,
            epsilon=float(self.epsilon),
            kind="laplace",
            cohort=Cohort(self.salt, HALF, 1.0) if self.n_bins > 1 else None,
            fold_salt=salt_of_folds(self.salt),
        )

    def centre(self, winner: int) -> float:
        """Middle of the winning bin, moved so that the interval lies in the range."""
        if self.n_bins == 1:
            return (float(self.low) + float(self.high)) / 2
        middle = float(self.low) + self.half_range * (2 * winner + 1) / self.n_bins
        low, high = float(self.low) + self.half_width, float(self.high) - self.half_width
        return float(np.clip(middle, low, max(low, high)))

    # -- the script

    def rounds(self, server: Curator) -> Script:
        """Vote, then report."""
        winner, public = 0, {}
        if self.n_bins > 1:
            query = self.vote
            votes = yield query
            if not votes.n_users:
                return Estimate.failed("nobody voted")
            shares = query.shares(votes)
            winner = int(np.argmax(shares))
            public = {"n_vote": float(votes.n_users), "winning_share": float(shares[winner])}
        last = self.report(self.centre(winner))
        found = yield last
        public["n_report"] = float(found.n_users)
        if not found.n_users:
            return Estimate.failed("nobody reported", public=public)
        noise = 0.0 if math.isinf(self.epsilon) else 4 * last.channel.v
        spread = min(1.0, 1 / self.samples_per_user) * self.half_range**2
        stderr = math.sqrt((noise * self.half_width**2 + spread) / found.n_users)
        return Estimate.ok(last.estimates(found), stderr=np.array([stderr]), public=public)

    # -- evaluation

    @property
    def parameter_set(self) -> ParameterSet:
        """The range."""
        return ParameterSet("box", 1, self.half_range, self.samples_per_user)

    def sums(self, users: Users) -> Mapping[str, Array]:
        """Count the bins that users vote for, too: last those who do so at random."""
        own, k = self.vote.own_bins(users), self.n_bins
        votes = np.bincount(np.where(own < 0, k, own), minlength=k + 1)
        return {**super().sums(users), "votes": votes}

    def rows(self, users: Users) -> Mapping[str, Array]:
        """Return the users' own clipped means."""
        return {"clipped": self.clipped_means(users)[:, 0]}

    def error_of(self, seen: Seen) -> ErrorBound:
        """Predict the mean squared error: of every bin that may win, with its chance. NOT PRIVATE.

        The votes' totals are taken as normal and independent; what the halves draw of the users,
        and noise, are exact.
        """
        truth, means = float(seen.truth[0]), seen.rows["clipped"]
        chance = self._chances(seen["votes"]) if self.n_bins > 1 else np.ones(1)
        total = 0.0
        for winner in np.flatnonzero(chance > 1e-7):
            centre = self.centre(int(winner))
            total += chance[winner] * self._mse(means, seen.n_users, centre, truth)
        source = "the two rounds by normal approximation; Pla et al., arXiv 2410.09506"
        return ErrorBound(SQUARED_L2, float(total), exact=False, source=source)

    def _mse(self, means: Floats, n_users: int, centre: float, truth: float) -> float:
        """Mean squared error of the reports in one interval, the means being a sample of all."""
        h = self.half_width
        x = np.where(np.isnan(means), 0.0, np.clip((means - centre) / h, -1.0, 1.0))
        n = n_users * (1 - HALF if self.n_bins > 1 else 1.0)
        noise = 0.0 if math.isinf(self.epsilon) else 4 * scalar_channel("laplace", self.epsilon).v
        drawn = float(x.var()) * (1 - n / n_users)
        bias = centre + h * float(x.mean()) - truth
        return h**2 * (noise + drawn) / max(n, 1.0) + bias * bias  # ** 2 raises where it overflows

    def _chances(self, votes: Integers) -> Floats:
        """Probability that each bin wins: (k,), from true votes (k + 1,)."""
        query, k, n_users = self.vote, self.n_bins, int(votes.sum())
        share = (votes[:k] + votes[k] / k) / max(n_users, 1)
        n = max(n_users * HALF, 1.0)
        if math.isinf(self.epsilon):
            channel_noise = share * (1 - share)
        else:
            channel_noise = query.channel.variance(share) + share * (1 - share) * (1 - HALF)
        sd = np.sqrt(np.maximum(channel_noise, 1e-12) / n)
        near = np.flatnonzero(share + 6 * sd > (share - 6 * sd).max())
        z = np.linspace(-8, 8, NODES)
        x = share[near, None] + sd[near, None] * z
        below = np.zeros_like(x)
        for other in near:
            log_cdf = np.log(np.maximum(ndtr((x - share[other]) / sd[other]), 1e-300))
            below += np.where((near == other)[:, None], 0.0, log_cdf)
        weight = np.exp(-np.square(z) / 2)
        win = (np.exp(below) * weight).sum(axis=1)
        out = np.zeros(k)
        out[near] = win / win.sum()
        return out

    @classmethod
    def example(cls) -> Self:
        """Build a small instance with two rounds."""
        return cls(epsilon=2.0, n_users=600, samples_per_user=49.0, least_samples=49)

    @classmethod
    def example_users(cls) -> Users:
        """Make users of the same mean, .25, on samples +-1, of 64 or of 8 samples."""
        n = 600
        sizes = np.where(np.arange(n) % 4 == 0, 8, 64)
        indptr = np.concatenate(([0], np.cumsum(sizes)))
        at = np.arange(indptr[-1]) - np.repeat(indptr[:-1], sizes)
        values = np.where(at < np.repeat(sizes * 5 // 8, sizes), 1.0, -1.0)
        return Users.from_samples(user_ids(Keys.range(n)), indptr, values)
