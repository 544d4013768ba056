"""The distribution of one item per user through the best known frequency oracle.

References
----------
.. [1] Kairouz, Bonawitz & Ramage, "Discrete distribution estimation under local privacy",
   ICML 2016.
.. [2] Acharya, Sun & Zhang, "Hadamard response: estimating distributions privately, efficiently,
   and with little communication", AISTATS 2019.
.. [3] Feldman, Nelson, Nguyen & Talwar, "Private frequency estimation via projective geometry",
   ICML 2022.
.. [4] Ye & Barg, "Optimal schemes for discrete distribution estimation under locally differential
   privacy", IEEE Transactions on Information Theory, 2018.
.. [5] Wang, Blocki, Li & Jha, "Locally differentially private protocols for frequency estimation",
   USENIX Security 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

from fedhist.base.checks import check_choice, check_integer
from fedhist.channels.oracles import MAX_MESSAGE_BITS, oracle_channel
from fedhist.model.registry import register_protocol, register_query
from fedhist.protocols.frequency_oracles.oracle import OneItemOracle, OracleQuery

Kind = Literal["krr", "hadamard", "projective", "subset", "unary"]
AnyKind = Literal["auto", Kind]
MOST_BITS = 1 << 16


@register_query
@dataclass(frozen=True)
class OracleReports(OracleQuery):
    """Each user reports one of its items through an oracle that is named.

    Parameters
    ----------
    kind : {"krr", "hadamard", "projective", "subset", "unary"}
        See :mod:`fedhist.channels.oracles`; what else the law depends on follows from epsilon and
        the size of the domain.
    """

    wire_name: ClassVar[str] = "frequency-oracle"
    sent: ClassVar[str] = "report"
    kind: Kind = "krr"

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, get_args(Kind))
        super().__post_init__()


def chosen_kind(kind: AnyKind, epsilon: float, n_symbols: int, max_bits: int) -> Kind:
    """Say what "auto" takes; from public numbers only.

    Raises
    ------
    ValueError
        If the kind is not known, or its messages are longer than max_bits.
    """
    check_choice("kind", kind, get_args(AnyKind))
    channel = oracle_channel(kind, epsilon, n_symbols, max_bits=max_bits)
    if channel.bits > max_bits:
        raise ValueError(
            f"max_message_bits must be at least {channel.bits} for kind = {kind!r} and "
            f"{n_symbols} symbols, got {max_bits}"
        )
    found: Kind = channel.kind if kind == "auto" else kind  # type: ignore[assignment]
    return found


@register_protocol
@dataclass(frozen=True)
class FrequencyOracle(OneItemOracle):
    """Distribution of one item per user, by the best known oracle: local privacy, short messages.

    Each user draws one of its items and reports it so that its own messages are e^epsilon times
    likelier than others; the server counts, for every symbol, the reports among its messages.

    Parameters
    ----------
    epsilon : float
        Budget of each user; inf switches noise off.
    domain : Keys
        Public symbols; other items are dropped before one is drawn. At most 2^22 (krr: 2^30 - 1,
        subset and unary: 2^16).
    project : bool
        Project the estimate onto the simplex, which is free. It suits populations where every user
        has an item of the domain.
    kind : {"auto", "krr", "hadamard", "projective", "subset", "unary"}
        krr: the symbol or any other [1]. hadamard: an index [2]. projective: a point of a
        projective space over a prime field [3]. subset: w of the symbols [4]. unary: a bit for
        each [5]. auto: the least variance, but of kinds within 3 percent of it the shortest
        messages.
    max_message_bits : int
        Longest message of a user.
    trust : Shuffling, optional
        Shuffle trust: the promise to whoever sees what an honest shuffler passes on. ``epsilon``
        is then the users' own, see :class:`~fedhist.protocols.shared.shuffles.Shuffles`.

    Privacy
    -------
    epsilon-LDP for a user's whole record, in one round; exact as drawn. A user without items
    reports the null symbol like any other (unary: no bit is set before the flips).

    Error
    -----
    With p and q the probabilities that a report is among the messages of its own and of another
    symbol: [p (1 - p) + (k - 1) q (1 - q)] / (n (p - q)^2) in squared l2 distance for users of one
    item each, at best about 4 k e^epsilon / (n (e^epsilon - 1)^2), whatever number of items the
    users hold.

    Examples
    --------
    >>> from fedhist import Keys
    >>> domain = Keys.of([f"w{j}" for j in range(500)])
    >>> [FrequencyOracle(epsilon, domain).query.kind for epsilon in (1.0, 8.0)]
    ['projective', 'krr']
    """

    name: ClassVar[str] = "frequency-oracle"
    paper: ClassVar[str] = "Feldman, Nelson, Nguyen & Talwar, ICML 2022; Ye & Barg, IEEE T-IT 2018"

    report_kinds: ClassVar[tuple[str, tuple[str, ...]]] = ("kind", get_args(Kind))

    kind: AnyKind = "auto"
    max_message_bits: int = MAX_MESSAGE_BITS

    def __post_init__(self) -> None:
        check_integer("max_message_bits", self.max_message_bits, MOST_BITS + 1)
        super().__post_init__()

    @property
    def query(self) -> OracleReports:
        """The one question."""
        epsilon = float(self.epsilon)
        kind = chosen_kind(self.kind, epsilon, len(self.domain), self.max_message_bits)
        return OracleReports(self.domain, epsilon, kind=kind)
