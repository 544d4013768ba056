"""Optimized unary encoding of one item per user [1]_.

References
----------
.. [1] Wang, Blocki, Li & Jha, "Locally differentially private protocols for frequency estimation",
   USENIX Security 2017, Section 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedhist.model.registry import register_protocol, register_query
from fedhist.protocols.frequency_oracles.oracle import OneItemOracle, OracleQuery


@register_query
@dataclass(frozen=True)
class UnaryVotes(OracleQuery):
    """Each user reports one of its items as k noisy bits.

    Its channel is :class:`~fedhist.channels.catalogue.OptimalUnaryChannel`; see the base class.
    """

    wire_name: ClassVar[str] = "unary-encoding"
    sent: ClassVar[str] = "bits"
    kind: ClassVar[str] = "unary"


@register_protocol
@dataclass(frozen=True)
class UnaryEncoding(OneItemOracle):
    """Distribution of one item per user, by optimized unary encoding: local privacy, k bits.

    Each user draws one of its items and reports k bits, where its own symbol's bit is a fair coin
    and every other bit is one with probability 1 / (e^epsilon + 1).

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    domain : Keys
        Public symbols, at most 2^16; other items are dropped before one is drawn.
    project : bool
        Project the estimate onto the simplex, which is free. It suits populations where every user
        has an item of the domain.
    trust : Shuffling, optional
        Shuffle trust: the promise to whoever sees what an honest shuffler passes on. ``epsilon``
        is then the users' own, see :class:`~fedhist.protocols.shared.shuffles.Shuffles`.

    Privacy
    -------
    epsilon-LDP for a user's whole record, in one round; exact as drawn. A user without items sends
    the zero vector through the same flips.

    Error
    -----
    k / (n sinh^2(epsilon / 2)) and less than 2 / n in squared l2 distance, whatever number of
    items the users hold.

    Examples
    --------
    >>> from fedhist import Keys
    >>> UnaryEncoding(epsilon=1.0, domain=Keys.of(["tea", "rye"])).max_rounds
    1
    """

    name: ClassVar[str] = "unary-encoding"
    paper: ClassVar[str] = "Wang, Blocki, Li & Jha, USENIX Security 2017, Section 4.3"

    @property
    def query(self) -> UnaryVotes:
        """The one question."""
        return UnaryVotes(self.domain, float(self.epsilon))
