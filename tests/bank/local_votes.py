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


PROTOCOLS = tuple(
    LocalBank.of(made, name)
    for made, name in (
        (OneVote, "bank-ok-one-vote"),
        (ThreeVotes, "bank-ok-three-votes"),
        (Sign, "bank-ok-sign"),
        (WholeBudgetPerBit, "bank-whole-budget-per-bit"),
        (ThreeVotesOfOne, "bank-three-votes-of-one"),
        (SilentThree, "bank-silent-three"),
        (CoarseThreshold, "bank-coarse-threshold"),
    )
)
