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
from fedhist.protocols.frequency_oracles.oracle import OneVote
from fedhist.protocols.shared.clipped_totals import own_shares
from fedhist.protocols.shared.domains import check_domain, with_domain
from fedhist.protocols.shared.histogram_target import DomainHistogram
from fedhist.users.batch import Users
from fedhist.users.keys import Keys, user_ids
from fedhist.users.shards import Shard

MOST_SLOTS = 1 << 30


@register_query
@dataclass(frozen=True)
class OracleSlots(OracleReports):
    """Each user reports one of its ``padding`` slots through an oracle that is named.

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

    wire_name: ClassVar[str] = "oracle-slots"
    n_words: ClassVar[int] = 2
    padding: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_integer("padding", self.padding, MOST_SLOTS)

    def drawn(self, users: Users, words: Words) -> Array:
        """Draw what lies in a slot of every user: (n,) int64, -1 if it is empty."""
        return padded_symbols(users.counts, self.domain, self.padding, words)


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
    def query(self) -> OracleSlots:
        """The one question."""
        most = MAX_MESSAGE_BITS if self.oracle == "auto" else MOST_BITS + 1
        kind = chosen_kind(self.oracle, float(self.epsilon), len(self.domain), most)
        return OracleSlots(self.domain, float(self.epsilon), padding=self.clip, kind=kind)

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
        """Add up the users' counts. NOT PRIVATE."""
        return {"whole": own_shares(users, self.domain, float(self.clip))[0]}

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
