"""Histogram over a public domain without a trusted server: padding and sampling [1]_ [2]_.

Each user puts its items into L slots, reports one slot, drawn uniformly, through a frequency
oracle, and the server scales up by L. Both papers do so for sets; here a record may hold an item
several times, and so fill several slots with it.

References
----------
.. [1] Qin, Yang, Yu, Khalil, Xiao & Ren, "Heavy hitter estimation over set-valued data with local
   differential privacy", CCS 2016 (LDPMiner).
.. [2] Wang, Li & Jha, "Locally differentially private frequent itemset mining", IEEE S&P 2018 (the
   padding-and-sampling-based frequency oracle).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, get_args

import numpy as np

from clients.records.draws import padded_symbols
from fedhist.base.arrays import Array, Words
from fedhist.base.checks import check_integer
from fedhist.channels.oracles import MAX_MESSAGE_BITS
from fedhist.model.error_bounds import ErrorBound
from fedhist.model.losses import L1
from fedhist.model.protocol import Estimate
from fedhist.model.registry import register_protocol, register_query
from fedhist.privacy.guarantee import check_budget
from fedhist.privacy.shuffler import Shuffling
from fedhist.protocols.frequency_oracles.frequency_oracle import (
    MOST_BITS,
    AnyKind,
    Kind,
    OracleReports,
    chosen_kind,
)
from fedhist.protocols.frequency_oracles.hadamard_response import HadamardIndices
from fedhist.protocols.frequency_oracles.oracle import OneVote, OracleQuery
from fedhist.protocols.frequency_oracles.unary_encoding import UnaryVotes
from fedhist.protocols.shared.clipped_totals import own_shares
from fedhist.protocols.shared.domains import check_domain, with_domain
from fedhist.protocols.shared.histogram_target import DomainHistogram
from fedhist.protocols.shared.noninteractive_error import slot_l1
from fedhist.protocols.shared.seen import Seen
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from fedhist.users.shards import Shard

MOST_SLOTS = 1 << 30


@dataclass(frozen=True)
class SlotQuery(OracleQuery):
    """A local query about one of ``padding`` slots of each user.

    Parameters
    ----------
    padding : int
        L: slots of a user. Of more items a uniform subset is taken; fewer leave slots empty.

    Privacy
    -------
    epsilon-LDP for a user's whole record. The report is a function of the one slot, and its law a
    mixture of those of the oracle's votes, whose likelihood ratios are no larger than these votes'
    own. Drawing one slot of L buys nothing on top: all of them may hold the same item.
    """

    n_words: ClassVar[int] = 2
    padding: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("padding", self.padding, MOST_SLOTS)

    def drawn(self, users: Users, words: Words) -> Array:
        """Draw what lies in a slot of every user: (n,) int64, -1 if it is empty."""
        return padded_symbols(users.counts, self.domain, self.padding, words)


@register_query
@dataclass(frozen=True)
class UnarySlots(SlotQuery, UnaryVotes):
    """Each user reports one of its slots as k noisy bits."""

    wire_name: ClassVar[str] = "unary-slots"


@register_query
@dataclass(frozen=True)
class HadamardSlots(SlotQuery, HadamardIndices):
    """Each user reports one of its slots as one index."""

    wire_name: ClassVar[str] = "hadamard-slots"


@register_query
@dataclass(frozen=True)
class OracleSlots(SlotQuery, OracleReports):
    """Each user reports one of its slots through an oracle that is named."""

    wire_name: ClassVar[str] = "oracle-slots"


@register_protocol
@dataclass(frozen=True)
class LocalHistogram(DomainHistogram, OneVote):
    """Total count of every item of a public domain, under local privacy, by padding and sampling.

    Each user puts its items into ``clip`` slots, one each; of more items it takes a uniform subset.
    It draws one slot, and reports what lies in it through a frequency oracle.

    Parameters
    ----------
    domain : Keys
        Public items, at most 2^22; 2^16 for "unary" and "subset". Others are dropped first.
    epsilon : float
        Budget of each user; inf switches noise off.
    clip : int
        L, in counts: slots of a user. Public: choose it without the data. A user with more items
        counts as L of them, in its own proportions.
    oracle : {"auto", "krr", "hadamard", "projective", "subset", "unary"}
        How a slot is reported, see ``frequency-oracle``. auto: the least variance, but of oracles
        within 3 percent of it the one of shortest messages, at most 4,096 bits.
    nonneg : bool
        Raise negative totals to zero; never increases the l1 error.
    trust : Shuffling, optional
        Shuffle trust: the promise to whoever sees what an honest shuffler passes on. ``epsilon``
        is then the users' own, see :class:`~fedhist.protocols.shared.shuffles.Shuffles`.

    Privacy
    -------
    epsilon-LDP for a user's whole record, in one round; exact as drawn. A user without items, or
    one whose slot is empty, votes for nothing through the same oracle. That one slot of L is drawn
    buys nothing on top: all of them may hold the same item.

    Error
    -----
    Unbiased for the counts clipped to L. The standard deviation of every total is about
    L sqrt(n) / sinh(epsilon / 2), with "hadamard" L sqrt(n) coth(epsilon / 2): sqrt(n) times what a
    trusted server needs, and L times what one item of a user costs.

    Examples
    --------
    >>> LocalHistogram(Keys.of(["tea", "rye"]), epsilon=1.0, clip=4).query.padding
    4
    """

    name: ClassVar[str] = "local-histogram"
    paper: ClassVar[str] = "Qin et al., CCS 2016; Wang, Li & Jha, IEEE S&P 2018"

    domain: Keys
    epsilon: float
    clip: int
    report_kinds: ClassVar[tuple[str, tuple[str, ...]]] = ("oracle", get_args(Kind))
    oracle: AnyKind = "auto"
    nonneg: bool = True
    trust: Shuffling | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_budget(self.epsilon)
        check_domain(self.domain)
        check_integer("clip", self.clip, MOST_SLOTS)
        _ = self.query
        self.check_trust()

    @property
    def query(self) -> SlotQuery:
        """The one question."""
        epsilon, domain, slots = float(self.epsilon), self.domain, self.clip
        if self.oracle == "unary":
            return UnarySlots(domain, epsilon, padding=slots)
        if self.oracle == "hadamard":
            return HadamardSlots(domain, epsilon, padding=slots)
        most = MAX_MESSAGE_BITS if self.oracle == "auto" else MOST_BITS + 1
        kind = chosen_kind(self.oracle, epsilon, len(domain), most)
        return OracleSlots(domain, epsilon, padding=slots, kind=kind)

    def conclude(self, shares: Array, stderr: Array, n_users: int) -> Estimate:
        """Scale up by the slots of all users."""
        slots = float(n_users * self.clip)
        return Estimate.ok(
            slots * (np.maximum(shares, 0.0) if self.nonneg else shares),
            stderr=slots * stderr,
            keys=self.domain,
            public={"clip": float(self.clip), "n_report": float(n_users)},
        )

    def sums(self, users: Users) -> dict[str, Array]:
        """Add up counts, chances of a slot's items, and their squares. NOT PRIVATE."""
        whole, first, second, _ = own_shares(users, self.domain, float(self.clip))
        return {"whole": whole, "first": first, "second": second}

    def error_of(self, seen: Seen) -> ErrorBound:
        """Predict the l1 error: noise, the draw, and clipping. NOT PRIVATE.

        Mean and variance of every total are exact, and its law is taken as normal.
        """
        sums = seen.truth, seen["first"], seen["second"]
        n, slots = seen.total.n_users, self.clip
        expected = slot_l1(self.query.noise, n, sums, slots, self.nonneg)
        source = f"{self.paper}; exact means and variances, normal approximation"
        return ErrorBound(L1, expected, exact=False, source=source)

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Fill the domain; a clip written as 80.0 is 80."""
        out, clip = with_domain(parameters, domain), parameters.get("clip")
        if isinstance(clip, float) and clip.is_integer():
            out["clip"] = int(clip)
        return cls.planned(out, users), []

    @classmethod
    def example(cls) -> Self:
        """Build a small instance."""
        return cls(Keys.of([f"item-{j:02d}" for j in range(11)]), epsilon=2.0, clip=3)

    @classmethod
    def example_users(cls) -> Users:
        """Make users who hold one item each, three times: every slot is filled."""
        n, rng = 300, np.random.default_rng(15)
        weights = 1 / np.arange(1, 12)
        item = rng.choice(11, size=n, p=weights / weights.sum())
        ids = user_ids(Keys.range(n))
        return Users.from_counts(ids, np.arange(n), item, np.full(n, 3), cls.example().domain)
