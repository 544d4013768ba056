"""Levels of trust: the noise of the server, of nodes, and of a shuffler.

Protocols that trust the server share their guarantee, aggregate trust and the noise on totals;
scripts of local protocols run under shuffle trust as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from fedhist.base.arrays import Array
from fedhist.model.aggregated import Aggregated, Share
from fedhist.model.protocol import Protocol
from fedhist.model.query import LocalQuery, Query
from fedhist.model.shuffled import Shuffled
from fedhist.privacy.guarantee import Adjacency, Guarantee, Moves, Trust
from fedhist.privacy.noise_law import NoiseLaw
from fedhist.privacy.shares import Aggregation, modulus_bits
from fedhist.privacy.shuffling import Hiding, Shuffler, Shuffling, calibrate, shuffled_delta
from fedhist.users.keys import Keys
from fedhist.users.shards import Shard
from server.session.curator import Curator


class Aggregating(Protocol):
    """A protocol that can run under aggregate trust; its dataclass has the field ``trust``."""

    trust: Aggregation | None = None

    def promise(
        self, epsilon: float, delta: float, adjacency: Adjacency, unit: str = "user"
    ) -> Guarantee:
        """State a guarantee under the trust that is configured."""
        if self.trust is None:
            return Guarantee(epsilon, delta, Trust.CENTRAL, adjacency, unit)
        return Guarantee(epsilon, delta, Trust.AGGREGATE, adjacency, unit, str(self.trust))

    def check_integers(self, discrete: bool) -> None:
        """Raise ValueError where nodes would have to add real values."""
        if self.trust is not None and not discrete:
            raise ValueError("under aggregate trust nodes add integers: set discrete = true")

    def asks(self, query: Query, round_index: int) -> Query:
        """Put the query into one for the nodes' shares, of the whole budget; see :meth:`shared`."""
        if self.trust is None:
            return query
        promised = self.guarantee
        return self.shared(query, promised.epsilon, promised.delta)

    def noise_of_shares(self, query: Query) -> NoiseLaw:
        """Law of the noise in the sums of a query where all parties answer, in the units sent."""
        asked = self.asks(query, 0)
        if not isinstance(asked, Aggregated):
            raise ValueError(f"{self.name} is not under aggregate trust")
        return asked.noise

    def shared(
        self,
        query: Query,
        epsilon: float,
        delta: float,
        *,
        rounds: int = 1,
        place: int = 0,
        series_salt: int = 0,
    ) -> Aggregated:
        """Put a query into one for shares of a budget: Laplace noise where delta is 0."""
        who, adjacency = self.trust, self.guarantee.adjacency
        if who is None:
            raise ValueError(f"{self.name} is not under aggregate trust")
        if adjacency is Adjacency.ADD_REMOVE_USER and not self.null_safe:
            raise ValueError(
                f"{self.name} uses the number of users, which nodes do not send under "
                f"{adjacency.value}: take another adjacency"
            )
        series = {"rounds": rounds, "place": place, "series_salt": series_salt}
        return by_shares(query, who, epsilon, delta, adjacency, **series)


def by_shares(
    query: Query,
    who: Aggregation,
    epsilon: float,
    delta: float,
    adjacency: Adjacency,
    **series: int,
) -> Aggregated:
    """Put a query into one for shares of a budget, with a modulus that has room for its sums."""
    share = Share(
        "gaussian" if delta else "laplace",
        float(epsilon),
        float(delta),
        adjacency.value,
        who.parties,
        who.tau_d,
        who.tau_c,
        who.max_users,
        **series,
    )
    widest = Aggregated(query, share)
    return replace(widest, share=replace(share, bits=modulus_bits(widest.most)))


class Central(Aggregating):
    """A protocol with the fields epsilon and delta; replacement is its adjacency unless it says."""

    epsilon: float
    delta: float
    adjacency: str = Adjacency.REPLACE_USER.value

    @property
    def guarantee(self) -> Guarantee:
        """(epsilon, delta) for a user under the declared adjacency, trusting the server."""
        return self.promise(self.epsilon, self.delta, Adjacency(self.adjacency))


def add_noise(
    server: Curator,
    totals: Array,
    sensitivity: float,
    epsilon: float,
    delta: float,
    *,
    discrete: bool,
    label: str = "",
    moves: Moves | None = None,
) -> Array:
    """Add Gaussian noise for an l2 sensitivity; where delta is 0 Laplace noise for an l1 one."""
    named = {"label": label} if label else {}
    if delta:
        gaussian = server.discrete_gaussian if discrete else server.gaussian
        return gaussian(
            totals, l2_sensitivity=sensitivity, epsilon=epsilon, delta=delta, moves=moves, **named
        )
    laplace = server.discrete_laplace if discrete else server.laplace
    return laplace(totals, l1_sensitivity=sensitivity, epsilon=epsilon, moves=moves, **named)


# -- shuffle trust ---------------------------------------------------------------------------------


P = TypeVar("P", bound="Shuffles")


class NotHidden(ValueError):
    """The users of a batch are too few to hide a report of the protocol's epsilon."""


@dataclass(frozen=True)
class Batch:
    """Users whose reports are shuffled together: each of ``folds`` folds of a ``share`` of all."""

    share: float
    folds: int
    hiding: Hiding | None

    @classmethod
    def of(cls, query: Query) -> Batch:
        """Return the batches of a query."""
        share = query.cohort.share if query.cohort is not None else 1.0
        if not isinstance(query, LocalQuery):
            return cls(share, 1, None)
        return cls(share, query.n_batches, query.hiding)


class Shuffles(Protocol):
    """A local protocol; with the field ``trust`` it can run under shuffle trust.

    ``epsilon`` then is the users' own, local one, epsilon_0; the promise to whoever trusts the
    shuffler is that of the field. One that asks for exact sums under aggregate trust may have that,
    too. ``unshuffled`` says why a protocol without the field cannot be
    shuffled; ``report_kinds`` names the field that chooses the report, and what "auto" chooses
    among, anew at a large epsilon_0.
    """

    epsilon: float
    trust: Shuffling | Aggregation | None = None
    unshuffled: ClassVar[str] = ""
    report_kinds: ClassVar[tuple[str, tuple[str, ...]]] = ("", ())

    @property
    def batches(self) -> Sequence[Batch]:
        """What is asked, and of how many users; from public numbers only."""
        raise ValueError(f"{self.name} cannot be shuffled: {self.unshuffled}")

    @property
    def report_risk(self) -> float:
        """Planned error, up to a factor that all kinds of reports share."""
        return 1.0

    def promise(self) -> Guarantee:
        """State the local guarantee, or that of sums, or of the multiset of an honest shuffler."""
        who = self.trust
        if isinstance(who, Aggregation):
            told = float(self.epsilon), 0.0, Trust.AGGREGATE, Adjacency.REPLACE_USER
            return Guarantee(*told, premise=str(who))
        if who is None or math.isinf(self.epsilon):
            return Guarantee(self.epsilon, 0.0, Trust.LOCAL, Adjacency.REPLACE_USER)
        least = sorted({who.least(b.share, b.folds) for b in self.batches})
        users = " or ".join(str(n) for n in dict.fromkeys((least[0], least[-1])))
        planned = ", as its plan says," if len(least) > 1 else ""
        premise = (
            f"the shuffler is honest and {users} users of each cohort{planned} report honestly and "
            f"in confidence; {self.epsilon:.4g}-DP against it"
        )
        told = float(who.epsilon), who.delta, Trust.SHUFFLE, Adjacency.REPLACE_USER
        return Guarantee(*told, premise=premise)

    def asks(self, query: Query, round_index: int) -> Query:
        """Put the query into one for the shuffler, with the size of its batches, or for shares."""
        who = self.trust
        if isinstance(who, Aggregation):
            return by_shares(query, who, self.epsilon, 0.0, Adjacency.REPLACE_USER)
        if who is None or math.isinf(self.epsilon):
            return query
        batch = Batch.of(query)
        return Shuffled(query, who.delta, who.least(batch.share, batch.folds), who.colluders)

    def check_trust(self) -> None:
        """Raise ValueError unless every batch hides its users."""
        who = self.trust
        if not isinstance(who, Shuffling) or math.isinf(self.epsilon):
            return
        for batch in self.batches:
            if batch.hiding is None:
                raise ValueError(f"{self.name}: a report that is read with its user's id names it")
            n = who.least(batch.share, batch.folds)
            delta = shuffled_delta(n, float(self.epsilon), float(who.epsilon), batch.hiding)
            if not delta <= who.delta:
                raise NotHidden(
                    f"{self.name}: {n} users of a batch do not hide a report of epsilon = "
                    f"{self.epsilon:g} to ({who.epsilon:g}, {who.delta:g}): that takes a delta of "
                    f"{delta:.2g}; Shuffling is for the epsilon that shuffled() finds"
                )

    @classmethod
    def shuffled(cls, trust: Shuffling, **given: Any) -> Self:
        """Build the protocol with the largest local epsilon that the target allows."""
        if not (is_dataclass(cls) and "trust" in {f.name for f in fields(cls)}):
            raise ValueError(f"{cls.name} cannot be shuffled: {cls.unshuffled}")
        name, kinds = cls.report_kinds
        free = name and given.get(name, "auto") == "auto"
        planned, reasons = [], []
        for chosen in [{name: kind} for kind in kinds] if free else [{}]:
            try:
                planned.append(_largest(cls, {**given, **chosen}, trust))
            except ValueError as e:
                reasons.append(e)
        if not planned:
            raise reasons[0]
        return min(planned, key=lambda p: p.report_risk)

    @classmethod
    def resolve(
        cls, parameters: Mapping[str, Any], users: Shard, domain: Keys | None
    ) -> tuple[dict[str, Any], list[str]]:
        """Complete the configuration; what else does comes later among a class's bases."""
        out, notes = super().resolve(parameters, users, domain)
        return cls.planned(out, users), notes

    @classmethod
    def planned(cls, parameters: Mapping[str, Any], users: Shard) -> dict[str, Any]:
        """Complete a configuration whose ``trust`` is a :class:`Shuffler`, at last."""
        out = dict(parameters)
        asked = out.get("trust")
        if not isinstance(asked, Shuffler):
            return out
        if not isinstance(out.get("epsilon"), int | float):
            raise ValueError(f"{cls.name} needs epsilon, a number, got {out.get('epsilon')!r}")
        trust = asked.over(out.pop("epsilon"), int(out.get("n_users", len(users))))
        del out["trust"]
        planned, name = cls.shuffled(trust, **out), cls.report_kinds[0]
        chosen = {name: getattr(planned, name)} if name else {}
        return {**out, **chosen, "epsilon": planned.epsilon, "trust": trust}


class NonInteractive(Shuffles):
    """A local protocol in which each user answers one query, at the field epsilon."""

    @property
    def max_rounds(self) -> int:
        return 1

    @property
    def guarantee(self) -> Guarantee:
        """epsilon-LDP for a user's whole record; or what a shuffler makes of it."""
        return self.promise()


def _largest(cls: type[P], given: Mapping[str, Any], trust: Shuffling) -> P:
    """Build a protocol of the largest local epsilon whose batches all hide its reports."""

    def build(epsilon: float) -> P | None:
        try:
            return cls(**{**given, "epsilon": epsilon, "trust": trust})
        except NotHidden:
            return None

    low, most = float(trust.epsilon), calibrated(trust)
    best = cls(**{**given, "epsilon": low, "trust": trust})  # alone, a user has its own guarantee
    if math.isinf(low):
        return best
    high = most
    for trial in most * (low / most) ** np.linspace(0, 1, 16, endpoint=False):
        fits = build(float(trial))  # plans change by leaps: from above, the first that fits
        if fits is not None:
            best, low = fits, float(trial)
            break
        high = float(trial)
    while high - low > 1e-5 * high:
        middle = (low + high) / 2
        fits = build(middle)
        if fits is None:
            high = middle
        else:
            best, low = fits, middle
    return best


@lru_cache(maxsize=64)
def calibrated(trust: Shuffling) -> float:
    """Return the largest local epsilon of any report, with everybody in one batch."""
    n = max(trust.n_users - trust.colluders, 1)
    return calibrate(float(trust.epsilon), trust.delta, n, lambda _: Hiding(mixes=True))
