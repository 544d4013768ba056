"""Hadamard response of one item per user [1]_.

References
----------
.. [1] Acharya, Sun & Zhang, "Hadamard response: estimating distributions privately, efficiently,
   and with little communication", AISTATS 2019, Section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fedhist.model.registry import register_protocol, register_query
from fedhist.protocols.frequency_oracles.oracle import OneItemOracle, OracleQuery


@register_query
@dataclass(frozen=True)
class HadamardIndices(OracleQuery):
    """Each user reports one of its items as one index.

    Its channel is :class:`~fedhist.channels.oracles.HadamardOracle`; see the base class.
    """

    wire_name: ClassVar[str] = "hadamard-response"
    sent: ClassVar[str] = "index"
    kind: ClassVar[str] = "hadamard"


@register_protocol
@dataclass(frozen=True)
class HadamardResponse(OneItemOracle):
    """Distribution of one item per user, by Hadamard response: local privacy, log2 K bits.

    Each user draws one of its items and reports an index below K, the power of two above k + 1,
    that is in its symbol's half with probability e^epsilon / (e^epsilon + 1). The server takes one
    fast Hadamard transform.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    domain : Keys
        Public symbols, at most 2^24 - 2; other items are dropped before one is drawn.
    project : bool
        Project the estimate onto the simplex, which is free. It suits populations where every user
        has an item of the domain.
    trust : Shuffling, optional
        Shuffle trust: the promise to whoever sees what an honest shuffler passes on. ``epsilon``
        is then the users' own, see :class:`~fedhist.protocols.shared.shuffles.Shuffles`.

    Privacy
    -------
    epsilon-LDP for a user's whole record, in one round; exact as drawn. A user without items
    reports one more symbol.

    Error
    -----
    Less than k coth^2(epsilon / 2) / n in squared l2 distance, whatever number of items the users
    hold: k / n more than unary encoding, less 2 / n, and shorter messages.

    Examples
    --------
    >>> from fedhist import Keys
    >>> HadamardResponse(epsilon=1.0, domain=Keys.of(["tea", "rye"])).query.channel.bits
    3
    """

    name: ClassVar[str] = "hadamard-response"
    paper: ClassVar[str] = "Acharya, Sun & Zhang, AISTATS 2019, Section 4"

    @property
    def query(self) -> HadamardIndices:
        """The one question."""
        return HadamardIndices(self.domain, float(self.epsilon))
