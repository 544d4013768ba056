"""Local votes with broken randomizers or broken caps, and the correct ones beside them."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from bank_frame import LocalBank, LocalReport, means, query
from numpy.typing import NDArray

from clients.randomizers.scalars import bin_indices, neighbours, unary_votes
from fedhist import Streams, Users
from fedhist.base.arrays import Array
from fedhist.channels.bits import UnaryChannel, flip_probability, unary_law
from fedhist.model.finite import FiniteChannel
from fedhist.users.streams import integer_threshold

N_BINS = 8


def bins(users: Users) -> NDArray[np.int64]:
    """The bin of each user's mean; -1 for none."""
    return bin_indices(means(users), -1.0, 1.0, N_BINS)


@query("bank-one-vote")
class OneVote(LocalReport):
    """Correct: one bit set, kept with probability e^(epsilon/2) / (1 + e^(epsilon/2))."""

    per_bit: ClassVar[float] = 0.5

    @property
    def channel(self) -> UnaryChannel:
        """The law: ``per_bit`` epsilon for each bit."""
        return UnaryChannel(2 * self.per_bit * self.epsilon)

    def reports(self, users: Users, rng: Streams) -> Array:
        """Vote."""
        return unary_votes(bins(users), N_BINS, self.channel, rng)

    def finite_channel(self) -> FiniteChannel | None:
        """The law."""
        return unary_law(self.channel, N_BINS)


@query("bank-whole-budget-per-bit")
class WholeBudgetPerBit(OneVote):
    """Keeps each bit with e^epsilon / (1 + e^epsilon); but two votes differ in two bits."""

    per_bit: ClassVar[float] = 1.0


@query("bank-three-votes")
class ThreeVotes(LocalReport):
    """Correct: a vote for the bin and its neighbours, each bit with epsilon / 6."""

    @property
    def channel(self) -> UnaryChannel:
        """The law."""
        return UnaryChannel(self.epsilon, 3)

    def reports(self, users: Users, rng: Streams) -> Array:
        """Vote for up to three bins."""
        return unary_votes(neighbours(bins(users), N_BINS), N_BINS, self.channel, rng)


@query("bank-three-votes-of-one")
class ThreeVotesOfOne(ThreeVotes):
    """The keep-probability for s = 1, used with s = 3; and its law says so."""

    @property
    def channel(self) -> UnaryChannel:
        """Each bit with epsilon / 2."""
        return UnaryChannel(3 * self.epsilon, 3)

    def finite_channel(self) -> FiniteChannel | None:
        """The law."""
        return unary_law(self.channel, N_BINS)


@query("bank-silent-three")
class SilentThree(ThreeVotesOfOne):
    """The same, but the law that it shows is the one for s = 1."""

    def finite_channel(self) -> FiniteChannel | None:
        """Another channel's law."""
        return unary_law(UnaryChannel(self.epsilon), N_BINS)


@query("bank-uncapped-votes")
class Uncapped(LocalReport):
    """Votes for the bin of every sample with the keep-probability for s = 1: no cap on the ones."""

    def reports(self, users: Users, rng: Streams) -> Array:
        """Set all bins that some sample is in."""
        s, n = users.reals, len(users)
        held = np.full((n, N_BINS), -1, dtype=np.int64)
        owner = np.repeat(np.arange(n), np.diff(s.indptr))
        which = bin_indices(s.values[:, 0], -1.0, 1.0, N_BINS)
        usable = which >= 0
        held[owner[usable], which[usable]] = which[usable]
        # so many bits at epsilon / 2 each
        return unary_votes(held, N_BINS, UnaryChannel(N_BINS * self.epsilon, N_BINS), rng)


@query("bank-silent-empty")
class SilentEmpty(LocalReport):
    """A user without usable samples sends no vote at all, unflipped."""

    def reports(self, users: Users, rng: Streams) -> Array:
        """Vote, but for the empty."""
        b = bins(users)
        votes = unary_votes(b, N_BINS, UnaryChannel(self.epsilon), rng)
        return np.where(b[:, None] >= 0, votes, np.uint64(0))


@query("bank-sign")
class Sign(LocalReport):
    """Correct: the sign of the mean by randomized response; none is +1."""

    def threshold(self) -> int:
        """Chance of a lie, times 2^64: rounded towards one half."""
        return int(integer_threshold(flip_probability(self.epsilon)))

    def reports(self, users: Users, rng: Streams) -> Array:
        """Report."""
        lie = rng.substream("lie").words(1)[:, 0] < np.uint64(self.threshold())
        return np.where((means(users) < 0) ^ lie, -1, 1).astype(np.int8)

    def finite_channel(self) -> FiniteChannel | None:
        """Two answers."""
        t = self.threshold()
        keep = (1 << 64) - t
        return FiniteChannel.of(np.array([[keep, t], [t, keep]], dtype=object), ("+", "-"))


@query("bank-coarse-threshold")
class CoarseThreshold(Sign):
    """The chance of a lie in 16 bits, rounded down: the odds pass e^epsilon by 1 part in 10^5."""

    def threshold(self) -> int:
        """Round away from one half."""
        return math.floor(2.0**16 / (1 + math.exp(self.epsilon))) << 48


@query("bank-sign-of-zero")
class SignOfZero(Sign):
    """A mean of exactly zero, or none, is reported as 0, and nothing is drawn."""

    def reports(self, users: Users, rng: Streams) -> Array:
        """Report."""
        u = np.nan_to_num(means(users))
        return np.where(u == 0, np.int8(0), super().reports(users, rng))

    def finite_channel(self) -> FiniteChannel | None:
        """Not given."""
        return None


@query("bank-direct")
class Direct(LocalReport):
    """Correct: k-ary randomized response, the truth with probability e^eps / (e^eps + k - 1)."""

    others: ClassVar[int] = N_BINS - 1

    @property
    def weights(self) -> tuple[int, int]:
        """Chances of the truth and of each other symbol, in an integer unit: ratio <= e^eps."""
        return math.floor(1000 * math.exp(self.epsilon) / (N_BINS - 1) * self.others), 1000

    def reports(self, users: Users, rng: Streams) -> Array:
        """Draw a number below the sum; it falls on the truth or on another symbol."""
        truth, other = self.weights
        total = truth + (N_BINS - 1) * other
        b = np.maximum(bins(users), 0)
        z = (rng.substream("direct").words(1)[:, 0] % np.uint64(total)).astype(np.int64)
        shift = np.where(z < truth, 0, 1 + (z - truth) // other)
        return (b + shift) % N_BINS

    def finite_channel(self) -> FiniteChannel | None:
        """The law."""
        truth, other = self.weights
        law = np.full((N_BINS, N_BINS), other) + np.diag([truth - other] * N_BINS)
        return FiniteChannel.of(law, [f"bin {j}" for j in range(N_BINS)])


@query("bank-binary-keep")
class BinaryKeep(Direct):
    """The truth with the binary e^eps / (e^eps + 1) among k symbols: each lie is k - 1 rarer."""

    @property
    def weights(self) -> tuple[int, int]:
        """Odds e^eps against all other symbols together."""
        return math.floor(1000 * math.exp(self.epsilon) * (N_BINS - 1)), 1000


PROTOCOLS = tuple(
    LocalBank.of(made, name)
    for made, name in (
        (OneVote, "bank-ok-one-vote"),
        (ThreeVotes, "bank-ok-three-votes"),
        (Sign, "bank-ok-sign"),
        (Direct, "bank-ok-direct"),
        (WholeBudgetPerBit, "bank-whole-budget-per-bit"),
        (ThreeVotesOfOne, "bank-three-votes-of-one"),
        (SilentThree, "bank-silent-three"),
        (Uncapped, "bank-uncapped-votes"),
        (SilentEmpty, "bank-silent-empty"),
        (CoarseThreshold, "bank-coarse-threshold"),
        (SignOfZero, "bank-sign-of-zero"),
        (BinaryKeep, "bank-binary-keep"),
    )
)
