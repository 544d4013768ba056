"""The query of variable selection: one number per user that tells where its mean is not 0.

References
----------
.. [1] Kent, Berrett & Yu, "Rate optimality and phase transition for user-level local
   differential privacy", arXiv 2405.11923, Section 4.1.1, eq. (39)-(41).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from clients.randomizers.scalars import randomize
from clients.records.functionals import samples_of
from clients.records.user_rows import clipped_points
from fedhist.base.arrays import ROUNDING, Bounds, Floats, Integers, offsets
from fedhist.base.checks import check_choice, check_count, check_scale, check_size, check_within
from fedhist.base.hashing import counter_words, digest64
from fedhist.channels.scalar import ScalarChannel, scalar_channel, scalar_law
from fedhist.channels.sign_hashes import RademacherSigns
from fedhist.model.finite import FiniteChannel
from fedhist.model.query import LocalQuery, Report, Summary, only_array
from fedhist.model.registry import register_query
from fedhist.users.batch import Users
from fedhist.users.cohort import MAX_FOLDS, Cohort
from fedhist.users.keys import keyed_hash
from fedhist.users.streams import Streams


@register_query
@dataclass(frozen=True)
class HashedVotes(LocalQuery):
    """Each user votes for the coordinates of its mean that are far from 0, hashed to one number.

    With V_i the votes of user i and v_ij its public signs it reports S_i = sum of v_ij over V_i,
    through a channel; the server multiplies by v_ij again. A signed vote counts v_ij times the sign
    of the mean: votes of noise then cancel, and of coordinates whose users are on both sides. The
    paper's tell no sign. ``vote`` is "sign", of S (of 0: a fair coin) by randomized response, or
    "laplace", S clipped to [-reach, reach] with Laplace noise, as the paper does [1].

    Privacy
    -------
    epsilon-LDP for a user's whole record, whatever its votes are and whatever the signs: the
    record enters through one scalar of [-1, 1], the sign of S or S / reach clipped, and the
    channel is epsilon-LDP for any two of those. The cap on the votes is for accuracy only. The
    signs are a function of public numbers. A record that cannot be used has no votes: S = 0.
    """

    wire_name: ClassVar[str] = "hashed-votes"
    exact = True
    dimension: int
    radius: float  # every coordinate of a sample is clipped to [-radius, radius]
    threshold: float  # a mean at least so far from 0 gets a vote
    max_votes: int  # of a user: the farthest means; a public hash breaks ties
    epsilon: float
    vote: str = "sign"
    reach: float = 1.0
    hash_salt: int = 0
    cohort: Cohort | None = None
    max_items: int = 0  # use only a user's first so many samples; 0 for all
    signed: bool = False

    def __post_init__(self) -> None:
        check_scale("radius", self.radius)
        check_within("dimension", self.dimension, 1, MAX_FOLDS)
        check_size("threshold", self.threshold)
        check_count("max_votes", self.max_votes)
        check_choice("vote", self.vote, ("sign", "laplace"))
        check_size("reach", self.reach)
        check_within("hash_salt", self.hash_salt, 0, 1 << 63, "[)")
        check_within("max_items", self.max_items, 0, math.inf, "[)")
        _ = self.signs, self.channel

    @property
    def channel(self) -> ScalarChannel:
        """What happens to the number: for a sign the channel of one bit."""
        return vote_channel(self.vote, self.epsilon)

    @property
    def signs(self) -> RademacherSigns:
        """The public signs."""
        return RademacherSigns(self.dimension, self.hash_salt)

    def finite_channel(self) -> FiniteChannel | None:
        return scalar_law(self.channel)

    # -- client half

    def answer(self, users: Users, rng: Streams) -> Report:
        u = self.scalars(self.signs.vote_sums(users.ids, *self.votes(users)))
        return Report(users.ids, {"reports": randomize(u, self.channel, rng)})

    def votes(self, users: Users) -> tuple[Integers, Integers]:
        """Find each user's columns j, or ~j for a mean below 0 of signed votes, in CSR form.

        Bounds (n + 1,) and columns, increasing within a user; none for a user without samples or
        with a NaN among them. Means are equally far if they are in multiples of radius / 2^32: 1/6
        and -1/6 as they are rounded are not.
        """
        radius, most = float(self.radius), self.max_votes
        samples = samples_of(users, self.dimension)
        means = clipped_points(samples, -radius, radius, self.max_items)
        size = np.abs(means)
        far = (size >= self.threshold) & ~np.isnan(means).any(axis=1, keepdims=True)
        many = np.flatnonzero(np.count_nonzero(far, axis=1) > most)
        if len(many):
            # no word of the signs: a user's sum would depend on how its ties were broken
            keys = keyed_hash(users.ids[many], digest64("fedhist.ties", self.hash_salt))
            steps = np.rint(size[many] * (2.0**32 / radius)).astype(np.uint64)
            ties = counter_words(keys, self.dimension) >> np.uint64(33)  # the least comes first
            rank = np.where(far[many], steps << np.uint64(31) | (ties ^ np.uint64(2**31 - 1)), 0)
            least = np.partition(rank, -most, axis=1)[:, -most]
            far[many] &= rank >= least[:, None]
        user, column = np.nonzero(far)
        if self.signed:
            column = np.where(means[user, column] < 0, ~column, column)
        return offsets(np.count_nonzero(far, axis=1)), column

    def scalars(self, sums: Integers) -> Floats:
        """Turn sums of signs into what the channel takes: (n,) float64 in [-1, 1]."""
        if self.vote == "sign":
            return np.sign(sums).astype(np.float64)
        with np.errstate(over="ignore"):  # of a reach near 0: which users it warns of is private
            return np.clip(sums / self.reach, -1.0, 1.0)

    # -- server half

    def fold(self, report: Report) -> Summary:
        return Summary(
            report.n_users, {"scores": self.signs.fold(report.ids, report.arrays["reports"])}
        )

    def check(self, report: Report) -> None:
        self.channel.check("reports", only_array(report, "reports"), report.n_users)

    def bounds(self, n_users: int) -> Mapping[str, Bounds]:
        kind = self.channel.sum_dtype.kind
        most = n_users * self.channel.bound * (ROUNDING if kind == "f" else 1) if n_users else 0.0
        return {"scores": Bounds((self.dimension,), kind, -most, most)}

    def scores(self, summary: Summary) -> Floats:
        """Average v_ij z_i over the users who answered: (d,) float64, in units of a report."""
        return summary.sums["scores"] / max(summary.n_users, 1)


def vote_channel(vote: str, epsilon: float) -> ScalarChannel:
    """Return the channel of a vote: of one bit for signs."""
    return scalar_channel("onebit" if vote == "sign" else "laplace", epsilon)
